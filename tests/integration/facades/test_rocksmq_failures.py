"""What queues preserve when a server, a connection or a caller fails. Method: real servers, killed or cut off."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Tick
from tidelog.rocksmq import AsyncIDAllocator, AsyncRocksMQ
from tidelog.testing import server
from tidelog_testing.faults.cut_proxy import end_connections
from tidelog_testing.servers.disk import disk_bytes
from tidelog_testing.servers.processes import ServerProcess, lasting_port

SEED = 20_079
STORM_MESSAGES = 1_000
MESSAGES = [b"%d" % number for number in range(100)]


async def test_positions_and_ids_survive_a_killed_server(tmp_path: Path) -> None:
    settings = lasting_port()
    with ServerProcess(tmp_path / "log", settings) as running:
        async with AsyncRocksMQ(running.grpc, name="shop") as mq:
            await mq.create_channel("orders")
            await mq.create_consumer_group("billing", "orders")
            ids = await mq.produce("orders", MESSAGES)
            await mq.consume("billing", "orders", 60)
            await mq.seek("billing", "orders", ids[10])
            first = await mq.consume("billing", "orders", 30)
            end_id = (await AsyncIDAllocator(mq.client).alloc(5_000))[1]
            running.kill()
            with ServerProcess(tmp_path / "log", settings) as again:
                async with AsyncRocksMQ(again.grpc, name="shop") as other:
                    second = [*await mq.consume("billing", "orders", 7), *await other.consume("billing", "orders", 99)]
                    later_id = await AsyncIDAllocator(other.client).alloc_one()

    assert [message.msg_id for message in [*first, *second]] == ids[10:]
    assert end_id <= later_id


async def test_a_destroyed_channel_gives_its_disk_back(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as running:
        async with AsyncRocksMQ(running.grpc) as mq:
            await mq.create_channel("orders")
            while disk_bytes(tmp_path / "log") < 32 << 20:
                await mq.produce("orders", [b"x" * 900_000] * 8)

            await mq.destroy_channel("orders")

            # It is freed after the answer.
            while disk_bytes(tmp_path / "log") > 4 << 20:
                await asyncio.sleep(0.02)


async def test_a_cancelled_call_loses_nothing() -> None:
    async with server() as client, AsyncRocksMQ(client) as mq:
        await mq.create_channel("orders")
        await mq.create_consumer_group("billing", "orders")
        ids = await mq.produce("orders", MESSAGES)
        taken: list[Tick] = []
        steps = 0
        while len(taken) < len(ids):
            consuming = asyncio.create_task(mq.consume("billing", "orders", 7 if steps % 2 else 3))
            # Each round cancels a little later.
            for _ in range(steps % 40):
                await asyncio.sleep(0)
            consuming.cancel()
            [found] = await asyncio.gather(consuming, return_exceptions=True)
            taken += [message.msg_id for message in found] if isinstance(found, list) else []
            steps += 1

        assert taken == ids


async def test_a_lost_answer_loses_nothing_though_others_consume_meanwhile() -> None:
    async with server() as direct, cut_off(direct.endpoint) as (endpoint, answers_left):
        async with AsyncClient(endpoint, timeout_s=3) as client:
            mq = AsyncRocksMQ(client)
            await mq.create_channel("orders")
            await mq.create_consumer_group("billing", "orders")
            ids = await mq.produce("orders", MESSAGES)
            assert [message.msg_id for message in await mq.consume("billing", "orders", 10)] == ids[:10]
            answers_left.clear()
            with pytest.raises(tidelog.TidelogError) as lost:
                await mq.consume("billing", "orders", 10)
            assert lost.value.effect == "unknown"
            # It was consumed nevertheless.
            while (await direct.describe_group("billing")).positions["orders/0"].next_tick != ids[20]:
                await asyncio.sleep(0.01)
            others = await AsyncRocksMQ(direct).consume("billing", "orders", 5)
            answers_left.set()

            assert [message.msg_id for message in others] == ids[20:25]
            assert [message.msg_id for message in await mq.consume("billing", "orders", 4)] == ids[10:14]
            assert [message.msg_id for message in await mq.consume("billing", "orders", 99)] == ids[14:20]
            assert [message.msg_id for message in await mq.consume("billing", "orders", 99)] == ids[25:]


async def test_four_consumers_get_each_message_once_while_connections_break_and_callers_give_up() -> None:
    rng = random.Random(SEED)
    taken: list[bytes] = []

    def cuts() -> bool:
        return rng.random() < 0.01

    async def consume(endpoint: str) -> None:
        async with AsyncClient(endpoint, timeout_s=2) as client:
            mq = AsyncRocksMQ(client)
            while len(taken) < STORM_MESSAGES:
                with suppress(tidelog.TidelogError, TimeoutError):
                    async with asyncio.timeout(rng.choice((0.001, 0.003, 5))):
                        messages = await mq.consume("billing", "orders", rng.randint(1, 9), wait_s=0.1)
                    taken.extend(message.payload for message in messages)

    async def produce(endpoint: str) -> None:
        async with AsyncClient(endpoint, timeout_s=20) as client:
            for begin in range(0, STORM_MESSAGES, 10):
                await AsyncRocksMQ(client).produce("orders", [b"%d" % number for number in range(begin, begin + 10)])

    async with server() as direct, AsyncExitStack() as proxies:
        await AsyncRocksMQ(direct).create_channel("orders")
        await AsyncRocksMQ(direct).create_consumer_group("billing", "orders")
        endpoints = [(await proxies.enter_async_context(cut_off(direct.endpoint, cuts)))[0] for _ in range(5)]
        await asyncio.gather(produce(endpoints[4]), *map(consume, endpoints[:4]))

    assert sorted(taken) == sorted(b"%d" % number for number in range(STORM_MESSAGES))


async def test_a_call_that_comes_after_later_ones_of_its_caller_takes_nothing() -> None:
    caller = 7 << 24
    async with server() as client:
        await client.create_channel("orders")
        await client.create_group("billing", "orders")
        await client.append("orders", MESSAGES)
        for number in (1, 2):
            await client.consume("billing", "orders", 5, commit=True, consume_id=caller + number)
        again = await client.consume("billing", "orders", 5, commit=True, consume_id=caller + 2)

        with pytest.raises(tidelog.InvalidRequestError, match="consume_id"):
            await client.consume("billing", "orders", 5, commit=True, consume_id=caller + 1)

        assert [message.payload for message in again.messages] == MESSAGES[5:10]
        assert (await client.describe_group("billing")).lag_messages == 90


async def test_a_seek_forgets_what_an_unanswered_call_would_bring() -> None:
    async with server() as client, AsyncRocksMQ(client) as mq:
        await mq.create_channel("orders")
        await mq.create_consumer_group("billing", "orders")
        ids = await mq.produce("orders", MESSAGES)
        consuming = asyncio.create_task(mq.consume("billing", "orders", 10))
        while (await client.describe_group("billing")).positions["orders/0"].next_tick != ids[10]:
            await asyncio.sleep(0)
            if consuming.done():
                break
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)

        await mq.seek("billing", "orders", ids[50])

        assert [message.msg_id for message in await mq.consume("billing", "orders", 5)] == ids[50:55]


@asynccontextmanager
async def cut_off(endpoint: str, cuts: Callable[[], bool] = lambda: False) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Yield an address that leads to ``endpoint``, and an event that lets answers through while it is set, as at first.

    For each piece in flight ``cuts`` decides whether the connection ends there.
    """
    host, _, port = endpoint.rpartition(":")
    passes = asyncio.Event()
    passes.set()
    connections: set[asyncio.Task[None]] = set()
    opened: list[asyncio.StreamWriter] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        opened.append(writer)
        answers, requests = await asyncio.open_connection(host, int(port))
        opened.append(requests)

        async def forward() -> None:
            await _pipe(reader, requests, lambda: asyncio.sleep(0), cuts)

        async def back() -> None:
            await _pipe(answers, writer, passes.wait, cuts)

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(forward())
                both.create_task(back())
        except* (OSError, EOFError):
            pass
        finally:
            writer.close()
            requests.close()

    listening = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", passes
    finally:
        passes.set()
        listening.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await end_connections(opened)


async def _pipe(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    may_pass: Callable[[], Awaitable[object]],
    cuts: Callable[[], bool],
) -> None:
    while (received := await reader.read(1 << 16)) and not cuts():
        await may_pass()
        writer.write(received)
        await writer.drain()
    raise EOFError
