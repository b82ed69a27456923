"""The thread that keeps HEAD at most HEAD_INTERVAL_MS behind the synced state."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.head_file import Head, HeadFile

# Maximum age of the durable head.
HEAD_INTERVAL_MS: Final = 100


class HeadWriter:
    """Writes the newest head from its own thread, until ``close``.

    The constructor starts the thread; ``close`` ends and joins it. It owns the file.

    Why a thread: a head in each group commit would cost a second sync per group, and the start-up gate is only as exact
    as HEAD. A head that is up to 100 ms old is the price of one sync less.
    """

    def __init__(self, file: HeadFile, first: Head, *, on_failure: Callable[[str], None]) -> None:
        """Continue from ``first``, which is on disk; ``on_failure`` is called once, on the thread."""
        self._file = file
        # A head, and the engine sequence that belongs to it.
        self._newest = first, first.engine_sequence
        self._generation = first.generation
        self._on_failure = on_failure
        self._has_failed = False
        self._is_due = Event()
        self._is_closing = Event()
        self._thread = Thread(target=self._run, name="tidelog-head", daemon=True)
        self._thread.start()

    def note(self, head: Head, engine_sequence: int) -> None:
        """Schedule a write of ``head``; a later one supersedes it. Never blocks.

        The thread sets its generation and engine sequence, because appends wait for the caller of this.
        """
        if engine_sequence < self._newest[1]:
            return
        # HEAD never names an older entry than before: the start-up gate would accept the loss of those in between.
        assert self._newest[0].sequence <= head.sequence
        self._newest = head, engine_sequence
        if not self._is_due.is_set():
            self._is_due.set()

    def close(self, *, is_clean: bool) -> None:
        """Write the newest head with this ``is_clean``, and end the thread. Idempotent.

        Nothing is written after a failure.
        """
        if not self._thread.is_alive() and self._is_closing.is_set():
            return
        self._is_closing.set()
        self._is_due.set()
        self._thread.join()
        self._write(is_clean=is_clean)
        self._file.close()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self._is_due.wait()
            self._is_due.clear()
            self._write(is_clean=False)
            self._is_closing.wait(HEAD_INTERVAL_MS / 1_000)

    def _write(self, *, is_clean: bool) -> None:
        if self._has_failed:
            return
        hit(Failpoint.BEFORE_HEAD_UPDATE)
        self._generation += 1
        try:
            head, engine_sequence = self._newest
            self._file.write(
                head._replace(generation=self._generation, engine_sequence=engine_sequence, is_clean=is_clean)
            )
        except OSError as error:
            self._has_failed = True
            self._on_failure(f"writing HEAD: {error.strerror or error}")
