"""The options of ``spark.read.format("tidelog")``. Names are case-insensitive; values are text.

============================  ==========================================================================
``endpoint``                  ``host:port`` of the server, or of several nodes of a cluster, comma-separated, or
                              ``tidelog://host:port``, or ``tidelogs://host:port`` for TLS; default: the context that
                              ``TIDELOG_CONTEXT`` names, ``TIDELOG_ENDPOINT``, the selected context, 127.0.0.1:7420
``context``                   in place of ``endpoint``: name of a context on the driver, see ``tidelog ctx``
``channel``                   one channel with all its vchannels (partitions); same as ``load("orders")``
``channels``                  several channels, comma-separated
``channelPattern``            every channel that matches when the query is planned and that the caller may read, as in a
                              shell: ``*`` matches any characters, ``?`` one, ``[ab]`` one of a set. ``orders.*``
                              matches all names below ``orders.``, ``*`` all names. System channels, which begin with
                              ``_``, never match
``vchannels``                 single vchannels, comma-separated: ``orders/0,orders/2``
``startingTick``              start tick, inclusive; default: the first tick that was not trimmed
``startingTimestamp``         start time, inclusive: milliseconds since the epoch, or ISO 8601
``endingTick``                end tick, exclusive
``endingTimestamp``           end time, exclusive; format as ``startingTimestamp``
``asOfTick``                  read the log as of this tick, inclusive: every read returns the same rows; alias:
                              ``versionAsOf``
``timestampAsOf``             read the log as of this time, inclusive; format as ``startingTimestamp``
``types``                     only messages of these types, comma-separated
``pushFilters``               ``true``: the server evaluates the filters on ``tick``, ``timestamp``, ``channel``,
                              ``vchannel`` and ``type`` of a WHERE; default ``false``. Use it only for a DataFrame that
                              occurs once in one query: see docs/guides/spark/reading.md
``moreColumns``               optional columns to add, comma-separated: ``txn_id``, ``broadcast_id``, ``event_time``,
                              ``_corrupt_record``
``archive``                   folder of an archive (docs/guides/spark/pipelines.md): archived messages are read from it,
                              even if the log was trimmed, and newer ones from the log, as one table
``archiveOnly``               ``true``: read only the archive, without a server; default ``false``
``payloadFormat``             type of ``payload``: ``binary`` (default), ``string``, or ``json``, a struct; alias:
                              ``valueFormat``
``payloadSchema``             fields of JSON payloads, as a Spark schema string: ``id BIGINT, name STRING``
``mode``                      handling of payloads that are invalid UTF-8 or do not fit the schema: ``permissive``
                              (default): NULL, with the bytes in ``_corrupt_record``; ``failfast``: the read fails
``minPartitions``             minimum number of partitions, if there is enough data; default: the driver's cores
``maxMessagesPerPartition``   approximate maximum number of messages per partition; alias:
                              ``maxRecordsPerPartition``
``maxBytesPerPartition``      approximate maximum size of a partition, as stored in the log, e.g. ``64MiB``; default:
                              ``128MiB``
``fetchBytes``                approximate size of a response to a task, up to ``4MiB``; default: ``2MiB``
``tokenFile``                 file with the access token, on the driver and on each executor; default:
                              ``TIDELOG_TOKEN_FILE``
``token``                     the access token; prefer ``tokenFile``. Spark redacts it in plans. Default:
                              ``TIDELOG_TOKEN``
``tlsCa``                     CA file to verify the server with; enables TLS. Default: ``TIDELOG_TLS_CA``
``tlsCert``, ``tlsKey``       client certificate and key files; default: ``TIDELOG_TLS_CERT``, ``TIDELOG_TLS_KEY``
``serverTimeout``             seconds that planning and tasks wait for an unreachable server, with a warning: 0 to 1800,
                              default 300
``failOnDataLoss``            ``true`` (default): the read fails if ``startingTick`` was trimmed; ``false``: it starts
                              at the first available tick and logs a warning
============================  ==========================================================================

``tidelog.spark.offset_options`` has ``startingOffsets`` and ``endingOffsets``. ``tidelog.spark.stream.options`` lists
the additional options of streams, ``tidelog.spark.journals.options`` those of reads of journals.

Set exactly one of ``channel``, ``channels``, ``channelPattern`` and ``vchannels``. If the end lies beyond the last
durable message, the read ends with that message. Without ``asOfTick`` or ``timestampAsOf`` each planning of a query
takes a new cut, at one tick for all channels, so the rows are a consistent snapshot. Times without an offset are UTC.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog import ChannelPattern
from tidelog.spark.connection import Connection, connection_of
from tidelog.spark.errors import OptionError
from tidelog.spark.names import channel_of
from tidelog.spark.option_values import (
    MAX_COUNT,
    MAX_DIGITS,
    flag_of,
    folder_of,
    known_options,
    names_of,
    number_of,
    only_one,
    size_of,
    time_ms_of,
)
from tidelog.spark.payload_options import AS_THEY_ARE, CORRUPT_RECORD, PayloadFormat, parse_payload_format
from tidelog.spark.ticks import END_OF_TIME, MAX_TICK, floor_ms, time_to_tick

_NAMES: Final = (
    "endpoint", "context", "channel", "channels", "channelPattern", "vchannels", "startingTick", "startingTimestamp",
    "endingTick", "endingTimestamp", "asOfTick", "versionAsOf", "timestampAsOf", "types", "pushFilters", "moreColumns",
    "payloadFormat", "valueFormat", "payloadSchema", "mode", "minPartitions", "maxMessagesPerPartition",
    "maxRecordsPerPartition", "maxBytesPerPartition", "fetchBytes", "failOnDataLoss", "serverTimeout", "archive",
    "archiveOnly", "path", "token", "tokenFile", "tlsCa", "tlsCert", "tlsKey",
)  # fmt: skip
OFFSET_NAMES: Final = ("startingOffsets", "endingOffsets")
"""Options of ``tidelog.spark.offset_options``, which jobs refuse."""
STREAM_NAMES: Final = (
    "maxMessagesPerTrigger", "maxRecordsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "commitGroup",
)  # fmt: skip
"""Options of ``tidelog.spark.stream.options``, which a batch read refuses."""
JOURNAL_NAMES: Final = (
    "journal", "journalSelector", "isolation", "uuidField", "uuidFieldNumber", "maxHeldMessages",
)  # fmt: skip
"""Options of ``tidelog.spark.journals.options``, which a read of channels refuses."""
_ELSEWHERE: Final = {
    **dict.fromkeys(JOURNAL_NAMES, "reads of journals: set 'journal' or 'journalSelector'"),
    **dict.fromkeys(OFFSET_NAMES, "spark.read and spark.readStream of channels: set a tick or a time instead"),
}
ALL_NAMES: Final = (*_NAMES, *OFFSET_NAMES, *STREAM_NAMES, *JOURNAL_NAMES)
_SOURCES: Final = ("channel", "channels", "channelPattern", "vchannels")
STARTS: Final = ("startingTick", "startingTimestamp")
ENDS: Final = ("endingTick", "endingTimestamp")
CUTS: Final = ("asOfTick", "versionAsOf", "timestampAsOf")
MORE_COLUMNS: Final = ("txn_id", "broadcast_id", "event_time", CORRUPT_RECORD)
"""Optional columns, added by the option ``moreColumns``."""
_MESSAGES_PER_PARTITION: Final = ("maxMessagesPerPartition", "maxRecordsPerPartition")
_MAX_PARTITIONS: Final = 100_000
_MAX_TYPES: Final = 1_024
_MAX_TYPE: Final = (1 << 32) - 1
# Spark's default for files.
_DEFAULT_PARTITION_BYTES: Final = 128 << 20
DEFAULT_FETCH_BYTES: Final = 2 << 20
"""With 4 MiB, page faults more than double: malloc returns blocks of that size to the system each time."""
_MAX_FETCH_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read, checked as far as possible without the server. Others are as in the table above.

    Attributes:
        channels, vchannels, pattern: What to read; exactly one is set. A vchannel is ``<channel>/<index>``.
        begin_tick: Start tick, inclusive; 0 for the first one that was not trimmed.
        begin_ticks: Start tick by vchannel, 0 and -1 for the earliest and the latest one; empty if all start alike.
        begin_is_tick: True if the user set this exact tick, so it must still be available.
        end_tick: End tick, exclusive; 0 for the consistent cut at planning.
        end_ticks: End tick by vchannel, exclusive, END_OF_TIME for that cut; empty if all end alike.
        cut: Option that set ``end_tick``, such as ``asOfTick=5``, if all below it must be durable; else empty.
        types: Message types to read; None for all.
        more_columns: Subset of MORE_COLUMNS, in their order.
        max_messages_per_partition: Approximate maximum number of messages; 0 for unlimited.
        archive: Absolute path of the archive to read in addition; empty if not set.
    """

    connection: Connection
    channels: tuple[str, ...]
    vchannels: tuple[str, ...]
    pattern: ChannelPattern | None = None
    begin_tick: int = 0
    begin_ticks: Mapping[str, int] = field(default_factory=dict)
    begin_is_tick: bool = False
    end_tick: int = 0
    end_ticks: Mapping[str, int] = field(default_factory=dict)
    cut: str = ""
    types: frozenset[int] | None = None
    pushes_filters: bool = False
    more_columns: tuple[str, ...] = ()
    min_partitions: int = 1
    max_messages_per_partition: int = 0
    max_bytes_per_partition: int = _DEFAULT_PARTITION_BYTES
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    fail_on_data_loss: bool = True
    archive: str = ""
    archive_only: bool = False
    payloads: PayloadFormat = AS_THEY_ARE

    @property
    def is_cut(self) -> bool:
        """True if ``end_tick`` is a consistent cut that the user set."""
        return bool(self.cut)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the channels that the options name; empty for a pattern."""
        return self.channels or tuple(dict.fromkeys(map(channel_of, self.vchannels)))

    def begin_of(self, vchannel: str) -> int:
        """Return the start tick of a vchannel, as ``begin_tick``; -1 for the latest one."""
        return self.begin_ticks.get(vchannel, self.begin_tick)

    def end_of(self, vchannel: str) -> int:
        """Return the end tick of a vchannel, exclusive; END_OF_TIME for the cut at planning."""
        return self.end_ticks.get(vchannel, self.end_tick or END_OF_TIME)

    def selects(self, channel: str) -> bool:
        """Return whether the options name ``channel`` or match it."""
        return channel in self.channel_names if self.pattern is None else self.pattern.covers(channel)


def reads_journals(raw: Mapping[str, object]) -> bool:
    """Return whether the options that Spark hands over name journals."""
    return not {"journal", "journalselector"}.isdisjoint(map(str.lower, raw))


def parse_options(raw: Mapping[str, object]) -> ReadOptions:
    """Parse the options that Spark hands over, except those that only a stream has.

    Raises:
        OptionError: An option is unknown or invalid, or two contradict each other.
    """
    options = known_options(raw, ALL_NAMES)
    if (elsewhere := next((name for name in _ELSEWHERE if name in options), None)) is not None:
        raise OptionError(f"the option '{elsewhere}' is for {_ELSEWHERE[elsewhere]}")
    if "path" in options:
        if "channel" in options:
            raise OptionError("the channel is set both by the option 'channel' and by load(...): use one of them")
        options["channel"] = options.pop("path")
    source = only_one(options, _SOURCES)
    if source is None:
        raise OptionError(
            "no channel is set: use load('orders'), or option 'channel', 'channels', 'channelPattern' or 'vchannels'"
        )
    pattern = _pattern(options[source]) if source == "channelPattern" else None
    names = () if pattern else names_of(source, options[source])
    begin, end = only_one(options, STARTS), only_one(options, (*ENDS, *CUTS))
    per_partition = only_one(options, _MESSAGES_PER_PARTITION) or _MESSAGES_PER_PARTITION[0]
    parsed = ReadOptions(
        connection=connection_of(options),
        channels=names if source != "vchannels" else (),
        vchannels=names if source == "vchannels" else (),
        pattern=pattern,
        begin_tick=_tick(options, begin) if begin else 0,
        begin_is_tick=begin == "startingTick",
        end_tick=_end_tick(options, end) if end else 0,
        cut=f"{end}={options[end]}" if end in CUTS else "",
        types=_types(options),
        pushes_filters=flag_of(options, "pushFilters", default=False),
        more_columns=_more_columns(options),
        min_partitions=number_of(options, "minPartitions", _cores(), 1, _MAX_PARTITIONS),
        max_messages_per_partition=number_of(options, per_partition, 0, 1, MAX_COUNT),
        max_bytes_per_partition=size_of(options, "maxBytesPerPartition", _DEFAULT_PARTITION_BYTES),
        fetch_bytes=size_of(options, "fetchBytes", DEFAULT_FETCH_BYTES, _MAX_FETCH_BYTES),
        fail_on_data_loss=flag_of(options, "failOnDataLoss", default=True),
        archive=folder_of(options, "archive"),
        archive_only=flag_of(options, "archiveOnly", default=False),
        payloads=parse_payload_format(options),
    )
    if parsed.archive_only and not parsed.archive:
        raise OptionError("the option 'archiveOnly' is true without 'archive': set 'archive' to the archive's folder")
    if CORRUPT_RECORD in parsed.more_columns:
        parsed.payloads.check_corrupt_record()
    if begin and end and parsed.begin_tick >= parsed.end_tick:
        raise OptionError(
            f"'{begin}' ({options[begin]}) is not before '{end}' ({options[end]}): "
            "the start is inclusive and the end is exclusive"
        )
    return parsed


def _pattern(text: str) -> ChannelPattern:
    try:
        pattern = ChannelPattern(text)
    except ValueError as error:
        raise OptionError(f"the option 'channelPattern': {error}") from None
    if pattern.prefix == text:
        raise OptionError(
            f"the option 'channelPattern' is {text!r}, which has neither *, ? nor [: load({text!r}) reads one channel"
        )
    return pattern


def _types(options: Mapping[str, str]) -> frozenset[int] | None:
    if "types" not in options:
        return None
    names = names_of("types", options["types"])
    wrong = [
        name
        for name in names
        if not (name.isascii() and name.isdigit() and len(name) <= MAX_DIGITS and int(name) <= _MAX_TYPE)
    ]
    if wrong or len(names) > _MAX_TYPES:
        raise OptionError(
            f"the option 'types' is {options['types'][:64]!r}: expected up to {_MAX_TYPES} whole numbers from 0 to "
            f"{_MAX_TYPE}, separated by commas"
        )
    return frozenset(map(int, names))


def _more_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    if "moreColumns" not in options:
        return ()
    names = names_of("moreColumns", options["moreColumns"])
    for name in names:
        if name not in MORE_COLUMNS:
            raise OptionError(f"the option 'moreColumns' names {name!r}: choose from {', '.join(MORE_COLUMNS)}")
    return tuple(name for name in MORE_COLUMNS if name in names)


def _tick(options: Mapping[str, str], name: str) -> int:
    if name.endswith("Timestamp"):
        return time_to_tick(time_ms_of(name, options[name]))
    return number_of(options, name, 0, 0, MAX_TICK)


def _end_tick(options: Mapping[str, str], name: str) -> int:
    """Return the exclusive end. Cut options are inclusive, because their usual value is an MVCC tick."""
    if name == "timestampAsOf":
        return min(time_to_tick(time_ms_of(name, options[name], rounded=floor_ms) + 1), MAX_TICK)
    tick = _tick(options, name)
    if name in CUTS:
        return tick + 1
    if tick == 0:
        raise OptionError(f"the option '{name}' is 0, but it is exclusive and nothing precedes tick 0: set 1 or more")
    return tick


def _cores() -> int:
    """Return the cores of the driver. In local mode they run the tasks; on a cluster the number is only a hint."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
