"""Backend of streams on Pulsar."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tidelog.errors import ChannelNotFoundError, ClosedError, InvalidRequestError, TidelogError
from tidelog.message import Message
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, MessageKey
from tidelog.msgstream._backends.pulsar.library import pulsar
from tidelog.msgstream._backends.pulsar.packs import last_key_of
from tidelog.msgstream._backends.pulsar.producers import Sent, TopicProducer
from tidelog.msgstream._errors import PartialProduceError

_READ_MS = 30_000
# Tags and lengths of the lists of a pack, at most; the properties do not count.
_PACK_HEADER_BYTES = 32


class PulsarBackend:
    """Backend on a Pulsar broker; of one event loop."""

    def __init__(self, broker: PulsarBroker, pack_bytes: int = 0) -> None:
        """Create a backend; see ``StreamSettings`` for ``pack_bytes``."""
        self.broker = broker
        self._pack_bytes = pack_bytes
        self._producers: dict[str, asyncio.Task[TopicProducer]] = {}
        self._opened: list[Any] = []

    async def resolve(self, channels: Iterable[str]) -> list[str]:
        """Return the full names of topics; see ``Backend``."""
        return list(await asyncio.gather(*(self._resolve(name) for name in channels)))

    async def append(
        self, parts: Mapping[str, Sequence[Message]], times: Mapping[str, Sequence[int]] | None = None
    ) -> Mapping[str, Sequence[bytes]]:
        """Send the messages of each topic, in their order, and return their ids.

        Args:
            parts: Messages by topic.
            times: The time of each message; 0 without one.

        Raises:
            PartialProduceError: Several topics, or some messages of one, failed; others were sent.
            TidelogError: Nothing was sent.
        """
        sending = asyncio.create_task(self._append(parts, times or {}), name="tidelog-pulsar-send")
        # A caller that was cancelled does not see the error; asyncio would log it.
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Cancelling ends the wait only: what was begun cannot be taken back.
        return await asyncio.shield(sending)

    async def last_id(self, channel: str) -> bytes:
        """Return the id of the last message of a topic; see ``Backend``."""
        return (await self.last_key(channel)).to_bytes()

    async def last_key(self, topic: str) -> MessageKey:
        """Return the key of the last available message of a topic, or EARLIEST."""
        return await self.broker.run(lambda: self._read_last_key(topic), "reading the last message", topic)

    async def destroy(self, channels: Iterable[str]) -> None:
        """Delete topics; missing ones are skipped. Raises StreamStateError without ``admin_url``."""
        admin = self.broker.admin("destroying topics")
        for name in channels:
            topic = self.broker.topic(name)
            await self.broker.run(partial(admin.delete_topic, topic), "the delete", topic)

    async def aclose(self) -> None:
        """Close the producers."""
        producers, self._producers = self._producers, {}
        await asyncio.gather(*producers.values(), return_exceptions=True)
        opened, self._opened = self._opened, []
        for each in opened:
            # That of a topic that was deleted is closed.
            with suppress(ClosedError):
                await self.broker.run_once(each.close, "closing a producer")

    async def _resolve(self, name: str) -> str:
        topic = self.broker.topic(name)
        found = await self.broker.run(
            lambda: self.broker.client().get_topic_partitions(topic), "finding a topic", topic
        )
        if len(found) > 1:
            raise InvalidRequestError(
                f"{topic} has {len(found)} partitions: name one, such as {found[0]}", values={"name": name}
            )
        return topic

    async def _append(
        self, parts: Mapping[str, Sequence[Message]], times: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Sequence[bytes]]:
        results = await asyncio.gather(
            *(self._send(topic, messages, times.get(topic)) for topic, messages in parts.items())
        )
        sent = {topic: result.ids for topic, result in zip(parts, results, strict=True)}
        errors = {topic: each.error for topic, each in zip(parts, results, strict=True) if each.error is not None}
        if not errors:
            return sent
        # If one is unknown, the effect of all is.
        first = next((each for each in errors.values() if each.effect == "unknown"), next(iter(errors.values())))
        if not any(sent.values()):
            raise first
        raise PartialProduceError({topic: ids for topic, ids in sent.items() if ids}, errors) from first

    async def _send(self, topic: str, messages: Sequence[Message], times: Sequence[int] | None) -> Sent:
        try:
            producer = await self._producer(topic)
        except TidelogError as error:
            return Sent([], error)
        sent = await producer.send(messages, times or [0] * len(messages))
        if isinstance(sent.error, ClosedError | ChannelNotFoundError):
            # The topic was deleted, and may have been created again: the next call opens a producer.
            self._producers.pop(topic, None)
        return sent

    async def _producer(self, topic: str) -> TopicProducer:
        opening = self._producers.get(topic)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._producers[topic] = asyncio.create_task(self._open(topic))
        return await asyncio.shield(opening)

    async def _open(self, topic: str) -> TopicProducer:
        producer = await self.broker.run(
            lambda: self.broker.client().create_producer(
                topic, batching_enabled=True, batching_max_publish_delay_ms=1, max_pending_messages=0,
            ),
            "opening a producer", topic,
        )  # fmt: skip
        self._opened.append(producer)
        greeting = self.broker.greeting
        assert greeting is not None
        # A pack must not be refused whose messages are accepted one by one.
        return TopicProducer(producer, topic, min(self._pack_bytes, greeting.max_message_bytes - _PACK_HEADER_BYTES))

    def _read_last_key(self, topic: str) -> MessageKey:
        library = pulsar()
        reader = self.broker.client().create_reader(topic, library.MessageId.latest, start_message_id_inclusive=True)
        try:
            if not reader.has_message_available():
                return EARLIEST
            return last_key_of(reader.read_next(timeout_millis=_READ_MS))
        finally:
            reader.close()
