"""``tidelog token``: create, list and revoke tokens."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from tidelog import NewToken, TokenDescription
from tidelog_server.cli.connection import DEFAULT_ENDPOINT, EndpointOption, TimeoutOption, connected, run
from tidelog_server.cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_server.cli.output import Output, OutputOption, Record, chosen_output, note, print_records

_DEFAULT_TIMEOUT_S = 30.0
_LIFETIME: Final = re.compile("([1-9][0-9]{0,6})([smhd])", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens.")
    group.command("create", epilog=COMMON_CODES)(create)
    group.command("ls", epilog=COMMON_CODES)(list_tokens)
    group.command("revoke", epilog=COMMON_CODES)(revoke)
    app.add_typer(group, name="token")


def create(
    description: Annotated[str, typer.Argument(help="Whom or what it is for.", show_default=False)],
    *,
    allow: Annotated[
        list[str],
        typer.Option(
            "--allow",
            "-a",
            show_default=False,
            help="VERB:PATTERN, such as append:orders or read:orders.*; or admin.read, admin.write. May be repeated.",
        ),
    ],
    lifetime: Annotated[str, typer.Option(help="How long it is taken: 90m, 12h, 30d; at most 366d.")] = "30d",
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = _DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """Make a token and print it: this is the only time that it can be seen."""
    lifetime_s = _seconds(lifetime)

    async def command() -> NewToken:
        async with connected(endpoint) as client:
            return await client.create_token(description, allow, lifetime_s=lifetime_s)

    made = run(command(), timeout)
    if chosen_output(output) is Output.TEXT:
        # For scripts: nothing but the token, ready for a file.
        print(made.token)
        return
    print_records([{"token": made.token, **_row(made.description)}], output)
    note("keep the token as a secret: it is not shown again")


def list_tokens(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Revoked and expired ones too.")] = False,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = _DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """List tokens by id, without the tokens themselves."""

    async def command() -> list[TokenDescription]:
        async with connected(endpoint) as client:
            return [token async for token in client.list_tokens(everything=everything)]

    print_records([_row(token) for token in run(command(), timeout)], output)


def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="12 hexadecimal digits.", show_default=False)],
    *,
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = _DEFAULT_TIMEOUT_S,
    output: OutputOption = None,
) -> None:
    """End a token for ever; what is open under it ends within 5 seconds."""

    async def command() -> TokenDescription:
        async with connected(endpoint) as client:
            return await client.revoke_token(token_id)

    print_records([_row(run(command(), timeout))], output)


def _seconds(text: str) -> int:
    found = _LIFETIME.fullmatch(text)
    if not found:
        raise CommandError(f"'{text}' is no lifetime: write a number and s, m, h or d, such as 12h", ExitCode.USAGE)
    return int(found[1]) * _UNIT_S[found[2]]


def _row(token: TokenDescription) -> Record:
    return {
        "token_id": token.token_id,
        "description": token.description,
        "grants": list(token.grants),
        "created": _iso(token.created_time_ms),
        "expires": _iso(token.expires_time_ms),
        "revoked": _iso(token.revoked_time_ms) if token.revoked_time_ms else "",
        "created_by": token.created_by,
    }


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")
