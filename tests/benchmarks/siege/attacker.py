"""The hostile process of ``benchmarks security``: starts and stops one attack, controlled by standard input.

The line ``attack`` starts it; the answer ``{"is_under_way": true}`` follows when the attack has its full strength. The
line ``rest`` stops it; the answer has the attack's counters and the share of a core that it used at full strength.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.attacks import ATTACKS
from benchmarks.attacks.attack import Assault, Attack, Order
from benchmarks.siege.burner import NICENESS
from tidelog_cli import event_loop


async def obey(attack: Attack, order: Order) -> None:
    """Attack and rest as commanded until the end of standard input."""
    counts: Counter[str] = Counter()
    while await _line() == "attack":
        start = _Start()
        running = asyncio.ensure_future(attack.run(Assault(order, counts, start.tell)))
        resting = asyncio.ensure_future(_line())
        await asyncio.wait((running, resting), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            # Raises if the attack failed, which is a defect of the benchmark; an attack may end by itself.
            running.result()
            start.tell()
        await resting
        answer = {"counts": counts, "cpu_share": start.cpu_share()}
        running.cancel()
        await asyncio.wait((running,))
        print(json.dumps(answer), flush=True)


class _Start:
    """Reports once to the benchmark that an attack is under way, and measures the CPU time since then.

    The process measures itself: from outside, CPU time counts in units of 10 ms, more than a slow attack uses.
    """

    def __init__(self) -> None:
        self._begin: tuple[float, float] | None = None

    def tell(self) -> None:
        """Print the report at the first call."""
        if self._begin is None:
            self._begin = (time.monotonic(), time.process_time())
            print(json.dumps({"is_under_way": True}), flush=True)

    def cpu_share(self) -> float:
        """Return the CPU seconds per second since the report; 0 before it."""
        if self._begin is None:
            return 0.0
        begin_s, begin_cpu_s = self._begin
        return (time.process_time() - begin_cpu_s) / (time.monotonic() - begin_s)


async def _line() -> str:
    line: str = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return line.strip()


def main(order: dict[str, Any]) -> None:
    """Run the attack that ``order`` names."""
    os.nice(NICENESS)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    attacks = {attack.name: attack for attack in ATTACKS}
    event_loop.run(obey(attacks[order.pop("attack")], Order(**order)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
