"""What a factory can be told, and the limits of streams."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Self

MIN_TICK_INTERVAL_MS: Final = 10
MAX_TICK_INTERVAL_MS: Final = 60_000
MAX_APPEND_BYTES: Final = 1 << 20
"""What one append of a pack may have; a larger pack travels as a transaction, even to one channel."""
PURSUIT_LAG_MS: Final = 10_000
"""How far behind a stream in pursuit is when it begins to merge packs."""
PURSUIT_MAX_BYTES: Final = 8 << 20
PURSUIT_MAX_SPAN_MS: Final = 60_000
# A watermark comes in time for each interval, but no server sends them more often than this.
_MIN_WATERMARK_INTERVAL_MS: Final = 10


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of the streams of a factory; the names are those of ``set_params``.

    Attributes:
        tick_interval_ms: Length of the intervals of time-tick streams, 10 to 60,000. All consumers that shall get equal
            packs need the same one.
        pursuit_mode: Whether a time-tick stream that is more than 10 s behind merges packs, up to 8 MiB or 60 s. Then
            packs are no longer equal for all consumers.
        max_message_bytes: The largest message that is sent; what the server allows is 1 MiB unless it says otherwise.
        max_pack_bytes: A pack of a time-tick stream ends early once its payloads have so many bytes. Bounds memory.
        ignore_bad_positions: Whether ``seek`` takes the present instead of a position that names no place.
    """

    tick_interval_ms: int = 200
    pursuit_mode: bool = False
    max_message_bytes: int = 1 << 20
    max_pack_bytes: int = 64 << 20
    ignore_bad_positions: bool = False

    def __post_init__(self) -> None:
        for name in ("tick_interval_ms", "max_message_bytes", "max_pack_bytes"):
            if type(getattr(self, name)) is not int:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected a whole number")
        for name in ("pursuit_mode", "ignore_bad_positions"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected True or False")
        if not MIN_TICK_INTERVAL_MS <= self.tick_interval_ms <= MAX_TICK_INTERVAL_MS:
            raise ValueError(
                f"tick_interval_ms is {self.tick_interval_ms}, expected {MIN_TICK_INTERVAL_MS} to "
                f"{MAX_TICK_INTERVAL_MS}"
            )
        if self.max_message_bytes < 1 or self.max_pack_bytes < 1:
            raise ValueError("max_message_bytes and max_pack_bytes are at least 1")

    @property
    def watermark_interval_s(self) -> float:
        """How often the watermark is asked for: half an interval, so a pack comes at most half of one late."""
        return max(_MIN_WATERMARK_INTERVAL_MS, self.tick_interval_ms // 2) / 1_000

    def with_params(self, params: Mapping[str, object]) -> Self:
        """Return these settings with some of them changed.

        Raises:
            ValueError: A name or a value is none.
        """
        known = [each.name for each in fields(self)]
        unknown = sorted(set(params) - set(known))
        if unknown:
            raise ValueError(f"there are no parameters {', '.join(unknown)}: expected some of {', '.join(known)}")
        return replace(self, **params)  # type: ignore[arg-type]  # __post_init__ looks at the values.
