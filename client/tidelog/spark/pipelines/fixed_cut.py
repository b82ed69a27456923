"""The cut of a job: taken on the driver, so that the job can report the tick of its result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.spark.archive import manifest
from tidelog.spark.archive.plan import archived_end, end_of, vchannels_of
from tidelog.spark.errors import OptionError
from tidelog.spark.names import channel_of
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.pipelines.tasks import SourceOptions
from tidelog.spark.read.plan import describe, sizes_of, until_known

_ENDS: Final = frozenset({"endingtick", "endingtimestamp", "asoftick", "versionasof", "timestampasof"})


@dataclass(frozen=True, slots=True)
class FixedCut:
    """A read with a fixed end.

    Attributes:
        tick: End of the read, inclusive.
        vchannels: Creation tick of the channel, by vchannel.
        changed_tick: Tick of the newest message or channel creation; may be greater than ``tick``.
        is_named: True if the options set the end.
        options: Options of the source, with ``tick`` as the end.
    """

    tick: int
    vchannels: Mapping[str, int]
    changed_tick: int
    is_named: bool
    options: SourceOptions


def fix_cut(options: SourceOptions) -> FixedCut:
    """Return the cut that ``options`` name, or else take one now.

    Raises:
        OptionError: An option is invalid, or the read starts after its end.
        ArchiveError: The archive does not exist.
        TidelogError: The server cannot be reached, a channel does not exist, or the cut lies in the future.
    """
    texts = {name: str(value) for name, value in options.items()}
    read = parse_options(texts)
    end_tick, vchannels, changed_tick = _of_archive(read) if read.archive_only else _of_log(read)
    if read.begin_tick >= end_tick:
        raise OptionError(
            f"the read starts at tick {read.begin_tick}, after its end at {end_tick - 1}: choose an earlier start"
        )
    kept = {name: text for name, text in texts.items() if name.lower() not in _ENDS}
    named = bool(read.end_tick)
    return FixedCut(end_tick - 1, vchannels, changed_tick, named, {**kept, "asOfTick": str(end_tick - 1)})


def _of_log(read: ReadOptions) -> tuple[int, Mapping[str, int], int]:
    return patiently(read.connection, lambda: until_known(lambda: _look(read)))


def _look(read: ReadOptions) -> tuple[int, Mapping[str, int], int]:
    with Owners(read.connection) as owners:
        vchannels, channels = describe(owners, read)
        # Ordering: read before the cut is taken, so that the next run sees concurrent appends as a change.
        created = {channel.name: int(channel.created_tick) for channel in channels}
        changed = max(*(int(each.last_tick) for each in vchannels), *created.values())
        return (
            end_of(owners, vchannels, read, sizes_of(read, channels)),
            {each.name: created[channel_of(each.name)] for each in vchannels},
            changed,
        )


def _of_archive(read: ReadOptions) -> tuple[int, Mapping[str, int], int]:
    archive = manifest.load(read.archive)
    vchannels = {name: archive.vchannels[name] for name in vchannels_of(archive, read)}
    created = {name: vchannel.created_tick for name, vchannel in vchannels.items()}
    changed_tick = max(*created.values(), *(file.last_tick for each in vchannels.values() for file in each.files[-1:]))
    return archived_end(read, (each.end_tick for each in vchannels.values())), created, changed_tick
