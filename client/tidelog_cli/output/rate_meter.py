"""Limits the rate of bulk work, so that it leaves disk bandwidth to other processes."""

import threading
import time
from typing import Final

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.progress import Progress

# Maximum unused time that may be caught up.
_BURST_S: Final = 0.25


class RateMeter:
    """Callback that counts bytes and sleeps to hold a rate.

    Attributes:
        stopping: Once set, the next call raises, which ends the calling thread's work.
    """

    def __init__(self, bytes_per_s: int, progress: Progress | None = None) -> None:
        """Limit the rate to ``bytes_per_s``; 0 for no limit."""
        self.stopping = threading.Event()
        self._bytes_per_s = bytes_per_s
        self._progress = progress
        self._due_s = time.monotonic()

    def __call__(self, size_bytes: int) -> None:
        """Count ``size_bytes`` and wait until the rate allows more.

        Raises:
            CommandError: ``stopping`` is set.
        """
        if self._progress is not None:
            self._progress.advance(0, size_bytes)
        wait_s = 0.0
        if self._bytes_per_s:
            now_s = time.monotonic()
            self._due_s = max(self._due_s, now_s - _BURST_S) + size_bytes / self._bytes_per_s
            wait_s = self._due_s - now_s
        if self.stopping.wait(max(0.0, wait_s)):
            raise CommandError("interrupted", ExitCode.INTERRUPTED)
