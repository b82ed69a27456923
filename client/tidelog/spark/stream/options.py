"""The options of ``spark.readStream.format("tidelog")``, in addition to those of ``tidelog.spark.options``.

============================  ==========================================================================
``startingOffsets``           where a query without a checkpoint starts: ``latest`` (default): after all messages
                              acknowledged before its first trigger; ``earliest``: at the first message that was not
                              trimmed; or a position for each vchannel, as in ``tidelog.spark.offset_options``.
                              ``startingTick`` or ``startingTimestamp`` may be set instead
``maxMessagesPerTrigger``     maximum number of messages per micro-batch; aliases: ``maxRecordsPerTrigger``,
                              ``maxOffsetsPerTrigger``
``maxBytesPerTrigger``        maximum size of a micro-batch, as stored in the log, e.g. ``64MiB``
``commitGroup``               consumer group to which the query commits its position, so that its lag is visible
``failOnDataLoss``            ``true`` (default): the query fails if messages that it has not read were trimmed or
                              destroyed; ``false``: it continues with the remaining ones and logs a warning
============================  ==========================================================================

The options that end a read (``endingOffsets``, ``endingTick``, ``asOfTick`` and so on) are refused: a stream does not
end. A micro-batch has at least one message or one transaction, even if that exceeds the limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.spark.errors import OptionError
from tidelog.spark.offset_options import EARLIEST, LATEST, offsets_of, with_offsets
from tidelog.spark.option_values import MAX_COUNT, known_options, number_of, only_one, size_of
from tidelog.spark.options import ALL_NAMES, CUTS, ENDS, STARTS, STREAM_NAMES, ReadOptions, parse_options
from tidelog.spark.stream.admission import Limits

_OF_BATCHES: Final = {
    "pushFilters": "Spark hands no filters to a stream; use 'types' and the channel options",
    "archive": "a stream reads only the log; read the archive with spark.read, and start the stream after its end",
    "archiveOnly": "a stream reads only the log; read the archive with spark.read",
}
_MESSAGES: Final = ("maxMessagesPerTrigger", "maxRecordsPerTrigger", "maxOffsetsPerTrigger")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream, checked.

    Attributes:
        read: What to read, as for a batch.
        is_latest: Whether a query without a checkpoint starts at ``latest``; else at ``read.begin_of`` each vchannel.
        limits: Maximum size of a micro-batch.
        commit_group: Consumer group to which the query commits its position; empty if not set.
    """

    read: ReadOptions
    is_latest: bool
    limits: Limits
    commit_group: str


def parse_stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Parse the options that Spark hands over for a stream.

    Raises:
        OptionError: An option is unknown or invalid, or two contradict each other.
    """
    options = known_options(raw, ALL_NAMES)
    for name in ("endingOffsets", *ENDS, *CUTS):
        if name in options:
            raise OptionError(f"a stream has no end: remove the option '{name}', or read with spark.read")
    for name, reason in _OF_BATCHES.items():
        if name in options:
            raise OptionError(f"remove the option '{name}': {reason}")
    start = only_one(options, ("startingOffsets", *STARTS))
    offsets = options.pop("startingOffsets", LATEST)
    is_latest = start in {None, "startingOffsets"} and offsets.lower() == LATEST
    messages = only_one(options, _MESSAGES)
    group = options.get("commitGroup", "")
    if "commitGroup" in options and not group:
        raise OptionError("the option 'commitGroup' is empty: name a consumer group, or remove it")
    read = parse_options(options)
    if start == "startingOffsets" and not is_latest:
        read = with_offsets(read, offsets_of(start, offsets, EARLIEST, LATEST))
    return StreamOptions(
        read=read,
        is_latest=is_latest,
        limits=Limits(
            messages=number_of(options, messages, 0, 1, MAX_COUNT) if messages else 0,
            size_bytes=size_of(options, "maxBytesPerTrigger", 0),
        ),
        commit_group=group,
    )


def refuse_stream_options(raw: Mapping[str, str]) -> None:
    """Check the options of a batch read.

    Raises:
        OptionError: An option that only a stream has is set.
    """
    given = {name.lower() for name in raw}
    for name in STREAM_NAMES:
        if name.lower() in given:
            raise OptionError(f"the option '{name}' is for spark.readStream only: remove it from spark.read")
