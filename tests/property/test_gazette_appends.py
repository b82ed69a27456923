"""Frames that several threads append to journals are in them once and in order, for any lost answers and failures.

Method: the synchronous journal client with its real queues, on the background event loop, against a model of a server
whose streams break. Threads add frames while the main thread sends, answers and loses batches, and meets dependencies.
"""

import asyncio
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog import Client, ProducerStoppedError, ShutdownError, TidelogError
from tidelog.append.numbering import Numbering
from tidelog.append.producer import AsyncProducer
from tidelog.append.queue import Submission
from tidelog.errors import BufferFullError
from tidelog.gazette.sync_append import Append, JournalClient
from tidelog.journals.types import JournalSpec
from tidelog.transport.background import background
from tidelog.v1 import wal_service_pb2
from tidelog.wire.append_terms import AppendTerms
from tidelog_testing.parts.append_queues import Network, NumberedServer, payloads_in

JOURNALS: Final = ("a/journal", "b/journal")
DEPENDENCIES: Final = 3
MAX_PENDING_BYTES: Final = 2_500_000
# The third largest: several of these fill a batch.
SIZES: Final = (1, 1, 1, 1, 400_000)


class World(Network):
    """A journal client, which appends through this, and a server; it stands for the owner of every channel too."""

    def __init__(self) -> None:
        self.server = NumberedServer()
        super().__init__(self.server)
        self._client = self
        self.journals = JournalClient(
            Client("localhost:1"), find=_spec, owner_of=self._owner_of, max_pending_bytes=MAX_PENDING_BYTES
        )
        self.dependencies: list[Future[None]] = [Future() for _ in range(DEPENDENCIES)]
        # What was accepted, in the order of the calls.
        self.added: dict[str, list[tuple[bytes, Append]]] = defaultdict(list)
        self.defects: list[BaseException] = []

    def _owner_of(self, _: str) -> Any:
        return self

    def producer(self, vchannel: str, *, linger_s: float) -> AsyncProducer:
        appends: Any = self
        return AsyncProducer(lambda: appends, vchannel, linger_s=linger_s)

    def put(
        self, vchannel: str, terms: AppendTerms, submission: Submission, numbering: Numbering | None = None
    ) -> None:
        self.queue.submit(vchannel, terms, submission, numbering)

    def add(self, thread: int, script: list[tuple[str, str, int, int]]) -> None:
        """Append the frames of one thread."""
        try:
            for number, (journal, kind, size, dependency) in enumerate(script):
                frame = b"%s %d %d.%d %s" % (kind.encode(), dependency, thread, number, bytes(size))
                self._add(journal, kind, frame, self.dependencies[dependency])
        except BaseException as defect:  # noqa: BLE001 - raised by the main thread
            self.defects.append(defect)

    def _add(self, journal: str, kind: str, frame: bytes, dependency: Future[None]) -> None:
        dependencies: Any = {"first": (), "dependent": (dependency,)}.get(kind)
        while True:
            try:
                with self.journals.lock:
                    self.added[journal].append((frame, self.journals.append(journal, frame, dependencies=dependencies)))
            except BufferFullError:
                self.journals.room()
            except ProducerStoppedError:
                return
            else:
                return

    def send(self, count: int) -> None:
        """Send ``count`` batches; what they depend on has succeeded."""
        sent = len(self.stream.requests)
        super().send(count)
        for request in list(self.stream.requests)[sent:]:
            for frame in payloads_in(wal_service_pb2.AppendStreamRequest.FromString(request)):
                kind, dependency, *_ = frame.split(b" ", 2)
                assert kind != b"dependent" or self.dependencies[int(dependency)].result(timeout=0) is None

    def meet(self, dependency: int) -> None:
        if not self.dependencies[dependency].done():
            self.dependencies[dependency].set_result(None)

    def fail(self, dependency: int) -> None:
        if not self.dependencies[dependency].done():
            self.dependencies[dependency].set_exception(ValueError("the store refused"))

    def refuse(self, _: int) -> None:
        """Refuse all requests in flight, as a server that stops, and end the stream."""
        while self.stream.requests:
            self.server.serve(self.stream, ShutdownError("later"))
        self.answer(len(self.stream.answers))
        self.cut()

    def lose(self, _: int) -> None:
        self.cut()

    def late(self, _: int) -> None:
        self.serve_late()

    async def play(self, name: str, count: int) -> None:
        getattr(self, name)(count)

    async def finish(self, threads: list[threading.Thread]) -> None:
        """Deliver all requests and answers over a working network, until all is settled."""
        for number in range(DEPENDENCIES):
            self.meet(number)
        async with asyncio.timeout(60):
            while any(thread.is_alive() for thread in threads) or not self.is_settled:
                self.send(1)
                self.serve(1)
                self.answer(1)
                await asyncio.sleep(0)

    @property
    def is_settled(self) -> bool:
        return all(append.done() for journal in JOURNALS for _, append in list(self.added[journal]))


def _spec(journal: str) -> JournalSpec:
    return JournalSpec(journal, channel=journal.partition("/")[0])


@contextmanager
def many_switches() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)


KINDS: Final = st.sampled_from(["frame"] * 12 + ["first", "first", "dependent", "bad"])
SCRIPTS: Final = st.lists(
    st.lists(
        st.tuples(st.sampled_from(JOURNALS), KINDS, st.sampled_from(SIZES), st.integers(0, DEPENDENCIES - 1)),
        max_size=40,
    ),
    min_size=2,
    max_size=3,
)
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "serve", "answer"]), st.integers(1, 4)),
        st.tuples(st.sampled_from(["lose", "late", "refuse"]), st.just(0)),
        st.tuples(st.sampled_from(["meet", "fail"]), st.integers(0, DEPENDENCIES - 1)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(SCRIPTS, STEPS)
def test_frames_of_several_threads_are_in_their_journals_once_and_in_order(
    scripts: list[list[tuple[str, str, int, int]]], steps: list[tuple[str, int]]
) -> None:
    world = World()
    with many_switches():
        threads = [threading.Thread(target=world.add, args=each) for each in enumerate(scripts)]
        for thread in threads:
            thread.start()
        for step in steps:
            background.run(world.play(*step))
        background.run(world.finish(threads))
        for thread in threads:
            thread.join()

    assert not world.defects
    # Whatever failed before it was sent leaves the queue of the stream.
    background.run(world.play("send", 9))
    assert world.queue.is_idle
    for journal in JOURNALS:
        expect_settled(world.server.log[f"{_spec(journal).channel}/0"], world.added[journal])
    # Nothing occupies the memory any more: otherwise, a frame beyond its limit is refused.
    world.journals.append("probe/journal", bytes(MAX_PENDING_BYTES))


def expect_settled(log: list[bytes], added: list[tuple[bytes, Append]]) -> None:
    """Expect that the log has what was added, up to the first failure, and that each append tells what happened."""
    assert log == [frame for frame, _ in added[: len(log)]]
    batches: dict[Append, list[bytes]] = defaultdict(list)
    for frame, append in added:
        batches[append].append(frame)
    for append, frames in batches.items():
        error = append.future.exception()
        if error is None:
            result = append.result()
            assert log[result.first_tick : result.last_tick + 1] == frames
        else:
            assert isinstance(error, TidelogError)
            assert error.effect == "unknown" or not set(frames) & set(log)
    has_failed = [append.future.exception() is not None for append in batches]
    assert has_failed == sorted(has_failed), "nothing follows a failure"
