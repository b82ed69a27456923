"""``tidelog broadcast``: send, wait for, acknowledge, list, describe and abort broadcasts."""

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from tidelog import (
    AckMode,
    AsyncClient,
    BroadcastNotFoundError,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    BroadcastVchannelError,
    PermissionDeniedError,
    ResourceKey,
)
from tidelog.read.channel_patterns import is_pattern
from tidelog_cli.connection import PatientServer, Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.numbers import seconds
from tidelog_cli.option_groups import add_group
from tidelog_cli.options.completers import vchannel_names
from tidelog_cli.options.positions import whole_number
from tidelog_cli.output.records import OutputOption, QuietOption, Record, note, print_records
from tidelog_cli.output.watch import Watch

VchannelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="VCHANNEL...", help="CHANNEL/INDEX, or CHANNEL for all its vchannels.", autocompletion=vchannel_names
    ),
]
_MAX_ID: Final = (1 << 63) - 1
IdArgument = Annotated[
    int,
    typer.Argument(metavar="BROADCAST_ID", min=1, max=_MAX_ID, help="Broadcast id, as printed by send."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app,
        "broadcast",
        "Send one message to many vchannels at one tick, and track acknowledgements.",
        [send, status, ack, wait, ls, abort],
    )


def send(
    names: VchannelsArgument,
    *,
    message: Annotated[str | None, typer.Option("--message", "-m", help="Payload. Default: standard input.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Resource key to hold exclusively, DOMAIN:KEY; repeatable."),
    ] = None,
    shared_keys: Annotated[
        list[str] | None,
        typer.Option("--shared-key", help="Resource key to hold shared, DOMAIN:KEY; repeatable."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=600,
            callback=seconds,
            help="Seconds to wait for keys held by other broadcasts; added to --timeout.",
        ),
    ] = 0,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Send a message to all given vchannels atomically, at one tick."""
    held = [*_keys_of(keys or [], shared=False), *_keys_of(shared_keys or [], shared=True)]
    payload = sys.stdin.buffer.read() if message is None else message.encode()

    async def command(client: AsyncClient) -> tuple[BroadcastResult, list[str]]:
        vchannels = await _vchannels_of(client, names)
        return await client.broadcast(vchannels, payload, resource_keys=held, wait_s=wait or None), vchannels

    result, vchannels = server.with_more_time(wait).ask(command)
    print_records(
        [{"broadcast_id": result.broadcast_id, "tick": int(result.tick), "vchannels": len(vchannels)}], output
    )


def status(broadcast_id: IdArgument, *, watch: Watch, server: Server, output: OutputOption = None) -> None:
    """Show the state of a broadcast and the vchannels that have not acknowledged it."""

    def look() -> list[Record]:
        described = server.ask(lambda client: client.describe_broadcast(broadcast_id))
        return [{**_row(described.summary), "tick": int(described.summary.tick), "missing": list(described.missing)}]

    watch.show(look, output)


def ack(broadcast_id: IdArgument, names: VchannelsArgument, *, server: Server, quiet: QuietOption = False) -> None:
    """Acknowledge a broadcast on vchannels. Idempotent."""

    async def command(client: AsyncClient) -> None:
        try:
            await client.ack(broadcast_id, await _vchannels_of(client, names))
        except BroadcastVchannelError:
            # A channel has got vchannels since the broadcast: the server knows those of the broadcast.
            await client.ack(broadcast_id, names)

    server.ask(command)
    note(f"acknowledged {broadcast_id} on {', '.join(names)}", quiet=quiet)


def wait(
    what: Annotated[str, typer.Argument(help="Resource key DOMAIN:KEY, or broadcast id.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="Wait for one acknowledgement instead of all.")] = False,
    server: PatientServer,
    quiet: QuietOption = False,
) -> None:
    """Wait until a broadcast, or every broadcast that now holds a resource key, is acknowledged.

    Without --timeout, the command waits indefinitely.
    """
    target = _id_of(what) if what.isascii() and what.isdecimal() else _keys_of([what], shared=False)[0]

    async def command(client: AsyncClient) -> None:
        for line in () if quiet else await _what_is_missing(client, target):
            note(line)
        longest_s = _FOREVER_S if server.timeout is None else server.timeout
        await client.wait_acked(target, mode=AckMode.ONCE if once else AckMode.ALL, timeout_s=longest_s)

    # Longer than the server's wait, so that the server's answer is reported and not the command's timeout.
    server.with_more_time(_ANSWER_S).ask(command)
    note(f"acknowledged: {what}", quiet=quiet)


async def _vchannels_of(client: AsyncClient, names: Sequence[str]) -> list[str]:
    if patterns := [name for name in names if is_pattern(name)]:
        # It would stand for the channels that the caller may read, which are others than those of the broadcast.
        raise CommandError(f"'{patterns[0]}' is a pattern: name each channel of the broadcast", ExitCode.USAGE)
    return await client.vchannels_of(names)


async def _what_is_missing(client: AsyncClient, target: int | ResourceKey) -> list[str]:
    """Return a line per broadcast with the vchannels that have not acknowledged; empty if the caller may not know."""
    lines = []
    try:
        ids = [target] if isinstance(target, int) else await _holders(client, target)
        for broadcast_id in ids:
            if missing := (await client.describe_broadcast(broadcast_id)).missing:
                names = " ".join(missing)
                lines.append(f"waiting for {names}: `tidelog broadcast ack {broadcast_id} {names}` acknowledges it")
    except (PermissionDeniedError, BroadcastNotFoundError):
        # Waiting needs fewer permissions than describing, and itself reports an unknown broadcast.
        pass
    return lines


async def _holders(client: AsyncClient, key: ResourceKey) -> list[int]:
    return [
        summary.broadcast_id
        async for summary in client.list_broadcasts()
        if any((held.domain, held.key) == (key.domain, key.key) for held in summary.resource_keys)
    ]


_FOREVER_S = 1e9
_ANSWER_S = 1.0


def ls(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also list finished broadcasts.")] = False,
    watch: Watch,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List unfinished broadcasts, oldest first."""

    async def command(client: AsyncClient) -> list[BroadcastSummary]:
        listed = client.list_broadcasts(list(BroadcastState)) if everything else client.list_broadcasts()
        return [summary async for summary in listed]

    watch.show(lambda: [_row(summary) for summary in server.ask(command)], output)


def abort(
    broadcast_id: IdArgument,
    *,
    reason: Annotated[str, typer.Option(help="Reason, stored with the broadcast.")],
    server: Server,
    output: OutputOption = None,
) -> None:
    """Stop waiting for acknowledgements and release the resource keys. The message stays in the log."""
    print_records([_row(server.ask(lambda client: client.abort_broadcast(broadcast_id, reason)))], output)


def _id_of(text: str) -> int:
    number = whole_number(text)
    if number is None or number > _MAX_ID:
        raise CommandError(f"invalid broadcast id {text[:40]}: expected at most {_MAX_ID}", ExitCode.USAGE)
    return number


def _keys_of(texts: list[str], *, shared: bool) -> list[ResourceKey]:
    """Return resource keys given as ``DOMAIN:KEY``. Raises CommandError."""
    keys = []
    for text in texts:
        domain, colon, key = text.partition(":")
        if not colon:
            raise CommandError(
                f"invalid resource key '{text}': expected DOMAIN:KEY, e.g. schema:orders", ExitCode.USAGE
            )
        try:
            keys.append(ResourceKey(domain, key, shared=shared))
        except ValueError as error:
            raise CommandError(str(error), ExitCode.USAGE) from error
    return keys


def _row(summary: BroadcastSummary) -> Record:
    return {
        "broadcast_id": summary.broadcast_id,
        "state": summary.state.value,
        "vchannels": summary.vchannels,
        "acked": summary.acked_vchannels,
        "keys": [f"{key.domain}:{key.key}" for key in summary.resource_keys if not key.shared],
        "shared_keys": [f"{key.domain}:{key.key}" for key in summary.resource_keys if key.shared],
        "age_s": round(summary.age_s, 3),
        "abort_reason": summary.abort_reason,
    }
