"""``tidelog audit``: read, verify and trim the audit log."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog import AsyncClient, ChannelNotFoundError
from tidelog_cli.connection import Server, TimeoutOption
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import add_group
from tidelog_cli.options.confirmation import YesOption, confirm
from tidelog_cli.options.positions import POSITION_HELP, parse_position
from tidelog_cli.output.records import OutputOption, print_records

_CHANNEL = "_audit"
_FIELDS = ("number", "time_ms", "event", "principal", "address", "method", "verb", "name", "reason")


@dataclass(frozen=True, slots=True)
class _AuditServer(Server):
    timeout: TimeoutOption = 60.0


class AuditChainError(Exception):
    """Lines of the audit log are missing or were changed."""


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(app, "audit", "Read, verify and trim the audit log. Requires admin.read.", [ls, verify, trim])


def ls(
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of events.")] = 50,
    server: _AuditServer,
    output: OutputOption = None,
) -> None:
    """List the newest events, oldest first."""
    events = [json.loads(line) for line in _lines(server)[-count:]]
    rows = [
        {**{name: event.get(name) for name in _FIELDS}, "request": json.dumps(event.get("request", {}))}
        for event in events
    ]
    print_records(rows, output)


def verify(*, server: _AuditServer, output: OutputOption = None) -> None:
    """Verify that no event is missing or modified. Exits with 9 if one is."""
    try:
        count = check_chain(_lines(server))
    except AuditChainError as error:
        raise CommandError(f"the audit log is incomplete or modified: {error}", ExitCode.UNHEALTHY) from error
    print_records([{"events": count, "is_whole": True}], output)


def trim(
    *,
    before: Annotated[str, typer.Option(help=f"Remove events before this position: {POSITION_HELP}.")],
    yes: YesOption = False,
    server: _AuditServer,
    output: OutputOption = None,
) -> None:
    """Remove the oldest events, durably. Requires admin.write.

    The removal is itself recorded as an event. The newest event is never removed.
    """
    until = parse_position(before)
    confirm(f"Remove audit events before {before}?", refusal="nothing was removed", yes=yes)

    tick = server.ask(lambda client: client.trim(_CHANNEL, until))
    print_records([{"first_available_tick": int(tick)}], output)


def check_chain(lines: Iterable[bytes]) -> int:
    """Check that the lines form a chain without gaps, and return their number.

    Raises:
        AuditChainError: A line is missing, was changed, or is not an event.
    """
    previous: str | None = None
    number = count = 0
    for line in lines:
        try:
            event = json.loads(line)
            own_number, own_previous = event["number"], event["previous"]
        except (ValueError, KeyError, TypeError):
            raise AuditChainError(f"the line after event {number} is not an event") from None
        if previous is None:
            # Old events may have been trimmed; from the first line on the chain must be complete.
            if (own_number == 1) != (own_previous == ""):
                raise AuditChainError(f"the number of the first event, {own_number}, contradicts its `previous`")
        elif own_number != number + 1 or own_previous != previous:
            raise AuditChainError(f"event {own_number} does not follow event {number}: lines are missing or changed")
        number, previous = own_number, hashlib.sha256(line).hexdigest()
        count += 1
    return count


def _lines(server: _AuditServer) -> list[bytes]:
    async def lines(client: AsyncClient) -> list[bytes]:
        try:
            return [bytes(payload) async for batch in client.scan(_CHANNEL) for payload in batch.payloads]
        except ChannelNotFoundError as error:
            raise CommandError(
                f"the server at {server.address} has no audit log, because authentication is off: set auth.kind or "
                "tls.client_ca and restart the server",
                ExitCode.NOT_FOUND,
            ) from error

    return server.ask(lines)
