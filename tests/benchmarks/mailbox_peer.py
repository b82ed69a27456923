"""A client process of ``benchmarks mailbox-peers``: cycles of send, fetch and acknowledge on one work queue.

It runs in the environment of the peers, so it imports nothing of this repository unless the peer is Tidelog. For each
line on standard input, ``batches SECONDS`` or ``workers SECONDS``, it prints the number of cycles and the seconds.
"""

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any, Final

Lock = Any

# NATS syncs each message: the last of thousands in flight waits for a long time.
_TIMEOUT_S: Final = 120.0


class WorkQueue(ABC):
    """A work queue with durable sends, leased deliveries and confirmed acknowledgements."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Prepare to connect; ``order`` has the port of the server, and the number of operations in flight."""
        self.port: int = order["port"]
        self.in_flight: int = max(order["in_flight"], order["workers"])

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Connect, and create the queue; ``stack`` closes what is opened."""

    @abstractmethod
    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages, durably."""

    @abstractmethod
    async def fetch(self, count: int) -> list[Lock]:
        """Lease at most ``count`` messages; return what ``ack`` needs of each."""

    @abstractmethod
    async def ack(self, locks: Sequence[Lock]) -> None:
        """Confirm deliveries, and delete their messages."""


class Tidelog(WorkQueue):
    """A mailbox."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Create a mailbox."""
        from tidelog_server.commands.bench.measures.mailbox_stream import bench_mailbox

        self.mailbox = await stack.enter_async_context(bench_mailbox(f"127.0.0.1:{self.port}"))

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages in one operation."""
        await self.mailbox.send(bodies)

    async def fetch(self, count: int) -> list[Lock]:
        """Lease messages."""
        return await self.mailbox.fetch(count)

    async def ack(self, locks: Sequence[Lock]) -> None:
        """Confirm deliveries in one operation."""
        await self.mailbox.ack(locks)


class RedisConnection:
    """A connection on which commands are pipelined, with hiredis alone: redis-py takes several times its time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hiredis: Any = import_module("hiredis")
        self._reader = reader
        self._writer = writer
        self._replies: Any = hiredis.Reader()
        self._pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

    async def execute(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Return the replies to commands. Raises RuntimeError if one is refused."""
        self._writer.write(b"".join(map(self._pack, commands)))
        found: list[Any] = []
        while len(found) < len(commands):
            reply = self._replies.gets()
            if reply is False:
                self._replies.feed(await self._reader.read(1 << 16))
            elif isinstance(reply, Exception):
                raise RuntimeError(f"Redis refused a command: {reply}")
            else:
                found.append(reply)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class RedisConnections:
    """Connections, each for one pipeline at a time."""

    def __init__(self) -> None:
        self._free: list[RedisConnection] = []

    async def open(self, port: int, count: int, stack: AsyncExitStack) -> None:
        """Open this number of connections, which ``stack`` closes."""
        for _ in range(count):
            self._free.append(RedisConnection(*await asyncio.open_connection("127.0.0.1", port)))
            stack.callback(self._free[-1].close)

    async def execute(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Return the replies to commands. There must be a free connection."""
        connection = self._free.pop()
        try:
            return await connection.execute(*commands)
        finally:
            self._free.append(connection)


class Redis(WorkQueue):
    """A stream with a consumer group; an acknowledged entry is deleted."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Create a stream and a group, and a connection for each operation in flight."""
        connections = RedisConnections()
        await connections.open(self.port, self.in_flight, stack)
        self._execute = connections.execute
        await self._execute(("XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM"))

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Add entries in one pipeline."""
        await self._execute(*(("XADD", "jobs", "*", "b", body) for body in bodies))

    async def fetch(self, count: int) -> list[Lock]:
        """Read entries that no other consumer has."""
        command = ("XREADGROUP", "GROUP", "workers", "bench", "COUNT", count, "STREAMS", "jobs", ">")
        [found] = await self._execute(command)
        return [entry[0] for entry in found[0][1]] if found else []

    async def ack(self, locks: Sequence[Lock]) -> None:
        """Acknowledge and delete entries in one pipeline."""
        await self._execute(("XACK", "jobs", "workers", *locks), ("XDEL", "jobs", *locks))


class Nats(WorkQueue):
    """A JetStream stream with work-queue retention and a pull consumer; acknowledgements wait for the server."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Create a stream, and subscribe once for each fetch in flight."""
        nats: Any = import_module("nats")
        api: Any = import_module("nats.js.api")
        connection: Any = await nats.connect(f"nats://127.0.0.1:{self.port}")
        stack.push_async_callback(connection.close)
        self.stream = connection.jetstream(publish_async_max_pending=100_000)
        await self.stream.add_stream(name="jobs", subjects=["jobs"], retention=api.RetentionPolicy.WORK_QUEUE)
        consumer = api.ConsumerConfig(
            durable_name="workers", ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=100_000
        )
        await self.stream.add_consumer("jobs", consumer)
        self.free: list[Any] = [
            await self.stream.pull_subscribe_bind(consumer="workers", stream="jobs") for _ in range(self.in_flight)
        ]

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Publish messages, and wait for all confirmations."""
        await asyncio.gather(*(self.stream.publish("jobs", body, timeout=_TIMEOUT_S) for body in bodies))

    async def fetch(self, count: int) -> list[Lock]:
        """Pull messages."""
        subscription = self.free.pop()
        try:
            return list(await subscription.fetch(count, timeout=_TIMEOUT_S))
        finally:
            self.free.append(subscription)

    async def ack(self, locks: Sequence[Lock]) -> None:
        """Acknowledge messages, and wait for all confirmations."""
        await asyncio.gather(*(message.ack_sync(timeout=_TIMEOUT_S) for message in locks))


KINDS: dict[str, Callable[[dict[str, Any]], WorkQueue]] = {"tidelog": Tidelog, "redis": Redis, "nats": Nats}


async def run_cycles(queue: WorkQueue, bodies: Sequence[bytes], tasks: int, seconds: float) -> tuple[int, float]:
    """Run cycles of ``bodies`` in parallel, and begin none after ``seconds``; return the messages and the seconds."""
    begin_s = time.perf_counter()
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() - begin_s < seconds:
            await queue.send(bodies)
            left = len(bodies)
            while left:
                locks = await queue.fetch(left)
                await queue.ack(locks)
                left -= len(locks)
            done += len(bodies)

    await asyncio.gather(*(work() for _ in range(tasks)))
    return done, time.perf_counter() - begin_s


async def run(order: dict[str, Any]) -> None:
    """Execute the lines on standard input."""
    bodies = [os.urandom(order["size"]) for _ in range(order["per_batch"])]
    queue = KINDS[order["peer"]](order)
    async with AsyncExitStack() as stack:
        await queue.open(stack)
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            part, seconds = line.split()
            is_batch = part == "batches"
            tasks, share = (order["in_flight"], bodies) if is_batch else (order["workers"], bodies[:1])
            cycles, taken_s = await run_cycles(queue, share, tasks, float(seconds))
            print(json.dumps({"cycles": cycles, "seconds": taken_s}), flush=True)


if __name__ == "__main__":
    import uvloop

    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
    uvloop.run(run(json.loads(sys.argv[1])))
