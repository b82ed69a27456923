"""The example of docs/guides/wal.md works, and the names on it exist.

Method: run the example; look up the table's names.
"""

import re
from pathlib import Path

import tidelog
from tidelog_testing.documents.examples import output_of_example, page

PAGE = page("wal.md")
OWNERS = {
    "wal": tidelog.AsyncWal,
    "txn": tidelog.AsyncWalTransaction,
    "broadcast": tidelog.AsyncWalBroadcast,
    "scanner": tidelog.AsyncWalScanner,
    "client": tidelog.AsyncClient,
    "At": tidelog.At,
    "DeliverFilter": tidelog.DeliverFilter,
}
# Names of the interface that the page covers, without Go's generated or deprecated names.
THEIRS = (
    "Init", "Release", "WAL", "BarrierTimeTick", "TxnOption.VChannel", "Keepalive", "ReadOption.VChannel",
    "DeliverPolicy", "DeliverFilter", "message.Handler", "Scanner.Done", "Scanner.Error", "Scanner.Close", "WALName",
    "GetLatestMVCCTimestampIfLocal", "Txn", "RawAppend", "Broadcast", "Read", "AppendMessages",
    "AppendMessagesWithOption", "AppendResponses", "Broadcast.Append", "Broadcast.Ack", "BlockUntilResourceKeyAckOnce",
    "BlockUntilResourceKeyAckAll", "Txn.Append", "Txn.Commit", "Txn.Rollback",
)  # fmt: skip


def test_the_example_runs(tmp_path: Path) -> None:
    printed = output_of_example(PAGE, tmp_path)

    assert printed.endswith("5 orders\n")


def test_the_names_of_the_table_exist() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| ")]
    named = [found for _, ours, why in rows for found in re.findall(r"`(?:await )?(\w+)\.(\w+)", ours + why)]

    assert len(named) > 25
    assert [f"{owner}.{name}" for owner, name in named if owner in OWNERS and not _has(OWNERS[owner], name)] == []
    classes = {name for _, ours, why in rows for name in re.findall(r"\b([A-Z]\w+Error)\b", ours + why)}
    built_in = {"TypeError", "ValueError"}
    assert {name for name in classes - built_in if not hasattr(tidelog, name)} == set()


def test_everything_of_the_interface_has_a_row() -> None:
    theirs = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| "))

    assert [name for name in THEIRS if name not in theirs] == []


def _has(owner: type, name: str) -> bool:
    return hasattr(owner, name) or name == "done"
