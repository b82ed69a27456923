"""Where a server whose log is in an engine stops, or is killed, once a test asks for that.

A point is a failpoint of the server, or between two parts of a group: the first one is stored, and the second is not
sent. What a storm appends is small, so every group of such a server is in two parts.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tidelog_server.recordlog import record_log
from tidelog_server.recordlog.engine import Report
from tidelog_server.recordlog.kafka import KafkaEngine
from tidelog_server.recordlog.pulsar import PulsarEngine
from tidelog_server.recordlog.records import Kind, Position, unpack_record
from tidelog_server.runtime import failpoints
from tidelog_testing.parts.folder_engine import FolderEngine

FILE: Final = "TESTED_POINT"
"""The variable that names the file with the point at which a server stops, or is killed, after ``ask``."""
BETWEEN_PARTS: Final = "between_parts"
_LEAST_BYTES: Final = 100
_POLL_S: Final = 0.05


def ask(pid: int, file: Path, point: str) -> None:
    """Ask a server to stop, or to be killed, at ``point``: as ``TIDELOG_FAILPOINT``, and ``between_parts:3:stop``."""
    file.write_text(point)
    os.kill(pid, signal.SIGUSR1)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, or has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] in "TZX"


def use_points() -> None:
    """Make this process, a server, stop where it is asked to."""
    asked = _Asked()
    signal.signal(signal.SIGUSR1, lambda *_: asked.take(Path(os.environ[FILE]).read_text()))
    mock.patch.object(record_log, "_parts", _two_parts).start()
    for engine in (FolderEngine, KafkaEngine, PulsarEngine):
        # Not ended: the process serves nothing else.
        mock.patch.object(engine, "send", _stopping(engine.send, asked)).start()


class _Asked:
    """The point between parts that was asked for, if any: number of hits left, and the signal of the last one."""

    def __init__(self) -> None:
        self.hits_left = 0
        self.signal = signal.SIGSTOP

    def take(self, point: str) -> None:
        name, hits, action = f"{point}::".split(":")[:3]
        if name != BETWEEN_PARTS:
            failpoints.ARMED.arm(point)
            return
        self.signal = signal.SIGSTOP if action else signal.SIGKILL
        self.hits_left = int(hits)

    def is_due(self) -> bool:
        self.hits_left -= 1
        return self.hits_left == 0


def _stopping(send: Callable[[Any, bytes, Report], None], asked: _Asked) -> Callable[[Any, bytes, Report], None]:
    def sending(engine: Any, value: bytes, report: Report) -> None:
        record = unpack_record(0, value)
        is_followed = record is not None and record.kind is Kind.GROUP and record.part + 1 < record.parts
        if not (is_followed and asked.is_due()):
            send(engine, value, report)
            return
        stored: list[Position | Exception] = []

        def reported(what: Position | Exception) -> None:
            stored.append(what)
            report(what)

        send(engine, value, reported)
        while not stored:
            engine.poll(_POLL_S)
        os.kill(os.getpid(), asked.signal)

    return sending


def _two_parts(payload: bytes) -> list[bytes]:
    half = len(payload) // 2
    return [payload] if half < _LEAST_BYTES else [payload[:half], payload[half:]]
