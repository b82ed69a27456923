"""The names on docs/guides/rocksmq.md exist. Method: look them up."""

import re

import tidelog
from tidelog import rocksmq
from tidelog_testing.documents.examples import page
from tidelog_testing.documents.exports import exported_names

PAGE = page("rocksmq.md")
OWNERS = {"mq": rocksmq.AsyncRocksMQ, "allocator": rocksmq.AsyncIDAllocator, "client": tidelog.AsyncClient}
THEIRS = (
    "NewRocksMQ", "RocksMQ", "CreateChannel", "DestroyChannel", "CreateConsumerGroup", "DestroyConsumerGroup",
    "ExistConsumerGroup", "RegisterConsumer", "Produce", "Consume", "Seek", "SeekToLatest", "ForceSeek", "GetLatestMsg",
    "CheckTopicValid", "Notify", "Close", "ProducerMessage", "ConsumerMessage", "UniqueID", "IDAllocator", "Alloc(",
    "AllocOne", "UpdateID", "begin_id", "end_id", "current_id", "unique_id", "idAllocator", "produceMu", "consumeMu",
)  # fmt: skip


def test_the_names_of_the_table_exist() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| ")]
    named = [found for cells in rows for text in cells[1:] for found in re.findall(r"`(?:await )?(\w+)\.(\w+)", text)]

    assert len(named) > 20
    assert [f"{owner}.{name}" for owner, name in named if owner in OWNERS and not hasattr(OWNERS[owner], name)] == []
    classes = {name for cells in rows for text in cells[1:] for name in re.findall(r"\b([A-Z]\w+Error)\b", text)}
    homes = {name for name in classes if hasattr(tidelog, name) or hasattr(rocksmq, name)}
    assert classes - homes == {"TypeError"}


def test_every_public_call_has_a_row() -> None:
    ours = " ".join(cell for line in PAGE.splitlines() if line.startswith("| ") for cell in line.split("|")[2:])
    calls = [name for name in vars(rocksmq.AsyncRocksMQ) if not name.startswith("_")]

    assert [name for name in (*calls, *exported_names(rocksmq)) if name not in ours] == []


def test_everything_of_the_interface_has_a_row() -> None:
    theirs = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| "))

    assert [name for name in THEIRS if name not in theirs] == []
