"""Pursuit mode: a time-tick stream that is far behind merges packs. Pure."""

from collections.abc import Mapping

from tidelog.msgstream._log.assembler import RawPack
from tidelog.msgstream._settings import PURSUIT_LAG_MS, PURSUIT_MAX_BYTES, PURSUIT_MAX_SPAN_MS
from tidelog.tick import LOGICAL_BITS


class Pursuit:
    """Merges packs, up to 8 MiB or 60 s each, while they are more than 10 s behind."""

    def __init__(self) -> None:
        self._collected: RawPack | None = None

    def feed(self, pack: RawPack, now_ms: int) -> RawPack | None:
        """Add the next pack; return the merged one once it is due."""
        merged = self._collected = pack if self._collected is None else _merged(self._collected, pack)
        is_behind = now_ms - (pack.end_tick >> LOGICAL_BITS) > PURSUIT_LAG_MS
        is_full = merged.size_bytes >= PURSUIT_MAX_BYTES or _span_ms(merged) >= PURSUIT_MAX_SPAN_MS
        if is_behind and not is_full and not pack.ends_early:
            return None
        self._collected = None
        return merged


def _span_ms(pack: RawPack) -> int:
    """Return the time that the pack covers, without the time before the first message."""
    begin = pack.pieces[0].first_tick if pack.pieces else pack.begin_tick
    return (pack.end_tick >> LOGICAL_BITS) - (begin >> LOGICAL_BITS)


def _merged(first: RawPack, second: RawPack) -> RawPack:
    next_ticks: Mapping[str, int] = second.next_ticks
    return RawPack(
        first.begin_tick, second.end_tick, first.pieces + second.pieces, next_ticks,
        first.size_bytes + second.size_bytes, second.ends_early,
    )  # fmt: skip
