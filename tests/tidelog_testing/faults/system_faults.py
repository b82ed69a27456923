"""System calls of a running server that fail on demand, by strace's injection: the real path through the kernel."""

import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog_testing.servers.processes import ServerProcess


def require_strace() -> str:
    """Return the path of strace, or fail: without it a run proves nothing."""
    path = shutil.which("strace")
    if path is None:
        pytest.fail("strace is missing: apt-get install strace")
    return path


def injection(calls: str, error: str, when: str) -> list[str]:
    """Return strace's options that make ``calls`` fail; ``when`` counts them per thread, such as ``3``."""
    return ["-e", f"trace={calls}", "-e", f"inject={calls}:error={error}:when={when}"]


def injected(report: Path) -> int:
    """Return the number of calls that were made to fail."""
    return report.read_text(errors="replace").count("(INJECTED)")


@contextmanager
def failing_calls(server: ServerProcess, options: Sequence[str], report: Path) -> Iterator[None]:
    """Make system calls of a running server fail as ``options`` state; strace's own output goes to ``report``."""
    command = [require_strace(), "-f", "-p", str(server.pid), "-o", str(report), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        try:
            first_line = tracer.stderr.readline()
            assert b"attached" in first_line, first_line
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
