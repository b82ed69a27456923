"""Every kind of write at once, over servers that are killed and restarted, with a record of each operation.

An operation has a unique name, and each of its messages is ``<name>:<number>``, so the log itself shows what it
contains. The caller kills servers while the load runs; ``check`` then compares the record with the log.
"""

import asyncio
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal

import tidelog
from tidelog import AsyncClient, At, ProducerSequence, ResourceKey

CHANNELS: Final = {"left": 2, "right": 2}
LANES: Final = ("left/0", "left/1", "right/0", "right/1")
KEYS: Final = ("x", "y")
_LARGE_BYTES: Final = 1_500
_MAX_MESSAGES: Final = 3
_SHARED_SHARE: Final = 0.3
_ROLLED_BACK_SHARE: Final = 0.2
_LARGE_SHARE: Final = 0.4
_REOPENED_SHARE: Final = 0.2

Kind = Literal["append", "numbered", "transaction", "broadcast"]
Outcome = Literal["pending", "ok", "none", "unknown"]


@dataclass(slots=True)
class Operation:
    """One write, as its caller saw it.

    Attributes:
        counts: Number of messages per vchannel.
        begun_s, ended_s: Monotonic times; infinity while there is no answer.
        ticks: First tick per vchannel, once acknowledged.
        key, is_shared: Resource key of a broadcast, and its mode.
        acked_s: Time at which the first acknowledgement of each vchannel was begun.
    """

    kind: Kind
    name: str
    counts: dict[str, int]
    begun_s: float
    ended_s: float = float("inf")
    outcome: Outcome = "pending"
    ticks: dict[str, int] = field(default_factory=dict)
    key: str = ""
    is_shared: bool = False
    acked_s: dict[str, float] = field(default_factory=dict)

    def payloads(self, vchannel: str, filler: str = "") -> list[bytes]:
        """Return its messages on a vchannel."""
        return [f"{self.name}:{vchannel}:{number}:{filler}".encode() for number in range(self.counts[vchannel])]

    def end(self, outcome: Outcome, ticks: dict[str, int] | None = None) -> None:
        """Record the answer."""
        self.ended_s, self.outcome, self.ticks = time.monotonic(), outcome, ticks or {}


@dataclass
class Record:
    """All operations, and what followers received.

    Attributes:
        operations: Operations by name.
        seen: Tick and operation of each message that a follower received, by vchannel.
        acknowledged: Set at each answer.
        is_over: Set when no further operation is to begin.
    """

    random: Random
    operations: dict[str, Operation] = field(default_factory=dict)
    seen: defaultdict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, kind: Kind, name: str, counts: dict[str, int]) -> Operation:
        """Record that an operation is about to be sent."""
        operation = self.operations[name] = Operation(kind, name, counts, time.monotonic())
        return operation

    def end(self, operation: Operation, error: tidelog.TidelogError) -> None:
        """Record the error of an operation."""
        operation.end("none" if error.effect == "none" else "unknown")

    def accept(self, operation: Operation, ticks: dict[str, int]) -> None:
        """Record the position of an operation."""
        operation.end("ok", ticks)
        self.acknowledged.set()

    def some_lanes(self) -> dict[str, int]:
        """Return a random number of messages for random vchannels."""
        lanes = self.random.sample(LANES, self.random.randint(1, len(LANES)))
        return {lane: self.random.randint(1, _MAX_MESSAGES) for lane in lanes}

    def write(self, path: Path) -> None:
        """Write all operations to a file, one a line."""
        path.write_text("".join(json.dumps(asdict(operation)) + "\n" for operation in self.operations.values()))


async def prepare(client: AsyncClient) -> None:
    """Create the channels."""
    for name, vchannels in CHANNELS.items():
        await client.create_channel(name, vchannels=vchannels)


async def run_load(record: Record, client: AsyncClient) -> None:
    """Write in every way until the record is over, while each vchannel has a consumer that acknowledges broadcasts."""
    consumers = [asyncio.create_task(_consume(record, client, lane)) for lane in LANES]
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(_append(record, client, f"append{number}"))
                group.create_task(_append_numbered(record, client, f"numbered{number}", LANES[number]))
                group.create_task(_broadcast(record, client, f"broadcast{number}"))
            for number in range(4):
                group.create_task(_transact(record, client, f"txn{number}"))
    finally:
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)


async def _append(record: Record, client: AsyncClient, name: str) -> None:
    for number in itertools.count():
        if record.is_over.is_set():
            return
        lane = record.random.choice(LANES)
        operation = record.begin("append", f"{name}-{number}", {lane: record.random.randint(1, _MAX_MESSAGES)})
        try:
            result = await client.append(lane, operation.payloads(lane), timeout_s=20)
        except tidelog.TidelogError as error:
            record.end(operation, error)
        else:
            record.accept(operation, {lane: result.first_tick})


async def _append_numbered(record: Record, client: AsyncClient, name: str, lane: str) -> None:
    """Append numbered batches; reopen the producer now and then, and check that the old epoch is fenced."""
    epoch, sequence = 0, 0
    while not record.is_over.is_set():
        if record.random.random() < _REOPENED_SHARE:
            position = await _opened(client, lane, name)
            # An acknowledged batch is in the log; one without an answer may be.
            assert position.last_sequence in {sequence, sequence + 1}
            await _expect_fenced(client, lane, ProducerSequence(name, position.last_sequence + 1, epoch))
            epoch, sequence = position.epoch, position.last_sequence
        number = ProducerSequence(name, sequence + 1, epoch)
        counts = {lane: record.random.randint(1, _MAX_MESSAGES)}
        operation = record.operations.get(f"{name}-{number.sequence}") or record.begin(
            "numbered", f"{name}-{number.sequence}", counts
        )
        try:
            result = await client.append(lane, operation.payloads(lane), producer=number, timeout_s=20)
        except (tidelog.UnavailableError, tidelog.DeadlineError, tidelog.AppendUnknownError):
            # The same batch again, under the same number.
            continue
        record.accept(operation, {lane: result.first_tick})
        sequence += 1


async def _opened(client: AsyncClient, lane: str, name: str) -> tidelog.ProducerPosition:
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.open_producer(lane, name)
            except (tidelog.UnavailableError, tidelog.DeadlineError):
                continue


async def _expect_fenced(client: AsyncClient, lane: str, number: ProducerSequence) -> None:
    try:
        await client.append(lane, b"never", producer=number, timeout_s=20)
    except (tidelog.ProducerFencedError, tidelog.UnavailableError, tidelog.DeadlineError, tidelog.AppendUnknownError):
        return
    raise AssertionError("an append of an old epoch was taken")


async def _transact(record: Record, client: AsyncClient, name: str) -> None:
    """Commit and roll back transactions, some of them large enough to be staged."""
    for number in itertools.count():
        if record.is_over.is_set():
            return
        operation = record.begin("transaction", f"{name}-{number}", record.some_lanes())
        filler = "." * (_LARGE_BYTES if record.random.random() < _LARGE_SHARE else 0)
        txn = client.txn(timeout_s=60)
        try:
            for lane in operation.counts:
                await txn.append(lane, operation.payloads(lane, filler))
            if record.random.random() < _ROLLED_BACK_SHARE:
                await txn.rollback()
                operation.end("none")
                continue
            result = await txn.commit()
        except tidelog.TidelogError as error:
            record.end(operation, error)
            continue
        assert result is not None
        record.accept(operation, {lane: part.first_tick for lane, part in result.results.items()})


async def _broadcast(record: Record, client: AsyncClient, name: str) -> None:
    """Broadcast under keys; consumers acknowledge."""
    for number in itertools.count():
        if record.is_over.is_set():
            return
        operation = record.begin("broadcast", f"{name}-{number}", dict.fromkeys(record.some_lanes(), 1))
        operation.key, operation.is_shared = record.random.choice(KEYS), record.random.random() < _SHARED_SHARE
        key = ResourceKey("mixed", operation.key, shared=operation.is_shared)
        try:
            payload = f"{operation.name}:*:0:".encode()
            result = await client.broadcast(operation.counts, payload, resource_keys=[key], wait_s=30, timeout_s=30)
        except tidelog.TidelogError as error:
            record.end(operation, error)
        else:
            record.accept(operation, dict.fromkeys(operation.counts, result.tick))


async def _consume(record: Record, client: AsyncClient, lane: str) -> None:
    """Follow a vchannel, and acknowledge each broadcast directly from its batch."""
    async with client.scan(lane, until=At.follow()) as scan:
        async for batch in scan:
            for tick, payload in zip(batch.ticks, batch.payloads, strict=True):
                record.seen[lane].append((tick, _name_of(payload)))
            if batch.broadcast_id is None:
                continue
            record.operations[_name_of(batch.payloads[0])].acked_s.setdefault(lane, time.monotonic())
            async with asyncio.timeout(60):
                while True:
                    try:
                        await client.ack_batch(batch)
                    except (tidelog.UnavailableError, tidelog.DeadlineError):
                        continue
                    break


def _name_of(payload: bytes) -> str:
    return payload.decode().partition(":")[0]


Log = dict[str, list[tuple[int, str, int, int | None]]]
"""Per vchannel, in order: tick, operation, number of the message within it there, and its transaction."""


async def read_log(client: AsyncClient) -> Log:
    """Read everything."""
    log: Log = {lane: [] for lane in LANES}
    async for batch in client.scan(LANES):
        for tick, payload in zip(batch.ticks, batch.payloads, strict=True):
            name, _, number, _ = payload.decode().split(":")
            log[batch.vchannel].append((tick, name, int(number), batch.txn_id))
    return log


def check(record: Record, log: Log) -> list[str]:
    """Return the contradictions of the promises; empty if there are no contradictions."""
    found: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for lane, rows in log.items():
        for tick, name, number, _ in rows:
            found[name][lane].append((tick, number))
    anomalies = [f"{name} was never sent" for name in found.keys() - record.operations.keys()]
    for operation in record.operations.values():
        anomalies += _check_operation(operation, found.get(operation.name, {}))
    anomalies += _check_real_time(record.operations.values())
    anomalies += _check_numbered(log)
    anomalies += _check_keys([each for each in record.operations.values() if each.kind == "broadcast"], found)
    for lane, seen in record.seen.items():
        in_log = [(tick, name) for tick, name, _, _ in log[lane]]
        if seen != in_log[: len(seen)]:
            anomalies.append(f"the consumer of {lane} saw something else than is in the log")
    return anomalies


def _check_operation(operation: Operation, found: dict[str, list[tuple[int, int]]]) -> Iterator[str]:
    """Check that it is whole or absent, once, at the acknowledged position, in runs of consecutive ticks."""
    what = f"{operation.kind} {operation.name} ({operation.outcome})"
    if not found:
        if operation.outcome == "ok":
            yield f"{what} is lost"
        return
    if operation.outcome == "none":
        yield f"{what} had no effect, and is there: {found}"
    if found.keys() != operation.counts.keys():
        yield f"{what} is on {sorted(found)}, not on {sorted(operation.counts)}"
    for lane, messages in found.items():
        first_tick = messages[0][0]
        whole = [(first_tick + number, number) for number in range(operation.counts.get(lane, 0))]
        if messages != whole:
            yield f"{what} is on {lane} as {messages}"
        if operation.outcome == "ok" and operation.ticks[lane] != first_tick:
            yield f"{what} is on {lane} at {first_tick}, not at {operation.ticks[lane]}"
    if operation.kind == "broadcast" and len({messages[0][0] for messages in found.values()}) > 1:
        yield f"{what} has several ticks: {found}"


def _check_real_time(operations: Iterable[Operation]) -> Iterator[str]:
    """Check that what was answered before another operation began has smaller ticks."""
    done = [each for each in operations if each.outcome == "ok"]
    ended = sorted(done, key=lambda each: each.ended_s)
    greatest, index = 0, 0
    for operation in sorted(done, key=lambda each: each.begun_s):
        while index < len(ended) and ended[index].ended_s < operation.begun_s:
            greatest = max(greatest, *ended[index].ticks.values())
            index += 1
        if min(operation.ticks.values()) <= greatest:
            yield f"{operation.name} began after tick {greatest} was acknowledged, and has {operation.ticks}"


def _check_numbered(log: Log) -> Iterator[str]:
    """Check that the batches of a producer are in order, without a gap."""
    for lane, rows in log.items():
        last: dict[str, int] = defaultdict(int)
        for _, name, number, _ in rows:
            producer, _, sequence = name.rpartition("-")
            if producer.startswith("numbered") and number == 0:
                if int(sequence) != last[producer] + 1:
                    yield f"batch {sequence} of {producer} follows {last[producer]} on {lane}"
                last[producer] = int(sequence)


def _check_keys(broadcasts: Sequence[Operation], found: dict[str, dict[str, list[tuple[int, int]]]]) -> Iterator[str]:
    """Check that of two exclusive broadcasts the later was answered after all had acknowledged the earlier."""
    ticks = {each.name: min(m[0][0] for m in found[each.name].values()) for each in broadcasts if each.name in found}
    in_order = sorted((each for each in broadcasts if each.name in ticks), key=lambda each: ticks[each.name])
    for earlier, later in itertools.combinations(in_order, 2):
        if earlier.key != later.key or (earlier.is_shared and later.is_shared):
            continue
        missing = earlier.counts.keys() - earlier.acked_s.keys()
        if missing or later.ended_s < max(earlier.acked_s.values()):
            yield f"{later.name} had key {later.key} before {earlier.name} was acknowledged, missing {sorted(missing)}"
