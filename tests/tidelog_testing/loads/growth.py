"""A load of keyed messages on a channel that gets vchannels, and what its readers must have found.

Each producer numbers the messages of its own keys, and divides them by the number of vchannels that it knows; it learns
a new number some time after the growth, as a real one does from an answer.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from tidelog import AsyncClient, AsyncConsumer, AsyncScan, At, ChannelDescription, Message
from tidelog_testing.parts.waiting import until

_PER_APPEND = 3


class Appended(NamedTuple):
    """An acknowledged message."""

    tick: int
    vchannel: str
    key: bytes
    number: int

    @property
    def payload(self) -> bytes:
        """What the message has as payload."""
        return b"%s:%d" % (self.key, self.number)


@dataclass
class GrowthLoad:
    """The producers of a channel, and what they appended.

    Attributes:
        channel: Name of the channel.
        appended: The acknowledged messages.
        is_ending: Set to end the producers.
        of_group: The payloads that the consumers of a group found, by vchannel.
        of_stream: The payloads that a following scan of the channel found.
    """

    client: AsyncClient
    channel: str
    appended: list[Appended] = field(default_factory=list)
    is_ending: bool = False
    of_group: dict[str, list[bytes]] = field(default_factory=dict)
    of_stream: list[bytes] = field(default_factory=list)
    _producers: "list[asyncio.Future[None]]" = field(default_factory=list, init=False)

    async def produce(self, name: str, keys: int = 10) -> None:
        """Append to ``keys`` keys in turn until the load ends; asks for the number of vchannels now and then."""
        numbers: Counter[bytes] = Counter()
        while not self.is_ending:
            described = (await self.client.describe_channels([self.channel]))[0]
            vchannels = len(described.vchannels)
            for index in range(keys):
                key = f"{name}-{index}".encode()
                vchannel = f"{self.channel}/{crc32c(key) % vchannels}"
                first, numbers[key] = numbers[key], numbers[key] + _PER_APPEND
                batch = [Appended(0, vchannel, key, number) for number in range(first, first + _PER_APPEND)]
                result = await self.client.append(vchannel, [Message(each.payload, key=key) for each in batch])
                self.appended += [
                    each._replace(tick=tick)
                    for each, tick in zip(batch, range(result.first_tick, result.last_tick + 1), strict=True)
                ]

    async def until(self, more: int) -> None:
        """Wait until ``more`` messages were appended."""
        wanted = len(self.appended) + more
        async with asyncio.timeout(60):
            while len(self.appended) < wanted:
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def running(self, producers: int) -> AsyncIterator[None]:
        """Run producers, a group of four consumers and a following scan meanwhile."""
        group = f"group-of-{self.channel}"
        await self.client.create_group(group, [self.channel])
        async with AsyncExitStack() as stack:
            joining = [self.client.consumer(group, self.channel) for _ in range(4)]
            consumers = [await stack.enter_async_context(consumer) for consumer in joining]
            stream = await stack.enter_async_context(self.client.tail(self.channel, start=At.earliest()))
            readers = [*map(asyncio.ensure_future, map(self._consume, consumers))]
            readers.append(asyncio.ensure_future(self._follow(stream)))
            self._producers = [asyncio.ensure_future(self.produce(f"p{number}")) for number in range(producers)]
            try:
                yield
            finally:
                for task in (*readers, *self._producers):
                    task.cancel()
                await asyncio.gather(*readers, *self._producers, return_exceptions=True)

    async def _consume(self, consumer: AsyncConsumer) -> None:
        async for batch in consumer:
            self.of_group.setdefault(batch.vchannel, []).extend(batch.payloads)

    async def _follow(self, stream: AsyncScan) -> None:
        async for batch in stream:
            self.of_stream.extend(batch.payloads)

    async def complete(self, *others: Sequence[bytes], within_s: float = 60.0) -> None:
        """End the producers, and wait until the readers, and those of ``others``, have found as much as they sent."""
        self.is_ending = True
        await asyncio.gather(*self._producers)
        total = len(self.appended)
        await until(
            lambda: min(sum(map(len, self.of_group.values())), *map(len, (self.of_stream, *others))) >= total, within_s
        )

    def check_readers(self) -> None:
        """Check what the group and the following scan found."""
        self.check_complete(self.of_stream)
        self.check_order_of_keys(self.of_stream)
        self.check_complete(payload for found in self.of_group.values() for payload in found)
        self.check_order_within_vchannels(self.of_group)

    def check_separated(self, described: ChannelDescription) -> None:
        """Check that the ticks of growths separate the messages: those on added vchannels are all above them."""
        assert described.growths
        for growth in described.growths:
            added = {each.name for each in described.vchannels[growth.vchannels :]}
            later = [each for each in self.appended if each.vchannel in added]
            assert later
            assert min(each.tick for each in later) > growth.tick
            # Before the growth no producer can have known the new number.
            assert all(each.vchannel not in added for each in self.appended if each.tick <= growth.tick)

    def check_complete(self, payloads: Iterable[bytes]) -> None:
        """Check that a reader has found each message once."""
        assert Counter(payloads) == Counter(each.payload for each in self.appended)

    def check_order_of_keys(self, payloads: Sequence[bytes]) -> None:
        """Check that a reader in tick order has found the messages of each key in their order, across growths."""
        numbers: dict[bytes, list[int]] = {}
        for payload in payloads:
            key, _, number = payload.rpartition(b":")
            numbers.setdefault(key, []).append(int(number))
        assert all(found == sorted(found) for found in numbers.values())

    def check_order_within_vchannels(self, found: Mapping[str, Sequence[bytes]]) -> None:
        """Check that a reader of single vchannels has found the messages of each key in order on each vchannel.

        So the order of a key holds for what was appended before a growth, and for what was appended after it.
        """
        for payloads in found.values():
            self.check_order_of_keys(payloads)
