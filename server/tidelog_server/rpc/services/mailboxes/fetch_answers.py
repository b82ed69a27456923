"""Answers of Operate to fetches: with the bodies of the messages, for which memory is reserved."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol

from tidelog_server.core.errors import RateLimitRejectedError, TidelogServerError
from tidelog_server.core.limits import MAX_DELIVERED_BODY_BYTES
from tidelog_server.log.scan.read_budget import ReadMemory
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Fetched
from tidelog_server.rpc.services.mailboxes.answers import error_answer, fetched_answer, fetched_answer_of_events
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls

# Approximate memory of a delivery in addition to its body.
_DELIVERY_BYTES: Final = 128


class Slot(NamedTuple):
    """An operation that was not answered yet.

    Attributes:
        number: Its number.
        size_bytes: Memory of its request.
    """

    number: int
    size_bytes: int


class Add(Protocol):
    """Queues an answer to be written."""

    def __call__(self, encoded: bytes, slot: Slot, taken_bytes: int = 0) -> None:
        """Queue ``encoded``, the answer to ``slot``; the memory reserved for it is released once it is written."""
        ...


class FetchAnswers:
    """Answers the fetches of one stream.

    Bodies are read only when there is memory for them, within that of all readers of the node. Fetches that find none
    are answered in order as the client reads earlier answers; their messages are under leases meanwhile.
    """

    def __init__(
        self, calls: MessageCalls, memory: ReadMemory, add: Add, start: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        """``start`` runs a coroutine as part of the call."""
        self._calls = calls
        self._memory = memory
        self._add = add
        self._start = start
        self._starved: deque[tuple[Slot, Mailbox, Fetched]] = deque()
        self._written = asyncio.Event()

    def put(self, slot: Slot, mailbox: Mailbox, fetched: Fetched) -> None:
        """Answer a fetch as soon as there is memory for its bodies."""
        if not fetched.grants:
            self._add(fetched_answer(slot.number, fetched, {}, self._calls.name_of), slot)
        elif self._starved or not self._memory.try_take(_size_of(fetched)):
            self._starved.append((slot, mailbox, fetched))
            if len(self._starved) == 1:
                self._start(self._serve_starved())
        else:
            self._read(slot, mailbox, fetched)

    def note_written(self, taken_bytes: int) -> None:
        """Release the memory of answers that were written."""
        if taken_bytes:
            self._memory.give_back(taken_bytes)
        self._written.set()

    def close(self) -> None:
        """Release all memory, and give back messages whose bodies were not read. Nothing is put after this."""
        self._memory.close()
        for _, mailbox, fetched in self._starved:
            mailbox.give_back((fetched,))
        self._starved.clear()

    async def _serve_starved(self) -> None:
        while self._starved:
            slot, mailbox, fetched = self._starved[0]
            try:
                await self._take(_size_of(fetched))
            except RateLimitRejectedError as error:
                # The messages stay under their leases, and are delivered again.
                self._add(error_answer(slot.number, error), slot)
            else:
                self._read(slot, mailbox, fetched)
            self._starved.popleft()

    async def _take(self, size_bytes: int) -> None:
        """Wait for memory. Raises RateLimitRejectedError if other calls of the reader hold it for too long."""
        while not self._memory.try_take(size_bytes):
            if self._memory.holds_nothing:
                await self._memory.take(size_bytes)
                return
            self._written.clear()
            await self._written.wait()

    def _read(self, slot: Slot, mailbox: Mailbox, fetched: Fetched) -> None:
        """Answer a fetch for which memory is reserved, at once if the bodies are in memory."""
        try:
            events = self._calls.events_in_memory(mailbox, fetched)
            if events is None:
                self._start(self._read_from_store(slot, mailbox, fetched))
                return
            answer = fetched_answer_of_events(slot.number, fetched, events, self._calls.name_of)
        except TidelogServerError as error:
            answer = error_answer(slot.number, error)
        self._add(answer, slot, _size_of(fetched))

    async def _read_from_store(self, slot: Slot, mailbox: Mailbox, fetched: Fetched) -> None:
        try:
            messages = await self._calls.messages(mailbox, fetched)
            answer = fetched_answer(slot.number, fetched, messages, self._calls.name_of)
        except TidelogServerError as error:
            answer = error_answer(slot.number, error)
        except asyncio.CancelledError:
            # The client has left before it received a message.
            mailbox.give_back((fetched,))
            raise
        self._add(answer, slot, _size_of(fetched))


def _size_of(fetched: Fetched) -> int:
    """Return the memory of the answer to a fetch."""
    bodies = sum(min(grant.size_bytes, MAX_DELIVERED_BODY_BYTES) for grant in fetched.grants)
    return bodies + _DELIVERY_BYTES * len(fetched.grants)
