"""Servers forked from a process that has loaded them, since loading takes most of a start and tests start hundreds.

Each still has its own process and session, and starts gRPC and RocksDB there.
"""

import multiprocessing
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

from tidelog_cli import main
from tidelog_server.runtime import failpoints

_CONTEXT = multiprocessing.get_context("forkserver")


class ServerFork:
    """A forked server, with the part of ``subprocess.Popen`` that tests use.

    Attributes:
        pid: Id of its process and of its group.
        stdout: Its output.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        errors_path: Path,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Start ``tidelog serve ARGUMENTS``; stderr goes to a file. ``prepare`` is called there before."""
        _start_parent(environment["PYTHONPATH"])
        reader, writer = _CONTEXT.Pipe(duplex=False)
        with reader, writer:
            self._process = _CONTEXT.Process(
                # As a daemon, it ends with the tests at the latest.
                target=_serve, args=(list(arguments), dict(environment), writer, str(errors_path), prepare),
                daemon=True,
            )  # fmt: skip
            self._process.start()
            self.stdout = os.fdopen(os.dup(reader.fileno()), "rb")
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until it has ended; return the exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            assert timeout_s is not None
            raise subprocess.TimeoutExpired("tidelog serve", timeout_s)
        return code


@cache
def _start_parent(python_path: str) -> None:
    _CONTEXT.set_forkserver_preload(["tidelog_testing.servers.preload", __name__])
    # The only path setting that a fork server inherits.
    with mock.patch.dict(os.environ, {"PYTHONPATH": python_path}):
        forkserver.ensure_running()


def _serve(
    arguments: list[str],
    environment: dict[str, str],
    stdout: Connection,
    errors_path: str,
    prepare: Callable[[], None] | None,
) -> None:
    os.setsid()
    errors = os.open(errors_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(stdout.fileno(), 1)
    os.dup2(errors, 2)
    os.close(errors)
    stdout.close()
    os.environ.clear()
    os.environ.update(environment)
    failpoints.ARMED.arm(environment.get(failpoints.VARIABLE, ""))
    if prepare is not None:
        prepare()
    main(["serve", *arguments])
