"""``tidelog group``: create, list, describe, seek, reset and remove consumer groups; their positions in files."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from tidelog import AsyncClient, GroupDescription, GroupPosition, GroupSummary, Positions, Start
from tidelog_cli.commands.group_positions import FileArgument, GroupArgument, export, peek, positions_in
from tidelog_cli.connection import Server
from tidelog_cli.option_groups import add_group
from tidelog_cli.options.completers import channel_names, group_names, vchannel_names
from tidelog_cli.options.confirmation import YesOption, confirm
from tidelog_cli.options.named import groups_named
from tidelog_cli.options.positions import START_HELP, parse_start
from tidelog_cli.output.records import (
    Output,
    OutputOption,
    QuietOption,
    Record,
    Titled,
    chosen_output,
    is_table,
    iso_time,
    note,
    print_records,
)
from tidelog_cli.output.watch import Watch

GroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="Names of consumer groups.", autocompletion=group_names)
]
PatternsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP...",
        help="Names of consumer groups, or patterns in quotes, such as 'billing.*'.",
        autocompletion=group_names,
    ),
]
VchannelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vchannel",
        "-v",
        help="CHANNEL/INDEX, or CHANNEL for all its vchannels; repeatable. Default: all.",
        autocompletion=vchannel_names,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app,
        "group",
        "Create, list, describe, peek, seek, reset, export, import and remove consumer groups.",
        [create, ls, describe, peek, seek, reset, export, import_, rm],
        destroy=rm,
    )


def create(
    group: GroupArgument,
    channels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHANNEL]...",
            help="Channels to subscribe to; more can be subscribed later.",
            autocompletion=channel_names,
        ),
    ] = None,
    *,
    start: Annotated[str, typer.Option(help=f"Start position: {START_HELP}.")] = "earliest",
    if_not_exists: Annotated[
        bool,
        typer.Option("--if-not-exists", help="Succeed if the group exists, and only subscribe it to new channels."),
    ] = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Create a group. Retention then preserves messages of these channels that the group has not consumed."""
    position = parse_start(start)

    created = server.ask(
        lambda client: client.create_group(group, channels or (), start=position, if_not_exists=if_not_exists),
    )
    print_records(
        [{"name": group, "created": iso_time(created.created_tick.time), "vchannels": list(created.positions)}], output
    )


def ls(
    prefix: Annotated[
        str,
        typer.Argument(
            help="List only names with this prefix, or that match this pattern in quotes, as 'b*.eu'.",
            autocompletion=group_names,
        ),
    ] = "",
    *,
    channel: Annotated[
        str, typer.Option(help="List only groups subscribed to this channel.", autocompletion=channel_names)
    ] = "",
    names_only: Annotated[bool, typer.Option("--names", "-n", help="Print only names, one per line.")] = False,
    watch: Watch,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List groups by name."""

    def look() -> list[Record]:
        return [_summary(group) for group in server.ask_all(lambda client: client.list_groups(prefix, channel=channel))]

    watch.show(look, output, names_only=names_only)


def describe(groups: PatternsArgument, *, watch: Watch, server: Server, output: OutputOption = None) -> None:
    """Describe groups: position and lag on each vchannel, and members."""

    async def command(client: AsyncClient) -> list[GroupDescription]:
        return [await client.describe_group(group) for group in await groups_named(client, groups)]

    watch.show_tables(lambda: _tables(server.ask(command), chosen_output(output)), output)


def seek(
    group: GroupArgument,
    *,
    to: Annotated[str, typer.Option("--to", help=f"New position: {START_HELP}.")],
    vchannels: VchannelsOption = None,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Move the positions of a group forward or back, atomically. Its members resume there."""
    _seek(server, group, parse_start(to), vchannels, output)


def reset(
    group: GroupArgument,
    *,
    to: Annotated[
        Literal["earliest", "latest"],
        typer.Option("--to", help="earliest: consume everything again; latest: skip all current messages."),
    ] = "earliest",
    vchannels: VchannelsOption = None,
    yes: YesOption = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Reset the positions of a group to the earliest available message, or to the end."""
    where = ", ".join(vchannels) if vchannels else "all its vchannels"
    what = "consume everything again" if to == "earliest" else "skip all messages not yet consumed"
    confirm(f"Make {group} {what} on {where}?", refusal="nothing was changed", yes=yes)
    _seek(server, group, parse_start(to), vchannels, output)


def import_(group: GroupArgument, file: FileArgument, *, server: Server, output: OutputOption = None) -> None:
    """Set the positions of a group to those in a file, forward or back, atomically. Its members resume there.

    The file may be that of another group. Vchannels that it does not name keep their positions.
    """
    _seek(server, group, positions_in(file), (), output)


def rm(
    groups: GroupsArgument,
    *,
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also remove groups that have members; their members get an error.")
    ] = False,
    ignore_missing: Annotated[bool, typer.Option("--ignore-missing", help="Skip unknown names.")] = False,
    server: Server,
    quiet: QuietOption = False,
) -> None:
    """Remove groups with all their positions, one after the other. Messages are not deleted."""
    confirm(f"Remove {', '.join(groups)} with all positions?", refusal="nothing was removed", yes=yes)

    async def command(client: AsyncClient) -> None:
        for group in groups:
            existed = await client.destroy_group(group, ignore_missing=ignore_missing, force=force)
            # Report each group, so that the output shows what was removed before a failure.
            note(f"removed {group}" if existed else f"no such group: {group}", quiet=quiet)

    server.ask(command)


def _seek(
    server: Server, group: str, to: Start | Positions, vchannels: Sequence[str] | None, output: Output | None
) -> None:
    positions = server.ask(lambda client: client.seek_group(group, to, vchannels or ()))
    print_records(
        [
            {"group": group, "vchannel": position.vchannel, "next_tick": int(position.next_tick)}
            for position in positions.values()
        ],
        output,
    )


def _summary(group: GroupSummary) -> Record:
    return {
        "name": group.name,
        "vchannels": group.vchannels,
        "members": group.members,
        "created": iso_time(group.created_tick.time),
        "last_commit": _moment(group.committed_time_ms),
    }


def _tables(groups: Sequence[GroupDescription], output: Output) -> list[Titled]:
    if not is_table(output) and output is not Output.TEXT:
        return [Titled([_record(group) for group in groups])]
    tables = []
    for group in groups:
        # A table output has both tables; text has only the first.
        positions = [{"group": group.name, **_position_row(each)} for each in group.positions.values()]
        tables.append(Titled(positions, f"{group.name}: positions"))
        if is_table(output) and group.members:
            tables.append(Titled(_member_rows(group), f"{group.name}: members"))
    return tables


def _position_row(position: GroupPosition) -> Record:
    return {
        "vchannel": position.vchannel,
        "next_tick": int(position.next_tick),
        "lag_messages": position.lag_messages,
        "lag_bytes": position.lag_bytes,
        "lag_s": round(position.lag_s, 3),
        "last_commit": _moment(position.committed_time_ms),
        "member": position.member_id,
        "trimmed": position.is_trimmed,
    }


def _member_rows(group: GroupDescription) -> list[Record]:
    return [
        {
            "member": member.member_id,
            "description": member.description,
            "channels": list(member.channels),
            "vchannels": list(member.vchannels),
            "expires_in_s": round(member.expires_in_s, 3),
        }
        for member in group.members
    ]


def _record(group: GroupDescription) -> Record:
    """Return the whole description of a group as one record, for JSON, YAML and names."""
    return {
        "name": group.name,
        "created": iso_time(group.created_tick.time),
        "lag_messages": group.lag_messages,
        "lag_bytes": group.lag_bytes,
        "lag_s": round(group.lag_s, 3),
        "positions": [_position_row(position) for position in group.positions.values()],
        "members": _member_rows(group),
    }


def _moment(time_ms: int) -> str | None:
    return iso_time(datetime.fromtimestamp(time_ms / 1_000, UTC)) if time_ms else None
