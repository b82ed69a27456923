"""The entry point: import the command line, run it, and map its exceptions to messages and exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from tidelog_cli import joined
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.extras import extra_of
from tidelog_cli.grpc_stack import log_errors_only, use_polling_stack

_NEED_SERVER: Final = frozenset(("backup", "bench", "config", "doctor", "serve"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: Arguments without the program's name; None for the arguments of the process.
    """
    use_polling_stack()
    log_errors_only()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _dispatch(given)
    except CommandError as error:
        _fail(error.message, error.code)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as end:
        # Typer exits with a failure when the pipe is closed.
        if isinstance(end.__context__, BrokenPipeError):
            _end_quietly()
        raise
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        if _NEED_SERVER.intersection(given[:1]) and extra == "cli":
            # The extra "server" includes the dependencies of the command line.
            extra = "server"
        _fail(f"this command needs {error.name}: pip install 'tidelog[{extra}]'", ExitCode.FAILURE)
    sys.exit(ExitCode.OK)


def _dispatch(given: list[str]) -> None:
    if given[:1] == ["check"]:
        # Dispatched separately: it runs every few seconds, and importing all commands is most of the start-up time.
        from tidelog_cli.commands import check

        sys.exit(check.run(given[1:]))
    if _NEED_SERVER.intersection(given[:1]):
        module = joined.load("tidelog.commands", given[0])
        if given[0] == "serve":
            # Dispatched separately too: importing the modules of the other commands takes 0.2 s.
            module.run(given)
    from tidelog_cli.root import app

    app(args=given, prog_name="tidelog")


def _end_quietly() -> NoReturn:
    """Exit with 0: a reader of stdout that stops early, such as ``head``, is no failure."""
    # Why devnull: the interpreter flushes stdout again at exit, which would fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(ExitCode.OK)


def _fail(message: str, code: ExitCode) -> NoReturn:
    try:
        for line in message.splitlines():
            print(f"tidelog: {line}", file=sys.stderr, flush=True)
    except OSError:
        # A full disk, or a pipe without a reader: the exit code still says what happened, unless another flush fails.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(code)
