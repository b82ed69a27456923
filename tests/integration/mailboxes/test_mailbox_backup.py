"""A backup has the mailboxes with their settings, and a folder restored from it serves them.

Method: a real server on a folder, a backup through the functions behind `tidelog backup`, and a second server on the
restored folder, whole and up to a tick.
"""

from pathlib import Path

from tidelog import AsyncClient, MailboxDescription, MailboxSettings
from tidelog_cli.output.rate_meter import RateMeter
from tidelog_server.backup.folder import open_backup_folder
from tidelog_server.backup.restore import restore_copy, restore_with
from tidelog_server.backup.restore_to_tick import replay
from tidelog_server.commands.backup import _create
from tidelog_server.mailboxes.at_tick import MailboxHistory
from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_testing.parts.grpc_calls import running_server

COUNT = RateMeter(0)
HISTORY = MailboxHistory(FoldEvents())


async def mailboxes(folder: Path) -> tuple[MailboxDescription, ...]:
    """Return the mailboxes of a folder, after each was described and changed, and their channels were checked."""
    async with running_server(folder) as server, AsyncClient(server.grpc_endpoint) as client:
        found = await client.mailboxes.list()
        channels = [each.name async for each in client.list_channels("_mailbox.")]
        assert sorted(channels) == sorted(mailbox.channel for mailbox in found)
        for mailbox in found:
            assert (await client.mailboxes.describe(mailbox.name)).settings == mailbox.settings
            await client.mailboxes.configure(mailbox.name, MailboxSettings(lease_ms=7))
        assert (await client.mailboxes.create("after")).channel not in channels
        return found


async def test_mailboxes_are_restored_with_their_settings(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        dead = await client.mailboxes.create("dead")
        jobs = await client.mailboxes.create("jobs: größe", MailboxSettings(dead_letter="dead", backoff_ms=(1, 2)))
        await client.create_channel("orders")
        appended = await client.append("orders/0", b"message")
        await client.append("orders/0", b"later")
        await client.mailboxes.create("gone")
        await client.mailboxes.delete("gone")
        manifest = await _create(server.grpc_endpoint, backups, RateMeter(0), "hash")
        await client.mailboxes.delete(jobs.name)

    restore_copy(backups, manifest, tmp_path / "whole", COUNT)
    assert await mailboxes(tmp_path / "whole") == (dead, jobs)

    made = tmp_path / "made"
    made.mkdir()
    await replay(backups.data_path(manifest.backup_id), made, appended.last_tick, COUNT, HISTORY)

    def fill(path: Path) -> None:
        for each in made.iterdir():
            each.rename(path / each.name)

    restore_with(tmp_path / "until", fill)
    assert [each.name for each in await mailboxes(tmp_path / "until")] == ["dead", jobs.name]
