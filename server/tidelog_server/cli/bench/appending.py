"""The appends that benchmarks time: lists of payloads through the client, many in flight."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient, AsyncTicket
from tidelog_server.cli.bench.payloads import payload_lists

# What the producer counts for a message beside its payload.
_OVERHEAD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Load:
    """What to append.

    Attributes:
        messages: In all.
        per_batch: Messages in one list, which the client encodes as one batch.
        vchannels: Where to; producers take them in turn.
        producers: Tasks that append at the same time, on one client.
        idempotent: Whether their batches are numbered.
    """

    messages: int
    per_batch: int
    vchannels: Sequence[str]
    producers: int = 1
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class Timed:
    """How long appends took.

    Attributes:
        seconds: From the first append to the last acknowledgement.
        marks: Seconds at which each tenth of the first producer's messages was acknowledged.
    """

    seconds: float
    marks: Sequence[float]


async def append_lists(client: AsyncClient, payloads: list[bytes], load: Load) -> Timed:
    """Append ``load`` and wait for every acknowledgement."""
    start = time.perf_counter()
    share = load.messages // load.producers
    marks = await asyncio.gather(
        *(
            _produce(client, payloads, load.vchannels[number % len(load.vchannels)], share, load)
            for number in range(load.producers)
        )
    )
    return Timed(time.perf_counter() - start, [mark - start for mark in marks[0]])


async def append_singles(client: AsyncClient, payloads: list[bytes], load: Load) -> tuple[float, list[float]]:
    """Append single messages, each producer awaiting one at a time; return seconds in all and of each append."""
    durations: list[float] = []

    async def produce(number: int) -> None:
        vchannel = client.vchannel(load.vchannels[number % len(load.vchannels)])
        source = itertools.cycle(payloads)
        for _ in range(load.messages // load.producers):
            start = time.perf_counter()
            await vchannel.append(next(source))
            durations.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(produce(number) for number in range(load.producers)))
    return time.perf_counter() - start, durations


async def _produce(client: AsyncClient, payloads: list[bytes], name: str, messages: int, load: Load) -> list[float]:
    """Append lists through a producer; return when the end of each tenth was acknowledged."""
    marks: list[asyncio.Task[float]] = []
    per_batch = load.per_batch
    batch_bytes = per_batch * (len(payloads[0]) + _OVERHEAD_BYTES)
    lists = -(-messages // per_batch)
    tenths = {max(1, round(lists * tenth / 10)) for tenth in range(1, 11)}
    async with client.vchannel(name).producer(max_batch_bytes=batch_bytes, idempotent=load.idempotent) as producer:
        for number, batch in enumerate(payload_lists(payloads, count=messages, per_batch=per_batch), start=1):
            if number in tenths:
                await producer.send_many(batch[:-1])
                marks.append(asyncio.create_task(_acknowledged(await producer.send(batch[-1]))))
            else:
                await producer.send_many(batch)
    return await asyncio.gather(*marks)


async def _acknowledged(ticket: AsyncTicket) -> float:
    """Return when the message of ``ticket`` was acknowledged."""
    await ticket
    return time.perf_counter()
