"""``tidelog channel``: create, alter, list, describe, trim, fence and remove channels."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog import AsyncClient, ChannelDescription, OwnerDescription, PermissionDeniedError, Retention, RetentionChange
from tidelog.txn.conditions import full_name
from tidelog_cli.connection import Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import OptionGroup, add_group
from tidelog_cli.options.completers import channel_names, vchannel_names
from tidelog_cli.options.confirmation import YesOption, confirm
from tidelog_cli.options.named import channels_named
from tidelog_cli.options.positions import POSITION_HELP, parse_position
from tidelog_cli.output.records import OutputOption, QuietOption, Record, iso_time, note, print_records
from tidelog_cli.output.watch import Watch

_NOTHING = "nothing was removed"
_NONE = "; none for no bound."

NamesArgument = Annotated[
    list[str], typer.Argument(metavar="CHANNEL...", help="Names of channels.", autocompletion=channel_names)
]
PatternsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANNEL...",
        help="Names of channels, or patterns in quotes, such as 'orders.*'.",
        autocompletion=channel_names,
    ),
]
VchannelArgument = Annotated[
    str,
    typer.Argument(help="CHANNEL/INDEX, or CHANNEL if it has one vchannel.", autocompletion=vchannel_names),
]
AgeOption = Annotated[
    str | None,
    typer.Option("--retention-age", help=f"Delete messages that are older, e.g. 3d or 1h30m{_NONE}"),
]
BytesOption = Annotated[
    str | None,
    typer.Option(
        "--retention-bytes",
        help=f"Delete the oldest messages beyond this size of the channel, e.g. 1GiB or 500MB{_NONE}",
    ),
]
HardBytesOption = Annotated[
    str | None,
    typer.Option(
        "--retention-hard-bytes",
        help="Hard cap: beyond this size, delete the oldest messages even if a consumer group has not read them, "
        f"e.g. 2GiB{_NONE}",
    ),
]


@dataclass(frozen=True, slots=True)
class RetentionOptions(OptionGroup):
    """The bounds of retention."""

    retention_age: AgeOption = None
    retention_bytes: BytesOption = None
    retention_hard_bytes: HardBytesOption = None

    def change(self) -> RetentionChange:
        """Return the bounds that the options set; ``none`` becomes None."""
        age, size, hard = self.retention_age, self.retention_bytes, self.retention_hard_bytes
        change: RetentionChange = {}
        try:
            if age is not None:
                change["age"] = None if age == "none" else Retention.of(age=age).age
            if size is not None:
                change["bytes"] = None if size == "none" else Retention.of(bytes=size).bytes
            if hard is not None:
                change["hard_bytes"] = None if hard == "none" else Retention.of(hard_bytes=hard).hard_bytes
        except ValueError as error:
            raise CommandError(str(error), ExitCode.USAGE) from error
        return change


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app,
        "channel",
        "Create, alter, list, describe, trim, fence and remove channels.",
        [create, alter, ls, describe, rm, trim, fence],
        destroy=rm,
    )


def create(
    names: NamesArgument,
    *,
    vchannels: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of vchannels (partitions) of each channel. Default: 1, and with --if-not-exists any number of "
            "an existing channel.",
            show_default=False,
        ),
    ] = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists",
            help="Succeed if the channel exists, with --vchannels if given; its settings are not changed.",
        ),
    ] = False,
    owner: Annotated[str, typer.Option(help="Owner of the channel: free text, shown by ls.")] = "",
    bounds: RetentionOptions,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Create channels. Up to 100 are created atomically; more are created in several requests."""
    change = bounds.change()
    try:
        retention = Retention(**change)
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error

    created = server.ask(
        lambda client: client.create_channels(
            names, vchannels=vchannels, if_not_exists=if_not_exists,
            owner=OwnerDescription(role=owner) if owner else None, retention=retention,
        )
    )  # fmt: skip
    print_records([_summary(channel) for channel in created], output)


def alter(
    names: NamesArgument,
    *,
    vchannels: Annotated[
        int | None,
        typer.Option(min=1, help="Number of vchannels that each channel shall have: more are added, never removed."),
    ] = None,
    bounds: RetentionOptions,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Change the retention of channels, or add vchannels. Options that are not given keep their values.

    Up to 100 channels are changed atomically; more are changed in several requests. With --vchannels, grown_tick
    separates messages before the last addition of vchannels, whose keys may be on other vchannels, from those after.
    """
    change = bounds.change()
    if not change and vchannels is None:
        raise CommandError(
            "no change given: use --vchannels, --retention-age, --retention-bytes or --retention-hard-bytes",
            ExitCode.USAGE,
        )

    altered = server.ask(lambda client: client.alter_channels(names, retention=change, vchannels=vchannels))
    print_records([_summary(channel) if vchannels is None else _grown(channel) for channel in altered], output)


def ls(
    prefix: Annotated[
        str,
        typer.Argument(
            help="List only names with this prefix, or that match this pattern in quotes, as 'o*.eu'.",
            autocompletion=channel_names,
        ),
    ] = "",
    *,
    names_only: Annotated[bool, typer.Option("--names", "-n", help="Print only names, one per line.")] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", "-a", help="List system channels too: the audit log, and the channels of journals and mailboxes."
        ),
    ] = False,
    watch: Watch,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List channels by name."""

    def look() -> list[Record]:
        channels = server.ask_all(lambda client: client.list_channels(prefix, include_system=everything))
        return [_summary(channel) for channel in channels]

    watch.show(look, output, names_only=names_only)


def describe(names: PatternsArgument, *, watch: Watch, server: Server, output: OutputOption = None) -> None:
    """Describe channels, one record per vchannel."""

    async def described(client: AsyncClient) -> list[ChannelDescription]:
        return await client.describe_channels(await channels_named(client, names))

    watch.show(lambda: [row for channel in server.ask(described) for row in _vchannel_rows(channel)], output)


def rm(
    names: NamesArgument,
    *,
    yes: YesOption = False,
    ignore_missing: Annotated[bool, typer.Option("--ignore-missing", help="Skip unknown names.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also remove channels that members of consumer groups are consuming.")
    ] = False,
    server: Server,
    quiet: QuietOption = False,
) -> None:
    """Remove channels with all their messages, atomically."""
    if not yes:
        # Report unknown names before asking for confirmation.
        server.ask(lambda client: _check_existence(client, names, ignore_missing=ignore_missing))
    confirm(f"Remove {', '.join(names)} with all messages?", refusal=_NOTHING, yes=yes)

    removed = server.ask(lambda client: client.destroy_channels(names, ignore_missing=ignore_missing, force=force))
    note(f"removed {', '.join(removed) or 'nothing'}", quiet=quiet)


def trim(
    vchannel: VchannelArgument,
    *,
    before: Annotated[str | None, typer.Option(help=f"Remove messages before this position: {POSITION_HELP}.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all current messages.")] = False,
    yes: YesOption = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Remove the oldest messages of a vchannel, durably."""
    if (before is None) is not everything:
        raise CommandError("expected exactly one of --before POSITION and --all", ExitCode.USAGE)
    until = parse_position(before) if before is not None else None
    which = f"messages of {vchannel} before {before}" if before else f"all messages of {vchannel}"
    confirm(f"Remove {which}?", refusal=_NOTHING, yes=yes)

    tick = server.ask(lambda client: client.vchannel(vchannel).trim(until, everything=everything))
    print_records([{"vchannel": full_name(vchannel), "first_available_tick": int(tick)}], output)


def fence(
    vchannel: VchannelArgument,
    fencing_token: Annotated[int, typer.Argument(min=1, help="New token, not below the current one.")],
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Raise the fencing token of a vchannel, durably. Appends that carry a different token are then refused."""
    server.ask(lambda client: client.fence(vchannel, fencing_token))
    print_records([{"vchannel": full_name(vchannel), "fencing_token": fencing_token}], output)


async def _check_existence(client: AsyncClient, names: Sequence[str], *, ignore_missing: bool) -> None:
    """Raise ChannelNotFoundError for unknown names, if the caller is permitted to describe channels."""
    with suppress(PermissionDeniedError):
        await client.describe_channels(names, ignore_missing=ignore_missing)


def _summary(channel: ChannelDescription) -> Record:
    return {
        "name": channel.name,
        "vchannels": len(channel.vchannels),
        "messages": sum(vchannel.messages for vchannel in channel.vchannels),
        "bytes": sum(vchannel.bytes for vchannel in channel.vchannels),
        "created": iso_time(channel.created_tick.time),
        "owner": channel.owner.role,
        "retention": _retention_text(channel.retention),
        "stopped_by": channel.stopped_by,
    }


def _grown(channel: ChannelDescription) -> Record:
    return {**_summary(channel), "grown_tick": int(channel.growths[-1].tick) if channel.growths else 0}


def _vchannel_rows(channel: ChannelDescription) -> list[Record]:
    return [
        {
            "name": vchannel.name,
            "messages": vchannel.messages,
            "bytes": vchannel.bytes,
            "trim_tick": int(vchannel.trim_tick),
            "last_tick": int(vchannel.last_tick),
            "last_time": iso_time(vchannel.last_tick.time) if vchannel.last_tick else None,
            "fencing_token": vchannel.fencing_token,
            "retention": _retention_text(channel.retention),
            "cut_messages": vchannel.cut.messages if vchannel.cut else 0,
            "cut_until_tick": int(vchannel.cut.until_tick) if vchannel.cut else 0,
            "cut_groups": " ".join(vchannel.cut.groups) if vchannel.cut else "",
            "watermark": int(channel.watermark),
            "stopped_by": channel.stopped_by,
        }
        for vchannel in channel.vchannels
    ]


def _retention_text(retention: Retention) -> str:
    """Return the bounds as ``NAME=VALUE``, separated by spaces; empty without bounds."""
    bounds = {
        "age": retention.age and f"{retention.age.total_seconds():g}s",
        "bytes": retention.bytes,
        "hard": retention.hard_bytes,
    }
    return " ".join(f"{name}={bound}" for name, bound in bounds.items() if bound is not None)
