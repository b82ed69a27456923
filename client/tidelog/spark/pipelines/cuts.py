"""The cut of a job: fixed on the driver, so that a job can say as of which tick its result is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.spark import manifest
from tidelog.spark.archive_plan import archived_end, end_of, lanes_of
from tidelog.spark.manifest import ArchivedLane
from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.owners import Owners
from tidelog.spark.pipelines.tasks import SourceOptions
from tidelog.spark.plan import describe

_ENDS: Final = frozenset({"endingtick", "endingtimestamp", "asoftick", "timestampasof"})


@dataclass(frozen=True, slots=True)
class Cut:
    """A read whose end is fixed.

    Attributes:
        tick: Its end, inclusive.
        lanes: The vchannels that it is of.
        changed_tick: Of their newest message, or when the newest of their channels was created; maybe behind ``tick``.
        is_named: Whether the options said where the end is.
        options: Those of the source, with ``tick`` as their end.
    """

    tick: int
    lanes: Sequence[str]
    changed_tick: int
    is_named: bool
    options: SourceOptions


def fix_cut(options: SourceOptions) -> Cut:
    """Return the cut that ``options`` name, or one that is made now.

    Raises:
        OptionError: An option is wrong, or the read starts behind its end.
        ArchiveError: There is no archive.
        TidelogError: The server cannot be reached, a channel does not exist, or the cut lies in the future.
    """
    texts = {name: str(value) for name, value in options.items()}
    read = parse_options(texts)
    end_tick, lanes, changed_tick = _of_archive(read) if read.archive_only else _of_log(read)
    if read.begin_tick >= end_tick:
        raise OptionError(
            f"the read is to start at tick {read.begin_tick}, and ends with {end_tick - 1}: choose an earlier start"
        )
    kept = {name: text for name, text in texts.items() if name.lower() not in _ENDS}
    named = bool(read.end_tick)
    return Cut(end_tick - 1, lanes, changed_tick, named, {**kept, "asOfTick": str(end_tick - 1)})


def _of_log(read: ReadOptions) -> tuple[int, Sequence[str], int]:
    with Owners(read.connection) as owners:
        lanes, channels = describe(owners, read)
        # Looked at before the cut is made: what comes meanwhile is a change that the next run sees.
        changed = [*(lane.last_tick for lane in lanes), *(channel.created_tick for channel in channels)]
        return end_of(owners, lanes, read), [lane.name for lane in lanes], int(max(changed))


def _of_archive(read: ReadOptions) -> tuple[int, Sequence[str], int]:
    archive = manifest.load(read.archive)
    lanes = {name: archive.lanes[name] for name in lanes_of(archive, read)}
    changed_tick = max(max(lane.created_tick, _last_tick(lane)) for lane in lanes.values())
    return archived_end(read, (lane.end_tick for lane in lanes.values())), list(lanes), changed_tick


def _last_tick(lane: ArchivedLane) -> int:
    return lane.files[-1].last_tick if lane.files else 0
