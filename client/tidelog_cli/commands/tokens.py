"""``tidelog token``: create, list and revoke tokens."""

import re
from typing import Annotated, Final

import typer

from tidelog import TokenDescription
from tidelog_cli.connection import Server
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import add_group
from tidelog_cli.output.records import Output, OutputOption, Record, chosen_output, iso_of_ms, note, print_records

_LIFETIME: Final = re.compile("([1-9][0-9]{0,6})([smhd])", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(app, "token", "Create, list and revoke tokens.", [create, ls, revoke])


def create(
    description: Annotated[str, typer.Argument(help="User or purpose of the token.")],
    *,
    allow: Annotated[
        list[str],
        typer.Option(
            "--allow",
            "-a",
            help="Permission: VERB:PATTERN, e.g. append:orders, read:orders.* or mailbox.send:orders/*; or "
            "admin.read, admin.write. Repeatable.",
        ),
    ],
    lifetime: Annotated[str, typer.Option(help="Lifetime of the token, e.g. 90m, 12h or 30d; at most 366d.")] = "30d",
    server: Server,
    output: OutputOption = None,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    lifetime_s = _seconds(lifetime)

    made = server.ask(lambda client: client.create_token(description, allow, lifetime_s=lifetime_s))
    if chosen_output(output) is Output.TEXT:
        # For scripts: only the token, to be redirected to a file.
        print(made.token)
        return
    print_records([{"token": made.token, **_row(made.description)}], output)
    note("store the token securely: it cannot be shown again")


def ls(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also list revoked and expired tokens.")] = False,
    server: Server,
    output: OutputOption = None,
) -> None:
    """List tokens by id. The secrets are not shown."""
    tokens = server.ask_all(lambda client: client.list_tokens(everything=everything))
    print_records([_row(token) for token in tokens], output)


def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Token id: 12 hexadecimal digits.")],
    *,
    server: Server,
    output: OutputOption = None,
) -> None:
    """Revoke a token permanently. Its open streams end within 5 seconds."""
    print_records([_row(server.ask(lambda client: client.revoke_token(token_id)))], output)


def _seconds(text: str) -> int:
    found = _LIFETIME.fullmatch(text)
    if not found:
        raise CommandError(
            f"invalid lifetime '{text}': expected a number with the unit s, m, h or d, e.g. 12h", ExitCode.USAGE
        )
    return int(found[1]) * _UNIT_S[found[2]]


def _row(token: TokenDescription) -> Record:
    return {
        "token_id": token.token_id,
        "description": token.description,
        "grants": list(token.grants),
        "created": iso_of_ms(token.created_time_ms),
        "expires": iso_of_ms(token.expires_time_ms),
        "revoked": iso_of_ms(token.revoked_time_ms) if token.revoked_time_ms else "",
        "created_by": token.created_by,
    }
