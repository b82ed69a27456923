"""What an iterator of a worker holds: the delivery that it returned last, which its next call confirms."""

import asyncio
from typing import Any, Generic, TypeVar

from tidelog.mailboxes.feed import DeliveryFeed

WorkerT = TypeVar("WorkerT")


class Iteration:
    """The steps of one iterator, on the event loop of the feed. Asynchronous and synchronous iterators share it.

    Invariant: ``_current`` is what the iterator returned last, so only the next call of the same iterator confirms it.
    No rule depends on the task or the thread of a call.
    """

    def __init__(self, feed: DeliveryFeed) -> None:
        self.feed = feed
        self._current: Any = None
        self._confirming: asyncio.Task[None] | None = None
        self._is_asked = False

    async def take(self) -> Any:
        """Confirm the current delivery, and return another one; None once the feed is stopping.

        Raises:
            RuntimeError: Another call waits for a delivery.
            TidelogError: The mailbox cannot be fetched from, or refuses acknowledgements.
        """
        if self._is_asked:
            raise RuntimeError(
                "another call waits for the next delivery of this iterator: give each task and thread an iterator of "
                "its own, with aiter(worker) or iter(worker)"
            )
        self._is_asked = True
        try:
            await self._confirm()
            return await self.feed.take()
        finally:
            self._is_asked = False

    def hand_out(self, delivery: Any) -> None:
        """Record that the iterator returns a delivery that it has taken."""
        self._current = delivery

    def leave(self) -> None:
        """Give the current delivery back to the mailbox in the background. From any thread, and from finalizers."""
        if self._current is not None:
            self.feed.give_back_soon((self._current,))

    async def _confirm(self) -> None:
        """Confirm the current delivery; a cancellation of the caller does not interrupt that."""
        if self._current is not None:
            self._confirming = self.feed.begin_settle(self._current, "ack")
            self._current = None
        if (confirming := self._confirming) is not None:
            try:
                await asyncio.shield(confirming)
            finally:
                if confirming.done():
                    self._confirming = None


class WorkerIterator(Generic[WorkerT]):
    """An iterator of a worker, without its iteration. It keeps its worker, which may have no other owner."""

    def __init__(self, worker: WorkerT) -> None:
        self._iteration: Iteration | None = None
        self._worker = worker

    def __del__(self) -> None:
        if self._iteration is not None:
            self._iteration.leave()
