"""One consumer group on one channel, as used by this process."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from tidelog import AsyncClient, Consumed, ConsumeForgottenError, OnEvent, TidelogError
from tidelog.read.reader_events import WAITING_AFTER_S
from tidelog.read.reader_watch import ReaderWatch, patiently
from tidelog.rocksmq._behind import transport_behind
from tidelog.rocksmq._loop_lock import LoopLock
from tidelog.rocksmq._messages import ConsumerMessage

# Limit of the client and the server.
_MAX_MESSAGES: Final = 100_000
_MAX_BYTES: Final = 4 << 20
_MAX_WAIT_S: Final = 60.0
# A consume_id: the upper bits identify the caller, the lower ones number its calls.
_CALLER_BITS: Final = 40
_CALL_BITS: Final = 24


class _Call(NamedTuple):
    """A call of ``Consume``; its number makes a repeated call idempotent."""

    consume_id: int
    max_messages: int


class Lane:
    """Consumes, and waits for messages, on one channel for one group.

    Consuming moves the position before the messages arrive. So that a lost connection, a timeout or a cancelled caller
    loses no answer, an unanswered call is repeated, under its number, before the next one.
    """

    def __init__(self, client: AsyncClient, group: str, vchannel: str, on_event: OnEvent | None = None) -> None:
        self._client = client
        self._group = group
        self._vchannel = vchannel
        self._watch = ReaderWatch(on_event)
        self._watch.reads([vchannel])
        # Held while consuming or seeking: at most one call is unanswered, and no call overtakes it.
        self._turn = LoopLock()
        self._unanswered: _Call | None = None
        self._last_consume_id = -1
        # Number of the call of which an earlier attempt may have reached the server.
        self._may_have_arrived: int | None = None
        # Messages that a repeated call returned beyond what the next caller asked for; at most one call's result.
        self._left: deque[ConsumerMessage] = deque()
        # One per wait: an event belongs to one event loop, and this object may outlive it.
        self._waiting: set[asyncio.Event] = set()
        self._is_notified = False

    async def consume(self, n: int) -> list[ConsumerMessage]:
        """Return the next messages, up to ``n``, with the position durably past them. Raises as ``client.consume``."""
        async with self._turn.here():
            if not self._left:
                self._left.extend(await self._next(n))
            return [self._left.popleft() for _ in range(min(n, len(self._left)))]

    async def _next(self, n: int) -> list[ConsumerMessage]:
        before = self._unanswered
        call = before or _Call(self._next_consume_id(), min(n, _MAX_MESSAGES))
        self._unanswered = call
        try:
            consumed = await patiently(
                self._watch, self, transport_behind(self._client), lambda: self._ask(call)
            )  # fmt: skip
        except ConsumeForgottenError:
            # A repeated call would be refused again; the caller must find out what the first one consumed.
            self._unanswered = None
            raise
        except TidelogError as error:
            if error.effect == "none" and before is None:
                self._unanswered = None
            raise
        self._unanswered = None
        return [ConsumerMessage.of(message) for message in consumed.messages]

    async def _ask(self, call: _Call) -> Consumed:
        """Make a call; it is marked as repeated if an earlier attempt may have reached the server."""
        try:
            return await self._client.consume(
                self._group, self._vchannel, call.max_messages, commit=True, max_bytes=_MAX_BYTES,
                consume_id=call.consume_id, is_repeated=self._may_have_arrived == call.consume_id,
            )  # fmt: skip
        except TidelogError as error:
            if error.effect == "unknown":
                self._may_have_arrived = call.consume_id
            raise
        except asyncio.CancelledError:
            self._may_have_arrived = call.consume_id
            raise

    def _next_consume_id(self) -> int:
        """Return a unique number by which the server identifies calls of this object."""
        if not (self._last_consume_id + 1) & ((1 << _CALL_BITS) - 1):
            # The first call, or all numbers of this caller are used.
            self._last_consume_id = secrets.randbits(_CALLER_BITS) << _CALL_BITS
        self._last_consume_id += 1
        return self._last_consume_id

    async def wait(self, timeout_s: float | None) -> bool:
        """Return True once there is something to consume; False after ``timeout_s``, or a ``notify``.

        The server compares the position with the log, so earlier messages are noticed too.
        """
        if self._left or self._unanswered is not None:
            return True
        if self._is_notified:
            self._is_notified = False
            return False
        clock = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else clock() + timeout_s
        event = asyncio.Event()
        self._waiting.add(event)
        notified = asyncio.create_task(event.wait(), name="tidelog-rocksmq-notified")
        try:
            while True:
                wait_s = _MAX_WAIT_S if deadline is None else min(_MAX_WAIT_S, max(0.0, deadline - clock()))
                found = await self._find(wait_s, notified)
                if found:
                    return True
                if notified.done():
                    return False
                if deadline is not None and clock() >= deadline:
                    return False
        finally:
            self._waiting.discard(event)
            notified.cancel()

    async def _find(self, wait_s: float, notified: "asyncio.Task[bool]") -> int:
        """Return how many messages became available within this time, 0 or 1, without consuming them."""
        looking: asyncio.Task[Consumed] = asyncio.create_task(self._look(wait_s), name="tidelog-rocksmq-wait")
        try:
            await asyncio.wait((looking, notified), return_when=asyncio.FIRST_COMPLETED)
            return len(looking.result()) if looking.done() else 0
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, wait_s: float) -> Consumed:
        transport = transport_behind(self._client)
        return await patiently(
            self._watch, asyncio.current_task(), transport,
            lambda: self._client.consume(self._group, self._vchannel, 1, wait_s=wait_s, max_bytes=1),
            # Allows time to connect, however short the wait.
            min(max(wait_s, WAITING_AFTER_S), transport.retry.give_up_s),
        )  # fmt: skip

    def notify(self) -> None:
        """End one wait: a running one, or the next."""
        self._is_notified = not self._waiting
        for event in self._waiting:
            event.set()

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Block consumption by this process meanwhile; afterwards, deliver nothing from before."""
        async with self._turn.here():
            yield
            self._unanswered = None
            self._left.clear()
