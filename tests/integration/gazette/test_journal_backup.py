"""A backup has the journals with their frames, and a folder restored from it serves them.

Method: a real server on a folder, a backup through the functions behind `tidelog backup`, and a second server on the
restored folder, whole and up to a tick.
"""

from pathlib import Path

from tidelog import AsyncClient
from tidelog.admin.journal_types import JournalDelete, JournalUpsert
from tidelog.admin.labels import LabelSet
from tidelog_cli.output.rate_meter import RateMeter
from tidelog_server.backup.folder import open_backup_folder
from tidelog_server.backup.restore import restore_copy, restore_with
from tidelog_server.backup.restore_to_tick import replay
from tidelog_server.commands.backup import _create
from tidelog_server.mailboxes.at_tick import MailboxHistory
from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import running_server

COUNT = RateMeter(0)
HISTORY = MailboxHistory(FoldEvents())
LABELS = LabelSet.of({"content-type": "text/csv"})


async def frames(folder: Path) -> dict[str, list[bytes]]:
    """Return the frames of each journal of a folder, after an append to each of them."""
    found = {}
    async with running_server(folder) as server, AsyncClient(server.grpc_endpoint) as client:
        for journal in (await client.journals.list()).journals:
            assert journal.labels == LABELS
            found[journal.name] = await payloads(client, f"{journal.channel}/0")
            await client.append(f"{journal.channel}/0", b"after\n")
    return found


async def test_journals_are_restored_with_their_frames(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        journals = await client.journals.apply(
            [JournalUpsert("some/one", LABELS), JournalUpsert("some/two", LABELS), JournalUpsert("some/gone")]
        )
        ticks = [await client.append(f"{each.channel}/0", each.name.encode()) for each in journals]
        await client.append(f"{journals[0].channel}/0", b"later")
        await client.journals.apply([JournalDelete("some/gone")])
        manifest = await _create(server.grpc_endpoint, backups, RateMeter(0), "hash")
        await client.journals.apply([JournalDelete("some/two")])

    restore_copy(backups, manifest, tmp_path / "whole", COUNT)
    assert await frames(tmp_path / "whole") == {"some/one": [b"some/one", b"later"], "some/two": [b"some/two"]}

    made = tmp_path / "made"
    made.mkdir()
    await replay(backups.data_path(manifest.backup_id), made, ticks[1].last_tick, COUNT, HISTORY)

    def fill(path: Path) -> None:
        for each in made.iterdir():
            each.rename(path / each.name)

    restore_with(tmp_path / "until", fill)
    assert await frames(tmp_path / "until") == {"some/one": [b"some/one"], "some/two": [b"some/two"]}
