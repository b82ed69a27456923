"""A server process for a benchmark: started on free ports, monitored while it runs, and stopped by its handle."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.metrics_text import without_labels

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 60.0
_SAMPLE_INTERVAL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """The server that a benchmark runs against.

    Attributes:
        grpc: Endpoint of the server.
        process: Process of the server; None if the benchmark did not start it.
    """

    grpc: str
    process: "ServerProcess | None"

    def metrics(self) -> Mapping[str, float]:
        """Return the server's metrics by name; empty if the benchmark did not start it."""
        return self.process.metrics() if self.process is not None else {}

    def peak_rss_bytes(self) -> int | None:
        """Return the peak resident memory of the server; None if the benchmark did not start it."""
        return self.process.peak_rss_bytes() if self.process is not None else None

    def cpu_s(self) -> float | None:
        """Return the CPU seconds that the server has used; None if the benchmark did not start it."""
        return self.process.cpu_s() if self.process is not None else None


class ServerProcess:
    """A running ``tidelog serve``, the child ``process``."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str],
        max_files: int | None = None,
        log: Path | None = None,
        module: str = "tidelog_server",
    ) -> None:
        """Start a server.

        Args:
            data_dir: Data folder.
            settings: Settings by ``section.name``.
            max_files: Limit of open files; None for that of this process.
            log: File to which the log of level info is appended; None to log errors only, on standard error.
            module: Module that is run, with the flags of a server.
        """
        self._module = module
        self._log = log
        self._wrapper = [] if max_files is None else ["/bin/sh", "-c", 'ulimit -n "$0"; exec "$@"', str(max_files)]
        flags = {"storage.data_dir": str(data_dir), "server.grpc_port": "0", "server.http_port": "0", **settings}
        self._flags = [part for name, value in flags.items() for part in (f"--{name}", value)]
        self._peak_rss_bytes = 0
        self.grpc = self.http = ""
        self.start()

    def start(self) -> float:
        """Start the process and return the seconds until it was ready.

        Raises:
            CommandError: It ended, or was not ready within 60 s; its errors are on stderr.
        """
        start = time.perf_counter()
        # Only errors on stderr: the server's log does not belong in the benchmark's output.
        level = "error" if self._log is None else "info"
        with ExitStack() as stack:
            stderr = None if self._log is None else stack.enter_context(self._log.open("ab"))
            self.process = subprocess.Popen(
                [*self._wrapper, sys.executable, "-m", self._module, *self._flags, "--log.level", level],
                stdout=subprocess.PIPE, stderr=stderr, env=child_environment(), start_new_session=True,
            )  # fmt: skip
        try:
            ready = self._read_ready_line()
        except BaseException:
            # Ctrl-C included: the caller has nothing yet that it could stop.
            self.process.kill()
            self.process.wait()
            raise
        self.grpc, self.http = ready["grpc"], ready["http"]
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample_rss, daemon=True)
        self._sampler.start()
        return time.perf_counter() - start

    def stop(self) -> None:
        """Stop the process gracefully, or kill it after 60 s. Idempotent.

        Raises:
            CommandError: It did not exit with 0; its errors are on stderr.
        """
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_TIMEOUT_S)
        self.kill()
        if self.process.returncode != ExitCode.OK:
            raise CommandError(f"the server ended with exit code {self.process.returncode}, expected 0")

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it has ended. ``start`` recovers its data."""
        self._stopping.set()
        self._sampler.join()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def rss_bytes(self) -> int:
        """Return the current resident memory."""
        rss_bytes = int(psutil.Process(self.process.pid).memory_info().rss)
        self._peak_rss_bytes = max(self._peak_rss_bytes, rss_bytes)
        return rss_bytes

    def cpu_s(self) -> float:
        """Return the CPU seconds, user and system, that the process has used since its start."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def metrics(self) -> Mapping[str, float]:
        """Return the samples of ``/metrics`` without labels, by name."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as response:
            return without_labels(response.read().decode())

    def peak_rss_bytes(self) -> int:
        """Return the peak resident memory over all starts, sampled every 50 ms."""
        return self._peak_rss_bytes

    def _read_ready_line(self) -> dict[str, str]:
        assert self.process.stdout is not None
        # Why a timer and not select: a killed process closes the pipe, which ends the read with an empty line.
        timer = threading.Timer(_START_TIMEOUT_S, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            code = self.process.wait()
            self.process.stdout.close()
            raise CommandError(f"the server did not start (exit code {code})", ExitCode.UNAVAILABLE)
        ready: dict[str, str] = json.loads(line)
        assert ready["event"] == "ready"
        return ready

    def _sample_rss(self) -> None:
        process = psutil.Process(self.process.pid)
        while not self._stopping.wait(_SAMPLE_INTERVAL_S):
            try:
                self._peak_rss_bytes = max(self._peak_rss_bytes, process.memory_info().rss)
            except psutil.NoSuchProcess:
                return


@contextmanager
def running_target(endpoint: str | None, folder: Path, settings: Mapping[str, str]) -> Iterator[Target]:
    """Yield the server at ``endpoint``, or start one with its data below ``folder``."""
    if endpoint is not None:
        yield Target(endpoint, None)
        return
    process = ServerProcess(folder / "server", settings)
    try:
        yield Target(process.grpc, process)
    except BaseException:
        # The caller must see the first failure.
        with suppress(CommandError):
            process.stop()
        raise
    process.stop()


def cpu_s_per_gb(before_s: float | None, after_s: float | None, size_bytes: int) -> dict[str, float]:
    """Return the detail ``server_cpu_s_per_gb`` of a report; empty if the benchmark did not start the server."""
    if before_s is None or after_s is None:
        return {}
    return {"server_cpu_s_per_gb": (after_s - before_s) / (size_bytes / 1e9)}
