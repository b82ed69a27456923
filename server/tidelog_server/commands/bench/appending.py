"""The appends that benchmarks measure: lists of messages through the client, many in flight."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog import Appendable, AsyncClient, AsyncTicket
from tidelog_server.commands.bench.payloads import payload_lists

# Bytes that the producer counts per message in addition to its payload.
_OVERHEAD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Load:
    """Messages to append.

    Attributes:
        messages: Total number of messages.
        per_batch: Messages per list, which the client encodes as one batch.
        vchannels: Vchannels, or channels, assigned to the producers in turn.
        producers: Number of concurrent producers on one client.
        idempotent: True to number the batches.
    """

    messages: int
    per_batch: int
    vchannels: Sequence[str]
    producers: int = 1
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of appends.

    Attributes:
        seconds: Seconds from the first append to the last acknowledgement.
        marks: Seconds until each tenth of the first producer's messages was acknowledged.
    """

    seconds: float
    marks: Sequence[float]


async def append_lists(client: AsyncClient, messages: Sequence[Appendable], load: Load) -> Timed:
    """Append ``load``, and wait for all acknowledgements."""
    start = time.perf_counter()
    share = load.messages // load.producers
    marks = await asyncio.gather(
        *(
            _produce(client, messages, load.vchannels[number % len(load.vchannels)], share, load)
            for number in range(load.producers)
        )
    )
    return Timed(time.perf_counter() - start, [mark - start for mark in marks[0]])


async def append_singles(client: AsyncClient, messages: Sequence[Appendable], load: Load) -> tuple[float, list[float]]:
    """Append single messages, one at a time per producer; return the total seconds and those of each append."""
    durations: list[float] = []

    async def produce(number: int) -> None:
        name = load.vchannels[number % len(load.vchannels)]
        source = itertools.cycle(messages)
        for _ in range(load.messages // load.producers):
            start = time.perf_counter()
            await client.append(name, next(source))
            durations.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(produce(number) for number in range(load.producers)))
    return time.perf_counter() - start, durations


async def _produce(
    client: AsyncClient, messages: Sequence[Appendable], name: str, count: int, load: Load
) -> list[float]:
    """Append lists through a producer; return the times at which each tenth was acknowledged."""
    marks: list[asyncio.Task[float]] = []
    per_batch = load.per_batch
    first = messages[0]
    batch_bytes = per_batch * (len(first) + _OVERHEAD_BYTES if isinstance(first, bytes) else first.size_bytes)
    lists = -(-count // per_batch)
    tenths = {max(1, round(lists * tenth / 10)) for tenth in range(1, 11)}
    async with client.producer(name, max_batch_bytes=batch_bytes, idempotent=load.idempotent) as producer:
        for number, batch in enumerate(payload_lists(messages, count=count, per_batch=per_batch), start=1):
            if number in tenths:
                await producer.send_many(batch[:-1])
                marks.append(asyncio.create_task(_acknowledged(await producer.send(batch[-1]))))
            else:
                await producer.send_many(batch)
    return await asyncio.gather(*marks)


async def _acknowledged(ticket: AsyncTicket) -> float:
    """Return the time at which the message of ``ticket`` was acknowledged."""
    await ticket
    return time.perf_counter()
