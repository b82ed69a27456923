"""What all producers have: memory for what is not acknowledged, and the first failure, which stops them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from tidelog.append.queue import Submission
from tidelog.append.sizes import Appendable
from tidelog.errors import TidelogError, copy_of
from tidelog.types import AppendResult, TransactionResult

_NO_LOCK: Final = nullcontext()


class Room:
    """The memory that messages of any number of producers may occupy, from their acceptance to the answer.

    Attributes:
        limit_bytes: Maximum number of bytes.
        used_bytes: Bytes in use.
    """

    __slots__ = ("_freed", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._freed = asyncio.Event()

    def has(self, size_bytes: int) -> bool:
        """Return whether ``size_bytes`` may be added: any number of them, if nothing else is there."""
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes

    def free(self, size_bytes: int) -> None:
        """Record that ``size_bytes`` are settled; on the event loop."""
        self.used_bytes -= size_bytes
        self._freed.set()

    async def freed(self) -> None:
        """Return once something was settled."""
        self._freed.clear()
        await self._freed.wait()


@dataclass(slots=True, eq=False)
class ProducerBatch(Submission):
    """A batch of a producer; the future is for any number of callers, which may cancel it.

    Attributes:
        messages: Its messages.
        sender: The producer's sender.
        on_answer: Called first with the batch and its error, None if it is in the log. If it returns True, the batch
            does not fail: it will be sent again.
        on_settled: Called with the number of messages and the error once it is settled; None if nothing measures it.
    """

    messages: list[Appendable]
    sender: "Sender[Any]" = field(kw_only=True)
    on_answer: "Callable[[ProducerBatch, TidelogError | None], bool] | None" = field(kw_only=True, default=None)
    on_settled: Callable[[int, TidelogError | None], None] | None = field(kw_only=True, default=None)

    def succeed(self, result: AppendResult | TransactionResult | None) -> None:
        """Tell the sender first: callers in other threads act on the future at once."""
        self._is_taken_back(None)
        self.sender.settled(self)
        # A caller in another thread may cancel the future at any time.
        with suppress(InvalidStateError):
            Submission.succeed(self, result)

    def fail(self, error: TidelogError) -> None:
        """Fail, and with it all that is not sent."""
        if self.is_abandoned:
            # It has failed, and lies in the queue still.
            return
        if self._is_taken_back(error):
            return
        self.sender.settled(self, error)
        with suppress(InvalidStateError):
            Submission.fail(self, error)
        if not self.future.cancelled():
            # Marks the exception as retrieved: a caller that does not wait finds the failure with its next call.
            self.future.exception()

    def _is_taken_back(self, error: TidelogError | None) -> bool:
        on_answer, self.on_answer = self.on_answer, None
        return on_answer is not None and on_answer(self, error)


Batch = TypeVar("Batch", bound=ProducerBatch)


class Sender(Generic[Batch]):
    """The batches of one producer, from the first message to the answer. The first failure stops it.

    Nothing is sent after the failure, so nothing follows the gap. On the event loop, except ``begin``.

    Attributes:
        room: Memory, which senders may share.
        gathering: The batch that takes messages; None if the next one begins another.
        failure: What stopped it; None while it works.
        refusal: The first message that the server refused alone, until the producer has reported it.
        lock: Guards the batch that gathers, and the room, if messages are added in other threads.
    """

    def __init__(
        self, room: Room, stopped: Callable[[], TidelogError], lock: AbstractContextManager[Any] = _NO_LOCK
    ) -> None:
        """Create an idle sender.

        Args:
            room: Memory, which senders may share.
            stopped: Returns the error of what is not sent because of the failure.
            lock: See the class.
        """
        self.room = room
        self.gathering: Batch | None = None
        self.failure: TidelogError | None = None
        self.refusal: TidelogError | None = None
        self.lock = lock
        self._stopped = stopped
        self._unsettled: deque[Batch] = deque()

    @property
    def is_settled(self) -> bool:
        """Whether every message is acknowledged or has failed."""
        return not self._unsettled

    def begin(self, batch: Batch) -> None:
        """Let ``batch`` gather messages, after all others."""
        self.gathering = batch
        self._unsettled.append(batch)

    def replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Let the parts of a batch that was divided stand in its place; they have its size."""
        with self.lock:
            place = self._unsettled.index(batch)
            del self._unsettled[place]
            for part in reversed(parts):
                self._unsettled.insert(place, part)

    def settled(self, batch: Batch, error: TidelogError | None = None) -> None:
        """Record that ``batch`` was answered, or has failed with ``error``: it occupies no memory any more."""
        with self.lock:
            self._unsettled.remove(batch)
            self.room.free(batch.size_bytes + batch.growing_bytes)
        if batch.on_settled is not None:
            batch.on_settled(batch.count, error)
        if batch.refused and self.refusal is None:
            self.refusal = copy_of(next(iter(batch.refused.values())))
        if error is not None:
            self.stop(error)

    def stop(self, error: TidelogError) -> None:
        """Stop at the first failure, and fail what is not sent, which never will be."""
        with self.lock:
            if self.failure is not None:
                return
            self.failure = error
            self.gathering = None
            unsent = [batch for batch in self._unsettled if not batch.is_sent]
        for batch in unsent:
            batch.fail(self._stopped())
            batch.is_abandoned = True
