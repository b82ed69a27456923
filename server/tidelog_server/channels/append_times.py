"""Bounds of the times at which messages were appended whose ticks lie ahead of the wall clock. Pure (D-167).

Ticks never go back: after a clock that ran ahead is corrected, they continue from where they were, so the tick of a
message does not tell its age until the clock has caught up.
"""

from typing import Final, NamedTuple

from tidelog_server.core.ticks import Tick, compose, physical_ms

# Beyond this number samples are dropped that are closer to the next one than a share of their age.
_MAX_SAMPLES: Final = 512
_AGE_SHARE: Final = 32


class _Sample(NamedTuple):
    """At ``wall_ms`` the greatest allocated tick was ``tick``: messages up to it were appended before."""

    wall_ms: int
    tick: int


class AppendTimes:
    """Samples of the oracle. Written on the event loop; read on any thread."""

    def __init__(self) -> None:
        # Both values grow. Replaced, never mutated.
        self._samples: tuple[_Sample, ...] = ()

    def note(self, wall_ms: int, last_tick: int) -> None:
        """Note that ``last_tick`` is the greatest tick allocated until now."""
        # After the clock was set back, samples of its future count from now on.
        samples = [_Sample(min(wall_ms, sample.wall_ms), sample.tick) for sample in self._samples]
        if physical_ms(Tick(last_tick)) > wall_ms and self.newest_tick < last_tick:
            samples.append(_Sample(wall_ms, last_tick))
        if len(samples) > _MAX_SAMPLES:
            samples = _thinned(samples, wall_ms)
        self._samples = tuple(samples)

    @property
    def newest_tick(self) -> int:
        """The tick of the newest sample; 0 without samples."""
        return self._samples[-1].tick if self._samples else 0

    def expired_tick(self, before_ms: int) -> Tick:
        """Return a tick below which all messages were appended before ``before_ms``."""
        sampled = max((sample.tick + 1 for sample in self._samples if sample.wall_ms <= before_ms), default=0)
        return Tick(max(sampled, compose(max(0, before_ms))))

    def appended_ms(self, tick: int, wall_ms: int) -> int:
        """Return a time, at most ``wall_ms``, until which the message with ``tick`` was appended."""
        sampled = min((sample.wall_ms for sample in self._samples if tick <= sample.tick), default=wall_ms)
        return min(physical_ms(Tick(tick)), sampled, wall_ms)


def _thinned(samples: list[_Sample], wall_ms: int) -> list[_Sample]:
    kept = [samples[-1]]
    for sample in reversed(samples):
        if _AGE_SHARE * (kept[-1].wall_ms - sample.wall_ms) >= wall_ms - sample.wall_ms > 0:
            kept.append(sample)
    return kept[_MAX_SAMPLES - 1 :: -1]
