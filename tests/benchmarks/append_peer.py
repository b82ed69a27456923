"""A client process of ``benchmarks append-peers``: single appends to one stream, each waited for.

It runs in the environment of the peers, so it imports nothing of this repository unless the peer is Tidelog. For each
line on standard input, ``one SECONDS`` or ``many SECONDS``, it prints the rate, and percentiles of the latency.
"""

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

from benchmarks.mailbox_peer import RedisConnections


class Stream(ABC):
    """A stream that syncs each append before it answers."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Prepare to connect; ``order`` has the port of the server and the number of callers."""
        self.port: int = order["port"]
        self.callers: int = order["callers"]

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Connect, and create the stream; ``stack`` closes what is opened."""

    @abstractmethod
    async def append(self, body: bytes) -> None:
        """Append a message, and wait until it is durable."""


class Tidelog(Stream):
    """A channel."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Create a channel."""
        from tidelog import AsyncClient

        self.client = await stack.enter_async_context(AsyncClient(f"127.0.0.1:{self.port}"))
        await self.client.create_channel("bench")

    async def append(self, body: bytes) -> None:
        """Append."""
        await self.client.append("bench", body)


class Redis(Stream):
    """A stream."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Open a connection for each caller."""
        self.connections = RedisConnections()
        await self.connections.open(self.port, self.callers, stack)

    async def append(self, body: bytes) -> None:
        """Add an entry."""
        await self.connections.execute(("XADD", "bench", "*", "b", body))


class Nats(Stream):
    """A JetStream stream."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Create a stream."""
        nats: Any = import_module("nats")
        connection: Any = await nats.connect(f"nats://127.0.0.1:{self.port}")
        stack.push_async_callback(connection.close)
        self.stream = connection.jetstream()
        await self.stream.add_stream(name="bench", subjects=["bench"])

    async def append(self, body: bytes) -> None:
        """Publish, and wait for the confirmation."""
        await self.stream.publish("bench", body)


class Kafka(Stream):
    """A topic with one partition. The producer sends at once, and all that waits in one batch."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Create a topic."""
        aiokafka: Any = import_module("aiokafka")
        admin: Any = import_module("aiokafka.admin")
        servers = f"127.0.0.1:{self.port}"
        client: Any = admin.AIOKafkaAdminClient(bootstrap_servers=servers)
        await client.start()
        await client.create_topics([admin.NewTopic("bench", 1, 1)])
        await client.close()
        self.producer: Any = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=0)
        await self.producer.start()
        stack.push_async_callback(self.producer.stop)

    async def append(self, body: bytes) -> None:
        """Send, and wait for the confirmation."""
        await self.producer.send_and_wait("bench", body, partition=0)


KINDS: dict[str, Callable[[dict[str, Any]], Stream]] = {
    "tidelog": Tidelog, "redis": Redis, "nats": Nats, "kafka": Kafka,
}  # fmt: skip


async def run_appends(stream: Stream, body: bytes, callers: int, seconds: float) -> dict[str, float]:
    """Append with this number of callers, and begin no append after ``seconds``; return rate and percentiles."""
    begin_s = time.perf_counter()
    took_s: list[float] = []

    async def call() -> None:
        sent_s = time.perf_counter()
        while sent_s - begin_s < seconds:
            await stream.append(body)
            answered_s = time.perf_counter()
            took_s.append(answered_s - sent_s)
            sent_s = answered_s

    await asyncio.gather(*(call() for _ in range(callers)))
    rate = len(took_s) / (time.perf_counter() - begin_s)
    took_s.sort()
    return {
        "rate": rate, "p50_us": took_s[len(took_s) // 2] * 1e6, "p99_us": took_s[len(took_s) * 99 // 100] * 1e6,
    }  # fmt: skip


async def run(order: dict[str, Any]) -> None:
    """Execute the lines on standard input."""
    body = os.urandom(order["size"])
    stream = KINDS[order["peer"]](order)
    async with AsyncExitStack() as stack:
        await stream.open(stack)
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            part, seconds = line.split()
            callers = order["callers"] if part == "many" else 1
            print(json.dumps(await run_appends(stream, body, callers, float(seconds))), flush=True)


if __name__ == "__main__":
    import uvloop

    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
    uvloop.run(run(json.loads(sys.argv[1])))
