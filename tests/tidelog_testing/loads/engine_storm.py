"""Rounds in which one server after the other takes a log over, judged after each.

The former owner is killed, is stopped and continues later, or serves all the time. Producers and followers stay at it
until it ends, while others use the next one. Then everything is read, and compared with what was acknowledged, and with
what the followers of both have received.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import grpc.aio

from tidelog.v1 import error_pb2
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.faults import stop_points
from tidelog_testing.loads.storm import KILLED, Storm, first_of
from tidelog_testing.loads.workload import Load, until
from tidelog_testing.oracles.history import Following, Outcome
from tidelog_testing.servers.contenders import Contenders
from tidelog_testing.servers.processes import ServerProcess

_MIN_ACKS: Final = 30
# A broker may die meanwhile, and the next server start late.
_WITHIN_S: Final = 240.0
_ACKS_OF_NEXT: Final = 20
# Each judgement reads everything.
_PAUSE_S: Final = 0.05
# A server that learns of the claim refuses what waits, before it ends; one whose engine is silent, or does not say
# where a record is, refuses changes.
REFUSALS: Final = {
    error_pb2.REASON_OWNERSHIP_LOST, error_pb2.REASON_ON_SHUTDOWN, error_pb2.REASON_LOG_SILENT,
    error_pb2.REASON_STORAGE_FAILED,
}  # fmt: skip


class End(StrEnum):
    """How an owner ends, or continues, while the next one takes the log."""

    KILLED = "killed"
    KILLED_BETWEEN_PARTS = "killed between parts of a group"
    LIVE = "alive"
    STOPPED = "stopped"
    STOPPED_BETWEEN_PARTS = "stopped between parts of a group"
    STOPPED_SENT = "stopped before confirmation"
    STOPPED_CONFIRMED = "stopped between confirmation and answer"
    STOPPED_WATERMARK = "stopped with a watermark that is not sent"


ENDS: Final = tuple(End)
POINTS: Final = {
    End.KILLED_BETWEEN_PARTS: "between_parts:{}",
    End.STOPPED_BETWEEN_PARTS: "between_parts:{}:stop",
    End.STOPPED_SENT: "after_write_before_sync:{}:stop",
    End.STOPPED_CONFIRMED: "after_sync_before_ack:{}:stop",
    End.STOPPED_WATERMARK: "scan_watermark_read:{}:stop",
}
_KILLS: Final = (End.KILLED, End.KILLED_BETWEEN_PARTS)


class EngineStorm(Storm):
    """A storm whose servers share a log.

    Attributes:
        ends: Takeovers, by how the former owner ended.
        by_itself: Owners that ended because the engine did not say where a record is.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        contenders: Contenders,
        judged_every: int = 1,
        *,
        trouble: Callable[[], None] | None = None,
        may_end: bool = False,
    ) -> None:
        """Prepare.

        Args:
            folder: The history of a failure is stored next to it.
            seed: Seed of all randomness.
            contenders: The servers.
            judged_every: Number of takeovers from one judgement to the next.
            trouble: Called in each takeover, to make trouble for the engine.
            may_end: Whether the engine may not say where a record is, with which its owner ends.
        """
        super().__init__(folder, seed)
        self.contenders = contenders
        self.ends: Counter[str] = Counter()
        self.by_itself = 0
        self._judged_every = judged_every
        self._trouble = trouble
        self._may_end = may_end
        self._loads = 0
        self._others: list[Following] = []

    async def prepare(self, server: ServerProcess) -> None:
        """As of any storm; and three further followers, so that each of two servers that run has its own."""
        await super().prepare(server)
        self._others = [Following(each.vchannels) for each in self.followed]

    def check_not_void(self) -> str:
        """As of any storm; the rate says nothing, because a server may be stopped while the next one starts."""
        acks, seen = self.history.count(Outcome.OK), sum(len(each.rows) for each in (*self.followed, *self._others))
        text = (
            f"seed {self.seed}: {self.rounds} takeovers in {self.load_s:.1f} s of load, {dict(self.ends)}, "
            f"{self.by_itself} owners ended by themselves, {self.contenders.refused} starts without an engine; {acks} "
            f"acknowledged appends, {self.history.count(Outcome.UNKNOWN)} unknown, {seen} messages seen by followers"
        )
        assert acks >= _MIN_ACKS * self.rounds, f"void: {text}"
        assert seen, f"void: {text}"
        return text

    async def weather(self, ends: Iterable[End]) -> str:
        """Let owners follow each other, each one ended as ``ends`` says; return a summary."""
        with self.contenders:
            server = await asyncio.to_thread(self.contenders.start)
            server = await self._at_any(server, self.prepare)
            for end in ends:
                server = await self.take_over(server, end)
            if self.rounds % self._judged_every:
                await self._at_any(server, self.judge)
        return self.check_not_void()

    async def take_over(self, former: ServerProcess, end: End) -> ServerProcess:
        """Put load on an owner, let another server take the log over, and return that one, idle."""
        begin_s = time.monotonic()
        async with asyncio.timeout(_WITHIN_S):
            async with self._loaded(former) as (load, running):
                await self._end(former, end, running)
                if self._trouble is not None:
                    await asyncio.to_thread(self._trouble)
                following = await asyncio.to_thread(self.contenders.start)
                await self._serve_beside(following, former, running, is_stopped=end not in (*_KILLS, End.LIVE))
            code = await asyncio.to_thread(self.contenders.ends, former)
        if self._may_end and code == ExitCode.STORAGE_FAILED:
            self.by_itself += 1
        else:
            expected = (KILLED,) if end in _KILLS else (ExitCode.LOG_CLAIMED, None)
            assert code in expected, f"{end}: {code}\n{former.errors}"
        assert load.refusals.keys() <= REFUSALS, load.refusals
        self.load_s += time.monotonic() - begin_s
        self.rounds += 1
        self.ends[end] += 1
        if self.rounds % self._judged_every == 0:
            return await self._at_any(following, self.judge)
        return following

    async def serve_beside(self, former: ServerProcess) -> ServerProcess:
        """Let an owner serve until it has acknowledged what was sent after the next one claimed the log; return that.

        Or until it has ended, as the rules of the log demand.
        """
        async with asyncio.timeout(_WITHIN_S), self._loaded(former) as (load, running):
            following = await asyncio.to_thread(self.contenders.start)
            sent = len(self.history.appends)

            def has_acknowledged() -> bool:
                later = self.history.appends[sent:]
                return any(each.outcome is Outcome.OK and each.producer.startswith(load.name) for each in later)

            await until(
                lambda: has_acknowledged() or running.done(), _WITHIN_S, "the former owner acknowledges, or ends"
            )
            former.kill()
            await running
        return following

    async def _at_any(
        self, server: ServerProcess, do: Callable[[ServerProcess], Coroutine[Any, Any, None]]
    ) -> ServerProcess:
        """Do something at an owner, again at the next one if that ends by itself; return which one it was."""
        while True:
            try:
                await do(server)
            except grpc.aio.AioRpcError:
                if not (
                    self._may_end and await asyncio.to_thread(self.contenders.ends, server) == ExitCode.STORAGE_FAILED
                ):
                    raise
                self.by_itself += 1
                server = await asyncio.to_thread(self.contenders.start)
            else:
                return server

    async def judge(self, server: ServerProcess) -> None:
        """As of any storm, for the followers of both servers."""
        followed, self.followed = self.followed, [*self.followed, *self._others]
        try:
            await super().judge(server)
        finally:
            self.followed = followed

    @asynccontextmanager
    async def _loaded(self, server: ServerProcess) -> "AsyncIterator[tuple[Load, asyncio.Task[None]]]":
        """Put load on a server, whose followers are not those of the load before; wait until it flows."""
        self._loads += 1
        self.followed, self._others = self._others, self.followed
        load = Load(
            self.history,
            self.vchannels,
            self.random,
            followed=self.followed,
            pause_s=_PAUSE_S,
            answer_within_s=_WITHIN_S,
            name=f"{self._loads}-",
        )
        running = asyncio.create_task(load.run(server.grpc))
        try:
            await first_of(running, load.acknowledged.wait())
            yield load, running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _end(self, former: ServerProcess, end: End, running: "asyncio.Task[None]") -> None:
        """End an owner, or leave it alive, as ``end`` says."""
        await first_of(running, asyncio.sleep(self.random.uniform(0.02, 0.4)))
        if former.code is not None:
            return
        if end in POINTS:
            self.contenders.ask(former, POINTS[end].format(self.random.randint(1, 20)))
            await until(lambda: stop_points.is_stopped(former.pid), _WITHIN_S, f"{end}: it is stopped")
        elif end is End.STOPPED:
            os.kill(former.pid, signal.SIGSTOP)
        if end in _KILLS:
            former.kill()

    async def _serve_beside(
        self, following: ServerProcess, former: ServerProcess, running: "asyncio.Task[None]", *, is_stopped: bool
    ) -> None:
        """Put load on the next owner while the former one continues, until that has ended."""
        async with self._loaded(following) as (load, serving):
            acks = self.history.count(Outcome.OK)
            await until(
                lambda: self.history.count(Outcome.OK) > acks + _ACKS_OF_NEXT or serving.done(), _WITHIN_S, "it serves"
            )
            if is_stopped and former.code is None:
                os.kill(former.pid, signal.SIGCONT)
            await running
            load.stopping.set()
            await serving
        assert load.refusals.keys() <= REFUSALS, load.refusals
