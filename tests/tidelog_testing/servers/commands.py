"""The command line in its own processes, without starting Python and loading everything for each command.

A parent process has loaded the modules and forks for each command; gRPC starts in the child, as in a normal process.
"""

import atexit
import errno
import gc
import importlib
import json
import os
import pkgutil
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from typer.testing import CliRunner

import tidelog_cli
from tidelog_cli import commands as client_commands
from tidelog_cli import output
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.grpc_stack import use_polling_stack
from tidelog_cli.root import app
from tidelog_server import commands as server_commands

COMMAND: Final = [sys.executable, "-c", "import sys; from tidelog_cli import main; main(sys.argv[1:])"]
"""The command line as a program, for tests of signals, pipes and starts."""
_SERVE: Final = "from tidelog_testing.servers.commands import serve; serve()"
_STREAMS: Final = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))
# These load Spark, or measure.
_NOT_LOADED: Final = {"bench", "local_spark", "pipeline"}


def pipeline_error(*arguments: str) -> CommandError:
    """Run ``tidelog pipeline`` in this process and return the error that it fails with."""
    error = CliRunner().invoke(app, ["pipeline", *arguments]).exception
    assert isinstance(error, CommandError), error
    return error


def run_command(
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    stdout: Literal["file", "pipe", "terminal", "full"] = "file",
    stderr: Literal["file", "terminal"] = "file",
    columns: int = 80,
    closed: Sequence[int] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run ``tidelog ARGUMENTS`` to its end, without this process's variables TIDELOG_*.

    By default as if a user typed ``tidelog scan orders > rows.jsonl``, with ``stderr`` on a pseudo-terminal of
    ``columns``; the result's stderr is then what the terminal showed. The descriptors
    ``closed`` are closed when the command begins.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as streams:
        folder = Path(name)
        (folder / "stdin").write_bytes(stdin)
        results = [
            streams.enter_context(
                _terminal(folder / stream, columns) if kind == "terminal" else _FILES[kind](folder / stream)
            )
            for stream, kind in (("stdout", stdout), ("stderr", stderr))
        ]
        request = {
            "arguments": list(arguments),
            # A worker of the tests has the width of its own terminal as a variable.
            "environment": {
                name: value for name, value in child_environment().items() if name not in ("COLUMNS", "LINES")
            }
            | dict(environment or {}),
            "cwd": os.getcwd(),
            "folder": name,
            "closed": list(closed),
        }
        code = _parent().run(request)
        output = [result() for result in results]
    return subprocess.CompletedProcess(["tidelog", *arguments], code, *output)


class Commands:
    """The commands of a group, such as ``tidelog mailbox``, against servers; of the root without arguments."""

    def __init__(self, *group: str) -> None:
        self._group = group

    def run(self, endpoint: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        return run_command((*self._group, *arguments), stdin=stdin, environment={"TIDELOG_ENDPOINT": endpoint})

    def succeeds(self, endpoint: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """Return the output of a command that must succeed."""
        done = self.run(endpoint, *arguments, stdin=stdin)
        assert done.returncode == ExitCode.OK, done.stderr.decode()
        return done.stdout

    def refused(self, endpoint: str, code: ExitCode, *arguments: str, stdin: bytes = b"") -> str:
        """Return the errors of a command that must end with ``code``, without a traceback."""
        done = self.run(endpoint, *arguments, stdin=stdin)
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return done.stderr.decode()


def records(output: bytes | str) -> list[dict[str, Any]]:
    """Return the objects of JSON lines."""
    return [json.loads(line) for line in output.splitlines()]


def json_output(command_line: Sequence[str], folder: Path, timeout_s: float) -> list[dict[str, Any]]:
    """Return what a program prints in ``folder`` (asserted: it succeeds, and leaves nothing there)."""
    process = subprocess.Popen(
        command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment(), cwd=folder
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # Not SIGKILL: it must stop the servers that it started.
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    assert process.returncode == 0, stderr.decode()
    assert list(folder.iterdir()) == []
    return records(stdout)


@contextmanager
def _file(path: Path) -> Iterator[Callable[[], bytes]]:
    """Create a file to write to; yield a function that reads it."""
    path.touch()
    yield path.read_bytes


@contextmanager
def _full(path: Path) -> Iterator[Callable[[], bytes]]:
    """Make a device that has no space for a single byte."""
    path.symlink_to("/dev/full")
    yield lambda: b""


@contextmanager
def _pipe(path: Path) -> Iterator[Callable[[], bytes]]:
    os.mkfifo(path)
    with _drained(lambda: os.open(path, os.O_RDONLY)) as result:
        yield result


@contextmanager
def _terminal(path: Path, columns: int) -> Iterator[Callable[[], bytes]]:
    """Create a pseudo-terminal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    path.symlink_to(os.ttyname(slave))
    with _drained(lambda: master) as result:

        def until_closed() -> bytes:
            # Read what was written before a terminal without open processes reports its end.
            os.close(slave)
            return result()

        yield until_closed


@contextmanager
def _drained(opened: Callable[[], int]) -> Iterator[Callable[[], bytes]]:
    """Read on a thread until the end, so that no writer waits; yield a function that returns everything at the end."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(_read_all, opened).result


def _read_all(opened: Callable[[], int]) -> bytes:
    descriptor, parts = opened(), []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError as error:
        # The other side of the pseudo-terminal is closed.
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(descriptor)
    return b"".join(parts)


_FILES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Callable[[], bytes]]]]] = {
    "file": _file, "pipe": _pipe, "full": _full,
}  # fmt: skip


class _Parent:
    """The forking process."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[2]), child_environment()["PYTHONPATH"]])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            env=child_environment() | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        atexit.register(self._end)

    def run(self, request: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that runs commands has died"
        return int(answer)

    def _end(self) -> None:
        self._process.communicate()


@cache
def _parent() -> _Parent:
    return _Parent()


def serve() -> None:
    """Fork for each request on stdin, and write the exit code of the child to stdout."""
    use_polling_stack()
    for package in (tidelog_cli, client_commands, output, server_commands):
        for module in pkgutil.iter_modules(package.__path__):
            if module.name not in _NOT_LOADED:
                importlib.import_module(f"{package.__name__}.{module.name}")
    _load_first_uses()
    # A collection in a child would copy every page that has objects.
    gc.freeze()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    for line in requests:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


def _load_first_uses() -> None:
    """Load what the parser and its help load on their first use, and build the commands of the root."""
    for arguments in (["--help"], ["version"], ["config", "show"]):
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
            tidelog_cli.main(arguments)


def _become(request: Mapping[str, Any]) -> None:
    """Become the requested command; never returns."""
    for descriptor, (name, flags) in enumerate(_STREAMS):
        opened = os.open(Path(request["folder"]) / name, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    for descriptor in request["closed"]:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    try:
        tidelog_cli.main(request["arguments"])
    except SystemExit as end:
        _exit(end)


def _exit(end: SystemExit) -> NoReturn:
    """End as Python does, without freeing each object of each module: that is most of the time of a command.

    Ordering: threads, functions of ``atexit``, streams. A stream that cannot be flushed is code 120.
    """
    assert isinstance(end.code, int), end.code
    threading._shutdown()  # type: ignore[attr-defined]  # It has no type.
    atexit._run_exitfuncs()
    code = int(end.code)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120
    os._exit(code)
