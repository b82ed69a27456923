"""Lines for stderr, written on a thread of their own: a reader that does not read must not stop what writes them."""

import atexit
import io
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

# Lines that wait, in bytes. Further ones are dropped.
MAX_QUEUED_BYTES: Final = 1 << 20
FLUSH_WITHIN_S: Final = 1.0


class QueuedLines:
    """A bounded queue of lines and the thread that writes them, which starts with the first line.

    Unbuffered, because a line that remains in a buffer would fail again when the process exits. A line that does not
    fit into the queue, or that cannot be written, is dropped and counted. What waits at the exit of the process is
    written within FLUSH_WITHIN_S.
    """

    def __init__(self, on_drained: Callable[[int], None]) -> None:
        """Write nothing yet.

        Args:
            on_drained: Called on the thread with the number of lines dropped since the last call, once a line was
                written again and no other one waits.
        """
        self._on_drained = on_drained
        # Called for each line that is dropped, on any thread.
        self.on_dropped: Callable[[], None] = lambda: None
        self._reset()
        # A forked process has neither the thread nor its lines.
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.flush)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        # With the line that is being written.
        self._lines: deque[tuple[int, bytes]] = deque()
        self._queued_bytes = 0
        self._untold = 0
        self._thread: threading.Thread | None = None

    def write(self, stream: TextIO, line: str) -> None:
        """Queue a line for ``stream``, or drop it. A stream in memory is written at once. Never blocks."""
        try:
            descriptor = stream.fileno()
        except io.UnsupportedOperation:
            stream.write(line)
            return
        data = line.encode(stream.encoding, "backslashreplace")
        with self._changed:
            if self._queued_bytes + len(data) > MAX_QUEUED_BYTES:
                self._drop()
                return
            self._lines.append((descriptor, data))
            self._queued_bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, within_s: float = FLUSH_WITHIN_S) -> bool:
        """Wait at most ``within_s`` until all queued lines have been written or dropped; return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines, within_s)

    def _drop(self) -> None:
        self._untold += 1
        self.on_dropped()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                descriptor, data = self._lines[0]
            is_written = _write_all(descriptor, data)
            with self._changed:
                self._lines.popleft()
                self._queued_bytes -= len(data)
                if not is_written:
                    self._drop()
                is_drained = is_written and not self._lines
                untold, self._untold = (self._untold, 0) if is_drained else (0, self._untold)
                self._changed.notify_all()
            if untold:
                self._on_drained(untold)


def _write_all(descriptor: int, data: bytes) -> bool:
    """Write ``data``, however long its reader takes; return False if it cannot be written."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            # Another process with the same pipe has made it non-blocking.
            waiting = select.poll()
            waiting.register(descriptor, select.POLLOUT)
            waiting.poll()
        except OSError:
            return False
    return True
