"""A handle for a mailbox: sending, fetching, acknowledging and looking at messages."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Unpack, cast

from tidelog.admin import mailbox_types as _wire_mailbox
from tidelog.admin.mailbox_types import MailboxCounts
from tidelog.errors import BlobNotFoundError, LockError, TidelogError
from tidelog.mailboxes.calls import MessageCalls
from tidelog.mailboxes.deliveries import AsyncDelivery, DeliveryFields
from tidelog.mailboxes.errors import DeliveriesRefusedError
from tidelog.mailboxes.operations import Action
from tidelog.mailboxes.types import (
    MessageHeader,
    MessageState,
    OutgoingMessage,
    PeekedMessage,
    RedriveProgress,
    SendResult,
    duration_ms,
    header_of,
    peeked_of,
    send_results,
)
from tidelog.mailboxes.worker import AsyncMailboxWorker, WorkerOptions, run_handlers
from tidelog.tick import milliseconds
from tidelog.transport.deadline import Deadline
from tidelog.transport.status import error_of_answer
from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.durations import Duration
from tidelog.wire.fields import with_fields

_MAX_LOCKS: Final = 1_000
# Bodies of a request with more bytes are sent as blobs, apart from small ones.
_MAX_SEND_BYTES: Final = 4 << 20
_MIN_BLOB_BYTES: Final = 64 << 10
_ALREADY_ACKNOWLEDGED: Final = error_pb2.REASON_ALREADY_ACKNOWLEDGED


class AsyncMailbox:
    """A handle for a mailbox, from ``AsyncClient.mailbox`` or ``AsyncCluster.mailbox``. ``Mailbox`` is its twin.

    All calls to send, fetch, acknowledge and extend of a client share one stream per server; calls of the same turn of
    the event loop share a request. When the connection breaks, the client repeats what was not answered within its
    timeout, except a send of which a message has no deduplication key: that raises AppendUnknownError.

    A failed call raises a TidelogError. Each call raises MailboxNotFoundError if the mailbox does not exist.

    Attributes:
        name: Name of the mailbox.
    """

    def __init__(self, calls: MessageCalls, name: str) -> None:
        """Create the handle; does no I/O."""
        self._calls = calls
        self.retry = calls.retry
        self.name = name

    def __repr__(self) -> str:
        return f"<AsyncMailbox {self.name!r}>"

    # -- Messages ------------------------------------------------------------------------------------------

    async def send(
        self,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        due: datetime | None = None,
        priority: int = 0,
        group: str = "",
        dedup_key: str = "",
        ttl: Duration | None = None,
    ) -> SendResult:
        """Add a message, durably, and return its id. See ``OutgoingMessage`` for the arguments.

        After a lost answer, ``duplicate`` may be true although an attempt of this call has added the message.

        Raises:
            MailboxFullError: The mailbox holds ``max_messages``. Nothing was sent.
            InvalidRequestError: The body is too large, or an argument is out of range. Nothing was sent.
            AppendUnknownError: The answer was lost, and there is no deduplication key: the message may have been sent.
            ValueError, TypeError: As ``send_many``.
        """
        if headers or group or dedup_key or priority or delay is not None or due is not None or ttl is not None:
            message = OutgoingMessage(body, headers or {}, delay, due, priority, group, dedup_key, ttl)
            return (await self.send_many((message,)))[0]
        return (await self.send_many((body,)))[0]

    async def send_many(self, messages: Iterable[bytes | OutgoingMessage]) -> list[SendResult]:
        """Add 1 to 1,000 messages, all or none, durably; return their ids in the same order.

        Raises:
            MailboxFullError, InvalidRequestError: As ``send``. Nothing was sent.
            AppendUnknownError: The answer was lost, and a message has no deduplication key: all may have been sent, or
                none.
            ValueError: ``delay`` and ``due`` of a message are both set, ``due`` has no time zone, or a number cannot be
                encoded.
            TypeError: A message is neither bytes nor an OutgoingMessage, or a field has another type.
        """
        several = list(messages)
        deadline = Deadline(self._calls.timeout_s)
        if sum(map(_body_bytes, several)) > _MAX_SEND_BYTES:
            several = [await self._as_blob(each, deadline) for each in several]
        request, is_repeatable = _send_request(self.name, several)
        answer, _ = await self._calls.operate(
            self.name, Action.SEND, request.SerializeToString(), is_repeatable=is_repeatable, deadline=deadline
        )
        return send_results(answer)

    async def _as_blob(self, message: bytes | OutgoingMessage, deadline: Deadline) -> bytes | OutgoingMessage:
        """Store the body of a message if it is large; return the message that refers to it."""
        whole = message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
        if len(whole.body) <= _MIN_BLOB_BYTES:
            return message
        return replace(whole, body=b"", blob_key=await self._calls.put_blob(self.name, whole.body, deadline=deadline))

    async def fetch(
        self, max_messages: int = 1, *, lease: Duration | None = None, wait: Duration = 0.0, max_bytes: int = 0
    ) -> list[AsyncDelivery]:
        """Lease the next messages, durably; return an empty list if there is no message within ``wait``.

        If the answer is lost the fetch is repeated: messages of the lost answer are delivered again when their leases
        end. If the caller is cancelled they are returned to the mailbox, but the delivery counts.

        Args:
            max_messages: Maximum number of messages, 1 to 1,000.
            lease: Duration of the leases; None for the default of the mailbox.
            wait: Time to wait for a first message, 0 to 60 s.
            max_bytes: Maximum size of all bodies together, at most 4 MiB; at least one message is delivered. 0 for
                1 MiB.

        Raises:
            InvalidRequestError: An argument is out of range, or the lease is longer than the mailbox allows.
            ValueError, TypeError: An argument cannot be encoded; the error names it.
        """
        answer = await self.fetch_response(max_messages, lease=lease, wait=wait, max_bytes=max_bytes)
        until_ms = answer.leased_until_ms
        return [AsyncDelivery(self.name, each, until_ms, self) for each in answer.deliveries]

    async def fetch_response(
        self, max_messages: int, *, lease: Duration | None, wait: Duration, max_bytes: int = 0
    ) -> pb.FetchResponse:
        """Fetch as ``fetch`` does, and return the response; for the synchronous twin."""
        wait_ms = duration_ms("wait", wait)
        request = with_fields(
            pb.FetchRequest,
            mailbox=self.name,
            max_messages=max_messages,
            wait_ms=wait_ms,
            max_bytes=max_bytes,
            lease_ms=_ms("lease", lease),
        )
        deadline = Deadline(self._calls.timeout_s + max(0, wait_ms) / 1_000)
        answer: pb.FetchResponse
        answer, _ = await self._calls.operate(
            self.name, Action.FETCH, request.SerializeToString(), wait_s=max(0, wait_ms) / 1_000, has_leases=True
        )
        for delivery in answer.deliveries:
            if delivery.blob_bytes > len(delivery.body) and not delivery.blob_is_missing:
                await self._read_body(delivery, deadline, lock=delivery.lock_id)
        return answer

    async def _read_body(
        self, message: pb.Delivery | pb.PeekedMessage, deadline: Deadline, *, lock: bytes = b"", message_id: int = 0
    ) -> None:
        """Read a body that is too large for the answer to a fetch or a peek."""
        try:
            message.body = await self._calls.get_blob(self.name, message.blob_key, lock, message_id, deadline=deadline)
        except (BlobNotFoundError, LockError):
            # Deleted meanwhile, or its lease is over, or a server of an earlier version expects a lock.
            message.blob_is_missing = True

    async def ack_many(self, deliveries: Iterable[DeliveryFields]) -> None:
        """Confirm deliveries, durably, each independently of the others: their messages are deleted.

        Raises:
            LockError: There is one delivery, and its lock was refused; see ``AsyncDelivery.ack``.
            DeliveriesRefusedError: Some locks were refused. The other deliveries are confirmed.
        """
        await self._for_each(
            deliveries,
            Action.ACK,
            lambda part: pb.AckDeliveriesRequest(mailbox=self.name, confirmed=[each.lock for each in part]),
        )

    async def reject_many(
        self, deliveries: Iterable[DeliveryFields], *, delay: Duration | None = None, final: bool = False
    ) -> None:
        """Return messages to the mailbox, durably, each independently of the others; see ``AsyncDelivery.reject``.

        Raises:
            LockError, DeliveriesRefusedError: As ``ack_many``.
            InvalidRequestError: The delay is out of range.
        """
        delay_ms = _ms("delay", delay)

        def request(part: Sequence[DeliveryFields]) -> pb.AckDeliveriesRequest:
            rejected = [pb.Rejection(lock_id=each.lock, delay_ms=delay_ms, is_final=final) for each in part]
            return pb.AckDeliveriesRequest(mailbox=self.name, rejected=rejected)

        await self._for_each(deliveries, Action.ACK, request)

    async def extend_many(self, deliveries: Iterable[DeliveryFields], lease: Duration | None = None) -> None:
        """Let leases end ``lease`` from now, durably; None for the default of the mailbox.

        Raises:
            LockError, DeliveriesRefusedError: As ``ack_many``.
            InvalidRequestError: The lease is longer than the mailbox allows.
        """
        lease_ms = _ms("lease", lease)

        def request(part: Sequence[DeliveryFields]) -> pb.ExtendRequest:
            return pb.ExtendRequest(mailbox=self.name, lock_ids=[each.lock for each in part], lease_ms=lease_ms)

        await self._for_each(deliveries, Action.EXTEND, request)

    async def _for_each(
        self,
        deliveries: Iterable[DeliveryFields],
        call: Action,
        request: Callable[[Sequence[DeliveryFields]], pb.AckDeliveriesRequest | pb.ExtendRequest],
    ) -> None:
        """Make ``call`` with parts of ``deliveries``, note which are settled or extended, and raise all failures."""
        several = list(deliveries)
        failures: list[pb.DeliveryFailure] = []
        deadline = Deadline(self._calls.timeout_s)
        for begin in range(0, len(several), _MAX_LOCKS):
            part = several[begin : begin + _MAX_LOCKS]
            answer, was_repeated = await self._calls.operate(
                self.name, call, request(part).SerializeToString(), deadline=deadline
            )
            failed: Sequence[pb.DeliveryFailure] = answer.failures
            if was_repeated and call is Action.ACK:
                # Only the holder knows a lock: if it is acknowledged, an earlier attempt did it.
                failed = [each for each in failed if each.error.detail.reason != _ALREADY_ACKNOWLEDGED]
            refused = {each.lock_id for each in failed} if failed else ()
            for each in part:
                if call is Action.ACK:
                    each.is_settled = each.lock not in refused
                elif each.lock not in refused:
                    each.note_extended(answer.leased_until_ms)
            failures += failed
        if failures:
            raise refusal_of(several, failures)

    # -- Workers -------------------------------------------------------------------------------------------

    def worker(self, **options: Unpack[WorkerOptions]) -> AsyncMailboxWorker:
        """Return a worker: an iterator of deliveries that extends their leases; see ``AsyncMailboxWorker``.

        Raises:
            ValueError: An option is out of range.
        """
        return AsyncMailboxWorker(self, **options)

    async def work(
        self,
        handler: Callable[[AsyncDelivery], Awaitable[None]],
        *,
        handles_sigterm: bool = True,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Call ``handler`` with each message, up to ``concurrency`` at a time, until SIGTERM or a cancellation.

        The lease of a message is extended while its handler runs. When the handler returns, the message is confirmed;
        when it raises an Exception, that is logged and the message is rejected with the back-off of the mailbox, as is
        a message whose body is missing (``is_body_missing``) unless the handler has confirmed it by ``ack``. If the
        lease is lost, because the server did not answer in time or the message was purged, another worker may have the
        message: the handler is cancelled (it gets ``asyncio.CancelledError``), and a warning is logged.

        SIGTERM and a cancellation drain: running handlers finish, messages that wait for a handler are returned to the
        mailbox at once, and the call returns after SIGTERM, or raises CancelledError. A second cancellation cancels the
        handlers, and rejects their messages without delay.

        Args:
            handler: Processes a message. It may be called again with the same message, after a crash or a lost lease.
            handles_sigterm: Drain on SIGTERM. It has an effect only in the main thread.
            options: As of ``worker``.

        Raises:
            MailboxNotFoundError, PermissionDeniedError, InvalidRequestError: The mailbox cannot be fetched from.
            UnavailableError: The server has not answered for ``Retry.give_up_s``.
            ValueError: An option is out of range.
            TypeError: ``handler`` cannot be called, or returned no awaitable; its message was returned.
        """
        await run_handlers(self.worker(**options), handler, handles_sigterm=handles_sigterm)

    # -- Administration ------------------------------------------------------------------------------------

    async def headers(
        self, after: datetime | None = None, *, max_messages: int = 100, after_id: int = 0
    ) -> list[MessageHeader]:
        """Return messages that could be fetched now, in the order in which they were received, without a lease.

        Args:
            after: Only messages received after this time; None for all.
            max_messages: Maximum number of messages, 1 to 1,000.
            after_id: Id of the last message of the previous page; 0 for the first page.

        Raises:
            InvalidRequestError: An argument is out of range.
            ValueError: ``after`` has no time zone.
        """
        request = with_fields(
            pb.FetchHeadersRequest,
            mailbox=self.name,
            after_ms=0 if after is None else milliseconds(after),
            max_messages=max_messages,
            after_id=after_id,
        )
        answer = await self._calls.call(self.name, "FetchHeaders", request, is_read=True)
        return list(map(header_of, answer.headers))

    async def peek(
        self,
        state: MessageState | None = None,
        *,
        max_messages: int = 10,
        after_id: int = 0,
        message_id: int = 0,
    ) -> list[PeekedMessage]:
        """Return messages with their bodies, in the order in which they were received, without a lease.

        Large bodies are read one after another. All of them are in memory then: ask for fewer messages if they are of
        tens of MiB.

        Args:
            state: Only messages in this state; None for all.
            max_messages: Maximum number of messages, 1 to 100.
            after_id: Id of the last message of the previous page; 0 for the first page.
            message_id: Only the message with this id; 0 for no such restriction.

        Raises:
            InvalidRequestError: An argument is out of range.
        """
        request = with_fields(
            pb.PeekRequest,
            {"id": "message_id"},
            mailbox=self.name,
            state=state or 0,
            max_messages=max_messages,
            after_id=after_id,
            id=message_id,
        )
        deadline = Deadline(self._calls.timeout_s)
        answer = await self._calls.call(self.name, "Peek", request, is_read=True, deadline=deadline)
        for message in answer.messages:
            if message.header.body_bytes > len(message.body) and message.blob_key and not message.blob_is_missing:
                await self._read_body(message, deadline, message_id=message.header.id)
        return list(map(peeked_of, answer.messages))

    async def counts(self) -> MailboxCounts:
        """Return the exact numbers of messages."""
        request = pb.DescribeMailboxRequest(name=self.name)
        answer = await self._calls.call(self.name, "DescribeMailbox", request, is_read=True)
        counts = _wire_mailbox.described(answer).counts
        assert counts is not None
        return counts

    async def purge(self) -> int:
        """Delete all messages, leased ones too, durably; return their number."""
        answer = await self._calls.call(
            self.name, "PurgeMailbox", pb.PurgeMailboxRequest(name=self.name), is_read=False
        )
        return int(answer.messages)

    async def pause(self) -> None:
        """Stop deliveries, durably. Sends, acknowledgements and extensions continue."""
        request = pb.PauseMailboxRequest(name=self.name)
        await self._calls.call(self.name, "PauseMailbox", request, is_read=False, is_idempotent=True)

    async def resume(self) -> None:
        """Resume deliveries, durably."""
        request = pb.ResumeMailboxRequest(name=self.name)
        await self._calls.call(self.name, "ResumeMailbox", request, is_read=False, is_idempotent=True)

    async def reenqueue(self, ids: Iterable[int] = ()) -> int:
        """End leases, so that their messages can be fetched again, durably; return their number.

        Args:
            ids: Ids of leased messages, at most 1,000; empty to end only leases whose time is over.
        """
        request = with_fields(pb.ReenqueueRequest, mailbox=self.name, ids=list(ids))
        answer = await self._calls.call(self.name, "Reenqueue", request, is_read=False)
        return int(answer.messages)

    async def redrive(
        self, ids: Iterable[int] = (), *, destination: str = "", max_per_s: int = 0
    ) -> AsyncIterator[RedriveProgress]:
        """Return dead messages to delivery, and yield progress until all are moved. Closing the iterator stops it.

        The first answer arrives within the client's timeout, each later one within the timeout and a second.

        Args:
            ids: Ids of the messages, at most 1,000; empty for all that the mailbox has now.
            destination: Mailbox of the same node that receives them; empty for the one that each was sent to first.
            max_per_s: Maximum number of messages per second; 0 for no limit.

        Raises:
            InvalidRequestError: There are too many ids.
        """
        request = with_fields(
            pb.RedriveRequest, mailbox=self.name, ids=list(ids), destination=destination, max_per_s=max_per_s
        )
        async for answer in self._calls.redrive(request):
            yield RedriveProgress(answer.moved, answer.total)


def refusal_of(deliveries: Sequence[DeliveryFields], failures: Iterable[pb.DeliveryFailure]) -> TidelogError:
    """Return the error for refused locks of ``deliveries``."""
    errors = {failure.lock_id: error_of_answer(failure.error) for failure in failures}
    refused = tuple((each, errors[each.lock]) for each in deliveries if each.lock in errors)
    if len(deliveries) == 1 and refused:
        return refused[0][1]
    first = refused[0][1] if refused else LockError("the server refused a lock that the request does not have")
    error = DeliveriesRefusedError(
        f"{len(refused)} of {len(deliveries)} deliveries were refused, the first because {first}", values=first.values
    )
    error.failures = refused
    return error


def _send_request(mailbox: str, messages: Sequence[bytes | OutgoingMessage]) -> tuple[pb.SendRequest, bool]:
    """Return a request, and whether it can be repeated: whether each message has a deduplication key."""
    if all(type(each) is bytes for each in messages):
        return pb.SendRequest(mailbox=mailbox, bodies=cast("Sequence[bytes]", messages)), False
    several = [each if isinstance(each, OutgoingMessage) else OutgoingMessage(each) for each in messages]
    encoded = [_encoded(index, each) for index, each in enumerate(several)]
    return pb.SendRequest(mailbox=mailbox, messages=encoded), all(each.dedup_key for each in several)


def _encoded(index: int, message: OutgoingMessage) -> pb.OutgoingMessage:
    try:
        return message.to_wire()
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"messages[{index}]: {error}") from error


def _body_bytes(message: bytes | OutgoingMessage) -> int:
    """Return the size of a body; 0 for what is no body, which is refused when it is encoded."""
    body: object = message.body if isinstance(message, OutgoingMessage) else message
    return len(body) if isinstance(body, bytes) else 0


def _ms(name: str, duration: Duration | None) -> int | None:
    return None if duration is None else duration_ms(name, duration)
