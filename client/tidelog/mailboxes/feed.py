"""The deliveries of a worker: fetches them ahead, extends their leases, and returns them when the worker ends."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Literal, Protocol

from tidelog.errors import (
    AlreadyAcknowledgedError,
    ClosedError,
    DeadlineError,
    LockError,
    TidelogError,
    UnavailableError,
    copy_of,
)
from tidelog.mailboxes.deliveries import DeliveryCalls, DeliveryFields
from tidelog.mailboxes.errors import DeliveriesRefusedError, UnsettledDeliveriesError
from tidelog.mailboxes.leases import LeaseTable
from tidelog.mailboxes.types import duration_ms
from tidelog.transport.patience_scope import answer_by
from tidelog.transport.retry import Retry, retry_after_s
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.durations import Duration

_log: Final = logging.getLogger("tidelog")
How = Literal["ack", "reject", "return"]
"""How a delivery ends: confirmed, rejected with back-off, or rejected without delay."""
_WAIT_S: Final = 20.0
# Pause after a failed extension, as a part of the period between extensions.
_AGAIN: Final = 0.1
_MAX_FETCH: Final = 1_000
DEFAULT_CONCURRENCY: Final = 8
DEFAULT_LEASE: Final = timedelta(seconds=30)
_MAX_CONCURRENCY: Final = 10_000


class WorkerSettings:
    """The options of a worker, checked."""

    def __init__(
        self, *, concurrency: int = DEFAULT_CONCURRENCY, lease: Duration = DEFAULT_LEASE, prefetch: int = 0
    ) -> None:
        """Check the options. Raises ValueError if one is out of range."""
        self.concurrency = concurrency
        self.prefetch = prefetch
        self.lease_s = duration_ms("lease", lease) / 1_000
        if not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise ValueError(f"concurrency is {concurrency}, expected 1 to {_MAX_CONCURRENCY}")
        if not 0 <= self.prefetch <= _MAX_CONCURRENCY:
            raise ValueError(f"prefetch is {prefetch}, expected 0 to {_MAX_CONCURRENCY}")
        if self.lease_s < 0.01:
            raise ValueError(f"the lease is {self.lease_s} s, expected at least 0.01")


class FeedMailbox(DeliveryCalls, Protocol):
    """What a feed uses of AsyncMailbox."""

    name: str
    retry: Retry

    async def fetch_response(
        self, max_messages: int, *, lease: Duration | None, wait: Duration, max_bytes: int = 0
    ) -> pb.FetchResponse:
        """See ``AsyncMailbox.fetch_response``."""


class DeliveryFeed:
    """Deliveries under leases that are extended until they are settled. Lives on one event loop."""

    def __init__(
        self,
        mailbox: FeedMailbox,
        make: Callable[[pb.Delivery, int], Any],
        settings: WorkerSettings,
    ) -> None:
        """Begin to fetch and to extend leases, on the running event loop.

        Args:
            mailbox: The mailbox.
            make: Returns the delivery for a message and the end of its lease.
            settings: The options of the worker.
        """
        self._mailbox = mailbox
        self._make = make
        self._retry = mailbox.retry
        self._concurrency = settings.concurrency
        self._prefetch = settings.prefetch
        self._capacity = settings.concurrency + settings.prefetch
        self._leases = LeaseTable(settings.lease_s)
        # Deliveries under a lease by lock, ready or taken; those taken have a callback for the loss of the lease.
        self._held: dict[bytes, Any] = {}
        self._taken: dict[bytes, Callable[[], None] | None] = {}
        self._ready: deque[Any] = deque()
        # Calls that wait for a delivery, in their order; those of the set fail if others take all that are allowed.
        self._takers: dict[asyncio.Future[None], None] = {}
        self._refusable: set[asyncio.Future[None]] = set()
        self._has_room = asyncio.Event()
        self._returning: asyncio.Task[None] | None = None
        # Acknowledgements, which the cancellation of a caller does not end, and the end of a worker that was collected.
        self._settling: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._failure: TidelogError | None = None
        self.is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._tasks = [
            self._loop.create_task(self._fetch(), name="tidelog-worker-fetch"),
            self._loop.create_task(self._extend(), name="tidelog-worker-extend"),
        ]

    async def take(self, *, waits_for_room: bool = True) -> Any:
        """Return the next delivery with a valid lease; None once the feed is stopping.

        Args:
            waits_for_room: Whether the call waits while ``concurrency`` deliveries are unsettled.

        Raises:
            TidelogError: The mailbox cannot be fetched from.
            UnsettledDeliveriesError: ``concurrency`` deliveries are unsettled, and the call does not wait.
        """
        while True:
            if self._failure is not None:
                raise copy_of(self._failure)
            if self.is_stopping:
                return None
            if not waits_for_room and len(self._taken) >= self._concurrency:
                raise UnsettledDeliveriesError(
                    f"{len(self._taken)} deliveries of mailbox {self._mailbox.name} are unsettled, expected fewer than "
                    f"the worker's concurrency of {self._concurrency}: settle deliveries with ack() or reject()"
                )
            if (delivery := self._next_ready()) is not None:
                return delivery
            await self._wait_for_delivery(waits_for_room=waits_for_room)

    def _next_ready(self) -> Any:
        """Take a delivery that is ready; None without one, or without room."""
        while self._ready and len(self._taken) < self._concurrency:
            delivery = self._ready.popleft()
            if self._leases.is_valid(delivery.lock, self._clock()):
                self._taken[delivery.lock] = None
                delivery.on_settled = self.release
                self._has_room.set()
                if len(self._taken) == self._concurrency:
                    _wake(self._refusable)
                return delivery
            self._lose(delivery.lock)
        return None

    async def _wait_for_delivery(self, *, waits_for_room: bool) -> None:
        taker = self._loop.create_future()
        self._takers[taker] = None
        self._has_room.set()
        if not waits_for_room:
            self._refusable.add(taker)
        try:
            await taker
        except asyncio.CancelledError:
            # It may have been woken already, instead of another one.
            self._wake_takers()
            raise
        finally:
            self._takers.pop(taker, None)
            self._refusable.discard(taker)

    def on_lost(self, delivery: DeliveryFields, call: Callable[[], None]) -> None:
        """Call ``call`` if the lease of a taken delivery is lost: at once if it is lost already."""
        if delivery.is_lost:
            call()
        elif delivery.lock in self._taken:
            self._taken[delivery.lock] = call

    def release(self, delivery: DeliveryFields) -> None:
        """Stop extending the lease of a taken delivery, which is settled or given up."""
        self._forget(delivery.lock)
        self._wake_takers()

    async def settle(self, delivery: DeliveryFields, how: How) -> None:
        """End a taken delivery, unless its lease is lost or the caller has acknowledged it itself.

        A message whose body could not be read is never confirmed: it is rejected. A failure after which the message is
        delivered again is logged.

        Raises:
            TidelogError: The mailbox refuses acknowledgements.
        """
        try:
            if delivery.is_lost or delivery.is_settled:
                return
            if how == "ack" and delivery.is_body_missing:
                _log.error(
                    "the body of message %d of mailbox %s is missing: the message is rejected, not confirmed; ack() of "
                    "its delivery deletes it",
                    delivery.id,
                    delivery.mailbox,
                )
                how = "reject"
            await _settle(self._mailbox, delivery, how)
        except (LockError, UnavailableError, DeadlineError) as error:
            _log.warning(
                "message %d of mailbox %s is delivered again, because its acknowledgement failed: %s",
                delivery.id,
                delivery.mailbox,
                error,
            )
        finally:
            self.release(delivery)

    def begin_settle(self, delivery: DeliveryFields, how: How) -> "asyncio.Task[None]":
        """Begin ``settle``; it continues if the caller ends, until ``aclose``."""
        settling = self._loop.create_task(self.settle(delivery, how), name="tidelog-worker-settle")
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        return settling

    def give_back_soon(self, deliveries: Sequence[DeliveryFields | None]) -> None:
        """Return taken deliveries to the mailbox in the background. From any thread, and from finalizers.

        ``deliveries`` is read on the event loop, after what other threads have begun there.
        """
        self._call_soon(lambda: self._give_back(deliveries))

    def close_soon(self) -> None:
        """Begin ``aclose`` without ``returns_taken`` in the background. From any thread, and from finalizers."""
        self._call_soon(self._begin_close)

    def _call_soon(self, call: Callable[[], None]) -> None:
        # Why suppressed: a closed loop extends no leases, so their end returns the messages.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _give_back(self, deliveries: Sequence[DeliveryFields | None]) -> None:
        for delivery in deliveries:
            if delivery is not None and delivery.lock in self._taken:
                self.begin_settle(delivery, "return")

    def _begin_close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self.aclose(returns_taken=False), name="tidelog-worker-close")

    def stop(self) -> None:
        """Stop fetching, and return the deliveries that are ready to the mailbox. Taken ones keep their leases."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self._tasks[0].cancel()
        self._returning = asyncio.create_task(self._return_ready(), name="tidelog-worker-return")
        self._wake_takers()

    async def aclose(self, *, returns_taken: bool) -> None:
        """Stop, wait until deliveries that were ready are returned, and stop extending leases.

        Args:
            returns_taken: Whether taken deliveries are returned too; otherwise their leases remain until they end.
        """
        self.stop()
        if self._returning is not None:
            await asyncio.gather(self._returning, return_exceptions=True)
        while self._settling:
            await self._settled()
        if returns_taken:
            await self._return_taken()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lock in list(self._held):
            self._forget(lock)

    # -- Fetching ------------------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        try:
            while True:
                await self._room()
                for delivery in await self._fetched(min(self._wanted(), _MAX_FETCH)):
                    self._held[delivery.lock] = delivery
                    self._ready.append(delivery)
                self._wake_takers()
        except TidelogError as error:
            self._fail(error)
        except Exception as defect:  # noqa: BLE001 - takers would wait indefinitely
            failure = TidelogError(f"a defect of the client: {defect!r}")
            failure.__cause__ = defect
            self._fail(failure)

    async def _room(self) -> None:
        """Wait until deliveries are wanted: half of ``prefetch``, or any number if no delivery is ready."""
        while True:
            room = self._wanted()
            if room > 0 and (2 * room >= self._prefetch or not self._ready):
                return
            self._has_room.clear()
            await self._has_room.wait()

    def _wanted(self) -> int:
        """Return the number of deliveries to fetch: for the calls that wait, and ``prefetch`` further ones."""
        return min(self._capacity - len(self._held), len(self._takers) + self._prefetch - len(self._ready))

    async def _fetched(self, count: int) -> Sequence[Any]:
        """Fetch, and retry while the server does not answer, for ``Retry.give_up_s`` since the last answer."""
        pauses_s = self._retry.pauses_s()
        give_up_at_s = self._clock() + self._retry.give_up_s
        is_lost = False
        while True:
            try:
                answer = await self._fetch_once(count, give_up_at_s)
            except (UnavailableError, DeadlineError) as error:
                if not is_lost:
                    is_lost = True
                    _log.warning("the worker of mailbox %s waits for the server: %s", self._mailbox.name, error)
                pause_s = max(next(pauses_s), retry_after_s(error))
                if self._clock() + pause_s >= give_up_at_s:
                    raise
                await asyncio.sleep(pause_s)
            else:
                self._leases.add([each.lock_id for each in answer.deliveries], self._clock())
                return [self._make(each, answer.leased_until_ms) for each in answer.deliveries]

    async def _fetch_once(self, count: int, by_s: float) -> Any:
        # A server that works answers a fetch after its wait, if no message has come.
        wait_s = min(_WAIT_S, self._retry.give_up_s / 2)
        async with answer_by(by_s, self._silence):
            return await self._mailbox.fetch_response(count, lease=self._leases.lease_s, wait=wait_s)

    def _silence(self) -> UnavailableError:
        text = f"the server did not answer the worker of {self._mailbox.name} for {self._retry.give_up_s:.1f} s"
        return UnavailableError(f"{text}: check it, or raise Retry.give_up_s")

    def _fail(self, error: TidelogError) -> None:
        self._failure = error
        self._wake_takers()

    def _wake_takers(self) -> None:
        """Wake as many takers as can take a delivery; all of them at the end."""
        is_over = self.is_stopping or self._failure is not None
        left = len(self._takers) if is_over else min(len(self._ready), self._concurrency - len(self._taken))
        woken = list(islice((taker for taker in self._takers if not taker.done()), max(0, left)))
        for taker in woken:
            del self._takers[taker]
        _wake(woken)

    # -- Leases --------------------------------------------------------------------------------------------

    async def _extend(self) -> None:
        pause_s = period_s = self._leases.period_s
        while True:
            await asyncio.sleep(max(0.0, min(pause_s, self._leases.next_end_s() - self._clock())))
            for lock in self._leases.take_ended(self._clock()):
                self._lose(lock)
            pause_s = period_s
            if held := list(self._held.values()):
                within_s = min(period_s, self._leases.next_end_s() - self._clock())
                try:
                    pause_s = period_s if await self._extended(held, within_s) else period_s * _AGAIN
                except ClosedError as error:
                    # The client was closed before its worker.
                    self._fail(error)
                    return

    async def _extended(self, held: Sequence[DeliveryFields], within_s: float) -> bool:
        """Extend leases; return whether the server has answered in time. Raises ClosedError."""
        requested_s = self._clock()
        refused: dict[bytes, TidelogError] = {}
        try:
            async with asyncio.timeout(within_s):
                await self._mailbox.extend_many(held, self._leases.lease_s)
        except LockError as error:
            refused = {held[0].lock: error}
        except DeliveriesRefusedError as error:
            refused = {delivery.lock: failure for delivery, failure in error.failures}
        except TimeoutError:
            return False
        except ClosedError:
            raise
        except TidelogError as error:
            _log.warning("leases of mailbox %s were not extended, trying again: %s", self._mailbox.name, error)
            return False
        self._leases.extended((each.lock for each in held if each.lock not in refused), requested_s)
        for lock, failure in refused.items():
            # An acknowledgement may have overtaken the extension; its own answer follows.
            if not isinstance(failure, AlreadyAcknowledgedError):
                self._lose(lock)
        return True

    def _lose(self, lock: bytes) -> None:
        """Note that a lease is lost, unless its delivery was settled meanwhile."""
        delivery = self._held.get(lock)
        if delivery is None or delivery.is_settled:
            return
        on_lost = self._taken.get(lock)
        delivery.is_lost = True
        self._forget(lock)
        self._wake_takers()
        _log.warning(
            "the lease of message %d of mailbox %s was lost: another worker may receive the message", delivery.id,
            delivery.mailbox,
        )  # fmt: skip
        if on_lost is not None:
            on_lost()

    def _forget(self, lock: bytes) -> None:
        self._leases.remove(lock)
        self._taken.pop(lock, None)
        if self._held.pop(lock, None) is not None:
            self._has_room.set()

    async def _settled(self) -> None:
        for failure in await asyncio.gather(*self._settling, return_exceptions=True):
            if failure is not None:
                _log.warning("mailbox %s: an acknowledgement of its worker failed: %s", self._mailbox.name, failure)

    async def _return_taken(self) -> None:
        """Return the deliveries that are unsettled; their holders see that the leases are lost."""
        taken = [self._held[lock] for lock in self._taken]
        for delivery in taken:
            delivery.is_lost = True
            self._forget(delivery.lock)
        await returned(self._mailbox, taken)

    async def _return_ready(self) -> None:
        """Return deliveries that no caller has taken to the mailbox, available at once."""
        ready = [each for each in self._ready if not each.is_lost]
        self._ready.clear()
        for delivery in ready:
            self._forget(delivery.lock)
        await returned(self._mailbox, ready)


async def returned(mailbox: FeedMailbox, deliveries: Sequence[DeliveryFields]) -> None:
    """Make messages available at once; if that fails, they become so when their leases end."""
    if not deliveries:
        return
    try:
        await mailbox.reject_many(deliveries, delay=0.0)
    except TidelogError as error:
        _log.warning("messages of mailbox %s are available only after their leases end: %s", mailbox.name, error)


async def _settle(mailbox: FeedMailbox, delivery: DeliveryFields, how: How) -> None:
    if how == "ack":
        await mailbox.ack_many((delivery,))
    elif how == "reject":
        await mailbox.reject_many((delivery,))
    else:
        await returned(mailbox, (delivery,))


def _wake(takers: Iterable[asyncio.Future[None]]) -> None:
    for taker in takers:
        if not taker.done():
            taker.set_result(None)
