"""The good client of ``benchmarks security``: appends numbered messages, and later checks that each is there once."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient, AsyncProducer, TidelogError
from tidelog_server.commands.bench.report import percentiles

CHANNEL: Final = "bench-good"
_TASKS: Final = 8
# Few enough that the requests stay below the default quota of a principal.
_MESSAGES_PER_BATCH: Final = 20
_PAUSE_AFTER_FAILURE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second, and percentiles of the time per batch."""

    messages_per_second: float
    latency_us: dict[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """Errors in the log: the numbers of acknowledged messages that are missing, and of duplicates."""

    lost: int
    doubled: int


class GoodClient:
    """Appends from several tasks; each has its own producer and awaits one batch at a time."""

    def __init__(self, client: AsyncClient, size: int) -> None:
        self._client = client
        self._size = size
        self._producers: list[AsyncProducer | None] = [None] * _TASKS
        self._next = [0] * _TASKS
        self._acknowledged: list[set[int]] = [set() for _ in range(_TASKS)]
        self.failed = 0
        self.last_failure = ""

    async def open(self) -> None:
        """Create the channel."""
        await self._client.ensure_channel(CHANNEL)

    async def rate(self, seconds: float) -> Rate:
        """Append for about ``seconds``, and return the rate."""
        durations: list[float] = []
        begin_s = time.perf_counter()
        counts = await asyncio.gather(*(self._append(task, begin_s + seconds, durations) for task in range(_TASKS)))
        took_s = time.perf_counter() - begin_s
        return Rate(sum(counts) / took_s, percentiles(durations or [took_s]))

    async def close(self) -> None:
        """Close the producers."""
        for producer in self._producers:
            if producer is not None:
                await producer.aclose()

    async def look(self, client: AsyncClient) -> Found:
        """Read all messages, and compare them with the acknowledged ones."""
        seen: Counter[bytes] = Counter()
        async with client.scan(CHANNEL) as scan:
            async for batch in scan:
                seen.update(message.payload.rstrip(b".") for message in batch)
        acknowledged = (b"%d:%d" % (task, n) for task, numbers in enumerate(self._acknowledged) for n in numbers)
        return Found(sum(name not in seen for name in acknowledged), sum(count - 1 for count in seen.values()))

    async def _append(self, task: int, end_s: float, durations: list[float]) -> int:
        count = 0
        while time.perf_counter() < end_s:
            numbers = range(self._next[task], self._next[task] + _MESSAGES_PER_BATCH)
            self._next[task] = numbers.stop
            start_s = time.perf_counter()
            try:
                await self._append_batch(task, numbers)
            except TidelogError as error:
                self.failed += 1
                self.last_failure = str(error)
                # A failed producer cannot be reused; a new one sends the next batch.
                self._producers[task] = None
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
                continue
            durations.append(time.perf_counter() - start_s)
            self._acknowledged[task].update(numbers)
            count += len(numbers)
        return count

    async def _append_batch(self, task: int, numbers: range) -> None:
        producer = self._producers[task]
        if producer is None:
            producer = self._producers[task] = self._client.vchannel(CHANNEL).producer(linger_s=0)
        payloads = [(b"%d:%d" % (task, number)).ljust(self._size, b".") for number in numbers]
        tickets = [await producer.send(payload) for payload in payloads]
        await tickets[-1]
