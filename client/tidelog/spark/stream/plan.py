"""Planning of a stream's micro-batches with few small calls. Runs on the driver.

Nothing here reads messages, and the cost of a call does not depend on the length of the log.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tidelog import (
    ChannelDescription,
    ChannelNotFoundError,
    Plan,
    PositionTrimmedError,
    Tick,
    VchannelDescription,
)
from tidelog.spark.errors import OffsetError
from tidelog.spark.names import channel_of
from tidelog.spark.offset_options import LATEST_TICK, check_vchannels
from tidelog.spark.owners import Owners
from tidelog.spark.read.partition import ReadPartition
from tidelog.spark.read.plan import (
    by_begin,
    channels_of,
    created_ticks,
    partition_of,
    planned,
    selected,
    sizes_of,
    trimmed_error,
    until_known,
)
from tidelog.spark.stream.admission import FIRST_STEP, Limits, admit
from tidelog.spark.stream.offsets import Loss, Offset, begin_at, cut_at, destroyed, later, starts_of
from tidelog.spark.stream.options import StreamOptions

_log = logging.getLogger("tidelog.spark")
_Answer = TypeVar("_Answer")

# The size of batches varies a little: the next one is estimated at a quarter more than the last one.
_GUESS: Final = 1.25


@dataclass(frozen=True, slots=True)
class _View:
    """The vchannels of a batch, as the server describes them now.

    Attributes:
        starts: First tick to read, by vchannel.
        low: Smallest tick to read, except for earlier messages of channels that were added to the query.
        has_news: True if there may be something to read.
        born: Creation tick of each channel.
    """

    starts: Mapping[str, int]
    low: int
    has_news: bool
    born: Mapping[str, int]


class StreamPlanner:
    """Finds where micro-batches end and divides them into partitions."""

    def __init__(self, owners: Owners, options: StreamOptions) -> None:
        self._owners = owners
        self._options = options
        self._read = options.read
        self._step = FIRST_STEP
        self._warned: set[str] = set()
        self._described: dict[str, VchannelDescription] = {}
        self._born: Mapping[str, int] = {}
        # Number of vchannels of the channels of which all are read.
        self._sizes: Mapping[str, int] = {}

    def now(self) -> int:
        """Return a tick above all acknowledged messages on all nodes; 0 if no channel exists."""
        return self._cut([each for channel in self._existing() for each in channel.vchannels])

    def first(self, target: int | None) -> Offset:
        """Return the start of a query without a checkpoint; for ``latest`` that is now, or ``target``.

        Raises:
            OptionError: No channel matches, a vchannel does not exist, or there are too many.
            TidelogError: The server cannot be reached, a channel does not exist, or the start was trimmed.
        """
        channels = self._channels(None)
        vchannels = self._vchannels(channels, None)
        born = created_ticks(channels)
        check_vchannels("startingOffsets", self._read.begin_ticks, (each.name for each in vchannels), self._read)
        begins = dict.fromkeys((each.name for each in vchannels), LATEST_TICK)
        if not self._options.is_latest:
            begins = {name: self._read.begin_of(name) for name in begins}
        if LATEST_TICK in begins.values():
            cut = target or self._cut(vchannels)
            # Each node hands out ticks of its own range: later appends must get ticks above the cut on all nodes.
            self._settle(vchannels, cut)
            begins = {name: cut if tick == LATEST_TICK else tick for name, tick in begins.items()}
        start = begin_at(begins, born)
        if self._read.begin_is_tick:
            wanted = [each for each in vchannels if begins[each.name]]
            self._report(starts_of(start, wanted, born, self._read.begin_tick)[1])
        trims = {each.name: int(each.trim_tick) for each in vchannels}
        return replace(start, positions={name: max(tick, trims[name]) for name, tick in start.positions.items()})

    def next(self, start: Offset, target: int | None, limits: Limits) -> tuple[Offset, int] | None:
        """Return the end of the batch after ``start`` and the end of the log; None if there is nothing to read.

        Everything before the end is durable, and nothing will be added there.

        Args:
            start: Start of the batch.
            target: Assumed end of the log; None for its current end.
            limits: Maximum size of the batch.

        Raises:
            TidelogError: As ``first``; also if messages were lost and failOnDataLoss is true.
        """

        def look() -> tuple[Offset, int] | None:
            view = self._view(start)
            if not view.has_news:
                return None
            cut = self._cut([self._described[name] for name in view.starts]) if target is None else target
            if view.low >= cut:
                return None
            end = admit(lambda end, grain: self._ask(view.starts, end, grain), view.low, cut, limits, self._step)
            if limits.is_unlimited:
                # With limits, the plans of the search have already waited.
                self._settle([self._described[name] for name in view.starts], cut)
            else:
                self._step = max(1, round((end - view.low) * _GUESS))
            return later(cut_at(end, view.starts, view.born), view.starts), cut

        return _twice(look)

    def partitions(self, start: Offset, end: Offset) -> list[ReadPartition]:
        """Return the partitions of the batch from ``start`` to ``end``. Every call returns the same rows.

        Raises:
            OffsetError: ``end`` lies within a transaction, so it was not returned by ``next``.
            TidelogError: As ``next``.
        """
        if start.is_beginning:
            # Checkpoints of older versions have no `begin`: their first batch is empty.
            start = replace(end.begin or end, created=end.created)
        if (start.tick, start.positions) == (end.tick, end.positions):
            return []

        def look() -> list[ReadPartition]:
            starts = self._view(start, end).starts
            size = Limits(self._read.max_messages_per_partition, self._read.max_bytes_per_partition)
            plan = self._ask(starts, end.tick, size, self._read.min_partitions)
            if plan.end_tick < end.tick:
                raise OffsetError(
                    f"the checkpoint has a batch that ends at tick {end.tick}, within the transaction that begins at "
                    f"{plan.end_tick}: it was edited; start with a new checkpoint"
                )
            types = tuple(sorted(self._read.types or ()))
            return [partition_of(split, types, self._read, self._owners) for split in plan.splits]

        return _twice(look)

    def _cut(self, vchannels: Sequence[VchannelDescription]) -> int:
        """Return a tick above all acknowledged messages on the nodes of ``vchannels``."""
        ticks = [int(client.allocate_ticks()[0]) for client, _ in self._owners.by_node(vchannels)]
        return max(ticks, default=0)

    def _settle(self, vchannels: Sequence[VchannelDescription], cut: int) -> None:
        """Wait until everything below ``cut`` is durable, and no node will add anything there."""
        for client, part in self._owners.by_node(vchannels):
            # Trimmed messages are durable, too: a node checks the trim only after it has waited.
            with suppress(PositionTrimmedError):
                planned(client, part, self._sizes, begin_tick=cut - 1, end_tick=cut)

    def _ask(self, starts: Mapping[str, int], end_tick: int, grain: Limits, min_splits: int = 0) -> Plan:
        """Return a plan of ``starts`` before ``end_tick``, or before the transaction that spans ``end_tick``."""
        hints = {
            "min_splits": min_splits, "max_messages_per_split": grain.messages, "max_bytes_per_split": grain.size_bytes
        }  # fmt: skip
        plans = [
            planned(client, part, self._sizes, self._born, begin_tick=begin_tick, end_tick=end_tick, **hints)
            for begin_tick, names in by_begin(starts, end_tick).items()
            for client, part in self._owners.by_node(self._described[name] for name in names)
        ]
        least = min((int(plan.end_tick) for plan in plans), default=end_tick)
        if any(plan.end_tick > least for plan in plans):
            return self._ask(starts, least, grain, min_splits)
        return Plan(Tick(least), [split for plan in plans for split in plan.splits])

    def _view(self, start: Offset, end: Offset | None = None) -> _View:
        """Describe the vchannels after ``start``: all, or those in ``end``. Reports losses."""
        channels = self._channels(end or start)
        vchannels = self._vchannels(channels, end)
        self._described = {each.name: each for each in vchannels}
        wanted = {name: self._read.selects(name) for name in (end or start).channels}
        losses = destroyed(end or start, channels, wanted)
        self._born = born = created_ticks(channels)
        # A batch that is read again has the vchannels that it had.
        self._sizes = sizes_of(self._read, channels) if end is None else {}
        starts, trimmed = starts_of(start, vchannels, born, self._read.begin_tick)
        self._report([*losses, *trimmed])
        floors = [max(starts[each.name], each.trim_tick, born[channel_of(each.name)]) for each in vchannels]
        has_news = any(each.messages and each.last_tick >= starts[each.name] for each in vchannels)
        return _View(starts, max(start.tick, min(floors, default=0)), has_news, born)

    def _channels(self, known: Offset | None) -> list[ChannelDescription]:
        """Return the channels of the query. Channels in ``known`` may be missing."""
        if known is None:
            return channels_of(self._owners, self._read)
        found = self._existing()
        missing = set(self._read.channel_names) - {channel.name for channel in found} - known.channels
        if missing and self._read.fail_on_data_loss:
            # Never read, so nothing was lost: the name is wrong.
            self._owners.describe(sorted(missing))
        return found

    def _existing(self) -> list[ChannelDescription]:
        """Return the channels of the query that exist."""
        if self._read.pattern is not None:
            return self._owners.covered(self._read.pattern)
        return self._owners.describe(self._read.channel_names, ignore_missing=True)

    def _vchannels(self, channels: Sequence[ChannelDescription], end: Offset | None) -> list[VchannelDescription]:
        if end is None:
            return selected(self._read, channels)
        by_name = {each.name: each for channel in channels for each in channel.vchannels}
        return [by_name[name] for name in end.positions if name in by_name]

    def _report(self, losses: Sequence[Loss]) -> None:
        """Raise, or warn once if failOnDataLoss is false, that messages were lost before the query read them."""
        if not losses:
            return
        first = losses[0]
        more = f" (the first of {len(losses)} losses)" if len(losses) > 1 else ""
        if not self._read.fail_on_data_loss:
            for loss in losses:
                if loss.text not in self._warned:
                    self._warned.add(loss.text)
                    _log.warning("%s; continuing with the rest, because failOnDataLoss is false", loss.text)
            return
        hint = "Set the option failOnDataLoss to false to continue with the remaining messages"
        if first.available_tick is None:
            raise ChannelNotFoundError(f"{first.text}{more}. {hint}", values={"channel": first.name})
        raise trimmed_error(f"{first.text}{more}. {hint}", first.name, first.wanted_tick, first.available_tick)


def _twice(look: Callable[[], _Answer]) -> _Answer:
    """Return the result of ``look``. Retry once if a trim or deletion between its calls made it fail.

    It is also repeated while channels get vchannels between its calls: a batch has all that was appended before its
    end, and transactions as a whole.
    """
    try:
        return until_known(look)
    except (PositionTrimmedError, ChannelNotFoundError):
        return until_known(look)
