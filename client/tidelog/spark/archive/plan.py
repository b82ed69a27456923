"""Planning of reads from archive and log: archived messages from files, newer ones from the log.

Imports little, as ``plan``: the data source loads it with every query.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.datasource import InputPartition

from tidelog import ChannelDescription, PositionTrimmedError, VchannelDescription
from tidelog.spark.archive.manifest import Archive, ArchivedLane, ArchiveError, load
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.names import channel_of, parts_of
from tidelog.spark.options import OptionError, ReadOptions
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.read.plan import ReadPartition, created_ticks, cut_of, describe, naming_the_cut, plan, wanted_types
from tidelog.spark.read.pushdown import END_OF_TIME, Pushdown

_log = logging.getLogger("tidelog.spark")


@dataclass(frozen=True, slots=True)
class Divided:
    """A read divided between archive and log.

    Attributes:
        archived: Files, or parts of files.
        begins: First tick of the log's part, by vchannel. Nothing at or after it may be trimmed before it is read.
        end_tick: End of the log's part, exclusive.
    """

    archived: Sequence[ArchivePartition] = ()
    begins: Mapping[str, int] = field(default_factory=dict)
    end_tick: int = 0


def plan_with_archive(options: ReadOptions, pushdown: Pushdown) -> list[InputPartition]:
    """Return the partitions of a read: of files up to the end of the archive on each vchannel, then of the log.

    Raises:
        As ``divide``.
    """
    try:
        divided = divide(options, pushdown)
        log = plan_from(divided.begins, divided.end_tick, replace(options, fail_on_data_loss=True), pushdown)
    except PositionTrimmedError:
        # If a run of `archive --trim` has just trimmed, the second attempt finds the trimmed messages in files.
        divided = divide(options, pushdown)
        log = plan_from(divided.begins, divided.end_tick, options, pushdown)
    fails = options.fail_on_data_loss
    return [*divided.archived, *(replace(partition, fail_on_data_loss=fails) for partition in log)]


def divide(options: ReadOptions, pushdown: Pushdown) -> Divided:
    """Divide a read between files and log, as of one cut.

    Raises:
        OptionError: A vchannel does not exist, or there are too many.
        ArchiveError: The archive does not exist, or is of another channel of the same name.
        TidelogError: The server cannot be reached, a channel does not exist, or requested messages were lost.
    """
    if pushdown.is_empty or wanted_types(options, pushdown) == frozenset():
        return Divided()
    if options.archive_only:
        archive = load(options.archive)
        lanes = [name for name in lanes_of(archive, options) if pushdown.passes(*parts_of(name))]
        ends = [archive.lanes[name].end_tick for name in lanes]
        return Divided(_archived(archive, lanes, options, pushdown, archived_end(options, ends)) if lanes else ())
    return patiently(options.connection, lambda: _divided(options, pushdown))


def _divided(options: ReadOptions, pushdown: Pushdown) -> Divided:
    with Owners(options.connection) as owners:
        described, channels = describe(owners, options)
        wanted = [lane for lane in described if pushdown.passes(*parts_of(lane.name))]
        if not wanted:
            return Divided()
        lanes = [lane.name for lane in wanted]
        # Ordering: loaded after the log was described, so that the manifest has all that was archived and then trimmed.
        archive = load(options.archive)
        check_channels(archive, channels)
        end_tick = end_of(owners, wanted, options)
    archived = _archived(archive, lanes, options, pushdown, end_tick)
    return Divided(archived, _begins(archive.lanes, wanted, created_ticks(channels), options), end_tick)


def end_of(owners: Owners, lanes: Sequence[VchannelDescription], options: ReadOptions) -> int:
    """Return the exclusive end of the read: that of the options once it is durable, or a consistent cut taken now."""
    asked = options.end_tick if options.is_cut else 0
    with naming_the_cut(options):
        return min(options.end_tick or END_OF_TIME, cut_of(owners, lanes, asked))


def _archived(
    archive: Archive, lanes: Sequence[str], options: ReadOptions, pushdown: Pushdown, end_tick: int
) -> list[ArchivePartition]:
    """Return a partition for each file that has rows of the read."""
    if options.end_tick:
        # Imported here, so that a read without files does not load pyarrow on the driver.
        from tidelog.spark.archive.reader import end_before_transaction

        end_tick = end_before_transaction(archive, end_tick)
    begin_tick = max(options.begin_tick, pushdown.begin_tick)
    end_tick = min(end_tick, pushdown.end_tick)
    there = {name: archive.lanes[name] for name in lanes if name in archive.lanes}
    _check_loss(there, options, begin_tick, end_tick)
    types = tuple(sorted(wanted_types(options, pushdown) or ()))
    return [
        ArchivePartition(str(archive.root), file, begin_tick, end_tick, types)
        for lane in there.values()
        for file in lane.files
        if file.first_tick < end_tick and file.last_tick >= begin_tick
    ]


def begin_behind(lane: VchannelDescription, archived_end: int) -> int:
    """Return the tick at which the log continues after an archive that ends before ``archived_end``.

    It is ``archived_end``, even if that was trimmed, because then messages were lost. But if the log has no message at
    or after it, the trim lost nothing, and the log continues at the trim.
    """
    return max(archived_end, int(lane.trim_tick)) if lane.last_tick < archived_end else archived_end


def plan_from(
    begins: Mapping[str, int], end_tick: int, options: ReadOptions, pushdown: Pushdown
) -> list[ReadPartition]:
    """Return the partitions of the log from each vchannel's begin to ``end_tick``, exclusive.

    Vchannels that begin at the same tick are planned together. A trim past the begin of one is a loss.
    """
    partitions: list[ReadPartition] = []
    for begin_tick, names in by_begin(begins, end_tick).items():
        part = replace(
            options, archive="", channels=(), pattern=None, vchannels=tuple(names), begin_tick=begin_tick,
            begin_is_tick=True, end_tick=end_tick, cut="",
        )  # fmt: skip
        partitions += plan(part, pushdown)
    return partitions


def by_begin(begins: Mapping[str, int], end_tick: int) -> dict[int, list[str]]:
    """Return the vchannels that begin at each tick before ``end_tick``."""
    found: dict[int, list[str]] = {}
    for name, begin_tick in begins.items():
        if begin_tick < end_tick:
            found.setdefault(begin_tick, []).append(name)
    return found


def _begins(
    archived: Mapping[str, ArchivedLane],
    lanes: Iterable[VchannelDescription],
    created: Mapping[str, int],
    options: ReadOptions,
) -> dict[str, int]:
    begins = {}
    for lane in lanes:
        behind = begin_behind(lane, archived[lane.name].end_tick) if lane.name in archived else 0
        created_tick = created[channel_of(lane.name)]
        if behind > options.begin_tick or (options.begin_is_tick and options.pattern is None):
            begins[lane.name] = max(behind, options.begin_tick)
        elif options.begin_is_tick:
            # A channel that matches a pattern and was created later begins at its creation.
            begins[lane.name] = max(options.begin_tick, created_tick)
        else:
            # Everything available. Why not 0: a trim or a re-created channel would not be noticed before the read.
            begins[lane.name] = max(options.begin_tick, int(lane.trim_tick), created_tick)
    return begins


def lanes_of(archive: Archive, options: ReadOptions) -> list[str]:
    """Return the archived vchannels that the options name.

    Raises:
        OptionError: The archive does not have one of them, or nothing matches the pattern.
    """
    there = sorted(archive.lanes, key=parts_of)
    if options.pattern is not None:
        found = [name for name in there if options.pattern.covers(channel_of(name))]
        if not found:
            raise OptionError(
                f"the option 'channelPattern' is {options.pattern.text!r}, which matches no archived channel: "
                f"the archive at {archive.root} has {', '.join(there)}"
            )
        return found
    lanes = []
    for wanted in options.channels or options.vchannels:
        found = [name for name in there if wanted in (name, channel_of(name))]
        if not found or (options.vchannels and len(found) > 1):
            raise OptionError(f"the archive at {archive.root} has no {wanted!r}: choose from {', '.join(there)}")
        lanes += found
    return list(dict.fromkeys(lanes))


def archived_end(options: ReadOptions, ends: Iterable[int]) -> int:
    """Return the exclusive end of a read of only the archive: the smallest end of its vchannels."""
    archived = min(ends)
    if options.is_cut and options.end_tick > archived:
        raise OptionError(
            f"the archive ends before tick {archived}, but the read is as of tick {options.end_tick - 1}: choose an "
            "earlier tick, or read the log as well"
        )
    return min(options.end_tick or END_OF_TIME, archived)


def check_channels(archive: Archive, channels: Iterable[ChannelDescription]) -> None:
    """Raise ArchiveError if the archive is of another channel of the same name."""
    for channel in channels:
        for lane in channel.vchannels:
            archived = archive.lanes.get(lane.name)
            if archived is not None and archived.created_tick != channel.created_tick:
                raise ArchiveError(
                    f"the archive at {archive.root} has another channel of the name '{channel.name}', created at tick "
                    f"{archived.created_tick}; the current one was created at {int(channel.created_tick)}: archive the "
                    "current one to another folder, and read the archived one with archiveOnly"
                )


def _check_loss(lanes: Mapping[str, ArchivedLane], options: ReadOptions, begin_tick: int, end_tick: int) -> None:
    """Raise, or warn if failOnDataLoss is false, if a part of the read is in neither the archive nor the log."""
    for name, lane in lanes.items():
        gaps = list(lane.lost)
        if options.begin_is_tick and options.begin_tick < lane.begin_tick > lane.created_tick:
            gaps.append((options.begin_tick, lane.begin_tick))
        for begin, end in gaps:
            if begin < end_tick and begin_tick < end:
                _report_loss(name, begin, end, fails=options.fail_on_data_loss)


def _report_loss(name: str, begin: int, end: int, *, fails: bool) -> None:
    text = f"{name} was trimmed from tick {begin} up to {end} before it was archived"
    if not fails:
        _log.warning("%s; reading the remaining messages, because failOnDataLoss is false", text)
        return
    raise PositionTrimmedError(
        f"{text}. Start at {end}, or set the option failOnDataLoss to false to read the remaining messages",
        values={"vchannel": name, "requested_tick": str(begin), "first_available_tick": str(end)},
    )
