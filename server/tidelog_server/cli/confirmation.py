"""Asking before something is done that cannot be undone."""

import sys
from typing import Annotated

import typer

from tidelog_server.cli.exit_codes import CommandError, ExitCode

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, refusal: str, yes: bool) -> None:
    """Ask on the terminal; without one, only ``--yes`` counts.

    Raises:
        CommandError: The answer was no, which ``refusal`` tells the consequence of, or there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask on: say --yes", ExitCode.USAGE)
    if not typer.confirm(question, err=True):
        raise CommandError(refusal, ExitCode.FAILURE)
