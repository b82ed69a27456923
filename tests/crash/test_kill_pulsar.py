"""A Pulsar broker that is killed under load: no acknowledged message is lost, and no committed position is repeated.

Method: a real broker ends by SIGKILL and starts again on its files, while one task sends packs, a ticker writes ticks,
and a consumer is closed or abandoned at random. A resent message may be in a topic twice, as Pulsar permits.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tidelog
from tidelog.msgstream import (
    AsyncMsgStream,
    AsyncPulsarMsgStreamFactory,
    AsyncTimeTicker,
    MsgPack,
    MsgStreamError,
    PulsarBroker,
)
from tidelog_testing.parts.soaks import soak
from tidelog_testing.parts.streams import ids, pack
from tidelog_testing.servers.pulsar import PulsarProcess

pytestmark = pytest.mark.crash

TOPICS = ("one", "two")
PACK_MESSAGES = 3
WITHIN_S = 180.0


@dataclass
class Load:
    """What was sent, and what came.

    Attributes:
        acknowledged: Ids that the broker has, by the index of their topic.
        received: Ids in the order of their arrival, without those that an abandoned consumer had not committed.
    """

    acknowledged: list[list[int]] = field(default_factory=lambda: [[] for _ in TOPICS])
    received: list[list[int]] = field(default_factory=lambda: [[] for _ in TOPICS])
    ends: list[int] = field(default_factory=list)
    is_over: bool = False


async def send(factory: AsyncPulsarMsgStreamFactory, load: Load) -> None:
    """Send packs of messages for each topic until the load is over."""
    number = 0
    async with factory.new_msg_stream() as stream:
        await stream.as_producer(TOPICS)
        while not load.is_over:
            numbers = range(number + 1, number + 1 + PACK_MESSAGES)
            number = numbers[-1]
            try:
                await stream.produce(MsgPack(msgs=[*pack(*numbers, key=0).msgs, *pack(*numbers, key=1).msgs]))
            except (MsgStreamError, tidelog.DeadlineError, tidelog.UnavailableError):
                continue
            for acknowledged in load.acknowledged:
                acknowledged.extend(numbers)


async def consume(factory: AsyncPulsarMsgStreamFactory, load: Load, draws: random.Random) -> None:
    """Consume with one stream after another, until everything acknowledged has come."""
    abandoned: list[AsyncMsgStream] = []
    topics = [f"persistent://public/default/{name}" for name in TOPICS]
    while not load.is_over or any(
        set(sent) - set(came) for sent, came in zip(load.acknowledged, load.received, strict=True)
    ):
        stream = factory.new_tt_msg_stream()
        async with asyncio.timeout(WITHIN_S):
            await stream.as_consumer(TOPICS, "sub")
            await stream.start()
            came: list[MsgPack] = []
            async for each in stream.chan():
                came.append(each)
                if len(came) > draws.randrange(5, 40):
                    break
            is_closed = draws.random() < 0.5
            if is_closed:
                await stream.close()
            else:
                abandoned.append(stream)
        # Everything but the last pack is handled; an abandoned consumer may have committed less.
        handled = came[:-1] if is_closed else came
        load.ends += [each.end_ts for each in handled]
        if not is_closed:
            load.ends.append(-1)
        for each in handled:
            for index, topic in enumerate(topics):
                load.received[index] += ids([m for m in each.msgs if m.position and m.position.channel_name == topic])
    for left in abandoned:
        # A later stream has its subscription.
        with suppress(MsgStreamError, tidelog.ClosedError):
            await left.close()


async def storm(folder: Path, kills: int, seed: int) -> Load:
    draws, load = random.Random(seed), Load()
    with PulsarProcess(folder) as server:
        for name in TOPICS:
            server.create_topic(f"persistent://public/default/{name}")
        # On a busy machine, the broker is away for longer than the default of the timeout.
        async with PulsarBroker(server.url, admin_url=server.admin_url, operation_timeout_s=int(WITHIN_S)) as broker:
            factory = AsyncPulsarMsgStreamFactory(broker)
            ticker = AsyncTimeTicker(broker, TOPICS, interval_ms=50)
            async with ticker:
                sending = asyncio.create_task(send(factory, load))
                consuming = asyncio.create_task(consume(factory, load, draws))
                for _ in range(kills):
                    wanted = len(load.acknowledged[0]) + draws.randrange(20, 200)
                    async with asyncio.timeout(WITHIN_S):
                        while len(load.acknowledged[0]) < wanted:
                            await asyncio.sleep(0.01)
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                load.is_over = True
                async with asyncio.timeout(WITHIN_S):
                    await sending
                    await consuming
    return load


def check(load: Load) -> None:
    for acknowledged, received in zip(load.acknowledged, load.received, strict=True):
        first = list(dict.fromkeys(received))
        assert not set(acknowledged) - set(received)
        assert first == sorted(first)
    # -1 marks a consumer that was abandoned, after which packs may come again.
    for before, after in zip(load.ends, load.ends[1:], strict=False):
        assert -1 in (before, after) or before < after


@pytest.mark.parametrize(("kills", "seed"), [(3, 24), soak(10, 2_400)])
async def test_a_broker_that_is_killed_loses_nothing(tmp_path: Path, kills: int, seed: int) -> None:
    load = await storm(tmp_path / "pulsar", kills=kills, seed=seed)

    check(load)
    assert len(load.acknowledged[0]) >= 60


async def test_a_stream_waits_while_the_broker_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with PulsarProcess(tmp_path / "pulsar") as server:
        server.create_topic("persistent://public/default/one")
        # Shorter than the broker is away, so that the calls of the stream fail meanwhile.
        async with PulsarBroker(server.url, admin_url=server.admin_url, operation_timeout_s=1) as broker:
            async with AsyncPulsarMsgStreamFactory(broker).new_msg_stream() as stream:
                await stream.as_producer(["one"])
                await stream.as_consumer(["one"], "sub")
                await stream.produce(pack(1))
                await asyncio.to_thread(server.kill)
                consuming = asyncio.create_task(stream.consume())
                async with asyncio.timeout(WITHIN_S):
                    while "reading waits for the broker" not in caplog.text:
                        assert not consuming.done()
                        await asyncio.sleep(0.05)
                    await asyncio.to_thread(server.start)
                    assert ids((await consuming).msgs) == [1]
