"""A process of ``bench security`` that burns CPU as an attack does, and has no connection to the server.

Each line on standard input is the share of one core that it is to take from now on; each is answered with the CPU
seconds that it has taken so far.
"""

import os
import select
import sys
import time
from typing import Final

NICENESS: Final = 5
"""Of an attack and of what burns the same: it stands for another machine, so it yields to the client measured."""

_TURN_S: Final = 0.002


def main() -> None:
    """Burn until standard input ends."""
    os.nice(NICENESS)
    share, since_s, burnt_s = 0.0, time.monotonic(), time.process_time()
    while True:
        # What was owed and not got, because others had the core, is made up for: an attack would do the same.
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
