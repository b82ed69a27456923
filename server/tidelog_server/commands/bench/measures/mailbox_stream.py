"""Cycles on a mailbox for benchmarks: send, fetch and acknowledge, on one Operate stream.

Why not a handle of the client: what is measured is the server, so the client does as little as possible. It takes the
locks from the deliveries, and does nothing with the bodies.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc.aio

from tidelog import AsyncClient, MailboxSettings
from tidelog.v1 import mailbox_service_pb2 as pb

_METHOD: Final = "/tidelog.v1.MailboxService/Operate"
_MAX_MESSAGES: Final = 10_000_000
_numbers = itertools.count()


class BenchMailbox:
    """One mailbox and a stream. Operations of one turn of the event loop share a request, as those of the client do."""

    def __init__(self, name: str, call: Any) -> None:
        self.name = name
        self._call = call
        self._number = 0
        self._operations: list[pb.Operation] = []
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._wake = asyncio.Event()

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages."""
        await self._operate(send=pb.SendRequest(mailbox=self.name, bodies=bodies))

    async def fetch(self, count: int, wait_ms: int = 0) -> list[bytes]:
        """Lease at most ``count`` messages, and return their locks."""
        request = pb.FetchRequest(mailbox=self.name, max_messages=count, wait_ms=wait_ms)
        result = await self._operate(fetch=request)
        return [delivery.lock_id for delivery in result.fetched.deliveries]

    async def ack(self, locks: Sequence[bytes]) -> None:
        """Confirm deliveries. Raises RuntimeError if one is refused."""
        result = await self._operate(ack=pb.AckDeliveriesRequest(mailbox=self.name, confirmed=locks))
        if result.acked.failures:
            raise RuntimeError(f"{len(result.acked.failures)} acknowledgements were refused")

    async def cycle(self, bodies: Sequence[bytes]) -> None:
        """Send messages, then fetch and confirm the same number. Raises RuntimeError if they are not delivered."""
        await self.send(bodies)
        locks = await self.fetch(len(bodies))
        if len(locks) != len(bodies):
            raise RuntimeError(f"{len(locks)} messages were delivered, expected {len(bodies)}")
        await self.ack(locks)

    async def _operate(self, **call: Any) -> pb.OperationResult:
        """Return the result of an operation. Raises RuntimeError if it is refused."""
        self._number += 1
        done = self._open[self._number] = asyncio.get_running_loop().create_future()
        self._operations.append(pb.Operation(number=self._number, **call))
        self._wake.set()
        result: pb.OperationResult = await done
        if result.HasField("error"):
            raise RuntimeError(f"an operation was refused: {result.error.message}")
        return result

    async def write(self) -> None:
        """Write operations as they are begun. Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            request = pb.OperateRequest(operations=self._operations)
            self._operations.clear()
            await self._call.write(request.SerializeToString())

    async def read(self) -> None:
        """Settle operations as they are answered; return when the server ends the stream."""
        try:
            async for response in self._call:
                for result in response.results:
                    self._open.pop(result.number).set_result(result)
        finally:
            for done in self._open.values():
                if not done.done():
                    done.set_exception(RuntimeError("the server ended the stream"))


@asynccontextmanager
async def bench_mailbox(endpoint: str) -> AsyncIterator[BenchMailbox]:
    """Yield a new mailbox on the server at ``endpoint``, which is deleted at the end."""
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    async with AsyncClient(endpoint) as client, grpc.aio.insecure_channel(endpoint) as channel:
        await client.mailboxes.create(name, MailboxSettings(max_messages=_MAX_MESSAGES))
        deserializer: Any = pb.OperateResponse.FromString
        mailbox = BenchMailbox(name, channel.stream_stream(_METHOD, response_deserializer=deserializer)())
        tasks = [asyncio.create_task(mailbox.write()), asyncio.create_task(mailbox.read())]
        try:
            yield mailbox
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.mailboxes.delete(name)
