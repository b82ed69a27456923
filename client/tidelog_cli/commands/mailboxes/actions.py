"""``tidelog mailbox purge``, ``pause``, ``resume``, ``reenqueue`` and ``redrive``: calls of operators."""

import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from tidelog import AsyncMailbox, MailboxCounts, RedriveProgress
from tidelog_cli.commands.mailboxes.arguments import MailboxArgument, parse_ids
from tidelog_cli.connection import PatientServer, Server
from tidelog_cli.options.completers import mailbox_names
from tidelog_cli.options.confirmation import YesOption, confirm
from tidelog_cli.output.progress import progress_line
from tidelog_cli.output.records import (
    NoProgressOption,
    OutputOption,
    QuietOption,
    Record,
    note,
    print_records,
    show_progress,
)

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of messages, at most 1,000.")]


def purge(name: MailboxArgument, *, yes: YesOption = False, server: Server, quiet: QuietOption = False) -> None:
    """Delete all messages of a mailbox, leased and dead ones too."""
    if not yes:
        # Report an unknown name before asking for confirmation.
        counts = server.ask(lambda client: client.mailbox(name).counts())
        confirm(f"Delete all {_total(counts)} messages of {name}?", refusal="nothing was deleted", yes=yes)
    deleted = server.ask(lambda client: client.mailbox(name).purge())
    note(f"deleted {deleted} messages", quiet=quiet)


def pause(name: MailboxArgument, server: Server, quiet: QuietOption = False) -> None:
    """Stop deliveries. Sends, acknowledgements and extensions of leases continue."""
    server.ask(lambda client: client.mailbox(name).pause())
    note(f"paused {name}", quiet=quiet)


def resume(name: MailboxArgument, server: Server, quiet: QuietOption = False) -> None:
    """Resume deliveries."""
    server.ask(lambda client: client.mailbox(name).resume())
    note(f"resumed {name}", quiet=quiet)


def reenqueue(name: MailboxArgument, ids: IdsArgument = None, *, server: Server, quiet: QuietOption = False) -> None:
    """End leases, so that their messages can be fetched again; without ids, only leases whose time is over."""
    several = parse_ids(ids)
    ended = server.ask(lambda client: client.mailbox(name).reenqueue(several))
    note(f"ended {ended} leases", quiet=quiet)


def redrive(
    name: MailboxArgument,
    ids: IdsArgument = None,
    *,
    destination: Annotated[
        str,
        typer.Option(
            "--to",
            help="Mailbox that receives them. Default: the one that each was sent to first.",
            autocompletion=mailbox_names,
        ),
    ] = "",
    rate: Annotated[int, typer.Option(min=0, help="Maximum number of messages per second; 0 for no limit.")] = 0,
    server: PatientServer,
    output: OutputOption = None,
    no_progress: NoProgressOption = False,
    quiet: QuietOption = False,
) -> None:
    """Return dead messages to delivery: those with the given ids, or all. Ctrl-C stops it between messages."""
    several = parse_ids(ids)
    is_shown = show_progress(no_progress=no_progress, quiet=quiet)
    print_records(
        [server.ask(lambda client: _redriven(client.mailbox(name), several, destination, rate, is_shown=is_shown))],
        output,
    )


async def _redriven(
    mailbox: AsyncMailbox, ids: Sequence[int], destination: str, rate: int, *, is_shown: bool
) -> Record:
    started_s, progress = time.monotonic(), RedriveProgress(0, 0)
    bar = progress_line(
        TextColumn("redriving"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), is_shown=is_shown
    )
    with bar:
        task = bar.add_task("redriving", total=None)
        async for progress in mailbox.redrive(ids, destination=destination, max_per_s=rate):
            bar.update(task, completed=progress.moved, total=progress.total)
    return {
        "mailbox": mailbox.name,
        "moved": progress.moved,
        "total": progress.total,
        "seconds": round(time.monotonic() - started_s, 3),
    }


def _total(counts: MailboxCounts) -> int:
    return counts.available + counts.delayed + counts.leased + counts.dead


COMMANDS: Final = (purge, pause, resume, reenqueue, redrive)
"""Commands of the group ``tidelog mailbox``."""
