"""Sends messages to one topic, in order."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.errors import TidelogError
from tidelog.message import Message
from tidelog.msgstream._backends.pulsar.ids import ids_of_pack, key_of
from tidelog.msgstream._backends.pulsar.library import error_of, pulsar
from tidelog.msgstream._backends.pulsar.packs import sendables

MAX_IN_FLIGHT_BYTES: Final = 16 << 20
"""Bytes of a topic that wait for the broker, beyond which a call waits; one pack may be larger."""


class Sent(NamedTuple):
    """The outcome of a call for one topic.

    Attributes:
        ids: Ids of the messages that the broker has, in order.
        error: Why the others failed; None if all were sent.
    """

    ids: list[bytes]
    error: TidelogError | None


class TopicProducer:
    """A producer of one topic; of one event loop."""

    def __init__(self, producer: Any, topic: str, pack_bytes: int) -> None:
        self._producer = producer
        self._topic = topic
        self._pack_bytes = pack_bytes
        self._bytes = 0
        self._has_room = asyncio.Event()
        # Held by one call at a time while it hands its messages to the library, so that calls do not mix.
        self._turn = asyncio.Lock()

    async def send(self, messages: Sequence[Message], times: Sequence[int]) -> Sent:
        """Send messages with their times, 0 for none; return once the broker has persisted them."""
        size_bytes = sum(len(each.payload) for each in messages)
        async with self._turn:
            while self._bytes and self._bytes + size_bytes > MAX_IN_FLIGHT_BYTES:
                self._has_room.clear()
                await self._has_room.wait()
            self._bytes += size_bytes
            packs = list(sendables(messages, times, self._pack_bytes))
            receipts = _Receipts([each.number for each in packs])
            for index, each in enumerate(packs):
                self._producer.send_async(each.content, partial(receipts.add, index), properties=each.properties)
        try:
            await receipts.came.wait()
        finally:
            self._bytes -= size_bytes
            self._has_room.set()
        return receipts.sent(self._topic)


class _Receipts:
    """The broker's answers, which come on a thread of the library; ``came`` is set once all have."""

    def __init__(self, numbers: Sequence[int]) -> None:
        """Await an answer for each of Pulsar's messages, from the number in its pack, 0 for a message on its own."""
        self._numbers = numbers
        self._loop = asyncio.get_running_loop()
        self.came = asyncio.Event()
        self._found: list[tuple[Any, Any]] = [(None, None)] * len(numbers)
        # One item for each answer: the length of a list is safe to read from several threads.
        self._answers: list[None] = []

    def add(self, index: int, result: Any, message_id: Any) -> None:
        """Record an answer. Must not raise: the library would end the process."""
        self._found[index] = result, message_id
        self._answers.append(None)
        if len(self._answers) == len(self._found):
            # The loop may have been closed meanwhile.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.came.set)

    def sent(self, topic: str) -> Sent:
        succeeded = pulsar().Result.Ok
        ids: list[bytes] = []
        for (result, found), number in zip(self._found, self._numbers, strict=True):
            if result == succeeded:
                key = key_of(found)
                ids += ids_of_pack(key, number) if number else [key.to_bytes()]
        failed = dict.fromkeys(result.name for result, _ in self._found if result != succeeded)
        errors = [error_of(name, "the send to a topic", topic, is_send=True) for name in failed]
        # If the outcome of one message is unknown, that of all is.
        errors.sort(key=lambda error: error.effect == "none")
        return Sent(ids, errors[0] if errors else None)
