"""The longest step of a server's event loop, in CPU time of its thread.

``python -m benchmarks.step_probe FLAGS`` runs a server with a timer each millisecond, which reads the clock of the
thread: what the loop used between two of them is a step, or several short ones, so a figure is never too small. The
greatest one is in a file that the variable ``BENCHMARK_STEPS`` names, which the benchmark reads and resets while the
server runs. CPU time does not include that of other programs, nor of the server's other threads.
"""

import asyncio
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

FILE_VARIABLE: Final = "BENCHMARK_STEPS"
_PERIOD_S: Final = 0.001
_FIGURE: Final = struct.Struct("<Q")


class LongestStep:
    """The figure in the file, which two processes share."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create it if it is missing."""
        if not path.exists():
            path.write_bytes(_FIGURE.pack(0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FIGURE.size)

    @property
    def ns(self) -> int:
        """Nanoseconds."""
        found: int = _FIGURE.unpack(self._shared[:])[0]
        return found

    @ns.setter
    def ns(self, value: int) -> None:
        self._shared[:] = _FIGURE.pack(value)

    def watch(self) -> None:
        """Measure the running loop from now on."""
        loop = asyncio.get_running_loop()
        used_ns = time.thread_time_ns()

        def look() -> None:
            nonlocal used_ns
            before_ns, used_ns = used_ns, time.thread_time_ns()
            self.ns = max(self.ns, used_ns - before_ns)
            loop.call_later(_PERIOD_S, look)

        look()


def main() -> None:
    """Run a server with the timer."""
    from tidelog_cli import main as run
    from tidelog_server import app
    from tidelog_server.runtime.metrics import watch_event_loop

    longest = LongestStep(Path(os.environ[FILE_VARIABLE]))

    async def watched(clock: Any, metrics: Any) -> None:
        longest.watch()
        await watch_event_loop(clock, metrics)

    # The server starts the watch once its loop runs.
    setattr(app, "watch_event_loop", watched)  # noqa: B010 - the name is an import of that module
    run(["serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
