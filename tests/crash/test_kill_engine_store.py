"""No acknowledged entry of an engine store is lost, and none is there twice, with any process that serves the log.

Method: processes append to one log in a folder, make snapshots, trim it, and print what was acknowledged. Each is
killed, stopped, or continues while the next one takes the log over, with a view of its own, an earlier one, or none.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tidelog_server.runtime.failpoints import VARIABLE
from tidelog_testing.parts.engine_stores import create_log, open_on
from tidelog_testing.parts.entries import new_entry, place_and_columns, read_all
from tidelog_testing.parts.folder_engine import FolderEngine, Unruly

_LOST: Final = 9
# Much of the log is trimmed soon, so that columns of vchannel 1 are written again repeatedly.
_APPENDER: Final = """
import queue, random, sys, threading
from pathlib import Path
import structlog
from tidelog_server.core.errors import StorageFailedError
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_testing.parts.folder_engine import FolderEngine, Unruly
from tidelog_server.storage.engine.snapshot_plan import LIMITS
from tidelog_testing.parts.engine_stores import open_on
from tidelog_testing.parts.entries import END, new_entry

log, view, seed, repeated = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
chance = random.Random(seed)
# The output is what was acknowledged.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
limits = LIMITS._replace(after_bytes=200_000, unit_bytes=400_000)
store = open_on(FolderEngine(log, Unruly(repeated=repeated, seed=seed)), view, limits=limits)
changes = queue.Queue(1)

def keep_shortening():
    try:
        while True:
            for change in store.shorten():
                changes.put(change)
    except (OwnershipLostError, StorageFailedError):
        pass

try:
    store.create_vchannels([1, 2])
    # What the former owner was not told of has one of the ticks below; a node takes ticks above all of them.
    tick = max(store.tail(1).last_tick, store.tail(2).last_tick, int(sys.argv[5])) + 1
    threading.Thread(target=keep_shortening, daemon=True).start()
    print("began", flush=True)
    while True:
        groups = []
        for _ in range(chance.randint(1, 5)):
            entries = []
            for _ in range(chance.randint(1, 3)):
                size_bytes = chance.choice((20, 600, 5_000, 1_200_000 if chance.random() < 0.05 else 800))
                entries.append(new_entry(1, tick, size_bytes=size_bytes))
                tick += 10
            garbage = new_entry(2, tick, size_bytes=chance.choice((20_000, 200_000)))
            tick += 10
            groups.append((store.write([*entries, garbage]), entries))
        for mark, entries in groups:
            store.sync(mark)
            print(*(f"{entry.base_tick}:{len(entry.columns)}" for entry in entries), flush=True)
        store.trim(2, END)
        if not changes.empty():
            changes.get()()
except (OwnershipLostError, StorageFailedError) as error:
    print(type(error).__name__, flush=True)
    sys.exit(9)
"""


class Appender:
    """A process that appends.

    Attributes:
        acknowledged: Base tick and size of each entry that it reported.
        said: Its last words.
    """

    def __init__(
        self, log: Path, view: Path, seed: int, *, repeated: float = 0.0, above_tick: int, failpoint: str = ""
    ) -> None:
        arguments = [str(log), str(view), str(seed), str(repeated), str(above_tick)]
        self.acknowledged: list[tuple[int, int]] = []
        self.said = ""
        self.began = threading.Event()
        self.appended = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _APPENDER, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, VARIABLE: failpoint},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break
            if not line[0].isdigit():
                self.said = line.strip()
                self.began.set()
                continue
            for word in line.split():
                tick, size_bytes = word.split(":")
                self.acknowledged.append((int(tick), int(size_bytes)))
            if len(self.acknowledged) >= 10:
                self.appended.set()

    def end(self) -> int:
        """Wait until it has ended; return its exit code."""
        code = self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        self.process.kill()
        self.end()


@pytest.mark.parametrize(("rounds", "repeated"), [(12, 0.0), (6, 0.05)])
def test_what_was_acknowledged_is_there_once_after_each_takeover(tmp_path: Path, rounds: int, repeated: float) -> None:
    chance = random.Random(rounds)
    log = tmp_path / "log"
    create_log(FolderEngine(log))
    acknowledged: list[tuple[int, int]] = []
    former: Appender | None = None
    with ExitStack() as started:
        for turn in range(rounds):
            view = tmp_path / f"view-{turn % 3}"
            if chance.random() < 0.3:
                shutil.rmtree(view, ignore_errors=True)
            # Ticks of a term are above those of the terms before, as a node's are.
            running = Appender(log, view, turn, repeated=repeated, above_tick=(turn + 1) * 10_000_000)
            started.callback(running.kill)
            assert running.began.wait(60), running.said
            if former is not None:
                former.process.send_signal(signal.SIGCONT)
                # Its next record ends it.
                assert (former.end(), former.said) == (_LOST, "OwnershipLostError")
                acknowledged += former.acknowledged
                former = None
            assert running.appended.wait(60), running.said
            match chance.choice(("kill", "stop", "live")):
                case "kill":
                    running.kill()
                    acknowledged += running.acknowledged
                case "stop":
                    running.process.send_signal(signal.SIGSTOP)
                    former = running
                case "live":
                    former = running
    if former is not None:
        acknowledged += former.acknowledged
    assert len(acknowledged) > 10 * rounds
    check(log, tmp_path / "last", acknowledged)


def check(log: Path, view: Path, acknowledged: list[tuple[int, int]]) -> None:
    """Open the log with a new view: what was acknowledged is there, once, and the log was trimmed."""
    with closing(open_on(FolderEngine(log, Unruly()), view)) as store:
        found = list(map(place_and_columns, read_all(store, 1)))
    ticks = [place[1] for place in found]
    assert ticks == sorted(set(ticks))
    expected = {tick: place_and_columns(new_entry(1, tick, size_bytes=size)) for tick, size in acknowledged}
    assert {place[1]: place for place in found if place[1] in expected} == expected
    assert FolderEngine(log).bounds().begin > 0


@pytest.mark.parametrize("point", ["engine_snapshot_part", "engine_snapshot_named"])
def test_a_process_that_dies_within_a_snapshot_or_before_its_trim_loses_nothing(tmp_path: Path, point: str) -> None:
    log = tmp_path / "log"
    create_log(FolderEngine(log))
    acknowledged: list[tuple[int, int]] = []
    for turn in count():
        # How much a process appends before its snapshot differs: enough of them, so that something can be lost.
        if turn >= 6 and len(acknowledged) > 30:
            break
        view = tmp_path / f"view-{turn % 2}"
        if turn % 3 == 2:
            shutil.rmtree(view)
        begin = FolderEngine(log).bounds().begin
        running = Appender(log, view, turn, above_tick=(turn + 1) * 10_000_000, failpoint=f"{point}:{1 + turn % 3}")
        assert running.end() == -signal.SIGKILL
        acknowledged += running.acknowledged
        if point == "engine_snapshot_named" and turn % 3 == 0:
            # Named, and not trimmed.
            assert FolderEngine(log).bounds().begin == begin
    check(log, tmp_path / "last", acknowledged)
