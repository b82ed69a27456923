"""Backups and restores as ``tidelog backup`` makes them, on the event loop of a test."""

from pathlib import Path
from typing import Final

from tidelog_cli.output.rate_meter import RateMeter
from tidelog_server.app import Server
from tidelog_server.backup.folder import BackupFolder
from tidelog_server.backup.manifest import Manifest
from tidelog_server.backup.restore import restore_with
from tidelog_server.backup.restore_to_tick import RestoreReport, replay
from tidelog_server.commands.backup import _create
from tidelog_server.mailboxes.at_tick import MailboxHistory
from tidelog_server.rpc.columns.fold_events import FoldEvents

COUNT: Final = RateMeter(0)


async def take(server: Server, backups: BackupFolder) -> Manifest:
    """Take a backup of a server."""
    return await _create(server.grpc_endpoint, backups, RateMeter(0), "hash")


async def restore_until(source: Path, target: Path, tick: int, *, may_empty: bool = False) -> RestoreReport:
    """Restore a data folder up to a tick. It is made in ``TARGET.made``, and moved to ``target`` once it is complete.

    Raises:
        MailboxesLostError: Logs of mailboxes were trimmed, and ``may_empty`` is not set.
    """
    made = target.with_name(f"{target.name}.made")
    made.mkdir(parents=True)
    report = await replay(source, made, tick, COUNT, MailboxHistory(FoldEvents()), may_empty=may_empty)

    def fill(path: Path) -> None:
        for each in made.iterdir():
            each.rename(path / each.name)

    restore_with(target, fill)
    return report
