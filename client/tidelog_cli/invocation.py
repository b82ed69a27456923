"""Runs a tree of commands, and maps what a caller passed wrongly to one sentence and exit code 2.

The one place for it: commands and checks run through here, so a new command needs nothing of its own.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.options.variables import name_variables

_PREFIX: Final = "TIDELOG_"
# Rich and Typer read these as numbers, Typer while it is imported.
_SIZES: Final = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
_SIZE: Final = re.compile("[1-9][0-9]{0,3}")


def check_text(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise CommandError if an argument or a variable of ours is not UTF-8: a server refuses such names and texts."""
    for number, argument in enumerate(arguments, 1):
        if not _is_text(argument):
            raise CommandError(f"argument {number}, {argument!a}, is not UTF-8 text", ExitCode.USAGE)
    for name, value in environment.items():
        if name.startswith(_PREFIX) and not (_is_text(name) and _is_text(value)):
            raise CommandError(f"the environment variable {name!a} is not UTF-8 text", ExitCode.USAGE)


def drop_invalid_sizes() -> None:
    """Remove variables for the size of the terminal that are not a number; its real size, or a default, then counts."""
    for name in _SIZES:
        if not _SIZE.fullmatch(os.environ.get(name, "80")):
            del os.environ[name]


def invoke(app: Any, arguments: Sequence[str], prog_name: str) -> int:
    """Run an app of Typer, and return its exit code.

    Raises:
        CommandError: The arguments are wrong.
        SystemExit: There are no arguments, and the help was printed.
    """
    import typer

    # Typer exports only this subclass of the errors about arguments.
    usage_error: Any = typer.BadParameter.__base__
    try:
        command = typer.main.get_command(app)
        name_variables(command, prog_name.split()[1:])
        return int(command(args=list(arguments), prog_name=prog_name, standalone_mode=False) or ExitCode.OK)
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            # The help is printed already.
            raise SystemExit(ExitCode.USAGE) from None
        raise _refused(error, prog_name) from error
    except typer.Abort as error:
        raise CommandError("interrupted", ExitCode.INTERRUPTED) from error


def _refused(error: Any, prog_name: str) -> CommandError:
    command = prog_name if error.ctx is None else error.ctx.command_path
    text = " ".join(error.format_message().split()).rstrip(".")
    return CommandError(f"{text[:1].lower()}{text[1:]}: see '{command} --help'", ExitCode.USAGE)


def _is_text(text: str) -> bool:
    """Return whether the bytes that the system passed were UTF-8: Python stands for others with surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
