"""A process that reports what a damaged data folder returns, and that can be killed when RocksDB spins."""

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.head_file import read_head
from tidelog_server.storage.recovery.checks import check_store
from tidelog_server.storage.recovery.view import make_recovery_view
from tidelog_server.storage.rocksdb.engine import close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_testing.faults.damage import Content
from tidelog_testing.parts.entries import END, place_and_columns

REFUSED: Final = "refused"
SPUN: Final = "refused at the deadline"
READ_FAILED: Final = "reported by a read"
HARMLESS: Final = "harmless"
CHANGED: Final = "answered with something else"

_DEADLINE_S: Final = 10.0
_START_WITHIN_S: Final = 240.0
_SPAWN: Final = multiprocessing.get_context("spawn")


class Judge:
    """Does what the gate's child does, then reads everything, and compares it with the folder's original content.

    Nothing is modified. An attempt of more than three seconds counts as refused by the gate's deadline (a healthy
    folder takes some milliseconds); a judge that is killed or crashes is replaced by a new one.
    """

    def __init__(self, content: Content) -> None:
        """Start with the content of the healthy folder."""
        self._content = content
        self._begin()

    def _begin(self) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, self._content), daemon=True)
        self._process.start()
        theirs.close()
        assert self._pipe.poll(_START_WITHIN_S), "the judge did not start"
        self._pipe.recv()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process."""
        self._end()

    def ask(self, folder: Path) -> str:
        """Return the outcome of an attempt to open and read ``folder``."""
        with TemporaryDirectory(prefix="tidelog-view-") as view:
            return self._ask(folder, Path(view))

    def _ask(self, folder: Path, view_path: Path) -> str:
        self._pipe.send((folder, view_path))
        outcome = SPUN
        if self._pipe.poll(_DEADLINE_S):
            try:
                return str(self._pipe.recv())
            except EOFError:
                outcome = REFUSED  # It crashed, as the gate's child would have.
        self._end()
        self._begin()
        return outcome


def _serve(pipe: Connection, content: Content) -> None:
    pipe.send("ready")
    while True:
        try:
            folder, view_path = pipe.recv()
        except EOFError:
            return
        pipe.send(_judge(folder, view_path, content))


def _judge(folder: Path, view_path: Path, content: Content) -> str:
    try:
        head = read_head(folder / "HEAD")
        if head is None or not (folder / "db" / "CURRENT").is_file():
            return REFUSED
        make_recovery_view(folder / "db", view_path)
        with engine_errors("opening the database"):
            engine = open_engine(view_path, read_only=True)
    except DataLossError:
        return REFUSED
    try:
        index = check_store(engine, view_path, head)
    except DataLossError:
        close_engine(engine)
        return REFUSED
    try:
        reader = EntryReader(engine, index.tails)
        found = {v: list(map(place_and_columns, reader.read(v, 0, END, 1 << 40))) for v in sorted(index.tails)}
    except DataLossError:
        return READ_FAILED
    finally:
        close_engine(engine)
    return HARMLESS if found == content else CHANGED
