"""``tidelog mailbox``: create, configure, list, describe and remove mailboxes, and the commands for their messages."""

from dataclasses import asdict
from typing import Annotated

import typer

from tidelog import AsyncClient, MailboxDescription, MailboxSettings
from tidelog_cli.commands.mailboxes import actions, messages
from tidelog_cli.commands.mailboxes.arguments import MailboxArgument
from tidelog_cli.commands.mailboxes.settings import with_settings
from tidelog_cli.connection import Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import add_group
from tidelog_cli.options.completers import mailbox_names
from tidelog_cli.options.confirmation import YesOption, confirm
from tidelog_cli.output.records import OutputOption, QuietOption, Record, iso_of_ms, note, print_records
from tidelog_cli.output.watch import Watch

NamesArgument = Annotated[
    list[str], typer.Argument(metavar="MAILBOX...", help="Names of mailboxes.", autocompletion=mailbox_names)
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app,
        "mailbox",
        "Create and remove mailboxes; send, fetch and confirm messages.",
        [with_settings(create), with_settings(configure), ls, describe, rm, *messages.COMMANDS, *actions.COMMANDS],
        delete=rm,
    )


def create(
    name: MailboxArgument,
    *,
    settings: MailboxSettings,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the mailbox exists; its settings are not changed.")
    ] = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Create a mailbox. Settings that are not given have their default values."""
    created = server.ask(lambda client: client.mailboxes.create(name, settings, if_not_exists=if_not_exists))
    print_records([_full(created)], output)


def configure(name: MailboxArgument, *, settings: MailboxSettings, server: Server, output: OutputOption = None) -> None:
    """Change settings of a mailbox. Settings that are not given keep their values."""
    if settings == MailboxSettings():
        raise CommandError("no change given: use at least one of the options of settings", ExitCode.USAGE)
    configured = server.ask(lambda client: client.mailboxes.configure(name, settings))
    print_records([_full(configured)], output)


def ls(
    prefix: Annotated[str, typer.Argument(help="List only names with this prefix.", autocompletion=mailbox_names)] = "",
    *,
    names_only: Annotated[bool, typer.Option("--names", "-n", help="Print only names, one per line.")] = False,
    watch: Watch,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List mailboxes by name."""

    def look() -> list[Record]:
        return [_summary(mailbox) for mailbox in server.ask(lambda client: client.mailboxes.list(prefix))]

    watch.show(look, output, names_only=names_only)


def describe(names: NamesArgument, *, watch: Watch, server: Server, output: OutputOption = None) -> None:
    """Describe mailboxes: their settings and the numbers of their messages."""
    watch.show(lambda: [_full(mailbox) for mailbox in _described(server, names)], output)


def rm(
    names: NamesArgument,
    *,
    yes: YesOption = False,
    ignore_missing: Annotated[bool, typer.Option("--ignore-missing", help="Skip unknown names.")] = False,
    server: Server,
    quiet: QuietOption = False,
) -> None:
    """Remove mailboxes with all their messages, one after the other."""
    if not yes and not ignore_missing:
        # Report unknown names before asking for confirmation.
        _described(server, names)
    confirm(f"Remove {', '.join(names)} with all messages?", refusal="nothing was removed", yes=yes)

    async def deleted(client: AsyncClient) -> list[str]:
        return [name for name in names if await client.mailboxes.delete(name, ignore_missing=ignore_missing)]

    note(f"removed {', '.join(server.ask(deleted)) or 'nothing'}", quiet=quiet)


def _described(server: Server, names: list[str]) -> list[MailboxDescription]:
    return server.ask_each(names, lambda client, name: client.mailboxes.describe(name))


def _summary(mailbox: MailboxDescription) -> Record:
    return {
        "name": mailbox.name,
        "lease_ms": mailbox.settings.lease_ms,
        "max_deliveries": mailbox.settings.max_deliveries,
        "dead_letter": mailbox.settings.dead_letter,
        "created": iso_of_ms(mailbox.created_time_ms),
        "channel": mailbox.channel,
    }


def _full(mailbox: MailboxDescription) -> Record:
    """Return the counts, if they are known, and all settings."""
    counts = {} if mailbox.counts is None else asdict(mailbox.counts)
    settings = asdict(mailbox.settings) | {"backoff_ms": list(mailbox.settings.backoff_ms or ())}
    origin = {
        "channel": mailbox.channel, "revision": mailbox.revision, "created": iso_of_ms(mailbox.created_time_ms)
    }  # fmt: skip
    return {"name": mailbox.name, **counts, **settings, **origin}
