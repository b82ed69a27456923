"""The outermost frame: imports the command line, runs it, and turns what it raises into messages and exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from tidelog_server.cli.exit_codes import CommandError, ExitCode
from tidelog_server.cli.extras import extra_of
from tidelog_server.cli.grpc_stack import log_errors_only, use_polling_stack

_NEED_SERVER: Final = frozenset(("backup", "bench", "config", "serve"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: Without the program's name; None for those of the process.
    """
    use_polling_stack()
    log_errors_only()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given[:1] == ["check"]:
            # By itself: it runs every few seconds, and the tree of commands takes most of a start.
            from tidelog_server.cli import check

            sys.exit(check.run(given[1:]))
        if given[:1] == ["serve"]:
            # By itself too: the modules of the other commands take a fifth of a second.
            from tidelog_server.cli import serve

            serve.run(given)
        from tidelog_server.cli.root import app

        app(args=given, prog_name="tidelog")
    except CommandError as error:
        _fail(error.message, error.code)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as end:
        # Typer turns a closed pipe into a failure.
        if isinstance(end.__context__, BrokenPipeError):
            _end_quietly()
        raise
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        if _NEED_SERVER.intersection(given[:1]) and extra == "cli":
            # That extra has what the command line needs, too.
            extra = "server"
        _fail(f"this command needs {error.name}: pip install 'tidelog[{extra}]'", ExitCode.FAILURE)
    sys.exit(ExitCode.OK)


def _end_quietly() -> NoReturn:
    """End well although our output was not read to its end: that is its reader's right."""
    # Why devnull: the interpreter flushes stdout once more at exit and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(ExitCode.OK)


def _fail(message: str, code: ExitCode) -> NoReturn:
    for line in message.splitlines():
        print(f"tidelog: {line}", file=sys.stderr)
    sys.exit(code)
