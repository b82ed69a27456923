"""Planning of reads from archive and log: archived messages from files, newer ones from the log.

Imports little, as ``plan``: the data source loads it with every query.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog import ChannelDescription, PositionTrimmedError, VchannelDescription
from tidelog.spark.archive.manifest import Archive, ArchivedVchannel, load
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.errors import ArchiveError, OptionError
from tidelog.spark.names import channel_of, parts_of
from tidelog.spark.options import ReadOptions
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.read.partition import Partition, ReadPartition
from tidelog.spark.read.plan import (
    by_begin,
    created_ticks,
    cut_of,
    describe,
    naming_the_cut,
    plan,
    raise_loss,
    sizes_of,
    until_known,
    wanted_types,
)
from tidelog.spark.read.pushdown import Pushdown
from tidelog.spark.ticks import END_OF_TIME


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


def plan_with_archive(options: ReadOptions, pushdown: Pushdown) -> list[Partition]:
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
        vchannels = [name for name in vchannels_of(archive, options) if pushdown.passes(*parts_of(name))]
        ends = [archive.vchannels[name].end_tick for name in vchannels]
        return Divided(
            _archived(archive, vchannels, options, pushdown, archived_end(options, ends)) if vchannels else ()
        )
    return patiently(options.connection, lambda: until_known(lambda: _divided(options, pushdown)))


def _divided(options: ReadOptions, pushdown: Pushdown) -> Divided:
    with Owners(options.connection) as owners:
        described, channels = describe(owners, options)
        wanted = [each for each in described if pushdown.passes(*parts_of(each.name))]
        if not wanted:
            return Divided()
        vchannels = [each.name for each in wanted]
        # Ordering: loaded after the log was described, so that the manifest has all that was archived and then trimmed.
        archive = load(options.archive)
        check_channels(archive, channels)
        end_tick = end_of(owners, wanted, options, sizes_of(options, channels))
    archived = _archived(archive, vchannels, options, pushdown, end_tick)
    return Divided(archived, _begins(archive.vchannels, wanted, created_ticks(channels), options), end_tick)


def end_of(
    owners: Owners, vchannels: Sequence[VchannelDescription], options: ReadOptions, sizes: Mapping[str, int]
) -> int:
    """Return the exclusive end of the read: that of the options once it is durable, or a consistent cut taken now.

    Raises:
        GrownError: A channel in ``sizes`` has more vchannels.
    """
    asked = options.end_tick if options.is_cut else 0
    with naming_the_cut(options):
        return min(options.end_tick or END_OF_TIME, cut_of(owners, vchannels, asked, sizes))


def _archived(
    archive: Archive, vchannels: Sequence[str], options: ReadOptions, pushdown: Pushdown, end_tick: int
) -> list[ArchivePartition]:
    """Return a partition for each file that has rows of the read."""
    if options.end_tick:
        # Imported here, so that a read without files does not load pyarrow on the driver.
        from tidelog.spark.archive.reader import end_before_transaction

        end_tick = end_before_transaction(archive, end_tick)
    begin_tick = max(options.begin_tick, pushdown.begin_tick)
    end_tick = min(end_tick, pushdown.end_tick)
    there = {name: archive.vchannels[name] for name in vchannels if name in archive.vchannels}
    _check_loss(there, options, begin_tick, end_tick)
    types = tuple(sorted(wanted_types(options, pushdown) or ()))
    return [
        ArchivePartition(str(archive.root), file, begin_tick, end_tick, types)
        for each in there.values()
        for file in each.files
        if file.first_tick < end_tick and file.last_tick >= begin_tick
    ]


def begin_behind(vchannel: VchannelDescription, archived_end: int) -> int:
    """Return the tick at which the log continues after an archive that ends before ``archived_end``.

    It is ``archived_end``, even if that was trimmed, because then messages were lost. But if the log has no message at
    or after it, the trim lost nothing, and the log continues at the trim.
    """
    return max(archived_end, int(vchannel.trim_tick)) if vchannel.last_tick < archived_end else archived_end


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


def _begins(
    archived: Mapping[str, ArchivedVchannel],
    vchannels: Iterable[VchannelDescription],
    created: Mapping[str, int],
    options: ReadOptions,
) -> dict[str, int]:
    begins = {}
    for each in vchannels:
        behind = begin_behind(each, archived[each.name].end_tick) if each.name in archived else 0
        created_tick = created[channel_of(each.name)]
        if behind > options.begin_tick or (options.begin_is_tick and options.pattern is None):
            begins[each.name] = max(behind, options.begin_tick)
        elif options.begin_is_tick:
            # A channel that matches a pattern and was created later begins at its creation.
            begins[each.name] = max(options.begin_tick, created_tick)
        else:
            # Everything available. Why not 0: a trim or a re-created channel would not be noticed before the read.
            begins[each.name] = max(options.begin_tick, int(each.trim_tick), created_tick)
    return begins


def vchannels_of(archive: Archive, options: ReadOptions) -> list[str]:
    """Return the archived vchannels that the options name.

    Raises:
        OptionError: The archive does not have one of them, or nothing matches the pattern.
    """
    there = sorted(archive.vchannels, key=parts_of)
    if options.pattern is not None:
        found = [name for name in there if options.pattern.covers(channel_of(name))]
        if not found:
            raise OptionError(
                f"the option 'channelPattern' is {options.pattern.text!r}, which matches no archived channel: "
                f"the archive at {archive.root} has {', '.join(there)}"
            )
        return found
    vchannels = []
    for wanted in options.channels or options.vchannels:
        found = [name for name in there if wanted in (name, channel_of(name))]
        if not found or (options.vchannels and len(found) > 1):
            raise OptionError(f"the archive at {archive.root} has no {wanted!r}: choose from {', '.join(there)}")
        vchannels += found
    return list(dict.fromkeys(vchannels))


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
        for each in channel.vchannels:
            archived = archive.vchannels.get(each.name)
            if archived is not None and archived.created_tick != channel.created_tick:
                raise ArchiveError(
                    f"the archive at {archive.root} has another channel of the name '{channel.name}', created at tick "
                    f"{archived.created_tick}; the current one was created at {int(channel.created_tick)}: archive the "
                    "current one to another folder, and read the archived one with archiveOnly"
                )


def _check_loss(
    vchannels: Mapping[str, ArchivedVchannel], options: ReadOptions, begin_tick: int, end_tick: int
) -> None:
    """Raise, or warn if failOnDataLoss is false, if a part of the read is in neither the archive nor the log."""
    for name, vchannel in vchannels.items():
        gaps = list(vchannel.lost)
        if options.begin_is_tick and options.begin_tick < vchannel.begin_tick > vchannel.created_tick:
            gaps.append((options.begin_tick, vchannel.begin_tick))
        for begin, end in gaps:
            if begin < end_tick and begin_tick < end:
                text = f"{name} was trimmed from tick {begin} up to {end} before it was archived"
                raise_loss(text, name, begin, end, options)
