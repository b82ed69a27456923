"""Pursuit mode: a time-tick stream that is far behind merges packs. Pure."""

from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

from tidelog.msgstream._settings import PURSUIT_LAG_MS, PURSUIT_MAX_BYTES, PURSUIT_MAX_SPAN_MS
from tidelog.tick import LOGICAL_BITS


class Mergeable(Protocol):
    """A complete pack whose messages are not decoded yet."""

    @property
    def first_tick(self) -> int:
        """Tick of the first message; the lower bound of ticks without one."""
        ...

    @property
    def end_tick(self) -> int:
        """Upper bound of the ticks, inclusive."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the payloads."""
        ...

    @property
    def ends_early(self) -> bool:
        """True if it ends with a DropCollection."""
        ...

    def merged(self, following: Self) -> Self:
        """Return this pack and the one that follows it as one."""
        ...


PackT = TypeVar("PackT", bound=Mergeable)


class Pursuit(Generic[PackT]):
    """Merges packs, up to 8 MiB or 60 s each, while they are more than 10 s behind."""

    def __init__(self, *, is_on: bool = True) -> None:
        """``is_on`` is False to merge no packs."""
        self._is_on = is_on
        self._collected: PackT | None = None

    def next_pack(self, source: Callable[[], PackT | None], now_ms: int) -> PackT | None:
        """Return the next pack of ``source``, merged if it is far behind; None until one is complete and due."""
        while (pack := source()) is not None:
            if (merged := self.feed(pack, now_ms) if self._is_on else pack) is not None:
                return merged
        return None

    def feed(self, pack: PackT, now_ms: int) -> PackT | None:
        """Add the next pack; return the merged one once it is due."""
        merged = self._collected = pack if self._collected is None else self._collected.merged(pack)
        is_behind = now_ms - (pack.end_tick >> LOGICAL_BITS) > PURSUIT_LAG_MS
        span_ms = (merged.end_tick >> LOGICAL_BITS) - (merged.first_tick >> LOGICAL_BITS)
        is_full = merged.size_bytes >= PURSUIT_MAX_BYTES or span_ms >= PURSUIT_MAX_SPAN_MS
        if is_behind and not is_full and not pack.ends_early:
            return None
        self._collected = None
        return merged
