"""The thread that keeps HEAD at most HEAD_INTERVAL_MS behind what is synced."""

from collections.abc import Callable
from threading import Event, Thread

from tidelog_server.core.limits import HEAD_INTERVAL_MS
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.head_file import Head, HeadFile


class HeadWriter:
    """Writes the newest head that it was given, from a thread of its own, until ``close``.

    Started by its constructor; ended and joined by ``close``. It owns the file.

    Why a thread: a head in each group commit would cost a second sync per group, and the start-up gate is exact only
    to what HEAD says. 100 ms is the price of one sync less.
    """

    def __init__(self, file: HeadFile, first: Head, *, on_failure: Callable[[str], None]) -> None:
        """Take over from ``first``, which is on disk; ``on_failure`` is called once, on the thread."""
        self._file = file
        # A head, and the engine's sequence that goes with it.
        self._newest = first, first.engine_sequence
        self._generation = first.generation
        self._on_failure = on_failure
        self._has_failed = False
        self._is_due = Event()
        self._is_closing = Event()
        self._thread = Thread(target=self._run, name="tidelog-head", daemon=True)
        self._thread.start()

    def note(self, head: Head, engine_sequence: int) -> None:
        """Have ``head`` written soon, unless a later one was noted; never blocks.

        Its generation and its engine sequence are set here, by the thread: appends wait for whoever calls this.
        """
        if engine_sequence < self._newest[1]:
            return
        self._newest = head, engine_sequence
        if not self._is_due.is_set():
            self._is_due.set()

    def close(self, *, is_clean: bool) -> None:
        """Write the newest head once more, marked ``is_clean`` or not, and end the thread. Idempotent.

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
