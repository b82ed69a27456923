"""Planning of a read: takes the cut, and divides the range before it. Runs once per query, on the driver."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tidelog import (
    ChannelDescription,
    Client,
    Plan,
    PositionBeyondEndError,
    PositionTrimmedError,
    Split,
    Tick,
    VchannelDescription,
)
from tidelog.spark.errors import OptionError
from tidelog.spark.names import channel_of, parts_of
from tidelog.spark.offset_options import check_vchannels
from tidelog.spark.options import ReadOptions
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.read.partition import ReadPartition
from tidelog.spark.read.pushdown import Pushdown

_log = logging.getLogger("tidelog.spark")
_Answer = TypeVar("_Answer")
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})

MAX_VCHANNELS: Final = 1_024
"""The server's maximum number of vchannels per plan, and so per consistent cut."""


class GrownError(Exception):
    """A channel has got vchannels since it was described: what was planned may lack messages before the cut."""


def planned(
    client: Client,
    vchannels: Iterable[VchannelDescription],
    sizes: Mapping[str, int],
    created: Mapping[str, int] = _NOTHING,
    **range_and_hints: Any,
) -> Plan:
    """Return ``client.plan_scan(vchannels, …)``.

    ``sizes`` has the known number of vchannels of each channel to read as a whole, ``created`` the creation ticks of
    all channels; if it is empty, the channels may be others.

    Raises:
        GrownError: A channel has more. See ``until_known``.
    """
    names = [each.name for each in vchannels]
    read = set(map(channel_of, names))
    whole = {channel: number for channel, number in sizes.items() if channel in read}
    ticks = {name: created[channel_of(name)] for name in names} if created else None
    plan = client.plan_scan(names, created_ticks=ticks, whole_channels=whole, **range_and_hints)
    if plan.grown:
        raise GrownError
    return plan


def sizes_of(options: ReadOptions, channels: Iterable[ChannelDescription]) -> Mapping[str, int]:
    """Return the number of vchannels of each channel, or nothing if the options name the vchannels."""
    return {} if options.vchannels else {channel.name: len(channel.vchannels) for channel in channels}


def until_known(look: Callable[[], _Answer]) -> _Answer:
    """Return the result of ``look``, which describes channels and plans; again while they get vchannels in between."""
    while True:
        with suppress(GrownError):
            return look()


def plan(options: ReadOptions, pushdown: Pushdown) -> list[ReadPartition]:
    """Return the partitions of a read. Together they have exactly the rows of the cut that pass the filters, each once.

    Raises:
        OptionError: A vchannel does not exist, or there are too many.
        TidelogError: The server cannot be reached, a channel does not exist, or the start was trimmed.
    """
    wanted = wanted_types(options, pushdown)
    if pushdown.is_empty or wanted == frozenset():
        return []
    types = tuple(sorted(wanted or ()))
    return patiently(options.connection, lambda: _partitions(options, pushdown, types))


def _partitions(options: ReadOptions, pushdown: Pushdown, types: tuple[int, ...]) -> list[ReadPartition]:
    with Owners(options.connection) as owners, naming_the_cut(options):
        try:
            splits = until_known(lambda: _plan(owners, options, pushdown))
        except PositionTrimmedError:
            if options.begin_is_tick and options.fail_on_data_loss:
                raise
            # Trimmed between description and plan; the second attempt sees the trim.
            splits = until_known(lambda: _plan(owners, options, pushdown))
        return [partition_of(split, types, options, owners) for split in splits]


def wanted_types(options: ReadOptions, pushdown: Pushdown) -> frozenset[int] | None:
    """Return the message types to read; None for all."""
    return pushdown.types if options.types is None else options.types & (pushdown.types or options.types)


def _plan(owners: Owners, options: ReadOptions, pushdown: Pushdown) -> Sequence[Split]:
    described, channels = describe(owners, options)
    vchannels = [each for each in described if pushdown.passes(*parts_of(each.name))]
    if not vchannels:
        return []
    check_vchannels("startingOffsets", options.begin_ticks, (each.name for each in described), options)
    check_vchannels("endingOffsets", options.end_ticks, (each.name for each in described), options)
    begins = {each.name: max(options.begin_of(each.name), pushdown.begin_tick) for each in vchannels}
    created = created_ticks(channels)
    firsts = {each.name: max(int(each.trim_tick), created[channel_of(each.name)]) for each in vchannels}
    # Ticks 0 and 1 mean the beginning, as in the server: no message has them.
    cut_off = {
        each.name: each
        for each in vchannels
        if 1 < begins[each.name] < firsts[each.name] or 0 < begins[each.name] < each.trim_tick
    }
    if options.begin_is_tick:
        wanted = [each for name, each in cut_off.items() if options.begin_of(name)]
        lost = [each for each in wanted if begins[each.name] < each.trim_tick or options.pattern is None]
        _report_loss(lost, firsts, begins, options)
    _check_created_before_cut(vchannels, created, options)
    ends = {each.name: options.end_of(each.name) for each in vchannels}
    starts = {name: 0 if name in cut_off else begin_tick for name, begin_tick in begins.items()}
    splits = _Planner(owners, options, created, sizes_of(options, channels)).splits(
        vchannels, starts, max(ends.values())
    )
    # Why not as the ends of plans: a plan leaves out a transaction that spans its end. A filter, or the end of one
    # vchannel, cuts it.
    cuts = {name: min(end_tick, pushdown.end_tick) for name, end_tick in ends.items()}
    return [
        replace(split, end_tick=Tick(min(split.end_tick, cuts[split.vchannel])))
        for split in splits
        if split.begin_tick < cuts[split.vchannel]
    ]


@dataclass(frozen=True, slots=True)
class _Planner:
    owners: Owners
    options: ReadOptions
    created: Mapping[str, int]
    sizes: Mapping[str, int]

    def splits(
        self, vchannels: Sequence[VchannelDescription], starts: Mapping[str, int], end_tick: int
    ) -> Sequence[Split]:
        """Return the splits of the durable part from the start of each vchannel to ``end_tick``.

        The first call to a node takes a cut over all its vchannels. It is the only call unless the range ends before
        the cut, vchannels start at different ticks, or another node's cut is later.

        The common cut is the latest one. Every message acknowledged before, on any node, lies before that node's cut,
        and so before the common one. Ticks come from one oracle, and a node whose watermark has passed the cut adds
        nothing before it.
        """
        nodes = list(self.owners.by_node(vchannels))
        total = sum(each.bytes for each in vchannels)
        by_name = {each.name: each for each in vchannels}
        first = min(starts.values())
        is_common = first == max(starts.values())
        # A start that was not checked, because others begin earlier, may be refused.
        asked, given = first if is_common else 0, self.options.end_tick if self.options.is_cut else 0
        plans = [self._ask(client, part, asked, given, self._min_splits(part, total)) for client, part in nodes]
        end_tick = min(end_tick, max(plan.end_tick for plan in plans))
        splits: list[Split] = []
        for (client, part), plan in zip(nodes, plans, strict=True):
            if is_common and first < end_tick == plan.end_tick:
                splits += plan.splits
                continue
            for begin, names in by_begin({each.name: starts[each.name] for each in part}, end_tick).items():
                some = [by_name[name] for name in names]
                splits += self._ask(client, some, begin, end_tick, self._min_splits(some, total)).splits
        return splits

    def _min_splits(self, vchannels: Sequence[VchannelDescription], total_bytes: int) -> int:
        """Return the share of vchannels in the minimum number of partitions, in proportion to their bytes."""
        wanted = self.options.min_partitions
        return -(-wanted * sum(each.bytes for each in vchannels) // total_bytes) if total_bytes else wanted

    def _ask(
        self, client: Client, vchannels: Sequence[VchannelDescription], begin_tick: int, end_tick: int, min_splits: int
    ) -> Plan:
        return planned(
            client, vchannels, self.sizes, self.created, begin_tick=begin_tick, end_tick=end_tick,
            min_splits=min_splits, max_messages_per_split=self.options.max_messages_per_partition,
            max_bytes_per_split=self.options.max_bytes_per_partition,
        )  # fmt: skip


def created_ticks(channels: Iterable[ChannelDescription]) -> Mapping[str, int]:
    """Return the creation tick of each channel by name, which distinguishes it from re-created ones."""
    return {channel.name: int(channel.created_tick) for channel in channels}


def describe(owners: Owners, options: ReadOptions) -> tuple[list[VchannelDescription], list[ChannelDescription]]:
    """Return the current descriptions of the vchannels that the options name, in that order, and of their channels."""
    channels = channels_of(owners, options)
    return selected(options, channels), channels


def channels_of(owners: Owners, options: ReadOptions) -> list[ChannelDescription]:
    """Return the channels that the options name. Raises OptionError if a pattern matches none, else as ``Owners``."""
    if options.pattern is None:
        return owners.describe(options.channel_names)
    if not (covered := owners.covered(options.pattern)):
        raise OptionError(
            f"the option 'channelPattern' is {options.pattern.text!r}, which matches no channel: "
            f"{options.pattern.advice}"
        )
    return covered


def selected(options: ReadOptions, channels: Sequence[ChannelDescription]) -> list[VchannelDescription]:
    """Return the vchannels that the options name, in that order, of those channels that exist.

    Raises:
        OptionError: A vchannel does not exist, but its channel does; or there are too many.
    """
    by_name = {each.name: each for channel in channels for each in channel.vchannels}
    vchannels = list(by_name.values())
    if options.vchannels:
        # As in all APIs, the name of a channel with one vchannel also means the vchannel.
        known = by_name | {channel.name: channel.vchannels[0] for channel in channels if len(channel.vchannels) == 1}
        there = {channel.name for channel in channels}
        missing = [name for name in options.vchannels if name not in known and channel_of(name) in there]
        if missing:
            raise OptionError(
                f"the option 'vchannels' names '{missing[0]}', which does not exist: choose from {', '.join(by_name)}"
            )
        vchannels = list({known[name].name: known[name] for name in options.vchannels if name in known}.values())
    if len(vchannels) > MAX_VCHANNELS:
        raise OptionError(
            f"the channels have {len(vchannels)} vchannels, but a consistent cut has at most {MAX_VCHANNELS}: "
            "read fewer channels at once"
        )
    return vchannels


@contextmanager
def naming_the_cut(options: ReadOptions) -> Iterator[None]:
    """Name the option in the error of a cut in the future. The server reports only the requested tick."""
    try:
        yield
    except PositionBeyondEndError as error:
        if not options.is_cut:
            raise
        latest = error.latest_tick
        raise PositionBeyondEndError(
            f"{options.cut} lies in the future: the latest tick is {latest}, of {latest.time:%Y-%m-%d %H:%M:%S} UTC. "
            "Use an earlier one, or remove the option to take the cut now",
            values=error.values,
        ) from None


def cut_of(
    owners: Owners, vchannels: Iterable[VchannelDescription], end_tick: int = 0, sizes: Mapping[str, int] = _NOTHING
) -> int:
    """Return the exclusive end of a consistent cut over vchannels: taken now, or ``end_tick`` once it is durable.

    Raises:
        GrownError: A channel in ``sizes`` has more vchannels.
    """
    plans = (planned(client, part, sizes, end_tick=end_tick) for client, part in owners.by_node(vchannels))
    return max(int(plan.end_tick) for plan in plans)


def by_begin(begins: Mapping[str, int], end_tick: int) -> dict[int, list[str]]:
    """Return the vchannels that begin at each tick before ``end_tick``."""
    found: dict[int, list[str]] = {}
    for name, begin_tick in begins.items():
        if begin_tick < end_tick:
            found.setdefault(begin_tick, []).append(name)
    return found


def partition_of(split: Split, types: tuple[int, ...], options: ReadOptions, owners: Owners) -> ReadPartition:
    """Return the partition of ``split``, for its current owner and messages of ``types``; empty for all types."""
    channel, index = parts_of(split.vchannel)
    return ReadPartition(
        connection=owners.connection_of(split.vchannel),
        channel=channel,
        index=index,
        begin_tick=int(split.begin_tick),
        end_tick=int(split.end_tick),
        types=types,
        fail_on_data_loss=options.fail_on_data_loss,
        created_tick=int(split.created_tick),
        fetch_bytes=options.fetch_bytes,
    )


def _check_created_before_cut(
    vchannels: Sequence[VchannelDescription], created: Mapping[str, int], options: ReadOptions
) -> None:
    """Raise, or warn if failOnDataLoss is false, if a named channel was created after the requested cut.

    For a pattern, channels created later are no loss: they did not exist at the cut.
    """
    if not options.is_cut or options.pattern is not None:
        return
    late = next((each for each in vchannels if created[channel_of(each.name)] >= options.end_tick), None)
    if late is None:
        return
    channel = channel_of(late.name)
    text = (
        f"{options.cut} lies before the creation of the channel '{channel}' at tick {created[channel]}: messages of an "
        "earlier channel of this name were destroyed with it"
    )
    raise_loss(text, late.name, options.end_tick, created[channel], options)


def _report_loss(
    lost: Sequence[VchannelDescription],
    firsts: Mapping[str, int],
    begins: Mapping[str, int],
    options: ReadOptions,
) -> None:
    """Raise, or warn if failOnDataLoss is false, that the read cannot start at ``begins``."""
    if not lost:
        return
    worst = max(lost, key=lambda vchannel: firsts[vchannel.name])
    first, begin_tick = firsts[worst.name], begins[worst.name]
    what = "was trimmed" if worst.trim_tick == first else "was destroyed and created again"
    text = (
        f"{worst.name} {what}: the read should start at tick {begin_tick}, but the first available tick is "
        f"{first} ({len(lost)} vchannels are affected)"
    )
    raise_loss(text, worst.name, begin_tick, first, options)


def raise_loss(text: str, vchannel: str, requested_tick: int, first_tick: int, options: ReadOptions) -> None:
    """Raise, or warn if failOnDataLoss is false, that messages of a vchannel before ``first_tick`` are lost."""
    if options.fail_on_data_loss:
        hint = f"Start at {first_tick}, or set the option failOnDataLoss to false to read the remaining messages"
        raise trimmed_error(f"{text}. {hint}", vchannel, requested_tick, first_tick)
    _log.warning("%s; reading the remaining messages, because failOnDataLoss is false", text)


def trimmed_error(text: str, vchannel: str, requested_tick: int, first_tick: int) -> PositionTrimmedError:
    """Return the error for messages of a vchannel that are lost from ``requested_tick`` up to ``first_tick``."""
    values = {"vchannel": vchannel, "requested_tick": str(requested_tick), "first_available_tick": str(first_tick)}
    return PositionTrimmedError(text, values=values)
