"""Real server processes: started on free loopback ports, ended through their handle, never by name."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog_cli.metrics_text import samples
from tidelog_testing.servers.forks import ServerFork
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.ports import free_port
from tidelog_testing.servers.tested_store import prepare_server

ROOT: Final = Path(__file__).resolve().parents[3]
_START_WITHIN_S: Final = 240.0
_END_WITHIN_S: Final = 240.0
_POLL_S: Final = 0.001
PYTHON_PATH: Final = os.pathsep.join(str(ROOT / folder) for folder in ("client", "server", "tests"))


def lasting_port() -> dict[str, object]:
    """Return settings with a gRPC port for servers that run one after the other."""
    return {"server.grpc_port": free_port()}


class ServerDiedError(Exception):
    """The process ended before it was ready.

    Attributes:
        code: Exit code; for a signal, its negative number.
        errors: Output on stderr.
    """

    def __init__(self, code: int, errors: str) -> None:
        super().__init__(f"the server ended with {code} before it was ready:\n{errors}")
        self.code = code
        self.errors = errors


class ServerProcess(Held):
    """A server in its own process. The constructor returns once it accepts requests; ``with`` ends it by SIGKILL.

    Attributes:
        grpc: ``host:port``.
        http: ``host:port``.
        pid: Process id of the server itself, also under a wrapper.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        program: Sequence[str] = (),
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Start a server on ``folder``.

        Args:
            folder: The data folder; stderr goes to ``<folder>.stderr`` next to it.
            settings: Further settings, such as ``{"limits.min_free_disk_bytes": 0}``.
            env: Further variables.
            wrapper: Command that runs the server as its child, such as strace or setpriv with options.
            program: What Python runs instead of the server's own module. Without this and a wrapper, the server is a
                fork of a process that has loaded it.
            prepare: A function of a module that such a fork calls before it serves.

        Raises:
            ServerDiedError: The process ended before it was ready.
        """
        self._errors_path = folder.with_name(f"{folder.name}.stderr")
        flags = {"server.grpc_port": 0, "server.http_port": 0, "storage.data_dir": folder, "log.level": "warning"}
        flags["limits.min_free_disk_bytes"] = 0
        arguments = [
            text for name, value in {**flags, **(settings or {})}.items() for text in (f"--{name}", f"{value}")
        ]
        environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, **(env or {})}
        self._process: ServerFork | subprocess.Popen[bytes]
        if wrapper or program:
            assert prepare is None
            command = [*wrapper, sys.executable, *(program or ("-m", "tidelog_server")), *arguments]
            with self._errors_path.open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    # Its own group, so that a wrapper and its child are ended together.
                    start_new_session=True,
                )
        else:
            self._process = ServerFork(arguments, environment, self._errors_path, prepare or prepare_server())
        ready = self._wait_ready()
        self.grpc = str(ready["grpc"])
        self.http = str(ready["http"])
        self.pid = int(str(ready["pid"]))

    @property
    def code(self) -> int | None:
        """Exit code of the process, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def errors(self) -> str:
        """Output of the server on stderr so far."""
        return self._errors_path.read_text(errors="replace")

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone. Idempotent."""
        if self._process.poll() is None:
            # A fork may have ended before its exit is reported. One that has just begun has no group of its own yet.
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError):
                    kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_pipe()

    def terminate(self) -> None:
        """Request a graceful end with SIGTERM; does not wait."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout_s: float = _END_WITHIN_S) -> int:
        """Wait until it has ended and return its exit code. Raises TimeoutError."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the server still ran after {timeout_s} s:\n{self.errors}") from None
        self._close_pipe()
        return code

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, str]:
        """Return status and text of an HTTP path such as ``/readyz``. Raises OSError if there is no answer."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=timeout_s) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric with exactly these labels. Raises ValueError if there is no such sample."""
        _, text = self.get("/metrics")
        [value] = [value for each, of_each, value in samples(text) if each == name and of_each == labels]
        return value

    def _wait_ready(self) -> dict[str, object]:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_WITHIN_S)
        line = self._process.stdout.readline() if readable else b""
        if line:
            ready: dict[str, object] = json.loads(line)
            return ready
        if not readable:
            self.kill()
        code = self.wait()
        raise ServerDiedError(code, self.errors)

    def _close_pipe(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()


def pause(pid: int) -> None:
    """Stop a process by SIGSTOP; return once all its threads are stopped.

    A signal stops a process only once one of its threads runs: on a busy machine others serve requests until then.
    """
    os.kill(pid, signal.SIGSTOP)
    while not all(_is_stopped(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat")):
        time.sleep(_POLL_S)


def _is_stopped(stat: Path) -> bool:
    try:
        text = stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        # The thread has ended.
        return True
    return text.rpartition(")")[2].split()[0] in "TZX"


def refused_start(folder: Path, settings: Mapping[str, object]) -> ServerDiedError:
    """Return how a server ended that did not start (asserted)."""
    try:
        server = ServerProcess(folder, settings)
    except ServerDiedError as died:
        return died
    server.kill()
    raise AssertionError("the server started")
