"""The options of ``spark.readStream.format("tidelog")``, in addition to those of ``tidelog.spark.options``.

============================  ==========================================================================
``startingOffsets``           where a query without a checkpoint starts: ``latest`` (default): after all messages
                              acknowledged before its first trigger; ``earliest``: at the first message that was not
                              trimmed. ``startingTick`` or ``startingTimestamp`` may be set instead
``maxMessagesPerTrigger``     maximum number of messages per micro-batch; aliases: ``maxRecordsPerTrigger``,
                              ``maxOffsetsPerTrigger``
``maxBytesPerTrigger``        maximum size of a micro-batch, as stored in the log, e.g. ``64MiB``
``commitGroup``               consumer group to which the query commits its position, so that its lag is visible
``failOnDataLoss``            ``true`` (default): the query fails if messages that it has not read were trimmed or
                              destroyed; ``false``: it continues with the remaining ones and logs a warning
============================  ==========================================================================

The options that end a read (``endingTick``, ``endingTimestamp``, ``asOfTick``, ``timestampAsOf``) are refused: a stream
has no end. A micro-batch has at least one message or one transaction, even if that exceeds the limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import MAX_COUNT, known_options, number_of, only_one, size_of
from tidelog.spark.options import ALL_NAMES, STREAM_NAMES, ReadOptions, parse_options
from tidelog.spark.stream.admission import Limits

Start = Literal["latest", "earliest", "given"]

_ENDS: Final = ("endingTick", "endingTimestamp", "asOfTick", "timestampAsOf")
_OF_BATCHES: Final = {
    "pushFilters": "Spark hands no filters to a stream; use 'types' and the channel options",
    "archive": "a stream reads only the log; read the archive with spark.read, and start the stream after its end",
    "archiveOnly": "a stream reads only the log; read the archive with spark.read",
}
_STARTS: Final = ("startingOffsets", "startingTick", "startingTimestamp")
_MESSAGES: Final = ("maxMessagesPerTrigger", "maxRecordsPerTrigger", "maxOffsetsPerTrigger")
_OFFSETS: Final[dict[str, Start]] = {"latest": "latest", "earliest": "earliest"}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream, checked.

    Attributes:
        read: What to read, as for a batch.
        start: Where a query without a checkpoint starts; ``given``: at ``read.begin_tick``.
        limits: Maximum size of a micro-batch.
        commit_group: Consumer group to which the query commits its position; empty if not set.
    """

    read: ReadOptions
    start: Start
    limits: Limits
    commit_group: str


def parse_stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Parse the options that Spark hands over for a stream.

    Raises:
        OptionError: An option is unknown or invalid, or two contradict each other.
    """
    options = known_options(raw, ALL_NAMES)
    for name in _ENDS:
        if name in options:
            raise OptionError(f"a stream has no end: remove the option '{name}', or read with spark.read")
    for name, reason in _OF_BATCHES.items():
        if name in options:
            raise OptionError(f"remove the option '{name}': {reason}")
    start = only_one(options, _STARTS)
    messages = only_one(options, _MESSAGES)
    group = options.get("commitGroup", "")
    if "commitGroup" in options and not group:
        raise OptionError("the option 'commitGroup' is empty: name a consumer group, or remove it")
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
    """Check the options of a batch read.

    Raises:
        OptionError: An option that only a stream has is set.
    """
    given = {name.lower() for name in raw}
    for name in STREAM_NAMES:
        if name.lower() in given:
            hint = "; use startingTick and endingTick to bound a batch" if name == "startingOffsets" else ""
            raise OptionError(f"the option '{name}' is for spark.readStream only: remove it from spark.read{hint}")


def _start(options: Mapping[str, str]) -> Start:
    text = options.get("startingOffsets", "latest")
    start = _OFFSETS.get(text.lower())
    if start is None:
        raise OptionError(
            f"the option 'startingOffsets' is {text!r}: choose from latest and earliest, or set startingTick or "
            "startingTimestamp"
        )
    return start
