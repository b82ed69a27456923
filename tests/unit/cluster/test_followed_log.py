"""A log that is followed: its end while its view is opened."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from tidelog_server.cluster.followed_log import FollowedLog
from tidelog_server.recordlog.engine import Read
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import EMPTY, INCARNATION_BYTES, Position
from tidelog_server.recordlog.rules import START, Reader
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.open import LogName, PreparedStore, prepare_engine_store
from tidelog_testing.parts.folder_engine import FolderEngine

_CLOCK = SystemClock()
_RECORDS = 50
_WITHIN_S = 30.0


class SlowEngine(FolderEngine):
    """A log of which each read, once ``may_read`` is set, shows one record."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads = 0
        self.reading, self.may_read = threading.Event(), threading.Event()

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        self.reads += 1
        if self.reads > _RECORDS // 2:
            self.reading.set()
            assert self.may_read.wait(_WITHIN_S)
        return super().read(begin, 1, wait_s)


def a_log(folder: Path) -> None:
    log = RecordLog(FolderEngine(folder), _CLOCK)
    log.create(bytes(INCARNATION_BYTES))
    log.claim(Reader(START), 0, None, lambda _: None)
    for _ in range(_RECORDS):
        ticket = log.append(b"", EMPTY, EMPTY, None)
        while not log.wait(ticket, 1):
            pass
    log.close()


async def test_it_ends_though_its_view_is_being_opened(tmp_path: Path) -> None:
    """A claim of another node waits for that, and a view may be gigabytes."""
    a_log(tmp_path / "log")
    engine = SlowEngine(tmp_path / "log")

    def prepare(is_abandoned: Callable[[], bool]) -> PreparedStore:
        log = RecordLog(engine, _CLOCK)
        log.is_abandoned = is_abandoned
        return prepare_engine_store(tmp_path / "view", log, LogName("folder", "log"))

    followed = FollowedLog("n1", prepare, lambda: None, _CLOCK)
    followed.start()
    assert await asyncio.to_thread(engine.reading.wait, _WITHIN_S)
    closing = asyncio.create_task(followed.close())
    await asyncio.sleep(0)
    engine.may_read.set()
    await closing

    assert engine.reads == _RECORDS // 2 + 1
    # The folder is free again.
    prepare_engine_store(
        tmp_path / "view", RecordLog(FolderEngine(tmp_path / "log"), _CLOCK), LogName("folder", "log")
    ).close()
