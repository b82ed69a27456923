"""A server that is killed for a while and restarted, and writers with default settings that write all the time.

``AWAY`` lists the durations for a test; ``InterruptedServer`` is the server; ``Writers`` knows what must and may be in
the log. A test of another reader needs no more: start writers, let the reader begin, ``await server.away(s)``, then
``await writers.finish()`` and compare with ``log_of``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import pytest

import tidelog
from tidelog import AsyncClient, ProducerSequence
from tidelog_server.runtime.failpoints import VARIABLE
from tidelog_testing.loads.storm import KILLED
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess, lasting_port

AWAY: Final = pytest.mark.parametrize(
    "away_s", [8, pytest.param(20, marks=pytest.mark.soak), pytest.param(50, marks=pytest.mark.soak)]
)
"""Outages in seconds: longer than a client waits for a connection, and shorter than a reader waits."""
PASSING: Final = (tidelog.UnavailableError, tidelog.DeadlineError, tidelog.AppendUnknownError)
"""Errors of calls while the server is away; their effect decides whether to repeat a call."""
END: Final = b"end"
"""The last message on each vchannel."""
_PAUSE_S: Final = 0.02
# Messages that each writer acknowledges before the outage, and again after it.
_ENOUGH: Final = 5
_IN_TIME_S: Final = 40.0

Log = Mapping[str, Sequence[tuple[int, bytes]]]
"""Ticks and payloads per vchannel, in order."""


class InterruptedServer(Held):
    """A server on a port that stays reserved while it is away. ``with`` ends it.

    Attributes:
        grpc: ``host:port``.
        died_at_start: Number of starts with a failpoint that was reached before the server was ready.
    """

    def __init__(self, folder: Path) -> None:
        self.died_at_start = 0
        self._folder = folder
        self._settings = lasting_port()
        self._process = ServerProcess(folder, self._settings)
        self.grpc = self._process.grpc

    async def away(self, seconds: float) -> None:
        """Kill it, and restart it after ``seconds``."""
        self._process.kill()
        await asyncio.sleep(seconds)
        await self.start_again()

    async def start_again(self, failpoint: str = "") -> None:
        """Kill it, let another one die at ``failpoint`` if one is given, and restart it."""
        await asyncio.to_thread(self._process.kill)
        if failpoint:
            try:
                armed = await asyncio.to_thread(ServerProcess, self._folder, self._settings, {VARIABLE: failpoint})
            except ServerDiedError as error:
                # What a start completes also hits some of the points, and so do clients before it reports that it is
                # ready.
                if error.code != KILLED:
                    raise
                self.died_at_start += 1
            else:
                assert await asyncio.to_thread(armed.wait) == KILLED, armed.errors
        self._process = await asyncio.to_thread(ServerProcess, self._folder, self._settings)

    def kill(self) -> None:
        self._process.kill()


class Writers:
    """Writers of several kinds that write to the vchannels of one channel until they are finished.

    Each payload is ``<kind>-<number>``, and is written once. If a call ends with an unknown outcome, its payload may be
    in the log once or not at all; a call that fails without an effect is repeated, as the documents advise.

    Attributes:
        acknowledged: Payloads, by kind.
        unknown: Payloads of calls with an unknown outcome.
        errors: The errors of calls.
    """

    def __init__(self, client: AsyncClient, vchannels: Sequence[str]) -> None:
        self.acknowledged: dict[str, list[bytes]] = {}
        self.unknown: set[bytes] = set()
        self.errors: list[tidelog.TidelogError] = []
        self._client = client
        self._vchannels = vchannels
        self._is_finished = False
        self._changed = asyncio.Condition()
        kinds: Mapping[str, Callable[[str, bytes, int], Awaitable[object]]] = {
            "append": self._append, "numbered": self._numbered, "txn": self._txn, "broadcast": self._broadcast,
        }  # fmt: skip
        self._tasks = [asyncio.create_task(self._write(kind, write)) for kind, write in kinds.items()]
        self._tasks.append(asyncio.create_task(self._produce()))

    async def wrote_some(self) -> None:
        """Return once each writer has written some more messages."""
        before = {kind: len(payloads) for kind, payloads in self.acknowledged.items()}

        def all_have() -> bool:
            self._raise_failures()
            return len(self.acknowledged) == len(self._tasks) and all(
                len(payloads) >= before.get(kind, 0) + _ENOUGH for kind, payloads in self.acknowledged.items()
            )

        async with asyncio.timeout(_IN_TIME_S), self._changed:
            await self._changed.wait_for(all_have)

    async def finish(self) -> Log:
        """End the writers, append ``END`` to each vchannel, compare the log with what they wrote, and return it."""
        self._is_finished = True
        async with asyncio.timeout(_IN_TIME_S):
            await asyncio.gather(*self._tasks)
            for vchannel in self._vchannels:
                await self._client.append(vchannel, END)
        log = await log_of(self._client, self._vchannels)
        self._compare(log)
        return log

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _compare(self, log: Log) -> None:
        stored = [payload for messages in log.values() for _, payload in messages if payload != END]
        for kind, payloads in self.acknowledged.items():
            copies = len(self._vchannels) if kind == "broadcast" else 1
            of_kind = [payload for payload in stored if payload.startswith(b"%s-" % kind.encode())]
            lost = [payload for payload in payloads if of_kind.count(payload) < copies]
            assert not lost, f"acknowledged by {kind} and not in the log: {lost}"
            twice = [payload for payload in of_kind if of_kind.count(payload) > copies]
            assert not twice, f"written once by {kind} and in the log more often: {twice}"
            strange = set(of_kind) - set(payloads) - self.unknown
            assert not strange, f"never acknowledged by {kind} and in the log: {strange}"

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def _write(self, kind: str, write: Callable[[str, bytes, int], Awaitable[object]]) -> None:
        self.acknowledged[kind] = []
        number = 0
        while not self._is_finished:
            number += 1
            payload = b"%s-%d" % (kind.encode(), number)
            vchannel = self._vchannels[number % len(self._vchannels)]
            while not self._is_finished:
                try:
                    await write(vchannel, payload, number)
                except PASSING as error:
                    self.errors.append(error)
                    if error.effect == "unknown":
                        self.unknown.add(payload)
                        break
                else:
                    await self._note(kind, payload)
                    break
            await asyncio.sleep(_PAUSE_S)

    async def _note(self, kind: str, payload: bytes) -> None:
        async with self._changed:
            self.acknowledged.setdefault(kind, []).append(payload)
            self._changed.notify_all()

    async def _append(self, vchannel: str, payload: bytes, _: int) -> None:
        await self._client.append(vchannel, payload)

    async def _numbered(self, _: str, payload: bytes, number: int) -> None:
        """Append under a number, and repeat until the outcome is known: it is in the log once."""
        producer = ProducerSequence("numbered", number)
        while True:
            try:
                await self._client.append(self._vchannels[0], payload, producer=producer)
            except PASSING as error:
                self.errors.append(error)
            else:
                return

    async def _txn(self, _: str, payload: bytes, __: int) -> None:
        """Commit, and repeat until the outcome is known."""
        txn = self._client.txn()
        await txn.append(self._vchannels[0], payload)
        while True:
            try:
                await txn.commit()
            except tidelog.AppendUnknownError as error:
                self.errors.append(error)
            else:
                return

    async def _broadcast(self, _: str, payload: bytes, __: int) -> None:
        await self._client.broadcast(self._vchannels, payload)

    async def _produce(self) -> None:
        """Send continuously: a producer waits for the server by itself, and each message is in the log once."""
        self.acknowledged["producer"] = []
        async with self._client.producer(self._vchannels[-1]) as producer:
            number = 0
            while not self._is_finished:
                number += 1
                payload = b"producer-%d" % number
                await (await producer.send(payload))
                await self._note("producer", payload)
                await asyncio.sleep(_PAUSE_S)


async def log_of(client: AsyncClient, vchannels: Sequence[str]) -> Log:
    """Return the content of the log."""
    log: dict[str, list[tuple[int, bytes]]] = {vchannel: [] for vchannel in vchannels}
    async for batch in client.scan(vchannels):
        log[batch.vchannel] += zip(batch.ticks, batch.payloads, strict=True)
    return log
