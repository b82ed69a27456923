"""Confirmation of irreversible actions."""

import sys
from typing import Annotated

import typer

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.escapes import shown

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, refusal: str, yes: bool) -> None:
    """Ask on the terminal, unless ``yes``.

    Raises:
        CommandError: The answer was no, with the message ``refusal``; or stdin is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("cannot ask for confirmation without a terminal: pass --yes", ExitCode.USAGE)
    if not typer.confirm(shown(question), err=True):
        raise CommandError(refusal, ExitCode.FAILURE)
