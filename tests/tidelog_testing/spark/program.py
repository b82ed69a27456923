"""A Spark program in its own process group, to be killed as a whole or in parts, and restarted."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tidelog_testing.servers.held import Held
from tidelog_testing.servers.processes import ROOT


class SparkProgram(Held):
    """Runs a module as a program; ``with`` ends all of its processes.

    Attributes:
        starts: Number of starts.
    """

    def __init__(self, module: str, arguments: Sequence[str], log_path: Path) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._log_path = log_path
        self.starts = 0
        self._process = self._start()

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.poll()

    @property
    def text(self) -> str:
        """End of its output."""
        return self._log_path.read_text(errors="replace")[-5_000:]

    def start_again(self) -> None:
        """Kill all of its processes at once, if it runs, and start it."""
        self.kill()
        self._process = self._start()

    def kill_one_of(self, name: str) -> bool:
        """Kill one of its processes whose command contains ``name``; return whether one was found."""
        if self._process.poll() is not None:
            return False
        children = psutil.Process(self._process.pid).children(recursive=True)
        found = [each for each in children if name in " ".join(_command_of(each))]
        if found:
            random.choice(found).send_signal(signal.SIGKILL)
        return bool(found)

    def wait_for(self, what: str, is_so: Callable[[], bool], within_s: float = 500.0) -> None:
        """Wait until ``is_so``; AssertionError with the program's output if that takes too long."""
        deadline_s = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline_s, f"{what}: not within {within_s} s\n{self.text}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill its remaining processes. Executors have their own sessions."""
        children = []
        if self._process.poll() is None:
            children = psutil.Process(self._process.pid).children(recursive=True)
            os.killpg(self._process.pid, signal.SIGKILL)
        for child in children:
            try:
                child.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(str(ROOT / part) for part in ("client", "server", "tests"))
        environment = {
            **os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"
        }  # fmt: skip
        self.starts += 1
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                self._command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=ROOT
            )


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
