"""Brokers with message streams, for the test suite that runs on each of them, and helpers for streams."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Final, Self

from tidelog import AsyncClient, Message, Tick
from tidelog.msgstream import (
    AsyncMemMsgStreamFactory,
    AsyncMsgStream,
    AsyncMsgStreamFactory,
    AsyncPulsarMsgStreamFactory,
    AsyncRmqMsgStreamFactory,
    AsyncTimeTicker,
    Capabilities,
    InsertMsg,
    MemBroker,
    MsgPack,
    MsgPosition,
    MsgStream,
    MsgStreamFactory,
    PulsarBroker,
    RepackFunc,
    SubscriptionPosition,
    TsMsg,
)
from tidelog.msgstream._backends.pulsar.ids import EARLIEST_ID
from tidelog.msgstream._pulsar.ticker import present
from tidelog.tick import LOGICAL_BITS
from tidelog_testing.servers.pulsar import PulsarProcess

INTERVAL_MS: Final = 20
# Messages that share a pack have times after every tick that is written while they are sent.
_AHEAD_MS: Final = 100
NewStream = Callable[[], AsyncMsgStream]
_numbers = count()


class StreamBroker(ABC):
    """A broker, and a factory of streams on it.

    Attributes:
        factory: Its factory; tests may change its parameters.
        needs_ticks: Whether new channels get ticks of a ticker, on a broker that lacks them.
        capabilities: What the broker can do.
    """

    factory: AsyncMsgStreamFactory
    needs_ticks = False
    capabilities = Capabilities()

    @property
    def empty_id(self) -> bytes:
        """The id of the last message of an empty channel."""
        return Tick(0).message_id

    def new_tt_msg_stream(self) -> AsyncMsgStream:
        """Return a time-tick stream; channels that are created from now on get ticks."""
        self.needs_ticks = True
        return self.factory.new_tt_msg_stream()

    def position_after(self, channel: str, sent: Sequence[bytes]) -> MsgPosition:
        """Return a position after the first of the messages that were sent."""
        return MsgPosition(channel, sent[0], timestamp=int.from_bytes(sent[0], "big"))

    async def produce_between_ticks(
        self, stream: AsyncMsgStream, messages: Sequence[TsMsg], *, at_once: bool = False
    ) -> None:
        """Send messages with increasing times, or with one time, so that no tick lies between their times."""
        await stream.produce(MsgPack(msgs=messages))

    def in_order(self, packs: Sequence[MsgPack]) -> Sequence[MsgPack]:
        """Return packs in an order that does not depend on the order in which channels are read."""
        return packs

    async def channels(self, number: int) -> list[str]:
        """Create channels with unique names, and return the names."""
        return [await self.create(f"c{next(_numbers)}") for _ in range(number)]

    @abstractmethod
    async def create(self, name: str) -> str:
        """Create a channel and return its full name."""

    @abstractmethod
    async def append(self, channel: str, message: Message) -> None:
        """Append without a stream."""


class MemStreamBroker(StreamBroker):
    """A broker in memory."""

    def __init__(self, broker: MemBroker) -> None:
        self.broker = broker
        self.factory = AsyncMemMsgStreamFactory(broker)

    async def create(self, name: str) -> str:
        """Create a channel."""
        self.broker.create_channel(name)
        return name

    async def append(self, channel: str, message: Message) -> None:
        """Append without a stream."""
        self.broker.append({channel: [message]})


class ServerStreamBroker(StreamBroker):
    """A real server."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.factory = AsyncRmqMsgStreamFactory(client)

    async def create(self, name: str) -> str:
        """Create a channel with one vchannel."""
        await self.client.create_channel(name)
        return f"{name}/0"

    async def append(self, channel: str, message: Message) -> None:
        """Append without a stream."""
        await self.client.append(channel, message)


class PulsarStreamBroker(StreamBroker):
    """A real Pulsar. Its topics get ticks; use it with ``async with``."""

    capabilities = AsyncPulsarMsgStreamFactory.capabilities

    def __init__(self, server: PulsarProcess, broker: PulsarBroker) -> None:
        self.broker = broker
        self.factory = AsyncPulsarMsgStreamFactory(broker)
        self._server = server
        self._tickers: list[AsyncTimeTicker] = []
        self._are_ticks_held = False

    @property
    def empty_id(self) -> bytes:
        """The id before any message."""
        return EARLIEST_ID

    def position_after(self, channel: str, sent: Sequence[bytes]) -> MsgPosition:
        """Return a position after the first message; a time-tick stream begins with the message of the id."""
        return MsgPosition(channel, sent[1] if self.needs_ticks else sent[0])

    async def produce_between_ticks(
        self, stream: AsyncMsgStream, messages: Sequence[TsMsg], *, at_once: bool = False
    ) -> None:
        """Hold the ticks while the messages are sent, however long the broker takes."""
        # Ticks of the present are whole milliseconds, and so never between these times.
        begin = present() + (_AHEAD_MS << LOGICAL_BITS) + 1
        for number, message in enumerate(messages):
            message.set_ts(begin if at_once else begin + number)
        self._are_ticks_held = True
        try:
            await stream.produce(MsgPack(msgs=messages))
        finally:
            self._are_ticks_held = False

    def in_order(self, packs: Sequence[MsgPack]) -> Sequence[MsgPack]:
        """Return packs of one message by their topics: each topic is read on its own."""
        if self.needs_ticks:
            return packs
        return sorted(packs, key=lambda each: each.end_positions[0].channel_name)

    async def channels(self, number: int) -> list[str]:
        """Create topics that get ticks."""
        names = await super().channels(number)
        if not self.needs_ticks:
            return names
        ticker = AsyncTimeTicker(self.broker, names, interval_ms=INTERVAL_MS, safe_time=self._safe_time)
        await ticker.start()
        self._tickers.append(ticker)
        return names

    async def create(self, name: str) -> str:
        """Create a topic."""
        topic = self.broker.topic(name)
        await asyncio.to_thread(self._server.create_topic, topic)
        return topic

    async def append(self, channel: str, message: Message) -> None:
        """Append without a stream."""

        def send() -> None:
            producer = self.broker.client().create_producer(channel)
            producer.send(message.payload, properties={"type": str(message.type)})
            producer.close()

        await asyncio.to_thread(send)

    def _safe_time(self) -> int:
        """Return the present, or 0 while ticks are held: each tick is then its predecessor plus one."""
        return 0 if self._are_ticks_held else present()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ticker in self._tickers:
            await ticker.close()
        await self.broker.aclose()


class ThreadedFactory(AsyncMsgStreamFactory):
    """A synchronous factory with calls on threads, so that the same suite runs on it."""

    def __init__(self, factory: MsgStreamFactory) -> None:
        self._factory = factory

    def set_params(self, params: Mapping[str, object]) -> None:
        """Forward the call."""
        self._factory.set_params(params)

    def new_msg_stream(self) -> AsyncMsgStream:
        """Forward the call."""
        return ThreadedStream(self._factory.new_msg_stream())

    def new_tt_msg_stream(self) -> AsyncMsgStream:
        """Forward the call."""
        return ThreadedStream(self._factory.new_tt_msg_stream())

    async def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._factory.dispose, channels, sub_name, destroys_channels=destroys_channels)


class ThreadedStream(AsyncMsgStream):
    """A synchronous stream with calls on threads."""

    def __init__(self, stream: MsgStream) -> None:
        self.dispatcher = stream.dispatcher
        self._stream = stream

    async def start(self) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._stream.start)

    async def close(self) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._stream.close)

    async def as_producer(self, channels: Iterable[str]) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._stream.as_producer, channels)

    async def as_consumer(
        self,
        channels: Iterable[str],
        sub_name: str,
        position: SubscriptionPosition = SubscriptionPosition.EARLIEST,
    ) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._stream.as_consumer, channels, sub_name, position)

    def set_repack_func(self, repack_func: RepackFunc | None) -> None:
        """Forward the call."""
        self._stream.set_repack_func(repack_func)

    def compute_produce_channel_indexes(self, msgs: Iterable[TsMsg]) -> list[list[int]]:
        """Forward the call."""
        return self._stream.compute_produce_channel_indexes(msgs)

    async def produce(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Forward the call."""
        return await asyncio.to_thread(self._stream.produce, pack)

    async def broadcast(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Forward the call."""
        return await asyncio.to_thread(self._stream.broadcast, pack)

    async def consume(self) -> MsgPack:
        """Forward the call."""
        return await asyncio.to_thread(self._stream.consume)

    async def seek(self, positions: Iterable[MsgPosition], *, include_message: bool = False) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._stream.seek, positions, include_message=include_message)

    async def get_latest_msg_id(self, channel: str) -> bytes:
        """Forward the call."""
        return await asyncio.to_thread(self._stream.get_latest_msg_id, channel)

    async def check_topic_valid(self, channel: str) -> None:
        """Forward the call."""
        await asyncio.to_thread(self._stream.check_topic_valid, channel)

    async def chan(self) -> AsyncIterator[MsgPack]:
        """Forward the call."""
        packs = self._stream.chan()
        while (pack := await asyncio.to_thread(next, packs, None)) is not None:
            yield pack


async def full_packs(stream: AsyncMsgStream, messages: int) -> list[MsgPack]:
    """Consume until ``messages`` messages arrived, and return the packs that are not empty."""
    packs: list[MsgPack] = []
    while sum(len(pack.msgs) for pack in packs) < messages:
        pack = await stream.consume()
        packs += [] if pack.is_empty else [pack]
    return packs


async def received(stream: AsyncMsgStream, messages: int) -> list[TsMsg]:
    """Consume and return ``messages`` messages."""
    return [message for pack in await full_packs(stream, messages) for message in pack.msgs]


def pack(*ids: int, key: int = 0) -> MsgPack:
    """Return a pack of inserts with these ids."""
    return MsgPack(msgs=[InsertMsg(id=each, row_ids=[each], hash_keys=[key]) for each in ids])


def ids(messages: Sequence[TsMsg]) -> list[int]:
    """Return the ids of messages."""
    return [message.id for message in messages]


async def ids_from(stream: AsyncMsgStream, messages: int) -> list[int]:
    """Consume ``messages`` messages and return their ids."""
    return ids(await received(stream, messages))


async def subscribed(
    stream: AsyncMsgStream,
    channels: Sequence[str],
    position: SubscriptionPosition = SubscriptionPosition.EARLIEST,
    sub_name: str = "sub",
) -> AsyncMsgStream:
    """Set up a stream to send to channels and receive from them; return it."""
    await stream.as_producer(channels)
    await stream.as_consumer(channels, sub_name, position)
    await stream.start()
    return stream
