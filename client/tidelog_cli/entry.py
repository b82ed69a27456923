"""The entry point: import the command line, run it, and map its exceptions to messages and exit codes."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from tidelog_cli import joined, standard_streams
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.extras import extra_of
from tidelog_cli.files import refused_by_system
from tidelog_cli.grpc_stack import log_errors_only, use_polling_stack
from tidelog_cli.invocation import check_text, drop_invalid_sizes, invoke
from tidelog_cli.output.escapes import say, shown

# Characters of an error message that are printed: it may have an argument of any length.
_MAX_LINE: Final = 2_000
COMPLETION_VARIABLE: Final = "_TIDELOG_COMPLETE"
"""The variable by which a shell asks for completions, named as Typer names it."""
_NEED_SERVER: Final = frozenset(("backup", "bench", "config", "debug", "doctor", "serve"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: Arguments without the program's name; None for the arguments of the process.
    """
    run_program("tidelog", _dispatch, sys.argv[1:] if arguments is None else list(arguments))


def run_program(name: str, dispatch: Callable[[list[str]], int], given: list[str]) -> NoReturn:
    """Run a program and exit, with the set-up, the messages and the exit codes of ``tidelog``.

    Args:
        name: Name of the program, which begins each message.
        dispatch: Runs the program with its arguments, and returns the exit code.
        given: Arguments without the program's name.
    """
    _set_up_streams()
    use_polling_stack()
    log_errors_only()
    try:
        check_text(given, os.environ)
        drop_invalid_sizes()
        code = dispatch(given)
        sys.stdout.flush()
    except CommandError as error:
        _fail(name, error.lines, error.code)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as end:
        # Typer exits with a failure when the pipe is closed.
        if isinstance(end.__context__, BrokenPipeError):
            _end_quietly()
        raise
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except OSError as error:
        _fail(name, [refused_by_system(error)], ExitCode.FAILURE)
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        if _NEED_SERVER.intersection(given[:1]) and extra == "cli":
            # The extra "server" includes the dependencies of the command line.
            extra = "server"
        _fail(
            name,
            [f"this command needs {error.name}: run `pip install '.[{extra}]'` in a clone of Tidelog"],
            ExitCode.FAILURE,
        )
    sys.exit(code)


def _set_up_streams() -> None:
    # Ordering: first, before a file that is opened gets the number of a closed stream.
    standard_streams.open_missing()
    standard_streams.escape_unencodable()
    if os.environ.get(COMPLETION_VARIABLE, "").startswith("complete"):
        # A shell would show an error within the line that is being typed.
        _drop(2)


def _dispatch(given: list[str]) -> int:
    """Run a command and return its exit code."""
    if given[:1] == ["help"]:
        # Names of commands have lower-case letters and hyphens only.
        if len(given) == 2 and not given[1].startswith("-") and ("_" in given[1] or not given[1].islower()):
            from tidelog_cli.output.error_help import text_about

            print(text_about(given[1]))
            return ExitCode.OK
        # As the commands of Git, Kubernetes and NATS: `tidelog help group ls` is `tidelog group ls --help`.
        given = [*given[1:], "--help"]
    if given[:1] == ["check"]:
        # Dispatched separately: it runs every few seconds, and importing all commands is most of the start-up time.
        from tidelog_cli.commands import check

        return check.run(given[1:])
    if _NEED_SERVER.intersection(given[:1]):
        module = joined.load("tidelog.commands", given[0])
        if given[0] == "serve":
            # Dispatched separately too: importing the modules of the other commands takes 0.2 s.
            return int(module.run(given))
    from tidelog_cli.root import app

    return invoke(app, given, "tidelog")


def _end_quietly() -> NoReturn:
    """Exit with 0: a reader of stdout that stops early, such as ``head``, is no failure."""
    _drop(1)
    sys.exit(ExitCode.OK)


def _fail(name: str, lines: Sequence[str], code: ExitCode) -> NoReturn:
    try:
        # What the command printed before it failed precedes the message.
        sys.stdout.flush()
    except OSError:
        _drop(1)
    try:
        for line in lines:
            # A line end within it is that of an argument or of a name.
            text = shown(line)
            cut = text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}…"
            say(f"{name}: {cut}", to=sys.stderr, flush=True)
    except OSError:
        # A full disk, or a pipe without a reader: the exit code still says what happened, unless another flush fails.
        _drop(2)
    sys.exit(code)


def _drop(descriptor: int) -> None:
    """Discard what is still written to a stream: the interpreter flushes it again at exit, which would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
