"""The table of docs/guides/gazette.md has every name of Gazette's package, and names that exist.

Method: compare the rows of the table with a list of the names and with `tidelog.gazette`.
"""

import re

from tidelog import gazette
from tidelog_testing.documents.examples import page
from tidelog_testing.documents.exports import exported_names

PAGE = page("gazette.md")
ROW = re.compile(r"^\| (?P<theirs>`[^|]+) \| (?P<ours>`[^|]+) \|[^|]*\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
THEIRS = (
    "AckIntent", "AsyncAppend", "AsyncJournalClient", "BuildAckIntents", "BuildUUID", "CSVFrameable", "CSVRecord",
    "Clock", "Clock.Tick", "Clock.Update", "DequeCommitted", "Done", "EncodeFixedProtoFrame", "Envelope",
    "ErrDesyncDetected", "ErrEmptyListResponse", "ErrMustStartReplay", "FixedFrameHeaderLength", "FixedFrameWord",
    "Flag_ACK_TXN", "Flag_CONTINUE_TXN", "Flag_OUTSIDE_TXN", "Flags", "Frameable", "Framing",
    "FramingByContentType", "GetClock", "GetFlags", "GetProducerID", "GetUUID", "HasPending", "Iterator",
    "JSONMarshalerTo",
    "JournalProducer", "JournalSpec", "ListRequest", "ListResponse", "Mappable", "MappingFunc", "MappingKeyFunc",
    "MarshalCSV", "Message", "ModuloMapping", "NewAcknowledgement", "NewClock", "NewMessageFunc", "NewProducerID",
    "NewPublisher", "NewSequencer", "NewUnmarshalFunc", "Offset", "Offsets", "ParseLabelSelector",
    "PolledList",
    "PartitionsFunc", "PendingExcept", "ProducerID", "ProducerState", "ProducerStates", "ProtoFrameable",
    "PublishCommitted", "PublishUncommitted", "Publisher", "QueueUncommitted", "RandomMapping",
    "ReadCommittedIter", "ReadRequest", "ReadUncommittedIter", "RegisterFraming",
    "RendezvousMapping", "ReplayRange", "RetryReader", "Sequencer", "SetUUID", "StartReplay", "UUID", "UnmarshalCSV",
    "UnmarshalFunc", "UnpackFixedFrame", "UnpackLine", "Validator",
)  # fmt: skip


def table() -> list[tuple[list[str], list[str]]]:
    """Return the names of each row: theirs, ours."""
    text = PAGE.partition("| theirs | ours |")[2]
    return [(CODE.findall(row["theirs"]), CODE.findall(row["ours"])) for row in ROW.finditer(text)]


def exists(name: str) -> bool:
    first, *attributes = name.split(".")
    value = getattr(gazette, first, None)
    for attribute in attributes:
        value = getattr(value, attribute, None)
    return first in exported_names(gazette) and value is not None


def test_the_table_has_every_name_of_gazettes_package() -> None:
    named = {name for theirs, _ in table() for name in theirs}
    assert [name for name in THEIRS if name not in named] == []


def test_the_names_of_the_table_exist() -> None:
    rows = table()
    assert len(rows) > 25
    assert [name for _, ours in rows for name in ours if not exists(name)] == []


def test_exported_classes_are_shown_with_the_public_path() -> None:
    exported = [getattr(gazette, name) for name in exported_names(gazette)]
    homes = {value.__name__: value.__module__ for value in exported if isinstance(value, type)}
    ours = {name: home for name, home in homes.items() if home.startswith("tidelog.")}
    assert {name: home for name, home in ours.items() if not home.startswith("tidelog.gazette")} == {}
