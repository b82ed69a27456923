"""The options of ``spark.read.format("tidelog")``. Names are those below in any case, values are text.

============================  ==========================================================================
``endpoint``                  ``host:port`` of the server, or of nodes of a cluster, divided by commas; default:
                              ``TIDELOG_ENDPOINT``, else 127.0.0.1:7420
``channel``                   one channel with all its vchannels; ``load("orders")`` means the same
``channels``                  several, divided by commas
``channelPattern``            all channels that it covers when the query is planned: ``orders.*`` is everything below
                              ``orders.``, ``*`` everything; channels of the server itself begin with ``_`` and are
                              covered by none
``vchannels``                 vchannels, divided by commas: ``orders/0,orders/2``
``startingTick``              first tick, inclusive; default: all that was not trimmed
``startingTimestamp``         first time, inclusive: milliseconds since the epoch, or ISO 8601
``endingTick``                last tick, exclusive
``endingTimestamp``           last time, exclusive, as ``startingTimestamp``
``asOfTick``                  the log as it was at this tick, inclusive: the same rows whenever it is read
``timestampAsOf``             the log as it was at this time, inclusive, as ``startingTimestamp``
``types``                     only messages of these types, divided by commas
``pushFilters``               ``true``: the server applies what a WHERE says of ``tick``, ``timestamp``, ``channel``,
                              ``vchannel`` and ``type``; default ``false``. Only for a DataFrame that is used once, in
                              one place of one query: see client/SPARK.md
``moreColumns``               columns that are there on request, divided by commas: ``txn_id``, ``broadcast_id``,
                              ``event_time``, ``_corrupt_record``
``archive``                   folder of an archive (see SPARK_PIPELINES.md): what it has is read from there, also where
                              the log was trimmed, and what is newer from the log, as one table
``archiveOnly``               ``true``: read the archive alone, without a server; default ``false``
``payloadFormat``             what ``payload`` is: ``binary`` (default), ``string``, or ``json``, a struct;
                              ``valueFormat`` means the same
``payloadSchema``             the fields of JSON payloads as Spark writes a schema: ``id BIGINT, name STRING``
``mode``                      what becomes of payloads that are no UTF-8 or no such JSON: ``permissive`` (default):
                              NULL, with their bytes in ``_corrupt_record``; ``failfast``: the read fails
``minPartitions``             at least so many partitions, when there is enough to divide; default: the driver's cores
``maxMessagesPerPartition``   about so many messages in a partition at most
``maxBytesPerPartition``      about so many bytes in a partition at most, as the log stores them: ``64MiB``; default:
                              ``128MiB``
``tokenFile``                 file with the token to show, on the driver and on each executor; default: the variable
                              ``TIDELOG_TOKEN_FILE``
``token``                     the token itself; better a file. Spark redacts it in plans. Default: ``TIDELOG_TOKEN``
``tlsCa``                     file of the authorities that vouch for the server; gives TLS. Default: ``TIDELOG_TLS_CA``
``tlsCert``, ``tlsKey``       files of a client certificate and its key; ``TIDELOG_TLS_CERT``, ``TIDELOG_TLS_KEY``
``serverTimeout``             seconds that planning and tasks wait for a server that is away, with a warning: 0 to 1800,
                              default 300
``failOnDataLoss``            ``true`` (default): a ``startingTick`` that was trimmed fails; ``false``: the read
                              starts at the first tick available and logs a warning
============================  ==========================================================================

A stream has more of them, see ``tidelog.spark.stream_options``.

Exactly one of ``channel``, ``channels``, ``channelPattern`` and ``vchannels`` is given. An end beyond what is durable
means all that is durable. Without ``asOfTick`` or ``timestampAsOf`` the cut is taken anew each time Spark plans a
query: all channels at one tick, so that what the rows show together did exist together. Times without an offset are
UTC.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.spark.connection import Connection, connection_of
from tidelog.spark.option_error import OptionError as OptionError  # noqa: PLC0414 - for others
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
from tidelog.spark.ticks import MAX_TICK, floor_ms, time_to_tick

_NAMES: Final = (
    "endpoint", "channel", "channels", "channelPattern", "vchannels", "startingTick", "startingTimestamp", "endingTick",
    "endingTimestamp", "asOfTick", "timestampAsOf", "types", "pushFilters", "moreColumns", "payloadFormat",
    "valueFormat", "payloadSchema", "mode", "minPartitions", "maxMessagesPerPartition", "maxBytesPerPartition",
    "failOnDataLoss", "serverTimeout", "archive", "archiveOnly", "path", "token", "tokenFile", "tlsCa", "tlsCert",
    "tlsKey",
)  # fmt: skip
STREAM_NAMES: Final = (
    "startingOffsets", "maxMessagesPerTrigger", "maxRecordsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
    "commitGroup",
)  # fmt: skip
"""Options of ``tidelog.spark.stream_options``, which mean nothing for a batch."""
ALL_NAMES: Final = (*_NAMES, *STREAM_NAMES)
_SOURCES: Final = ("channel", "channels", "channelPattern", "vchannels")
_CUTS: Final = ("asOfTick", "timestampAsOf")
MORE_COLUMNS: Final = ("txn_id", "broadcast_id", "event_time", CORRUPT_RECORD)
"""Columns that are there on request."""
_EVERYTHING: Final = "*"
_BELOW: Final = ".*"
# Names of the server's own channels; no pattern covers them, as with permissions.
_RESERVED_PREFIX: Final = "_"
_MAX_PARTITIONS: Final = 100_000
_MAX_TYPES: Final = 1_024
_MAX_TYPE: Final = (1 << 32) - 1
# As Spark divides files.
_DEFAULT_PARTITION_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class ChannelPattern:
    """Names of channels: those below a name (``orders.*``: ``orders.eu``, neither ``orders`` nor ``ordersx``), or all.

    Attributes:
        text: ``*``, or a name and ``.*``.
    """

    text: str

    @property
    def prefix(self) -> str:
        """What every name that is covered begins with."""
        return self.text[:-1]

    def covers(self, name: str) -> bool:
        """Tell whether a channel is meant."""
        return not name.startswith(_RESERVED_PREFIX) and name.startswith(self.prefix) and name != self.prefix


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, checked as far as that is possible without the server.

    Attributes:
        connection: How to reach the server.
        channels: Channels to read whole; empty when ``pattern`` or ``vchannels`` is given.
        vchannels: ``<channel>/<index>`` each; empty when ``channels`` or ``pattern`` is given.
        pattern: Channels to read whole, as they are at planning; None when they are named.
        begin_tick: First tick, inclusive; 0 for all that was not trimmed.
        begin_is_tick: Whether the user named this very tick, so that it must still be there.
        end_tick: Last tick, exclusive; 0 for the consistent cut at planning.
        cut: What was said of ``end_tick``, ``asOfTick=5``, if all below it must be durable; empty if not.
        types: Only messages of these types; None for all.
        pushes_filters: Whether Spark hands its filters over.
        more_columns: Some of MORE_COLUMNS, in their order.
        min_partitions: At least 1.
        max_messages_per_partition: 0 for no bound.
        max_bytes_per_partition: Of columns.
        fail_on_data_loss: Whether a trimmed start is an error.
        archive: Absolute path of the archive to read from as well; empty for none.
        archive_only: Whether the archive alone is read.
        payloads: What they are.
    """

    connection: Connection
    channels: tuple[str, ...]
    vchannels: tuple[str, ...]
    pattern: ChannelPattern | None = None
    begin_tick: int = 0
    begin_is_tick: bool = False
    end_tick: int = 0
    cut: str = ""
    types: frozenset[int] | None = None
    pushes_filters: bool = False
    more_columns: tuple[str, ...] = ()
    min_partitions: int = 1
    max_messages_per_partition: int = 0
    max_bytes_per_partition: int = _DEFAULT_PARTITION_BYTES
    fail_on_data_loss: bool = True
    archive: str = ""
    archive_only: bool = False
    payloads: PayloadFormat = AS_THEY_ARE

    @property
    def is_cut(self) -> bool:
        """Whether ``end_tick`` is a consistent cut that the user named."""
        return bool(self.cut)


def parse_options(raw: Mapping[str, str]) -> ReadOptions:
    """Return the options that Spark hands over; those that only a stream has are left aside.

    Raises:
        OptionError: See there.
    """
    options = known_options(raw, ALL_NAMES)
    if "path" in options:
        if "channel" in options:
            raise OptionError("give the channel either as option 'channel' or as load(...), not both")
        options["channel"] = options.pop("path")
    source = only_one(options, _SOURCES)
    if source is None:
        raise OptionError(
            "say what to read: load('orders'), or option 'channel', 'channels', 'channelPattern' or 'vchannels'"
        )
    pattern = _pattern(options[source]) if source == "channelPattern" else None
    names = () if pattern else names_of(source, options[source])
    begin = only_one(options, ("startingTick", "startingTimestamp"))
    end = only_one(options, ("endingTick", "endingTimestamp", *_CUTS))
    parsed = ReadOptions(
        connection=connection_of(options),
        channels=names if source != "vchannels" else (),
        vchannels=names if source == "vchannels" else (),
        pattern=pattern,
        begin_tick=_tick(options, begin) if begin else 0,
        begin_is_tick=begin == "startingTick",
        end_tick=_end_tick(options, end) if end else 0,
        cut=f"{end}={options[end]}" if end in _CUTS else "",
        types=_types(options),
        pushes_filters=flag_of(options, "pushFilters", default=False),
        more_columns=_more_columns(options),
        min_partitions=number_of(options, "minPartitions", _cores(), 1, _MAX_PARTITIONS),
        max_messages_per_partition=number_of(options, "maxMessagesPerPartition", 0, 1, MAX_COUNT),
        max_bytes_per_partition=size_of(options, "maxBytesPerPartition", _DEFAULT_PARTITION_BYTES),
        fail_on_data_loss=flag_of(options, "failOnDataLoss", default=True),
        archive=folder_of(options, "archive"),
        archive_only=flag_of(options, "archiveOnly", default=False),
        payloads=parse_payload_format(options),
    )
    if parsed.archive_only and not parsed.archive:
        raise OptionError("the option 'archiveOnly' is true without 'archive': name the archive's folder there")
    if CORRUPT_RECORD in parsed.more_columns:
        parsed.payloads.check_corrupt_record()
    if begin and end and parsed.begin_tick >= parsed.end_tick:
        raise OptionError(
            f"'{begin}' ({options[begin]}) is not before '{end}' ({options[end]}): "
            "the start is inclusive and the end is exclusive"
        )
    return parsed


def _pattern(text: str) -> ChannelPattern:
    stem = text.removesuffix(_BELOW)
    if text != _EVERYTHING and (stem == text or not stem or "*" in stem):
        hint = f"; load({text!r}) reads one channel" if "*" not in text and text else ""
        raise OptionError(f"the option 'channelPattern' is {text!r}: write a name and '.*', or '*' alone{hint}")
    return ChannelPattern(text)


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
            f"the option 'types' is {options['types'][:64]!r}: write up to {_MAX_TYPES} whole numbers from 0 to "
            f"{_MAX_TYPE}, divided by commas"
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
    """Return the exclusive end; those of a cut are inclusive, as the MVCC tick that one would put there."""
    if name == "timestampAsOf":
        return min(time_to_tick(time_ms_of(name, options[name], rounded=floor_ms) + 1), MAX_TICK)
    tick = _tick(options, name)
    if name == "asOfTick":
        return tick + 1
    if tick == 0:
        raise OptionError(f"the option '{name}' is 0, and it is exclusive: nothing lies before it")
    return tick


def _cores() -> int:
    """Return the cores of the driver: in local mode those that will run the tasks; a hint elsewhere."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
