"""The example of docs/guides/msgstream.md works, and the names on it exist.

Method: run the example; look up the names of its tables.
"""

import re
from pathlib import Path

import tidelog
from tidelog import msgstream
from tidelog.msgstream import MsgType, class_of_type
from tidelog_testing.documents.examples import output_of_example, page

PAGE = page("msgstream.md")
OWNERS = {
    "stream": msgstream.AsyncMsgStream,
    "factory": msgstream.AsyncMsgStreamFactory,
    "dispatcher": msgstream.UnmarshalDispatcher,
    "message": msgstream.GeneralMsg(type=0),
    "TsMsg": msgstream.TsMsg,
    "MsgType": MsgType,
}
# The names in both documents, without repetitions.
THEIRS = (
    "MsgType", "TsMsg", "SetTs", "BeginTs", "EndTs", "Type", "Marshal", "Unmarshal", "TraceCtx", "SetTraceCtx", "ID",
    "SourceID", "HashKeys", "Position", "SetPosition", "MsgPack", "MsgPosition", "MsgStream", "RepackFunc", "Produce",
    "Broadcast", "Consume", "PulsarMsgStream", "CreatePulsarProducers", "CreatePulsarConsumers", "SetRepackFunc",
    "Start", "Close", "NewPulsarMsgStream", "PulsarTtMsgStream", "NewPulsarTtMsgStream", "MarshalFunc", "UnmarshalFunc",
    "UnmarshalDispatcher", "AddMsgTemplate", "addDefaultMsgTemplates", "NewUnmarshalDispatcher",
    "UnmarshalDispatcherFactory", "ProtoUDFactory", "MemUDFactory", "Chan", "AsProducer", "AsConsumer", "Seek",
    "MsgStreamFactory", "SetParams", "NewMsgStream", "NewTtMsgStream", "PulsarMsgStreamFactory", "RmqMsgStreamFactory",
    "RmqMsgStream", "NewRmqMsgStream", "RmqTtMsgStream", "NewRmqTtMsgStream", "ComputeProduceChannelIndexes",
    "GetLatestMsgID", "CheckTopicValid", "Disposer", "MarshalType", "MarshalDispatcher", "ReqType",
)  # fmt: skip


def test_the_example_runs(tmp_path: Path) -> None:
    printed = output_of_example(PAGE, tmp_path)

    *messages, last = printed.splitlines()
    assert sorted(messages) == [
        "DeleteMsg [7] books/1", "InsertMsg [10] books/1", "InsertMsg [11] books/2", "InsertMsg [12] books/0",
    ]  # fmt: skip
    assert last == "3 messages, one for each channel"


def test_the_names_of_the_table_exist() -> None:
    rows = _rows("What is where")
    named = [found for _, ours, why in rows for found in re.findall(r"`(?:await )?(\w+)\.(\w+)", ours + why)]

    assert len(named) > 30
    assert [f"{owner}.{name}" for owner, name in named if owner in OWNERS and not _has(owner, name)] == []
    classes = {name for _, ours, why in rows for name in re.findall(r"\b([A-Z]\w+Error)\b|`(Async\w+)`", ours + why)}
    names = {name for pair in classes for name in pair if name} - {"ValueError"}
    assert {name for name in names if not hasattr(tidelog, name) and not hasattr(msgstream, name)} == set()


def test_everything_of_both_documents_has_a_row() -> None:
    theirs = set(re.findall(r"`(\w+)`", " ".join(theirs for theirs, *_ in _rows("What is where"))))

    assert [name for name in THEIRS if name not in theirs] == []


def test_the_table_of_bodies_is_that_of_the_code() -> None:
    listed: dict[int, str] = {}
    for names, numbers, *_ in _rows("Types and their bodies"):
        ranges = [range(int(a), int(b or a) + 1) for a, b in re.findall(r"(\d+)(?: to (\d+))?", numbers)]
        kinds = [number for each in ranges for number in each if number in set(MsgType)]
        classes = re.findall(r"`(\w+)`", names)
        listed |= dict(zip(kinds, classes if len(classes) > 1 else classes * len(kinds), strict=True))

    assert listed == {int(kind): class_of_type(kind).__name__ for kind in MsgType}


def _rows(title: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [
        line for line in section.splitlines() if line.startswith("| ") and not line.startswith(("| theirs", "| class"))
    ]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def _has(owner: str, name: str) -> bool:
    return name == "dispatcher" or hasattr(OWNERS[owner], name)
