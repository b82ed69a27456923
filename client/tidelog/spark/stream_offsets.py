"""Offsets of a stream: where a micro-batch ends, on all vchannels at one tick; and what was lost since. Pure.

Spark keeps them in the checkpoint as JSON::

    {"v": 2, "tick": 471, "channels": {"orders": {"0": 471, "1": 471}}, "created": {"orders": 12}}

Each number of a vchannel is the first tick that was not read; ``created`` has the ticks at which the channels were
made, which tell them from others of their names. Version 1 has no ``created``: there a channel counts as another one if
it was made behind what was read of it. A vchannel that is not there is read from its first message: it is new.
The offset in which nothing is there is where a query without a checkpoint begins. What it stands for is in the end of
the first batch, as ``begin``, so that no restart begins somewhere else::

    {"v": 2, "tick": 471, ..., "begin": {"tick": 0, "channels": {"orders": {"0": 0, "1": 12}}}}
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelog import ChannelDescription, VchannelDescription
from tidelog.spark.names import channel_of, parts_of

VERSION: Final = 2
_VERSIONS: Final = (1, VERSION)


class OffsetError(ValueError):
    """An offset of a checkpoint cannot be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a micro-batch ends and the next one begins.

    Attributes:
        tick: The cut: everything with a smaller tick was read, on each vchannel that is there.
        positions: First tick that was not read, by vchannel (``orders/0``). They differ from the tick where a query
            begins, and for channels that were made behind the cut: those begin with their creation.
        created: By channel, when it was made; without those of which that is not known.
        begin: Of the end of a query's first batch: where that batch begins. None for all others.
    """

    tick: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    created: Mapping[str, int] = field(default_factory=dict)
    begin: "Offset | None" = None

    @property
    def is_beginning(self) -> bool:
        """Whether this is what a query without a checkpoint has."""
        return not (self.tick or self.positions)

    @property
    def channels(self) -> set[str]:
        """Names of the channels that are there."""
        return {channel_of(vchannel) for vchannel in self.positions}

    def wanted_tick(self, vchannel: str) -> int:
        """Return the first tick that must not be lost: for a vchannel that is new, what came after the cut."""
        return self.positions.get(vchannel, self.tick)

    def is_another(self, channel: str, created_tick: int, read_to: int) -> bool:
        """Return whether a channel that was made at ``created_tick`` is not the one that was read up to ``read_to``."""
        known = self.created.get(channel)
        return created_tick > read_to > 0 if known is None else created_tick != known

    def begun_at(self, begin: "Offset") -> "Offset":
        """Return this as the end of a query's first batch, which begins at ``begin``."""
        return replace(self, begin=Offset(begin.tick, begin.positions))

    def to_json(self) -> dict[str, Any]:
        """Return what Spark keeps; equal offsets have equal text."""
        channels = _by_channel(self.positions)
        created = {channel: self.created[channel] for channel in channels if channel in self.created}
        kept = {"v": VERSION, "tick": self.tick, "channels": channels, "created": created}
        if self.begin is not None:
            kept["begin"] = {"tick": self.begin.tick, "channels": _by_channel(self.begin.positions)}
        return kept


BEGINNING: Final = Offset()


def offset_of(raw: Mapping[str, Any]) -> Offset:
    """Return the offset that ``to_json`` has made.

    Raises:
        OffsetError: It is of another version, or no offset.
    """
    if "v" not in raw:
        raise OffsetError(
            f"the checkpoint belongs to another source, because its offset is {str(raw)[:200]}: give this query a "
            "checkpointLocation of its own"
        )
    version = raw["v"]
    if version not in _VERSIONS:
        raise OffsetError(
            f"the checkpoint has offsets of version {version!r}, and this tidelog reads versions 1 to {VERSION}: use "
            "the version that wrote it, or begin with a new checkpoint"
        )
    try:
        created = {str(channel): int(tick) for channel, tick in raw.get("created", {}).items()}
        begin = raw.get("begin")
        return Offset(
            int(raw["tick"]),
            _positions_of(raw["channels"]),
            created,
            begin=None if begin is None else Offset(int(begin["tick"]), _positions_of(begin["channels"])),
        )
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise OffsetError(
            f"the checkpoint has an offset that is none of tidelog's ({error!r} in {str(raw)[:200]}): it belongs to "
            "another source, or was edited; begin with a new checkpoint"
        ) from error


def _by_channel(positions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return positions by channel and index, in the order of names and indexes."""
    channels: dict[str, dict[str, int]] = {}
    for vchannel, tick in sorted(positions.items(), key=lambda item: parts_of(item[0])):
        channel, index = parts_of(vchannel)
        channels.setdefault(channel, {})[str(index)] = tick
    return channels


def _positions_of(channels: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return what ``_by_channel`` was given."""
    return {
        f"{channel}/{int(index)}": int(tick) for channel, indexes in channels.items() for index, tick in indexes.items()
    }


def cut_at(tick: int, vchannels: Collection[str], born: Mapping[str, int]) -> Offset:
    """Return the offset at which ``vchannels`` all end at ``tick``; ``born`` has the tick at which channels were made.

    Why not the tick for those that were made behind it: there, another one of the name would be taken for the same.
    """
    created = {channel: born[channel] for channel in map(channel_of, vchannels) if channel in born}
    return Offset(tick, {name: max(tick, born.get(channel_of(name), 0)) for name in vchannels}, created)


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that a query was to read and that are gone.

    Attributes:
        name: The vchannel, or the channel.
        text: What happened, as a sentence without its end.
        wanted_tick: The first tick that was to be read.
        available_tick: The first one that is there; None if the channel is gone.
    """

    name: str
    text: str
    wanted_tick: int
    available_tick: int | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A vchannel of a batch.

    Attributes:
        vchannel: ``orders/0``.
        begin_tick: The first tick to read; 0 for all that is there.
    """

    vchannel: str
    begin_tick: int


def lanes_of(
    start: Offset, vchannels: Sequence[VchannelDescription], born: Mapping[str, int], first_tick: int
) -> tuple[list[Lane], list[Loss]]:
    """Return where each vchannel is read from after ``start``, and what of it was trimmed before it was read.

    Args:
        start: Where the batch begins.
        vchannels: Those that are read, as they are now.
        born: Tick at which each channel was made.
        first_tick: Where vchannels that are new are read from; 0 for their first message.
    """
    lanes, losses = [], []
    for each in vchannels:
        channel = channel_of(each.name)
        is_another = start.is_another(channel, born[channel], start.wanted_tick(each.name))
        begin_tick = first_tick if is_another else start.positions.get(each.name, first_tick)
        wanted = start.tick if is_another else start.wanted_tick(each.name)
        if each.trim_tick > max(wanted, first_tick) and each.last_tick >= max(wanted, first_tick):
            losses.append(_trimmed(each, max(wanted, first_tick)))
        # What was trimmed is 0 to the server, wherever it ends by now; a tick before the creation it refuses.
        lanes.append(Lane(each.name, 0 if begin_tick <= each.trim_tick else max(begin_tick, born[channel])))
    return lanes, losses


def destroyed(start: Offset, channels: Sequence[ChannelDescription], is_wanted: Mapping[str, bool]) -> list[Loss]:
    """Return the channels that ``start`` has, the query still wants and the server does not have any more.

    Args:
        start: Where the batch begins.
        channels: Those that are there and wanted.
        is_wanted: For each channel of ``start``, whether the query names it.
    """
    born = {channel.name: channel.created_tick for channel in channels}
    read_to: dict[str, int] = {}
    for vchannel, tick in start.positions.items():
        read_to[channel_of(vchannel)] = min(tick, read_to.get(channel_of(vchannel), tick))
    losses = []
    for name in sorted(read_to):
        if not is_wanted[name]:
            continue
        if name not in born:
            losses.append(Loss(name, f"the channel '{name}' was destroyed while it was read", start.tick))
        elif start.is_another(name, born[name], read_to[name]):
            text = f"the channel '{name}' was destroyed while it was read, and made again at tick {born[name]}"
            losses.append(Loss(name, text, start.tick, born[name]))
    return losses


def _trimmed(vchannel: VchannelDescription, wanted: int) -> Loss:
    text = (
        f"{vchannel.name} was trimmed: the query was to go on at tick {wanted}, the first available one is "
        f"{vchannel.trim_tick}"
    )
    return Loss(vchannel.name, text, wanted, int(vchannel.trim_tick))
