"""The example of docs/guides/mailboxes/pandora.md works, and its table has every name of pandora and names that exist.

Method: run the example; compare the rows of the table with the names of pandora's API and with `tidelog.pandora`.
"""

import re

import pytest

from tidelog import pandora
from tidelog_testing.documents.examples import page, run_example
from tidelog_testing.documents.exports import exported_names

PAGE = "mailboxes/pandora.md"
ROW = re.compile(r"^\| (?P<theirs>`[^|]+) \| (?P<ours>`[^|]+) \|[^|]*\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
THEIRS = (
    "AckStatus", "AckStatus.String", "ApiError", "ApiError.Error", "BlobStore", "CalcualteLeaseFor", "CalculateMid",
    "ClientTime", "DefaultLeaseTime", "Empty", "EncodedSize", "Enqueue", "ErrInputTooShort",
    "ErrInvalidHeaderEncoding", "ErrInvalidMailBox", "ErrKeyTooShort", "ErrMessageToBig", "ErrNilBody",
    "ErrNoMessages", "ErrReceiverNotFound", "ErrSenderNotFound", "ErrUnableToChangeStatus", "FetchAndLockLatest",
    "GetData", "Grow", "Key", "Key.Bytes", "KeyClientTime", "KeyLeaseTime", "KeyPrinter", "KeyReceiver", "KeySender",
    "KeyWriter", "KeyWriter.Key", "KeyWriter.Write", "MaxSize", "Message", "Message.Body", "Message.Delay",
    "Message.DeliveryCount", "Message.FetchTime", "Message.Get", "Message.LeasedUntil", "Message.Lid", "Message.Mid",
    "Message.ReceivedAt", "Message.SendWhen", "Message.Set", "Message.Status", "MessageStore", "MessageStore.Ack",
    "MessageStore.FetchHeaders", "Print", "PrintKeyString", "PrintString", "PutData", "Read", "ReadString",
    "Receiver", "Reenqueue", "SHA1Key", "SHA1Key.Bytes", "SHA1KeyWriter", "SHA1KeyWriter.Key",
    "SHA1KeyWriter.Write", "Sender", "Server", "Server.Ack", "Server.BlobStore", "Server.FetchHeaders",
    "Server.FetchLatest", "Server.MessageStore", "Server.Send", "Server.WriteBlob", "SetClientTime", "SetReceiver",
    "SetSender", "StatusConfirmed", "StatusNotDelivered", "StatusRejected", "StatusTimeout", "UpdateRefCount",
    "ValidBody", "WriteTo",
)  # fmt: skip


def table() -> list[tuple[list[str], list[str]]]:
    """Return the names of each row: theirs, ours."""
    text = page(PAGE).partition("| theirs | ours |")[2]
    return [(CODE.findall(row["theirs"]), CODE.findall(row["ours"])) for row in ROW.finditer(text)]


def exists(name: str) -> bool:
    """Return whether the package exports a name; the fields of a dataclass count as attributes."""
    first, _, attribute = name.partition(".")
    value = getattr(pandora, first, None)
    fields = getattr(value, "__dataclass_fields__", {})
    return first in exported_names(pandora) and (not attribute or attribute in fields or hasattr(value, attribute))


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_example(PAGE, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["0 notDelivered ['ann', 'bob']", "1 rejected ['ann', 'bob']", "done: 40 digits"]


def test_the_table_has_every_name_of_pandora() -> None:
    named = [name for theirs, _ in table() for name in theirs]
    assert sorted(named) == sorted(THEIRS)


def test_the_names_of_the_table_exist() -> None:
    rows = table()
    assert len(rows) > 30
    assert [name for _, ours in rows for name in ours if not exists(name)] == []


def test_every_exported_name_is_on_the_page() -> None:
    prose = re.sub(r"^```.*?^```", "", page(PAGE), flags=re.MULTILINE | re.DOTALL)
    named = {name.partition(".")[0] for name in CODE.findall(prose)}
    assert [name for name in exported_names(pandora) if name not in named] == []


def test_exported_classes_are_shown_with_the_public_path() -> None:
    exported = [getattr(pandora, name) for name in exported_names(pandora)]
    homes = {value.__name__: value.__module__ for value in exported if isinstance(value, type)}
    ours = {name: home for name, home in homes.items() if home.startswith("tidelog.")}
    assert {name: home for name, home in ours.items() if home != "tidelog.pandora"} == {}
