"""The options of a batch read of journals: ``spark.read.format("tidelog").option("journal", "my/topic/part-000")``.

============================  ==========================================================================
``journal``                   the journal to read
``journalSelector``           instead: a label selector, such as ``topic=clicks, !retired``; every journal that matches
                              when the query is planned, at most 1,024 on one node
``isolation``                 ``read_committed`` (default): each committed message once, without those of transactions
                              that are open at the end of the cut or were rolled back; ``read_uncommitted``: every frame
``uuidField``                 field of JSON objects with the UUID; default ``UUID``
``uuidFieldNumber``           number of the field of type bytes of protobuf messages with the UUID; default 1
``maxHeldMessages``           messages of open transactions that a task holds in memory; it reads older ones a second
                              time. Default: about 64 MiB of them, 16 to 8,192
============================  ==========================================================================

These options of ``tidelog.spark.options`` apply too: ``endpoint`` and the others of the connection, ``endingTick``,
``endingTimestamp``, ``asOfTick``, ``versionAsOf``, ``timestampAsOf``, ``failOnDataLoss``, ``fetchBytes``, and those of
payloads. All others are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import choice_of, known_options, number_of, only_one
from tidelog.spark.options import ALL_NAMES, JOURNAL_NAMES, ReadOptions, parse_options
from tidelog.spark.payload_options import CORRUPT_RECORD

if TYPE_CHECKING:
    from tidelog.gazette import LabelSelector

DEFAULT_UUID_FIELD: Final = "UUID"
MAX_HELD_MESSAGES: Final = 1_000_000
_ISOLATIONS: Final = {"read_committed": True, "read_uncommitted": False}
"""Whether only committed messages are read."""
_MAX_FIELD_NUMBER: Final = (1 << 29) - 1
# protobuf reserves these numbers.
_RESERVED_NUMBERS: Final = range(19_000, 20_000)
_SOURCES: Final = ("journal", "journalSelector")
_WHOLE: Final = "a journal is read from its first frame, where its producers begin; filter on the column 'begin'"
_ONE_PARTITION: Final = "a journal is one partition, because a split within a transaction would lose messages"
_REFUSED: Final = {
    "path": "load(...) names a channel; set 'journal' and call load() without a name",
    "channel": "a read is of channels or of journals",
    "channels": "a read is of channels or of journals",
    "channelPattern": "a read is of channels or of journals",
    "vchannels": "a read is of channels or of journals",
    "startingTick": _WHOLE,
    "startingTimestamp": _WHOLE,
    "startingOffsets": _WHOLE,
    "endingOffsets": "set 'endingTick', 'endingTimestamp' or 'asOfTick'",
    "types": "the frames of a journal have no types",
    "pushFilters": "filters on a journal are evaluated by Spark",
    "archive": "archives are of channels",
    "archiveOnly": "archives are of channels",
    "minPartitions": _ONE_PARTITION,
    "maxMessagesPerPartition": _ONE_PARTITION,
    "maxRecordsPerPartition": _ONE_PARTITION,
    "maxBytesPerPartition": _ONE_PARTITION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions(ReadOptions):
    """The options of a read of journals. Those of all reads apply; ``channels`` is set when the journals are known.

    Attributes:
        journal: Name of the journal; empty for a selector.
        selector: Selects the journals; for one journal, by its name.
        selector_text: The selector as the user wrote it; empty for one journal.
        is_committed: True for ``read_committed``.
        uuid_field, uuid_field_number: Where JSON objects and protobuf messages have their UUID.
        max_held_messages: Maximum number of messages that a task holds; 0 for the default.
    """

    journal: str
    selector: "LabelSelector"
    selector_text: str
    is_committed: bool
    uuid_field: str
    uuid_field_number: int
    max_held_messages: int


def parse_journal_options(raw: Mapping[str, object]) -> JournalOptions:
    """Parse the options that Spark hands over for a read of journals.

    Raises:
        OptionError: An option is unknown or invalid, does not apply to journals, or contradicts another one.
        InvalidSelectorError: The selector has another form.
    """
    options = known_options(raw, ALL_NAMES)
    for name, reason in _REFUSED.items():
        if name in options:
            raise OptionError(f"the option '{name}' does not apply to journals: {reason}")
    source = only_one(options, _SOURCES)
    if source is None or not options[source]:
        raise OptionError("no journal is set: set the option 'journal' to a name, or 'journalSelector' to a selector")
    name = options["journal"] if source == "journal" else ""
    text = options.get("journalSelector", "")
    shared = {each: value for each, value in options.items() if each not in JOURNAL_NAMES}
    read = _read_options(shared)
    return JournalOptions(
        **{each.name: getattr(read, each.name) for each in fields(read)},
        journal=name,
        selector=_selector(name, text),
        selector_text=text,
        is_committed=choice_of(
            options, "isolation", _ISOLATIONS, "read_committed", f"expected {' or '.join(_ISOLATIONS)}"
        ),
        uuid_field=_uuid_field(options),
        uuid_field_number=_field_number(options),
        max_held_messages=number_of(options, "maxHeldMessages", 0, 1, MAX_HELD_MESSAGES),
    )


def _selector(name: str, text: str) -> "LabelSelector":
    # Imported here: reads of channels import this module, and need none of that package.
    from tidelog.gazette import LabelSelector, LabelTerm, parse_label_selector

    return LabelSelector((LabelTerm("name", name),)) if name else parse_label_selector(text)


def _read_options(shared: Mapping[str, str]) -> ReadOptions:
    # The channels of the journals are known when the query is planned.
    read = parse_options({**shared, "channel": "_journal"})
    other = next((name for name in read.more_columns if name != CORRUPT_RECORD), None)
    if other is not None:
        raise OptionError(f"the option 'moreColumns' names {other!r}: for journals choose from {CORRUPT_RECORD}")
    return read


def _uuid_field(options: Mapping[str, str]) -> str:
    name = options.get("uuidField", DEFAULT_UUID_FIELD)
    if not name:
        raise OptionError("the option 'uuidField' is empty: name a field of the JSON objects, or remove it")
    return name


def _field_number(options: Mapping[str, str]) -> int:
    number = number_of(options, "uuidFieldNumber", 1, 1, _MAX_FIELD_NUMBER)
    if number in _RESERVED_NUMBERS:
        raise OptionError(
            f"the option 'uuidFieldNumber' is {number}: protobuf reserves {_RESERVED_NUMBERS.start} to "
            f"{_RESERVED_NUMBERS.stop - 1}; use the number of the field in the .proto file"
        )
    return number
