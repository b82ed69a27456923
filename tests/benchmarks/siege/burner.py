"""A process of ``benchmarks security`` that uses CPU time like an attack, without a connection to the server.

Each line on standard input is the share of one core to use from then on; each is answered with the CPU seconds used so
far.
"""

import os
import select
import sys
import time
from typing import Final

NICENESS: Final = 5
"""Niceness of attackers and burners: they represent another machine, so they yield to the measured client."""

_TURN_S: Final = 0.002


def main() -> None:
    """Use CPU time until the end of standard input."""
    os.nice(NICENESS)
    share, since_s, burnt_s = 0.0, time.monotonic(), time.process_time()
    while True:
        # CPU time that other processes took is made up for later, as an attack would.
        owed_s = share * (time.monotonic() - since_s) - (time.process_time() - burnt_s)
        wait_s = max(0.0, -owed_s) if share else None
        if owed_s > 0:
            end_s = time.process_time() + min(owed_s, _TURN_S)
            while time.process_time() < end_s:
                pass
        if select.select([sys.stdin], [], [], 0 if owed_s > 0 else wait_s)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            share, since_s, burnt_s = float(line), time.monotonic(), time.process_time()
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    main()
