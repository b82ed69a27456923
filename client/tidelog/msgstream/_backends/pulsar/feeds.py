"""Reads one topic."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidelog.errors import ClosedError, PositionTrimmedError, TidelogError
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, MessageKey, key_of
from tidelog.msgstream._backends.pulsar.library import error_of, pulsar


@dataclass(frozen=True, slots=True)
class PulsarPlace:
    """Where reading a topic begins.

    Attributes:
        key: A message.
        is_after: Whether reading begins after that message, rather than with it.
        must_exist: Whether the message must still be there, because the subscription retains it.
        time: Time-tick streams: the end of the last pack; -1 without one.
    """

    key: MessageKey = EARLIEST
    is_after: bool = True
    must_exist: bool = False
    time: int = -1


class TopicFeed:
    """Reads one topic; of one event loop. It holds nothing: what is not taken stays with the library.

    Why the asynchronous read of the library, which only its own classes use: it answers within the call while there
    are messages. The blocking read would need a thread, which waits for the interpreter lock at each message while
    the event loop decodes; that was three times slower.
    """

    def __init__(
        self, broker: PulsarBroker, topic: str, place: PulsarPlace, queue_size: int, on_news: Callable[[], None]
    ) -> None:
        """Start to open a reader; ``on_news`` is called on the event loop when there is something to take."""
        self._broker = broker
        self._topic = topic
        self._place = place
        self._queue_size = queue_size
        self._on_news = on_news
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._opened: Any = None
        self._reader: Any = None
        # The answer of the read in progress: its result and message; None until it has come.
        self._answer: tuple[Any, Any] | None = None
        self._is_reading = False
        self._error: TidelogError | None = None
        self._is_first = place.must_exist
        self._succeeded = pulsar().Result.Ok
        self._opening = asyncio.create_task(self._open(), name="tidelog-pulsar-open")

    def take(self, max_messages: int, max_bytes: int) -> list[Any]:
        """Return the messages of the library that have come, until their number or bytes reach a limit.

        Raises:
            TidelogError: The error that ended reading.
        """
        taken: list[Any] = []
        size_bytes = 0
        if self._reader is None:
            if self._error is not None:
                raise self._error
            return taken
        read, answered = self._reader.read_next_async, self._answered
        while len(taken) < max_messages and size_bytes < max_bytes:
            if not self._is_reading:
                self._is_reading = True
                read(answered)
            answer = self._answer
            if answer is None:
                break
            self._is_reading, self._answer = False, None
            result, message = answer
            if result != self._succeeded or self._is_first:
                if not self._check(result, message, taken):
                    break
            else:
                taken.append(message)
                size_bytes += message.length()
        return taken

    async def close(self) -> None:
        """End reading."""
        await asyncio.wait((self._opening,))
        opened, self._opened, self._reader = self._opened, None, None
        if opened is not None:
            # It may have been closed with the broker.
            with suppress(ClosedError):
                await self._broker.run_once(opened.close, "closing a reader", self._topic)

    def _answered(self, result: Any, message: Any) -> None:
        """Take the answer of a read. Must not raise: the library would end the process."""
        if threading.get_ident() == self._thread:
            self._answer = result, message
            return
        # The loop may have been closed meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrived, result, message)

    def _arrived(self, result: Any, message: Any) -> None:
        self._answer = result, message
        self._on_news()

    def _check(self, result: Any, message: Any, taken: list[Any]) -> bool:
        """Handle the first message, or an answer without one; return whether reading continues.

        What came before an error is delivered first.
        """
        error: TidelogError
        if result != self._succeeded:
            error = error_of(result.name, "the read", self._topic)
        else:
            self._is_first = False
            place = self._place
            if key_of(message.message_id()) <= place.key:
                taken += [] if place.is_after else [message]
                return True
            error = PositionTrimmedError(
                f"the message {place.key} of {self._topic}, at which reading resumes, was deleted: check the retention "
                "of its namespace, and seek",
                values={"name": self._topic},
            )
        self._error, self._reader = error, None
        if not taken:
            raise error
        return False

    async def _open(self) -> None:
        place, topic = self._place, self._topic

        def create() -> Any:
            start = pulsar().MessageId.deserialize(place.key.to_bytes())
            return self._broker.client().create_reader(
                topic, start, receiver_queue_size=self._queue_size,
                start_message_id_inclusive=not place.is_after or place.must_exist,
            )  # fmt: skip

        try:
            reader = await self._broker.run_once(create, "opening a reader", topic)
        except TidelogError as error:
            self._error = error
        else:
            self._opened, self._reader = reader, reader._reader  # noqa: SLF001 - see the class
        self._on_news()
