"""Offsets of a stream: the end of a micro-batch, at one tick for all vchannels; and losses since then. Pure.

Spark stores them in the checkpoint as JSON::

    {"v": 2, "tick": 471, "channels": {"orders": {"0": 471, "1": 471}}, "created": {"orders": 12}}

The number of a vchannel is the first tick that was not read. ``created`` has the creation ticks of the channels, which
distinguish them from re-created ones. Version 1 has no ``created``: there a channel counts as re-created if it was
created after its position. A vchannel that is missing is new, and read from its first message. The empty offset is the
start of a query without a checkpoint. The end of the first batch stores the actual start as ``begin``, so that a
restart cannot start elsewhere::

    {"v": 2, "tick": 471, ..., "begin": {"tick": 0, "channels": {"orders": {"0": 0, "1": 12}}}}
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelog import ChannelDescription, VchannelDescription
from tidelog.spark.errors import OffsetError
from tidelog.spark.names import channel_of, parts_of

VERSION: Final = 2
_VERSIONS: Final = (1, VERSION)


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a micro-batch and the start of the next one.

    Attributes:
        tick: The cut: everything with a smaller tick was read, on each vchannel in ``positions``.
        positions: First tick that was not read, by vchannel (``orders/0``). It differs from ``tick`` at the start of a
            query, and for channels created after the cut, which start at their creation.
        created: Creation tick by channel; a channel is missing if it is unknown.
        begin: Start of the batch, in the end of a query's first batch; else None.
    """

    tick: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    created: Mapping[str, int] = field(default_factory=dict)
    begin: "Offset | None" = None

    @property
    def is_beginning(self) -> bool:
        """True for the start of a query without a checkpoint."""
        return not (self.tick or self.positions)

    @property
    def channels(self) -> set[str]:
        """Names of the channels in ``positions``."""
        return {channel_of(vchannel) for vchannel in self.positions}

    def wanted_tick(self, vchannel: str) -> int:
        """Return the first tick that must not be lost; for a new vchannel, the cut."""
        return self.positions.get(vchannel, self.tick)

    def is_another(self, channel: str, created_tick: int, read_to: int) -> bool:
        """Return whether the channel created at ``created_tick`` is not the one read up to ``read_to``."""
        known = self.created.get(channel)
        return created_tick > read_to > 0 if known is None else created_tick != known

    def begun_at(self, begin: "Offset") -> "Offset":
        """Return this offset as the end of a query's first batch, which starts at ``begin``."""
        return replace(self, begin=Offset(begin.tick, begin.positions))

    def to_json(self) -> dict[str, Any]:
        """Return the value that Spark stores; equal offsets have equal JSON texts."""
        channels = _by_channel(self.positions)
        created = {channel: self.created[channel] for channel in channels if channel in self.created}
        kept = {"v": VERSION, "tick": self.tick, "channels": channels, "created": created}
        if self.begin is not None:
            kept["begin"] = {"tick": self.begin.tick, "channels": _by_channel(self.begin.positions)}
        return kept


BEGINNING: Final = Offset()


def offset_of(raw: Mapping[str, Any]) -> Offset:
    """Return the offset of a result of ``to_json``.

    Raises:
        OffsetError: It has an unsupported version, or is not an offset of this source.
    """
    if "v" not in raw:
        raise OffsetError(
            f"the checkpoint belongs to another source, because its offset is {str(raw)[:200]}: set another "
            "checkpointLocation for this query"
        )
    version = raw["v"]
    if version not in _VERSIONS:
        raise OffsetError(
            f"the checkpoint has offsets of version {version!r}, expected 1 to {VERSION}: use the version of tidelog "
            "that wrote it, or start with a new checkpoint"
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
            f"the checkpoint has an invalid offset ({error!r} in {str(raw)[:200]}): it belongs to another source, or "
            "was edited; start with a new checkpoint"
        ) from error


def _by_channel(positions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return positions by channel and index, sorted by name and index."""
    channels: dict[str, dict[str, int]] = {}
    for vchannel, tick in sorted(positions.items(), key=lambda item: parts_of(item[0])):
        channel, index = parts_of(vchannel)
        channels.setdefault(channel, {})[str(index)] = tick
    return channels


def _positions_of(channels: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Invert ``_by_channel``."""
    return {
        f"{channel}/{int(index)}": int(tick) for channel, indexes in channels.items() for index, tick in indexes.items()
    }


def cut_at(tick: int, vchannels: Collection[str], born: Mapping[str, int]) -> Offset:
    """Return the offset at which all ``vchannels`` end at ``tick``; ``born`` has the creation ticks of channels.

    A channel created after ``tick`` ends at its creation; at ``tick``, a re-created channel would look the same.
    """
    created = {channel: born[channel] for channel in map(channel_of, vchannels) if channel in born}
    return Offset(tick, {name: max(tick, born.get(channel_of(name), 0)) for name in vchannels}, created)


def begin_at(begins: Mapping[str, int], born: Mapping[str, int]) -> Offset:
    """Return the offset at which vchannels begin, each at its own tick or at the creation of its channel."""
    return later(cut_at(min(begins.values(), default=0), begins, born), begins)


def later(offset: Offset, begins: Mapping[str, int]) -> Offset:
    """Return ``offset`` without a position before that in ``begins``, which a query may set in the future."""
    return replace(offset, positions={name: max(tick, begins[name]) for name, tick in offset.positions.items()})


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that were lost before the query read them.

    Attributes:
        name: The vchannel, or the channel.
        text: The event, as a sentence without a full stop.
        wanted_tick: First tick that the query has not read.
        available_tick: First available tick; None if the channel does not exist.
    """

    name: str
    text: str
    wanted_tick: int
    available_tick: int | None = None


def starts_of(
    start: Offset, vchannels: Sequence[VchannelDescription], born: Mapping[str, int], first_tick: int
) -> tuple[dict[str, int], list[Loss]]:
    """Return the first tick to read by vchannel, 0 for its first message, and the losses by trims before it was read.

    Args:
        start: Start of the batch.
        vchannels: Current descriptions of the vchannels to read.
        born: Creation tick of each channel.
        first_tick: Start of new vchannels; 0 for their first message.
    """
    starts: dict[str, int] = {}
    losses = []
    for each in vchannels:
        channel = channel_of(each.name)
        is_another = start.is_another(channel, born[channel], start.wanted_tick(each.name))
        begin_tick = first_tick if is_another else start.positions.get(each.name, first_tick)
        wanted = start.tick if is_another else start.wanted_tick(each.name)
        if each.trim_tick > max(wanted, first_tick) and each.last_tick >= max(wanted, first_tick):
            losses.append(_trimmed(each, max(wanted, first_tick)))
        # 0 starts behind the trim, even if that moves. The server refuses a tick before the channel's creation.
        starts[each.name] = 0 if begin_tick <= each.trim_tick else max(begin_tick, born[channel])
    return starts, losses


def destroyed(start: Offset, channels: Sequence[ChannelDescription], is_wanted: Mapping[str, bool]) -> list[Loss]:
    """Return the channels of ``start`` that the query still names, but that were destroyed or re-created.

    Args:
        start: Start of the batch.
        channels: Existing channels of the query.
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
            text = f"the channel '{name}' was destroyed while it was read, and re-created at tick {born[name]}"
            losses.append(Loss(name, text, start.tick, born[name]))
    return losses


def _trimmed(vchannel: VchannelDescription, wanted: int) -> Loss:
    text = (
        f"{vchannel.name} was trimmed: the query should continue at tick {wanted}, but the first available tick is "
        f"{vchannel.trim_tick}"
    )
    return Loss(vchannel.name, text, wanted, int(vchannel.trim_tick))
