"""Reads of the WAL accessor, which run in the background. Method: real servers, handlers that record what they receive.

Tests wait for an event of the handler or of the scanner, or for a log that has been read to its end.
"""

import asyncio
import gc
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, AsyncWal, At, Batch, DeliverFilter, Message, Retry, Tick
from tidelog.read.positions import Start
from tidelog.read.scan import ScanCore
from tidelog.testing import server
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.servers.processes import ServerProcess, lasting_port

IN_TIME_S = 20
client = client_with(orders=2)


@pytest.fixture
def wal(client: AsyncClient) -> AsyncWal:
    return client.wal()


class Notes:
    """A handler that records what it receives, and how often it is closed.

    Attributes:
        batches: The received batches.
        closed: Number of calls of ``close``.
        is_busy: Set while it has a batch and must wait.
        may_go_on: The event that it waits for.
        fails_on: A payload on which it fails.
    """

    def __init__(self, fails_on: bytes | None = None) -> None:
        self.batches: list[Batch] = []
        self.closed = 0
        self.is_busy = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.changed = asyncio.Event()
        self.fails_on = fails_on

    @property
    def payloads(self) -> list[bytes]:
        return [payload for batch in self.batches for payload in batch.payloads]

    async def handle(self, batch: Batch) -> None:
        assert not self.closed
        assert not self.is_busy.is_set(), "two batches at once"
        self.is_busy.set()
        await self.may_go_on.wait()
        self.is_busy.clear()
        if self.fails_on in batch.payloads:
            raise LookupError(f"cannot take {self.fails_on!r}")
        self.batches.append(batch)
        self.changed.set()

    async def close(self) -> None:
        self.closed += 1

    async def has(self, messages: int) -> list[bytes]:
        """Wait until it has received ``messages`` messages, and return them."""
        async with asyncio.timeout(IN_TIME_S):
            while len(self.payloads) < messages:
                self.changed.clear()
                await self.changed.wait()
        return self.payloads


async def read_all(
    wal: AsyncWal, *filters: DeliverFilter, start: Start | None = None, vchannel: str = "orders/0"
) -> list[bytes]:
    notes = Notes()
    scanner = wal.read(
        vchannel, message_handler=notes, deliver_policy=start or At.earliest(), deliver_filters=filters,
        until=At.watermark(),
    )  # fmt: skip
    async with asyncio.timeout(IN_TIME_S):
        await scanner.done.wait()
    assert (scanner.error, notes.closed) == (None, 1)
    return notes.payloads


async def test_a_read_returns_at_once_and_follows(wal: AsyncWal) -> None:
    await wal.append("orders/0", [b"a", b"b"])
    notes = Notes()
    scanner = wal.read("orders/0", message_handler=notes)
    assert not scanner.done.is_set()

    for number in range(5):
        await wal.append("orders/0", b"%d" % number)
    assert await notes.has(7) == [b"a", b"b", b"0", b"1", b"2", b"3", b"4"]
    assert (scanner.done.is_set(), scanner.error) == (False, None)

    await scanner.close()
    await scanner.close()
    assert (scanner.done.is_set(), scanner.error, notes.closed) == (True, None, 1)
    assert scanner.position >= notes.batches[-1].last_tick


async def test_a_plain_function_is_a_handler(wal: AsyncWal) -> None:
    await wal.append("orders/0", b"a")
    got: list[Batch] = []
    scanner = wal.read("orders/0", message_handler=got.append, until=At.watermark())

    await scanner.done.wait()

    assert ([batch.payloads for batch in got], scanner.error) == ([[b"a"]], None)


@pytest.mark.parametrize("wrong", [None, 7, object()])
async def test_what_is_no_handler_policy_or_filter_is_refused_at_once(wal: AsyncWal, wrong: object) -> None:
    with pytest.raises(TypeError, match="handler"):
        wal.read("orders/0", message_handler=wrong)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="position"):
        wal.read("orders/0", message_handler=print, deliver_policy=wrong)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="filter"):
        wal.read("orders/0", message_handler=print, deliver_filters=[wrong])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(ValueError, match="is not an end"):
        wal.read("orders/0", message_handler=print, until=At.earliest())


async def test_each_policy_starts_where_it_says(wal: AsyncWal) -> None:
    [one, two, _] = [await wal.append("orders/0", payload) for payload in (b"1", b"2", b"3")]

    assert await read_all(wal, start=At.earliest()) == [b"1", b"2", b"3"]
    assert await read_all(wal, start=At.latest()) == []
    for start in (At.tick(two.first_tick), two.first_tick, At.message_id(two.message_id), At.after(one.last_tick)):
        assert await read_all(wal, start=start) == [b"2", b"3"]
    assert await read_all(wal, start=At.after_message_id(two.message_id)) == [b"3"]
    assert await read_all(wal, start=datetime(2000, 1, 1, tzinfo=UTC)) == [b"1", b"2", b"3"]


async def test_one_that_was_entered_misses_nothing_from_then_on(wal: AsyncWal) -> None:
    await wal.append("orders/0", b"before")
    notes = Notes()
    async with wal.read("orders/0", message_handler=notes, deliver_policy=At.latest()) as scanner:
        await wal.append("orders/0", b"after")
        assert await notes.has(1) == [b"after"]

    assert scanner.done.is_set()


async def test_filters_must_all_pass_and_hide_no_broadcast(client: AsyncClient, wal: AsyncWal) -> None:
    ticks: list[Tick] = []
    for number in range(4):
        result = await wal.append("orders/0", [Message(b"%d.%d" % (number, kind), type=kind) for kind in range(3)])
        ticks += [Tick(tick) for tick in range(result.first_tick, result.last_tick + 1)]
    await client.broadcast(["orders/0"], Message(b"barrier", type=9))

    types = DeliverFilter.message_types
    assert await read_all(wal, types(1)) == [b"0.1", b"1.1", b"2.1", b"3.1", b"barrier"]
    assert await read_all(wal, types(1, 2), types(2, 0)) == [b"0.2", b"1.2", b"2.2", b"3.2", b"barrier"]
    assert await read_all(wal, types(1, hides_broadcasts=True)) == [b"0.1", b"1.1", b"2.1", b"3.1"]
    assert await read_all(wal, DeliverFilter.tick_gt(ticks[8])) == [b"3.0", b"3.1", b"3.2", b"barrier"]
    assert await read_all(wal, DeliverFilter.tick_gte(ticks[10])) == [b"3.1", b"3.2", b"barrier"]
    several = [DeliverFilter.tick_gte(ticks[1]), DeliverFilter.tick_gt(ticks[6]), types(0, 1)]
    assert await read_all(wal, *several, start=At.after(ticks[2])) == [b"2.1", b"3.0", b"3.1", b"barrier"]


async def test_a_filter_on_ticks_looks_at_each_message_of_a_transaction(wal: AsyncWal) -> None:
    async with wal.txn("orders/0") as txn:
        await txn.append([b"a", b"b", b"c"])

    assert await read_all(wal, DeliverFilter.tick_gt(txn.result.first_tick)) == [b"b", b"c"]


async def test_an_exception_of_the_handler_ends_the_read_before_what_it_could_not_take(wal: AsyncWal) -> None:
    for payload in (b"1", b"2", b"3"):
        await wal.append("orders/0", payload)
    notes = Notes(fails_on=b"2")
    scanner = wal.read("orders/0", message_handler=notes)
    await scanner.done.wait()

    assert isinstance(scanner.error, LookupError)
    assert (notes.payloads, notes.closed) == ([b"1"], 1)
    await scanner.close()
    assert isinstance(scanner.error, LookupError)
    assert await read_all(wal, start=At.after(scanner.position)) == [b"2", b"3"]


async def test_a_handler_whose_close_fails_is_told_of(wal: AsyncWal) -> None:
    class Failing(Notes):
        async def close(self) -> None:
            await super().close()
            raise OSError("disk full")

    await wal.append("orders/0", b"a")
    notes = Failing()
    scanner = wal.read("orders/0", message_handler=notes, until=At.watermark())
    await scanner.done.wait()
    assert isinstance(scanner.error, OSError)

    both = wal.read("orders/0", message_handler=Failing(fails_on=b"a"))
    await both.done.wait()
    assert isinstance(both.error, LookupError)
    assert "disk full" in both.error.__notes__[-1]


async def test_a_close_waits_for_the_batch_that_the_handler_has(wal: AsyncWal) -> None:
    await wal.append("orders/0", b"a")
    notes = Notes()
    notes.may_go_on.clear()
    scanner = wal.read("orders/0", message_handler=notes)
    await notes.is_busy.wait()
    await wal.append("orders/0", b"b")
    closes = [asyncio.create_task(scanner.close()) for _ in range(2)]
    await wal.wal_name()
    assert not any(close.done() for close in closes)
    assert not scanner.done.is_set()

    notes.may_go_on.set()
    await asyncio.gather(*closes)

    assert (notes.payloads, notes.closed, scanner.error) == ([b"a"], 1, None)
    assert await read_all(wal, start=At.after(scanner.position)) == [b"b"]


async def test_a_cancelled_close_leaves_the_handler_alone(wal: AsyncWal) -> None:
    await wal.append("orders/0", b"a")
    notes = Notes()
    notes.may_go_on.clear()
    scanner = wal.read("orders/0", message_handler=notes)
    await notes.is_busy.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await scanner.close()

    notes.may_go_on.set()
    await scanner.done.wait()

    assert (notes.payloads, notes.closed, scanner.error) == ([b"a"], 1, None)


async def test_the_handler_itself_may_close(wal: AsyncWal) -> None:
    await wal.append("orders/0", b"a")
    got: list[bytes] = []

    async def take_one(batch: Batch) -> None:
        got.extend(batch.payloads)
        await scanner.close()
        assert not scanner.done.is_set()
        await wal.append("orders/0", b"b")

    scanner = wal.read("orders/0", message_handler=take_one)
    await scanner.done.wait()

    assert (got, scanner.error) == ([b"a"], None)


async def test_nothing_is_read_ahead_while_the_handler_works(client: AsyncClient) -> None:
    large = bytes(900_000)
    wal = client.wal()
    for _ in range(3):
        await wal.append("orders/0", large)
    notes = Notes()
    notes.may_go_on.clear()
    scanner = wal.read("orders/0", message_handler=notes)
    await notes.is_busy.wait()
    scan = scanner._core._scan
    assert isinstance(scan, ScanCore)
    for _ in range(10):
        await wal.append("orders/0", large)
    # At most one response, of 1 MiB and one batch, in addition to gRPC's own buffers.
    assert scan._reading is None
    assert scan._received is None or len(scan._received.batches) <= 1

    notes.may_go_on.set()
    assert len(await notes.has(13)) == 13
    await scanner.close()


async def test_a_read_goes_on_without_anybody_who_holds_it(wal: AsyncWal) -> None:
    notes = Notes()
    wal.read("orders/0", message_handler=notes)
    gc.collect()
    await wal.append("orders/0", b"a")

    assert await notes.has(1) == [b"a"]


@pytest.mark.parametrize("start", [At.earliest(), At.latest()])
async def test_what_the_server_refuses_ends_the_read_with_its_error(wal: AsyncWal, start: At) -> None:
    for vchannel in ("nowhere", ""):
        notes = Notes()
        async with wal.read(vchannel, message_handler=notes, deliver_policy=start) as scanner:
            await scanner.done.wait()
        assert isinstance(scanner.error, tidelog.ChannelNotFoundError | tidelog.InvalidRequestError)
        assert (notes.closed, scanner.position) == (1, 0)


async def test_a_position_that_was_trimmed_ends_the_read(client: AsyncClient, wal: AsyncWal) -> None:
    first = await wal.append("orders/0", b"a")
    await wal.append("orders/0", b"b")
    await client.trim("orders/0", Tick(first.last_tick + 1))
    notes = Notes()
    scanner = wal.read("orders/0", message_handler=notes, deliver_policy=At.tick(first.first_tick))
    await scanner.done.wait()

    assert isinstance(scanner.error, tidelog.PositionTrimmedError)
    assert (notes.payloads, notes.closed) == ([], 1)
    assert await read_all(wal, start=At.tick(scanner.error.first_available_tick)) == [b"b"]


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_closed_client_ends_its_reads(is_busy: bool) -> None:
    async with server() as running:
        await running.create_channel("orders")
        async with AsyncClient(running.endpoint) as client:
            wal, notes = client.wal(), Notes()
            scanner = wal.read("orders", message_handler=notes)
            await wal.append("orders", b"a")
            await notes.has(1)
            if is_busy:
                notes.may_go_on.clear()
                await wal.append("orders", b"b")
                await notes.is_busy.wait()
        notes.may_go_on.set()
        async with asyncio.timeout(IN_TIME_S):
            await scanner.done.wait()

    assert isinstance(scanner.error, tidelog.ClosedError)
    assert (len(notes.payloads), notes.closed) == (2 if is_busy else 1, 1)


def test_the_end_of_the_event_loop_closes_the_handler() -> None:
    notes: list[Notes] = []
    scanners: list[tidelog.AsyncWalScanner] = []

    async def leave_open() -> None:
        async with server() as client:
            await client.create_channel("orders")
            notes.append(Notes())
            scanners.append(client.wal().read("orders", message_handler=notes[0]))
            notes[0].may_go_on.clear()
            await client.wal().append("orders", b"a")
            await notes[0].is_busy.wait()

    asyncio.run(leave_open())

    assert notes[0].closed == 1
    assert scanners[0].done.is_set()
    assert isinstance(scanners[0].error, tidelog.ClosedError)


async def test_a_server_that_dies_and_comes_back_costs_the_handler_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    port = lasting_port()
    with ServerProcess(tmp_path / "log", port) as process:
        async with AsyncClient(process.grpc) as client:
            await client.create_channel("orders")
            wal, notes = client.wal(), Notes()
            results = [await wal.append("orders", Message(b"%d" % number, type=number % 2)) for number in range(20)]
            filters = [DeliverFilter.message_types(1), DeliverFilter.tick_gt(results[4].last_tick)]
            scanner = wal.read("orders", message_handler=notes, deliver_filters=filters)
            await notes.has(8)
            process.kill()
            with ServerProcess(tmp_path / "log", port):
                async with asyncio.timeout(IN_TIME_S):
                    while True:
                        try:
                            await client.wal_name()
                            break
                        except tidelog.UnavailableError:
                            continue
                for number in range(20, 40):
                    await wal.append("orders", Message(b"%d" % number, type=number % 2))

                assert await notes.has(18) == [b"%d" % number for number in range(5, 40, 2)]
                assert scanner.error is None
                await scanner.close()
    assert notes.closed == 1


async def test_a_server_that_stays_away_ends_the_read(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as process:
        async with AsyncClient(process.grpc, retry=Retry(give_up_s=0.5)) as client:
            await client.create_channel("orders")
            wal, notes = client.wal(), Notes()
            result = await wal.append("orders", b"a")
            scanner = wal.read("orders", message_handler=notes)
            await notes.has(1)
            process.kill()
            async with asyncio.timeout(IN_TIME_S):
                await scanner.done.wait()

    assert isinstance(scanner.error, tidelog.UnavailableError)
    assert notes.closed == 1
    assert scanner.position >= result.last_tick


async def test_a_read_can_be_closed_while_the_server_is_away(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as process:
        async with AsyncClient(process.grpc) as client:
            await client.create_channel("orders")
            wal, notes = client.wal(), Notes()
            scanner = wal.read("orders", message_handler=notes)
            await wal.append("orders", b"a")
            await notes.has(1)
            process.kill()
            with pytest.raises(tidelog.TidelogError):
                await wal.append("orders", b"b", timeout_s=0.5)
            async with asyncio.timeout(IN_TIME_S):
                await scanner.close()

    assert (scanner.error, notes.closed) == (None, 1)
