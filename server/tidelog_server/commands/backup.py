"""``tidelog backup``: create, list, verify and restore backups of a server's data folder."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from tidelog import (
    AsyncClient,
    CheckpointDescription,
    DeadlineError,
    OverloadedError,
    Retry,
    TidelogError,
    UnavailableError,
)
from tidelog.tick import LOGICAL_BITS, milliseconds
from tidelog_cli import event_loop
from tidelog_cli.commands.version import installed_versions
from tidelog_cli.connection import connected, refused
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.files import local_path
from tidelog_cli.options.positions import parse_moment
from tidelog_cli.options.target import NOT_GIVEN, EndpointOption
from tidelog_cli.output.progress import Progress
from tidelog_cli.output.rate_meter import RateMeter
from tidelog_cli.output.records import NoProgressOption, OutputOption, QuietOption, note, print_records, show_progress
from tidelog_server.commands.error_codes import exit_codes_of

if TYPE_CHECKING:
    from tidelog_server.backup.folder import BackupFolder
    from tidelog_server.backup.manifest import Facts, Manifest

_LEASE_S: Final = 60.0
_KEEP_EVERY_S: Final = 10.0
_RENEW_AGAIN_S: Final = 1.0
# The first pause would exceed every timeout: a server with too many checkpoints must be reported, not waited for.
_FAIL_AT_ONCE: Final = Retry(base_s=3_600, cap_s=3_600)
_NICENESS: Final = 10
_DEFAULT_RATE: Final = "32MiB"
_EPILOG: Final = f"{COMMON_CODES} 65 if a backup is damaged."

_FolderArgument = Annotated[Path, typer.Argument(parser=local_path, help="Folder of backups.", show_default=False)]
_RateOption = Annotated[
    str, typer.Option("--rate", help="Maximum read rate in bytes per second, e.g. 64MiB; 0 for no limit.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Create, list, verify and restore backups of a server.")
    group.command(epilog=_EPILOG)(create)
    group.command("ls", epilog=_EPILOG)(list_backups)
    group.command(epilog=_EPILOG)(verify)
    group.command(epilog=_EPILOG)(restore)
    app.add_typer(group, name="backup")


def create(
    folder: _FolderArgument,
    *,
    endpoint: EndpointOption = NOT_GIVEN,
    rate: _RateOption = _DEFAULT_RATE,
    reuse: Annotated[
        Literal["hash", "time", "none"],
        typer.Option(
            help="Hard-link unchanged files from the previous backup. hash: compare name, size and hash; time: compare "
            "name, size and time; none: copy every file."
        ),
    ] = "hash",
    output: OutputOption = None,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Back up a running server. Run this on the server's machine.

    The server pauses writes for some milliseconds. This process copies the files, at --rate and with low priority. If
    the folder is new or empty, it becomes a folder of backups.
    """
    from tidelog_server.backup.folder import open_backup_folder

    bytes_per_s = _parse_rate(rate)
    _step_back()
    start_s = time.monotonic()
    with Progress("backed up", is_shown=show_progress(no_progress=no_progress, quiet=quiet)) as progress:
        meter = RateMeter(bytes_per_s, progress)
        with _told():
            manifest = event_loop.run(_create(endpoint, open_backup_folder(folder, create=True), meter, reuse))
    record = {**_record(manifest), "seconds": round(time.monotonic() - start_s, 3)}
    print_records([record], output)


def list_backups(folder: _FolderArgument, *, output: OutputOption = None) -> None:
    """List backups, oldest first. Interrupted backups are not listed."""
    from tidelog_server.backup.folder import open_backup_folder

    with _told():
        found = open_backup_folder(folder).listed()
    records = [
        _record(each.manifest)
        if each.manifest
        else {**dict.fromkeys(_RECORD_KEYS), "backup": each.backup_id, "problem": each.problem}
        for each in found
    ]
    print_records(records, output)
    if any(each.manifest is None for each in found):
        raise typer.Exit(ExitCode.DATA_LOSS)


def verify(
    folder: _FolderArgument,
    backup_id: Annotated[
        str | None, typer.Argument(metavar="[BACKUP]", help="Backup to verify. Default: newest.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Verify all backups.")] = False,
    rate: _RateOption = "0",
    output: OutputOption = None,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Verify the hashes of all files of a backup, and open it read-only as a server would. Changes nothing."""
    from tidelog_server.backup.folder import check_recovers, open_backup_folder
    from tidelog_server.node import start_check

    bytes_per_s = _parse_rate(rate)
    with Progress("verified", is_shown=show_progress(no_progress=no_progress, quiet=quiet)) as progress, _told():
        backups = open_backup_folder(folder)
        ids = [each.backup_id for each in backups.listed()] if every else [backup_id]
        manifests = [backups.manifest(each) for each in ids]
        for manifest in manifests:
            backups.check_files(manifest, RateMeter(bytes_per_s, progress))
            check_recovers(backups.data_path(manifest.backup_id), manifest, start_check.__name__)
    print_records([{**_record(manifest), "verified": True} for manifest in manifests], output)


def restore(
    folder: _FolderArgument,
    target: Annotated[
        Path,
        typer.Argument(parser=local_path, help="Data folder to create; must be new or empty.", show_default=False),
    ],
    *,
    backup: Annotated[str | None, typer.Option("--backup", help="Backup to restore. Default: newest.")] = None,
    to_tick: Annotated[
        int | None, typer.Option("--to-tick", min=0, help="Omit messages with a tick greater than this.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            help="Omit messages appended at or after this time, e.g. 2026-01-31T12:00:00+00:00.",
            show_default=False,
        ),
    ] = None,
    empty_mailboxes: Annotated[
        bool,
        typer.Option(
            "--empty-mailboxes",
            help="With --to-tick or --to-time: restore mailboxes whose messages at that point are lost as empty ones.",
        ),
    ] = False,
    rate: _RateOption = "0",
    output: OutputOption = None,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Create a data folder from a backup, atomically.

    The new store has a new identity. With --to-tick or --to-time, it is replayed up to that point; a batch, transaction
    or broadcast that extends beyond it is omitted as a whole. Channels, groups and their settings are those of the time
    of the backup. A mailbox has the messages and leases of that point; if its log was trimmed beyond it, the restore is
    refused before it writes anything, unless --empty-mailboxes is given.
    """
    from tidelog_server.backup.folder import open_backup_folder
    from tidelog_server.runtime.logging import configure_logging

    # Warnings of the store go to stderr, and stdout has the records only.
    configure_logging("warning", "auto")
    if to_tick is not None and to_time is not None:
        raise CommandError("--to-tick and --to-time are both given: use one of them", ExitCode.USAGE)
    last_tick = to_tick if to_time is None else _last_tick_before(parse_moment(to_time))
    bytes_per_s = _parse_rate(rate)
    with Progress("restored", is_shown=show_progress(no_progress=no_progress, quiet=quiet)) as progress:
        meter = RateMeter(bytes_per_s, progress)
        with _told():
            backups = open_backup_folder(folder)
            manifest = backups.manifest(backup)
            record = _restore(backups, manifest, target, last_tick, meter, may_empty=empty_mailboxes)
    print_records([record], output)
    note(f"{target} is ready: start a server on it with --storage.data_dir {target}", quiet=quiet)


def _last_tick_before(time: datetime) -> int:
    return (max(0, milliseconds(time)) << LOGICAL_BITS) - 1


def _restore(
    backups: "BackupFolder",
    manifest: "Manifest",
    target: Path,
    last_tick: int | None,
    meter: RateMeter,
    *,
    may_empty: bool,
) -> dict[str, object]:
    from tidelog_server.backup.folder import check_recovers
    from tidelog_server.backup.restore import restore_copy, restore_with
    from tidelog_server.backup.restore_to_tick import RestoreReport, replay
    from tidelog_server.mailboxes.at_tick import MailboxHistory
    from tidelog_server.node import start_check
    from tidelog_server.rpc.columns.fold_events import FoldEvents

    facts = manifest.facts
    common = {"backup": manifest.backup_id, "folder": str(target)}
    if last_tick is None or facts.tick <= last_tick:
        if last_tick is not None:
            note(f"the backup ends at tick {facts.tick}, before the requested point: restoring all of it")
        incarnation = restore_copy(backups, manifest, target, meter, start_check.__name__)
        return {**common, "incarnation": incarnation, "sequence": facts.sequence, "last_tick": facts.last_tick}
    reports: list[RestoreReport] = []

    source = backups.data_path(manifest.backup_id)

    def fill(path: Path) -> None:
        history = MailboxHistory(FoldEvents())
        reports.append(event_loop.run(replay(source, path, last_tick, meter, history, may_empty=may_empty)))

    backups.check_files(manifest, meter)
    check_recovers(source, manifest, start_check.__name__)
    restore_with(target, fill)
    return {**common, **asdict(reports[0])}


async def _create(
    endpoint: str, backups: "BackupFolder", meter: RateMeter, reuse: Literal["hash", "time", "none"]
) -> "Manifest":
    from tidelog_server.backup.folder import BackupOptions

    clock = asyncio.get_running_loop().time
    async with connected(endpoint, retry=_FAIL_AT_ONCE, finds_owners=False) as client:
        begin_s = clock()
        checkpoint = await client.create_checkpoint(lease_s=_LEASE_S)
        keeping = asyncio.create_task(keep(client, checkpoint, begin_s + checkpoint.lease_s))
        is_backed_up = False
        try:
            source = _source_of(checkpoint)
            taking = BackupOptions(installed_versions()["tidelog"], meter, reuse)
            copying = asyncio.create_task(asyncio.to_thread(backups.take, source, _facts(checkpoint), taking))
            await asyncio.wait((copying, keeping), return_when=asyncio.FIRST_COMPLETED)
            if not copying.done():
                # The lease has ended, so the server may delete the checkpoint's files at any time.
                meter.stopping.set()
                with suppress(CommandError, OSError):
                    await copying
                await keeping
            manifest = await copying
            is_backed_up = True
            return manifest
        finally:
            # On Ctrl-C the copying thread stops after its current block.
            meter.stopping.set()
            keeping.cancel()
            await client.release_checkpoint(checkpoint.checkpoint_id, is_backed_up=is_backed_up)


async def keep(client: AsyncClient, checkpoint: CheckpointDescription, ends_s: float) -> None:
    """Renew the lease of a checkpoint, which ends at ``ends_s`` of the loop's clock, until cancelled.

    Raises:
        UnavailableError, DeadlineError: The lease ended before the server responded.
        CheckpointNotFoundError: The checkpoint no longer exists.
    """
    clock = asyncio.get_running_loop().time
    pause_s = _KEEP_EVERY_S
    while True:
        await asyncio.sleep(pause_s)
        begin_s = clock()
        try:
            await client.keep_checkpoint(checkpoint.checkpoint_id)
            ends_s, pause_s = begin_s + checkpoint.lease_s, _KEEP_EVERY_S
        except (UnavailableError, DeadlineError):
            if clock() >= ends_s:
                raise
            pause_s = _RENEW_AGAIN_S


def _source_of(checkpoint: CheckpointDescription) -> Path:
    """Return the folder of a checkpoint. Raises CommandError if it is not on this machine, or not readable."""
    from tidelog_server.storage.format.head_file import read_head

    path = Path(checkpoint.folder)
    try:
        head = read_head(path / "HEAD")
    except OSError as error:
        raise CommandError(f"cannot read {path} ({error.strerror}): run this as the server's user") from error
    if head is None or (head.incarnation, head.sequence) != (checkpoint.incarnation, checkpoint.sequence):
        raise CommandError(
            f"{path} is not the server's checkpoint: run this on the server's machine, as its user; in a container, "
            "with its volume"
        )
    return path


def _facts(checkpoint: CheckpointDescription) -> "Facts":
    from tidelog_server.backup.manifest import Facts

    return Facts(
        checkpoint.incarnation.hex(), checkpoint.tick, checkpoint.sequence, checkpoint.chain_hash.hex(),
        checkpoint.last_tick, checkpoint.created_time_ms,
    )  # fmt: skip


_RECORD_KEYS: Final = ("backup", "created", "tick", "sequence", "files", "bytes", "copied_bytes", "incarnation")


def _record(manifest: "Manifest") -> dict[str, object]:
    facts = manifest.facts
    return {
        "backup": manifest.backup_id,
        "created": datetime.fromtimestamp(facts.created_ms / 1_000).astimezone().isoformat(timespec="seconds"),
        "tick": facts.tick,
        "sequence": facts.sequence,
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "copied_bytes": manifest.copied_bytes,
        "incarnation": facts.incarnation,
    }


@contextmanager
def _told() -> Iterator[None]:
    """Raise what is wrong with a backup, or with the server, as CommandError."""
    from tidelog_server.backup.manifest import BackupDamagedError, BackupError
    from tidelog_server.core.errors import TidelogServerError
    from tidelog_server.runtime.process_limits import ProcessLimitError
    from tidelog_server.storage.format.folder_errors import DataFolderError

    codes: dict[type[Exception], ExitCode] = {
        OverloadedError: ExitCode.CONFLICT,
        BackupDamagedError: ExitCode.DATA_LOSS,
        **dict.fromkeys((BackupError, DataFolderError, ProcessLimitError, TidelogServerError), ExitCode.FAILURE),
    }
    try:
        with exit_codes_of(codes):
            yield
    except TidelogError as error:
        raise refused(error) from error
    except PermissionError as error:
        raise CommandError(f"no permission: {error}", ExitCode.NO_PERMISSION) from error
    except OSError as error:
        raise CommandError(f"the system refused: {error}", ExitCode.FAILURE) from error


def _parse_rate(rate: str) -> int:
    from tidelog import Retention

    if rate == "0":
        return 0
    try:
        parsed = Retention.of(bytes=rate).bytes
    except ValueError as error:
        raise CommandError(f"--rate: {error}", ExitCode.USAGE) from error
    return parsed or 0


def _step_back() -> None:
    """Lower the CPU and disk priority of this process."""
    os.nice(_NICENESS)
    with suppress(OSError):
        # Why here: psutil comes with the extra `server`, and other commands must work without it.
        import psutil

        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)
