"""``tidelog group``: create, list, describe, seek, reset and remove consumer groups."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from tidelog import AsyncClient, At, GroupDescription, GroupPosition, GroupSummary, Start
from tidelog_cli.commands.confirmation import YesOption, confirm
from tidelog_cli.commands.positions import START_HELP, parse_start
from tidelog_cli.connection import Server
from tidelog_cli.option_groups import add_group
from tidelog_cli.output.records import (
    Output,
    OutputOption,
    QuietOption,
    Record,
    chosen_output,
    note,
    print_listed,
    print_records,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.", show_default=False)]
GroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="Names of consumer groups.", show_default=False)
]
VchannelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vchannel", "-v", help="CHANNEL/INDEX, or CHANNEL for all its vchannels; repeatable. Default: all.",
        show_default=False,
    ),
]  # fmt: skip


class End(StrEnum):
    """The two ends of a vchannel."""

    EARLIEST = "earliest"
    LATEST = "latest"


_ENDS: Final = {End.EARLIEST: At.earliest(), End.LATEST: At.latest()}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app,
        "group",
        "Create, list, describe, seek, reset and remove consumer groups.",
        {"create": create, "ls": list_groups, "describe": describe, "seek": seek, "reset": reset, "rm": remove},
        # The name of the client's method.
        {"destroy": remove},
    )


def create(
    group: GroupArgument,
    channels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHANNEL]...", help="Channels to subscribe to; more can be subscribed later."),
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
        [{"name": group, "created": _iso(created.created_tick.time), "vchannels": list(created.positions)}], output
    )


def list_groups(
    prefix: Annotated[str, typer.Argument(help="List only names with this prefix.", show_default=False)] = "",
    *,
    channel: Annotated[str, typer.Option(help="List only groups subscribed to this channel.", show_default=False)] = "",
    names_only: Annotated[bool, typer.Option("--names", "-n", help="Print only names, one per line.")] = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List groups by name."""
    groups = server.ask_all(lambda client: client.list_groups(prefix, channel=channel))
    print_listed([_summary(group) for group in groups], output, names_only=names_only)


def describe(groups: GroupsArgument, server: Server, output: OutputOption = None) -> None:
    """Describe groups: position and lag on each vchannel, and members."""

    async def command(client: AsyncClient) -> list[GroupDescription]:
        return [await client.describe_group(group) for group in groups]

    described = server.ask(command)
    if chosen_output(output) in (Output.JSON, Output.JSONL):
        print_records([_record(group) for group in described], output)
        return
    for group in described:
        # A table output has both tables; text has only the first.
        print_records(
            _position_rows(group.name, list(group.positions.values())), output, title=f"{group.name}: positions"
        )
        if chosen_output(output) is Output.TABLE and group.members:
            print_records(_member_rows(group), output, title=f"{group.name}: members")


def seek(
    group: GroupArgument,
    *,
    to: Annotated[str, typer.Option("--to", help=f"New position: {START_HELP}.", show_default=False)],
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
        End, typer.Option("--to", help="earliest: consume everything again; latest: skip all current messages.")
    ] = End.EARLIEST,
    vchannels: VchannelsOption = None,
    yes: YesOption = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Reset the positions of a group to the earliest available message, or to the end."""
    where = ", ".join(vchannels) if vchannels else "all its vchannels"
    what = "consume everything again" if to is End.EARLIEST else "skip all messages not yet consumed"
    confirm(f"Make {group} {what} on {where}?", refusal="nothing was changed", yes=yes)
    _seek(server, group, _ENDS[to], vchannels, output)


def remove(
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


def _seek(server: Server, group: str, to: Start, vchannels: Sequence[str] | None, output: Output | None) -> None:
    async def command(client: AsyncClient) -> list[GroupPosition]:
        return list((await client.seek_group(group, to, vchannels or ())).values())

    print_records([_sought(group, position) for position in server.ask(command)], output)


def _summary(group: GroupSummary) -> Record:
    return {
        "name": group.name,
        "vchannels": group.vchannels,
        "members": group.members,
        "created": _iso(group.created_tick.time),
        "last_commit": _moment(group.committed_time_ms),
    }


def _sought(group: str, position: GroupPosition) -> Record:
    return {"group": group, "vchannel": position.vchannel, "next_tick": int(position.next_tick)}


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


def _position_rows(group: str, positions: Sequence[GroupPosition]) -> list[Record]:
    return [{"group": group, **_position_row(position)} for position in positions]


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
    """Return the whole description of a group as one record, for JSON."""
    return {
        "name": group.name,
        "created": _iso(group.created_tick.time),
        "lag_messages": group.lag_messages,
        "lag_bytes": group.lag_bytes,
        "lag_s": round(group.lag_s, 3),
        "positions": [_position_row(position) for position in group.positions.values()],
        "members": _member_rows(group),
    }


def _moment(time_ms: int) -> str | None:
    return _iso(datetime.fromtimestamp(time_ms / 1_000, UTC)) if time_ms else None


def _iso(time: datetime) -> str:
    # Seconds suffice for people; the ticks in the same record are exact.
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
