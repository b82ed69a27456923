"""The options of ``spark.readStream.format("tidelog")`` beside those of ``tidelog.spark.options``.

============================  ==========================================================================
``startingOffsets``           where a query without a checkpoint begins: ``latest`` (default): behind all that was
                              acknowledged when its first trigger runs; ``earliest``: with all that was not trimmed.
                              ``startingTick`` and ``startingTimestamp`` may be given instead
``maxMessagesPerTrigger``     so many messages in a micro-batch at most; ``maxRecordsPerTrigger`` and
                              ``maxOffsetsPerTrigger`` mean the same
``maxBytesPerTrigger``        so many bytes in a micro-batch at most, as the log counts them: ``64MiB``
``commitGroup``               name of a consumer group that is told how far the query is, so that its lag can be seen
``failOnDataLoss``            ``true`` (default): the query fails where messages that it was to read are gone;
                              ``false``: it goes on with what is left and logs a warning
============================  ==========================================================================

The options that end a read (``endingTick``, ``endingTimestamp``, ``asOfTick``, ``timestampAsOf``) are refused: a stream
has no end. A micro-batch has one message, or one transaction, at least, however small the limits are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.spark.option_error import OptionError
from tidelog.spark.option_values import MAX_COUNT, known_options, number_of, only_one, size_of
from tidelog.spark.options import ALL_NAMES, STREAM_NAMES, ReadOptions, parse_options
from tidelog.spark.stream_admission import Limits

Start = Literal["latest", "earliest", "given"]

_ENDS: Final = ("endingTick", "endingTimestamp", "asOfTick", "timestampAsOf")
# What a stream leaves to Spark, or does not have.
_OF_BATCHES: Final = {
    "pushFilters": "Spark hands no filters to a stream: 'types' and the channels say what is read",
    "archive": "a stream reads the log alone: read the archive with spark.read, and begin the stream behind it",
    "archiveOnly": "a stream reads the log alone: read the archive with spark.read",
}
_STARTS: Final = ("startingOffsets", "startingTick", "startingTimestamp")
_MESSAGES: Final = ("maxMessagesPerTrigger", "maxRecordsPerTrigger", "maxOffsetsPerTrigger")
_OFFSETS: Final[dict[str, Start]] = {"latest": "latest", "earliest": "earliest"}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a query reads and how much at a time.

    Attributes:
        read: What to read, as for a batch.
        start: Where a query without a checkpoint begins; ``given``: at ``read.begin_tick``.
        limits: Of a micro-batch.
        commit_group: Consumer group that is told how far the query is; empty for none.
    """

    read: ReadOptions
    start: Start
    limits: Limits
    commit_group: str


def parse_stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Return the options that Spark hands over for a stream.

    Raises:
        OptionError: See there.
    """
    options = known_options(raw, ALL_NAMES)
    for name in _ENDS:
        if name in options:
            raise OptionError(f"a stream has no end: leave out the option '{name}', or read with spark.read")
    for name, reason in _OF_BATCHES.items():
        if name in options:
            raise OptionError(f"leave out the option '{name}': {reason}")
    start = only_one(options, _STARTS)
    messages = only_one(options, _MESSAGES)
    group = options.get("commitGroup", "")
    if "commitGroup" in options and not group:
        raise OptionError("the option 'commitGroup' is empty: name a consumer group, or leave it out")
    return StreamOptions(
        read=parse_options(raw),
        start=_start(options) if start in {None, "startingOffsets"} else "given",
        limits=Limits(
            messages=number_of(options, messages, 0, 1, MAX_COUNT) if messages else 0,
            size_bytes=size_of(options, "maxBytesPerTrigger", 0),
        ),
        commit_group=group,
    )


def refuse_stream_options(raw: Mapping[str, str]) -> None:
    """Check that a batch is not read with options that only a stream has.

    Raises:
        OptionError: It is.
    """
    given = {name.lower() for name in raw}
    for name in STREAM_NAMES:
        if name.lower() in given:
            hint = ": startingTick and endingTick bound a batch" if name == "startingOffsets" else ""
            raise OptionError(f"the option '{name}' is one of spark.readStream, and this is spark.read{hint}")


def _start(options: Mapping[str, str]) -> Start:
    text = options.get("startingOffsets", "latest")
    start = _OFFSETS.get(text.lower())
    if start is None:
        raise OptionError(
            f"the option 'startingOffsets' is {text!r}: choose from latest and earliest, or give startingTick or "
            "startingTimestamp"
        )
    return start
