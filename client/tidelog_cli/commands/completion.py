"""``tidelog completion``: print the script that makes a shell complete commands, options and names."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # Typer's own, not marked as exported

from tidelog_cli.entry import COMPLETION_VARIABLE
from tidelog_cli.exit_codes import COMMON_CODES

_PROGRAM = "tidelog"


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=COMMON_CODES)(completion)


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell; `source <(tidelog completion bash)` in ~/.bashrc loads it.

    Names of channels, consumer groups and mailboxes come from the server that the command calls, within one second.
    For zsh, save the script as _tidelog in a folder of fpath; for fish, pipe it to source.
    """
    print(get_completion_script(prog_name=_PROGRAM, complete_var=COMPLETION_VARIABLE, shell=shell.value))
