"""``tidelog mailbox``: create, configure, list, describe and remove mailboxes, and the commands for their messages."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from tidelog import AsyncClient, MailboxDescription, MailboxSettings
from tidelog_cli.commands.confirmation import YesOption, confirm
from tidelog_cli.commands.mailboxes import actions, messages
from tidelog_cli.commands.mailboxes.arguments import DEFAULT_TIMEOUT_S, MailboxArgument
from tidelog_cli.commands.mailboxes.settings import with_settings
from tidelog_cli.connection import DEFAULT_ENDPOINT, EndpointOption, TimeoutOption, ask
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.output.escapes import say
from tidelog_cli.output.records import OutputOption, QuietOption, Record, note, print_records

NamesArgument = Annotated[
    list[str], typer.Argument(metavar="MAILBOX...", help="Names of mailboxes.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Create and remove mailboxes; send, fetch and confirm messages.")
    group.command("create", epilog=COMMON_CODES)(with_settings(create))
    group.command("configure", epilog=COMMON_CODES)(with_settings(configure))
    group.command("ls", epilog=COMMON_CODES)(list_mailboxes)
    group.command("describe", epilog=COMMON_CODES)(describe)
    group.command("rm", epilog=COMMON_CODES)(remove)
    # Alias: the name of the client's method.
    group.command("delete", epilog=COMMON_CODES, hidden=True)(remove)
    messages.add_to(group)
    actions.add_to(group)
    app.add_typer(group, name="mailbox")


def create(
    name: MailboxArgument,
    *,
    settings: MailboxSettings,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the mailbox exists; its settings are not changed.")
    ] = False,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """Create a mailbox. Settings that are not given have their default values."""
    created = ask(
        endpoint, timeout, lambda client: client.mailboxes.create(name, settings, if_not_exists=if_not_exists)
    )
    print_records([_full(created)], output)


def configure(
    name: MailboxArgument,
    *,
    settings: MailboxSettings,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """Change settings of a mailbox. Settings that are not given keep their values."""
    if settings == MailboxSettings():
        raise CommandError("no change given: use at least one of the options of settings", ExitCode.USAGE)
    configured = ask(endpoint, timeout, lambda client: client.mailboxes.configure(name, settings))
    print_records([_full(configured)], output)


def list_mailboxes(
    prefix: Annotated[str, typer.Argument(help="List only names with this prefix.", show_default=False)] = "",
    *,
    names_only: Annotated[bool, typer.Option("--names", "-n", help="Print only names, one per line.")] = False,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """List mailboxes by name."""
    mailboxes = ask(endpoint, timeout, lambda client: client.mailboxes.list(prefix))
    if names_only:
        for mailbox in mailboxes:
            say(mailbox.name)
        return
    print_records([_summary(mailbox) for mailbox in mailboxes], output)


def describe(
    names: NamesArgument,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """Describe mailboxes: their settings and the numbers of their messages."""
    print_records([_full(mailbox) for mailbox in _described(names, endpoint, timeout)], output)


def remove(
    names: NamesArgument,
    *,
    yes: YesOption = False,
    ignore_missing: Annotated[bool, typer.Option("--ignore-missing", help="Skip unknown names.")] = False,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    quiet: QuietOption = False,
) -> None:
    """Remove mailboxes with all their messages, one after the other."""
    if not yes and not ignore_missing:
        # Report unknown names before asking for confirmation.
        _described(names, endpoint, timeout)
    confirm(f"Remove {', '.join(names)} with all messages?", refusal="nothing was removed", yes=yes)

    async def deleted(client: AsyncClient) -> list[str]:
        return [name for name in names if await client.mailboxes.delete(name, ignore_missing=ignore_missing)]

    note(f"removed {', '.join(ask(endpoint, timeout, deleted)) or 'nothing'}", quiet=quiet)


def _described(names: list[str], endpoint: str, timeout: float | None) -> list[MailboxDescription]:
    async def described(client: AsyncClient) -> list[MailboxDescription]:
        return [await client.mailboxes.describe(name) for name in names]

    return ask(endpoint, timeout, described)


def _summary(mailbox: MailboxDescription) -> Record:
    return {
        "name": mailbox.name,
        "lease_ms": mailbox.settings.lease_ms,
        "max_deliveries": mailbox.settings.max_deliveries,
        "dead_letter": mailbox.settings.dead_letter,
        "created": _iso(mailbox.created_time_ms),
        "channel": mailbox.channel,
    }


def _full(mailbox: MailboxDescription) -> Record:
    """Return the counts, if they are known, and all settings."""
    counts = {} if mailbox.counts is None else asdict(mailbox.counts)
    settings = asdict(mailbox.settings) | {"backoff_ms": list(mailbox.settings.backoff_ms or ())}
    origin = {
        "channel": mailbox.channel, "revision": mailbox.revision, "created": _iso(mailbox.created_time_ms)
    }  # fmt: skip
    return {"name": mailbox.name, **counts, **settings, **origin}


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")
