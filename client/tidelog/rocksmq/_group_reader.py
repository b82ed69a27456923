"""One consumer group on one channel, as used by this process."""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from tidelog import (
    AsyncClient,
    At,
    ClosedError,
    Consumed,
    ConsumeForgottenError,
    GroupNotSubscribedError,
    OnEvent,
    Tick,
    TidelogError,
)
from tidelog.read.reader_events import WAITING_AFTER_S
from tidelog.read.reader_watch import ReaderWatch, patiently
from tidelog.rocksmq._loop_lock import LoopLock
from tidelog.rocksmq._messages import ConsumerMessage, MessageNotFoundError
from tidelog.transport.transport import Transport

# Limit of the client and the server.
_MAX_MESSAGES: Final = 100_000
_MAX_BYTES: Final = 4 << 20
_MAX_WAIT_S: Final = 60.0
# A consume_id: the upper bits identify the caller, the lower ones number its calls.
_CALLER_BITS: Final = 40
_CALL_BITS: Final = 24

_Result = TypeVar("_Result")


class _Call(NamedTuple):
    """A call of ``Consume``; its number makes a repeated call idempotent."""

    consume_id: int
    max_messages: int


class GroupReader:
    """Consumes, waits for messages, and moves the position, on one channel for one group.

    Consuming moves the position before the messages arrive. So that a lost connection, a timeout or a cancelled caller
    loses no answer, an unanswered call is repeated, under its number, before the next one. A group without a position
    on the channel is subscribed first. A closed reader raises ClosedError.
    """

    def __init__(self, client: AsyncClient, group: str, channel: str, on_event: OnEvent | None = None) -> None:
        self._client = client
        self._group = group
        self._channel = channel
        self._vchannel = f"{channel}/0"
        self._watch = ReaderWatch(on_event)
        self._watch.reads([self._vchannel])
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
        self._is_closed = False

    async def consume(self, n: int, wait_s: float) -> list[ConsumerMessage]:
        """Return the next messages, up to ``n``, with the position durably past them. Raises as ``client.consume``."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        while True:
            messages = await self._subscribed(lambda: self._consume(n))
            if messages or clock() >= deadline:
                return messages
            is_available = await self._wait(deadline - clock())
            self._check_open()
            if not is_available:
                return []

    async def wait(self, timeout_s: float | None) -> bool:
        """Return True once there is something to consume; False after ``timeout_s``, or a ``notify``."""
        is_available = await self._subscribed(lambda: self._wait(timeout_s))
        self._check_open()
        return is_available

    async def seek(self, to: At, *, must_exist: Tick | None = None) -> None:
        """Durably move the position; this process consumes nothing meanwhile, and later nothing from before.

        Raises:
            MessageNotFoundError: No message has the tick ``must_exist``, nor has the last message the previous one.
        """
        async with self._turn.here():
            if must_exist is not None:
                await self._check_message(must_exist)
            await self._subscribed(lambda: self._client.seek_group(self._group, to, self._channel))
            self._unanswered = None
            self._left.clear()

    def notify(self) -> None:
        """End one wait: a running one, or the next."""
        self._is_notified = not self._waiting
        for event in self._waiting:
            event.set()

    def close(self) -> None:
        """End waiting calls with ClosedError."""
        self._is_closed = True
        self.notify()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the queues are closed: create a new object")

    async def _subscribed(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return what ``call`` returns, after subscribing the group to the channel if it has no position there."""
        try:
            return await call()
        except GroupNotSubscribedError:
            await self._client.subscribe_group(self._group, self._channel)
            return await call()

    async def _consume(self, n: int) -> list[ConsumerMessage]:
        async with self._turn.here():
            if not self._left:
                self._left.extend(await self._next(n))
            return [self._left.popleft() for _ in range(min(n, len(self._left)))]

    async def _next(self, n: int) -> list[ConsumerMessage]:
        before = self._unanswered
        call = before or _Call(self._next_consume_id(), min(n, _MAX_MESSAGES))
        self._unanswered = call
        try:
            consumed = await patiently(self._watch, self, self._transport, lambda: self._ask(call))
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

    async def _wait(self, timeout_s: float | None) -> bool:
        """Wait as ``wait``. The server compares the position with the log, so it reports earlier messages too."""
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
                is_available = await self._is_available_within(wait_s, notified)
                if is_available:
                    return True
                if notified.done() or (deadline is not None and clock() >= deadline):
                    return False
        finally:
            self._waiting.discard(event)
            notified.cancel()

    async def _is_available_within(self, wait_s: float, notified: "asyncio.Task[bool]") -> bool:
        """Return whether a message became available within this time, without consuming it."""
        looking = asyncio.create_task(self._look(wait_s), name="tidelog-rocksmq-wait")
        try:
            await asyncio.wait((looking, notified), return_when=asyncio.FIRST_COMPLETED)
            return looking.done() and bool(len(looking.result()))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, wait_s: float) -> Consumed:
        transport = self._transport
        return await patiently(
            self._watch, asyncio.current_task(), transport,
            lambda: self._client.consume(self._group, self._vchannel, 1, wait_s=wait_s, max_bytes=1),
            # Allows time to connect, however short the wait.
            min(max(wait_s, WAITING_AFTER_S), transport.retry.give_up_s),
        )  # fmt: skip

    async def _check_message(self, tick: Tick) -> None:
        """Return if a message has this tick, or the last message has the previous one. Raises as ``seek``."""
        async with self._client.scan(self._vchannel, start=At.tick(tick), until=At.inside(tick + 1)) as scan:
            async for _ in scan:
                return
        [described] = await self._client.describe_channels([self._channel])
        last_tick = described.vchannels[0].last_tick
        if tick != last_tick + 1:
            raise MessageNotFoundError(
                f"channel '{self._channel}' has no message with the id {tick}, its last one is {last_tick}: "
                "seek to the id of one of its messages, or use force_seek",
                values={"msg_id": str(tick), "last_msg_id": str(last_tick), "vchannel": self._vchannel},
            )

    @property
    def _transport(self) -> Transport:
        """The open connections of the client. Raises ClosedError."""
        return self._client._transport()  # noqa: SLF001 - queues wait for the server as the client's own readers do
