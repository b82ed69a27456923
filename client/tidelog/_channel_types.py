"""Channels as calls describe them, and what they may forget."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypedDict

from tidelog._tick import Tick

_MILLISECOND: Final = timedelta(milliseconds=1)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_DURATION_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZE: Final = re.compile(r"(\d{1,20}(?:\.\d{1,20}(?=\s*[kmgt]))?)\s*([kmgt]i?b?|b?)", re.ASCII | re.IGNORECASE)
_SIZE_PREFIXES: Final = "bkmgt"
_MAX_AGE_MS: Final = 1 << 43
_MAX_BYTES: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class OwnerDescription:
    """Who created a channel, for people who find it later; each text at most 256 bytes."""

    role: str = ""
    address: str = ""
    description_text: str = ""


@dataclass(frozen=True, slots=True)
class Retention:
    """What a channel may forget by itself, oldest messages first; None keeps without bound.

    The server removes whole chunks, of about 4 MiB or 1,024 batches of a vchannel, a little later than it might. What a
    consumer group has not committed stays, unless ``hard_bytes`` is exceeded. ``Retention.of`` takes texts as well.

    Attributes:
        age: Messages that are older may go; whole milliseconds, at least one.
        bytes: The newest so many bytes stay, over all vchannels of the channel; what is older may go.
        hard_bytes: More than so many bytes never stay, whoever has not read them; not below ``bytes``. What was cut
            past a group is told in ``VchannelDescription.cut``.
    """

    age: timedelta | None = None
    bytes: int | None = None
    hard_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.age is not None and not 1 <= self.age // _MILLISECOND <= _MAX_AGE_MS:
            raise ValueError(f"retention.age is {self.age}, expected 1 ms to 2^43 ms, or None to keep for ever")
        for name, size_bytes in (("bytes", self.bytes), ("hard_bytes", self.hard_bytes)):
            if size_bytes is not None and not 1 <= size_bytes <= _MAX_BYTES:
                raise ValueError(f"retention.{name} is {size_bytes}, expected 1 to 2^60, or None for no bound")
        if self.bytes is not None and self.hard_bytes is not None and self.hard_bytes < self.bytes:
            raise ValueError(f"retention.hard_bytes is {self.hard_bytes}, below retention.bytes, which is {self.bytes}")

    @classmethod
    def of(
        cls,
        age: timedelta | str | None = None,
        bytes: int | str | None = None,
        hard_bytes: int | str | None = None,
    ) -> "Retention":
        """Return the retention of texts: ages such as ``3d`` or ``1h30m``, sizes such as ``1GiB`` or ``500MB``.

        Raises:
            ValueError: A text is no age or size, or a number is out of range.
        """
        return cls(
            parse_age(age) if isinstance(age, str) else age,
            parse_size(bytes) if isinstance(bytes, str) else bytes,
            parse_size(hard_bytes) if isinstance(hard_bytes, str) else hard_bytes,
        )


class RetentionChange(TypedDict, total=False):
    """Settings to change, see Retention: those that are not there stay as they are, None takes a bound away."""

    age: timedelta | None
    bytes: int | None
    hard_bytes: int | None


def parse_age(text: str) -> timedelta:
    """Return the length of ``90s``, ``1h30m``, ``250ms`` or ``2d``. Raises ValueError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"'{text}' is no age: write 90s, 1h30m, 250ms or 3d")
    try:
        return timedelta(seconds=sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts))
    except OverflowError:
        raise ValueError(f"'{text[:40]}' is no age: it is longer than {timedelta.max.days} days") from None


def parse_size(text: str) -> int:
    """Return the bytes of ``4096``, ``1GiB`` (2^30), ``1GB`` (10^9) or ``1.5G`` (as GiB). Raises ValueError."""
    found = _SIZE.fullmatch(text.strip(" \t"))
    if found is None:
        raise ValueError(f"'{text}' is no size: write 4096, 500MB, 1GiB or 1.5GiB")
    number, unit = found[1], found[2].lower()
    exponent = _SIZE_PREFIXES.index(unit[:1] or "b")
    base = 1_000 if len(unit) == 2 and unit.endswith("b") else 1_024
    return int(float(number) * base**exponent) if "." in number else int(number) * base**exponent


@dataclass(frozen=True, slots=True)
class RetentionCut:
    """What ``Retention.hard_bytes`` has removed from a vchannel before consumer groups had committed it.

    Attributes:
        messages: How many since the channel was created, counted by whole chunks.
        bytes: Of their columns.
        until_tick: Every one of them has a smaller tick.
        groups: Those that were behind most at each cut, without repetition; the last 16.
    """

    messages: int
    bytes: int
    until_tick: Tick
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VchannelDescription:
    """One vchannel as it stood when it was described.

    Attributes:
        name: ``<channel>/<index>``.
        trim_tick: Every message below was trimmed; 0 when nothing was.
        last_tick: Tick of the last message ever appended; 0 when there was none.
        messages: How many are still there.
        bytes: Size of the columns that are still there.
        fencing_token: The token that was set last; 0 when none was.
        cut: What retention has cut past consumer groups; None while it never did.
    """

    name: str
    trim_tick: Tick
    last_tick: Tick
    messages: int
    bytes: int
    fencing_token: int = 0
    cut: RetentionCut | None = None


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """One channel as it stood when it was described.

    Attributes:
        name: Its name.
        owner: Who created it.
        created_tick: When it was created.
        watermark: Everything at or below is durable and readable, and nothing will be added there.
        stopped_by: Why the channel stopped taking appends; empty while it takes them.
        vchannels: Its vchannels, in order of index.
        retention: What it may forget by itself.
    """

    name: str
    owner: OwnerDescription
    created_tick: Tick
    watermark: Tick
    stopped_by: str
    vchannels: tuple[VchannelDescription, ...]
    retention: Retention = Retention()
