"""Settings of a factory, and the limits of streams."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Self

MIN_TICK_INTERVAL_MS: Final = 10
MAX_TICK_INTERVAL_MS: Final = 60_000
DEFAULT_BUFFER_SIZE: Final = 1_000
DEFAULT_PULSAR_PACK_BYTES: Final = 16 << 10
MAX_PULSAR_PACK_BYTES: Final = 1 << 20
MAX_APPEND_BYTES: Final = 1 << 20
"""Maximum size of one append, in bytes; a larger pack is sent as a transaction, even to one channel."""
PURSUIT_LAG_MS: Final = 10_000
"""Delay, in milliseconds, from which a stream in pursuit mode merges packs."""
PURSUIT_MAX_BYTES: Final = 8 << 20
PURSUIT_MAX_SPAN_MS: Final = 60_000
# Each interval gets a watermark in time, but a server sends them no more often than this.
_MIN_WATERMARK_INTERVAL_MS: Final = 10


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of the streams of a factory; the names are those of ``set_params``.

    Attributes:
        tick_interval_ms: Length of a time-tick stream's intervals in milliseconds, 10 to 60,000. Consumers get equal
            packs only if they use the same length.
        pursuit_mode: Merge the packs of a time-tick stream that is more than 10 s behind, up to 8 MiB or 60 s each.
            Packs then differ between consumers.
        max_message_bytes: Maximum size of a sent message; the server's limit is 1 MiB unless configured.
        max_pack_bytes: Payload bytes at which a pack of a time-tick stream ends early. Bounds memory.
        ignore_bad_positions: Let ``seek`` use the present instead of an unusable position.
        buffer_size: Messages of a topic that Pulsar's library may receive before they are consumed, at least 1; a pack
            counts as one. Other brokers send only what is read, one delivery at a time.
        pulsar_pack_bytes: Bytes up to which messages of one ``produce`` are sent as one message of Pulsar, 0 to 1 MiB.
            0: each is a message of Pulsar, which programs without this package can read.
    """

    tick_interval_ms: int = 200
    pursuit_mode: bool = False
    max_message_bytes: int = 1 << 20
    max_pack_bytes: int = 64 << 20
    ignore_bad_positions: bool = False
    buffer_size: int = DEFAULT_BUFFER_SIZE
    pulsar_pack_bytes: int = DEFAULT_PULSAR_PACK_BYTES

    def __post_init__(self) -> None:
        for name in ("tick_interval_ms", "max_message_bytes", "max_pack_bytes", "buffer_size", "pulsar_pack_bytes"):
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
        if min(self.max_message_bytes, self.max_pack_bytes, self.buffer_size) < 1:
            raise ValueError("max_message_bytes, max_pack_bytes and buffer_size must be at least 1")
        if not 0 <= self.pulsar_pack_bytes <= MAX_PULSAR_PACK_BYTES:
            raise ValueError(f"pulsar_pack_bytes is {self.pulsar_pack_bytes}, expected 0 to {MAX_PULSAR_PACK_BYTES}")

    @property
    def watermark_interval_s(self) -> float:
        """Requested watermark interval: half an interval, so a pack is delayed by half an interval at most."""
        return max(_MIN_WATERMARK_INTERVAL_MS, self.tick_interval_ms // 2) / 1_000

    def with_params(self, params: Mapping[str, object]) -> Self:
        """Return a copy of these settings with changes.

        Raises:
            ValueError: A name is unknown or a value is invalid.
        """
        known = [each.name for each in fields(self)]
        unknown = sorted(set(params) - set(known))
        if unknown:
            raise ValueError(f"unknown parameters: {', '.join(unknown)}; expected some of {', '.join(known)}")
        return replace(self, **params)  # type: ignore[arg-type]  # __post_init__ checks the values.
