"""Our way and its floor by turns, with wall-clock time and CPU time: the latter hardly depends on other load."""

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Run = Callable[[], "Took"]
"""Does the work once."""


class Took(NamedTuple):
    """What a run took.

    Attributes:
        seconds: Wall-clock seconds.
        cpu_s: CPU seconds, user and system, of all threads.
    """

    seconds: float
    cpu_s: float


class Turns(NamedTuple):
    """Runs of our way and of its floor.

    Attributes:
        ours: Runs of our way, in order.
        floors: The run of the floor next to each.
    """

    ours: Sequence[Took]
    floors: Sequence[Took]

    def speed(self) -> float:
        """Return the median of the floor's seconds over ours: greater is better."""
        return statistics.median(self._ratios())

    def slowness(self) -> float:
        """Return the median of our seconds over those of the floor: smaller is better."""
        return statistics.median(1 / ratio for ratio in self._ratios())

    def details(self) -> dict[str, float]:
        """Return the range of ``speed``, medians, and the median ratio of CPU seconds, ours over the floor's."""
        ratios = self._ratios()
        pairs = zip(self.ours, self.floors, strict=True)
        return {
            "speed_min": min(ratios),
            "speed_max": max(ratios),
            "seconds": statistics.median(each.seconds for each in self.ours),
            "floor_seconds": statistics.median(each.seconds for each in self.floors),
            "cpu_s": statistics.median(each.cpu_s for each in self.ours),
            "floor_cpu_s": statistics.median(each.cpu_s for each in self.floors),
            "cpu_ratio": statistics.median(our.cpu_s / floor.cpu_s for our, floor in pairs),
        }

    def _ratios(self) -> list[float]:
        return [floor.seconds / our.seconds for our, floor in zip(self.ours, self.floors, strict=True)]


def by_turns(rounds: int, ours: Run, floor: Run) -> Turns:
    """Run both ``rounds`` times, in alternating order: a machine that becomes slower slows both."""
    found: dict[Run, list[Took]] = {ours: [], floor: []}
    for number in range(rounds):
        for run in (ours, floor)[:: 1 if number % 2 else -1]:
            found[run].append(run())
    return Turns(found[ours], found[floor])


def timed(work: Callable[[], object]) -> Took:
    """Do work in this process, with all threads that it starts; return what it took."""
    begin_s, begin_cpu_s = time.perf_counter(), _own_cpu_s()
    work()
    return Took(time.perf_counter() - begin_s, _own_cpu_s() - begin_cpu_s)


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
