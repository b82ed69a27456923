"""Goal: every later server verifies and restores the backup of an earlier one.

Method: the golden backup, which the command of commit 23ee37d took; the current commands on a copy; servers on what
they restore, whose content is compared with what the old server told when the backup was taken.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from compatibility.content import Json, check, dump
from compatibility.golden import expected, on_server, unpack
from tidelog_testing.servers.commands import run_command


def backup(*arguments: object) -> Any:
    """Return the one record that ``tidelog backup`` prints."""
    done = run_command(["backup", *map(str, arguments), "--output", "jsonl"])
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return unpack("backup", tmp_path)


async def content_of(folder: Path) -> Json:
    return await on_server(folder, lambda client: dump(client, expected()["facts"]["txn_ids"][:1]))


def test_the_backup_verifies(golden: Path) -> None:
    listed, verified = backup("ls", golden), backup("verify", golden)

    assert verified == listed | {"verified": True}
    assert int(verified["tick"]) < expected()["backup"]["tick"]


async def test_the_restored_backup_has_exactly_the_content_that_was_backed_up(golden: Path, tmp_path: Path) -> None:
    backup("restore", golden, tmp_path / "restored")

    found = await content_of(tmp_path / "restored")

    check(found, {name: value for name, value in expected()["backup"].items() if name != "tick"})


async def test_a_restore_up_to_a_tick_has_the_messages_up_to_it(golden: Path, tmp_path: Path) -> None:
    was = expected()["backup"]["messages"]
    last_tick = was["payments/0"][30][0]
    backup("restore", golden, tmp_path / "restored", "--to-tick", last_tick)

    found = await on_server(tmp_path / "restored", lambda client: dump(client)["messages"])

    assert found == {lane: [row for row in rows if row[0] <= last_tick] for lane, rows in was.items()}
