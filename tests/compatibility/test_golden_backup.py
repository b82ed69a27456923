"""Goal: every later server verifies and restores the backup of an earlier one.

Method: the golden backups, which the commands of the commits of the sets took; the current commands on copies; servers
on what they restore, whose content is compared with what the old server told when the backup was taken.
"""

import json
from pathlib import Path
from typing import Any

from compatibility.content import Json, check, dump
from compatibility.golden import GoldenSet, each_set
from compatibility.mailbox_content import dump_mailboxes
from tidelog_testing.servers.commands import run_command


def backup(*arguments: object) -> Any:
    """Return the one record that ``tidelog backup`` prints."""
    done = run_command(["backup", *map(str, arguments), "--output", "jsonl"])
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


async def content_of(golden: GoldenSet, folder: Path) -> Json:
    facts = golden.expected["facts"]
    # The blobs of the second server were not there yet.
    known = {**facts, "blobs": list(golden.expected["backup"].get("blobs", ()))}
    return await golden.on_server(
        folder, lambda client: dump(client, facts["txn_ids"][:1]) | dump_mailboxes(client, known)
    )


@each_set
def test_the_backup_verifies(golden: GoldenSet, tmp_path: Path) -> None:
    folder = golden.unpack("backup", tmp_path)

    listed, verified = backup("ls", folder), backup("verify", folder)

    assert verified == listed | {"verified": True}
    assert int(verified["tick"]) < golden.expected["backup"]["tick"]


@each_set
async def test_the_restored_backup_has_exactly_the_content_that_was_backed_up(
    golden: GoldenSet, tmp_path: Path
) -> None:
    backup("restore", golden.unpack("backup", tmp_path), tmp_path / "restored")

    found = await content_of(golden, tmp_path / "restored")

    check(found, {name: value for name, value in golden.expected["backup"].items() if name != "tick"})


@each_set
async def test_a_restore_up_to_a_tick_has_the_messages_up_to_it(golden: GoldenSet, tmp_path: Path) -> None:
    was = golden.expected["backup"]["messages"]
    last_tick = was["payments/0"][30][0]
    backup(
        "restore", golden.unpack("backup", tmp_path), tmp_path / "restored", "--to-tick", last_tick, "--empty-mailboxes"
    )

    found = await golden.on_server(tmp_path / "restored", lambda client: dump(client)["messages"])

    assert found == {lane: [row for row in rows if row[0] <= last_tick] for lane, rows in was.items()}
