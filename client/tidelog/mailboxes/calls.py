"""The calls on messages of mailboxes, on one server."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

from tidelog.admin.blobs import getting, parts_of, putting
from tidelog.admin.mailboxes import AsyncClusterMailboxCalls
from tidelog.mailboxes.operate_stream import OperateStream
from tidelog.mailboxes.operations import Call
from tidelog.transport.deadline import Deadline
from tidelog.transport.retry import Retry
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.transport import Transport
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1.blob_service_pb2 import BLOB_ALGORITHM_SHA256, GetBlobRequest, PutBlobResponse

# Interval at which the server reports progress of a redrive, at most.
_PROGRESS_S: Final = 1.0


class MessageCalls(Protocol):
    """Calls on messages: of one server, or of the owner of a mailbox in a cluster.

    Where there is a ``deadline``, it is that of a caller that makes several calls; None for the timeout of one.

    Attributes:
        retry: Backoff and time limit of the client.
        timeout_s: Timeout of a call in seconds.
    """

    retry: Retry
    timeout_s: float

    async def operate(
        self,
        mailbox: str,
        call: Call,
        request: bytes,
        *,
        wait_s: float = 0.0,
        is_repeatable: bool = True,
        has_leases: bool = False,
        deadline: Deadline | None = None,
    ) -> tuple[Any, bool]:
        """Return the answer to an operation of the stream Operate, and whether it was sent again.

        With ``has_leases``, leases of an answer that no caller waits for are ended.
        """

    async def call(
        self,
        mailbox: str,
        method: str,
        request: Any,
        *,
        is_read: bool,
        is_idempotent: bool = False,
        deadline: Deadline | None = None,
    ) -> Any:
        """Return the answer to a unary call."""

    async def put_blob(self, mailbox: str, data: bytes, deadline: Deadline | None = None) -> bytes:
        """Store the body of a message that will be sent; return its key."""

    async def get_blob(
        self, mailbox: str, key: bytes, lock: bytes = b"", message_id: int = 0, deadline: Deadline | None = None
    ) -> bytes:
        """Return the body of a message, given by its lock or its id."""

    def redrive(
        self, request: pb.RedriveRequest, deadline: Deadline | None = None
    ) -> AsyncIterator[pb.RedriveResponse]:
        """Yield the answers to Redrive; ``deadline`` is that of the first one."""


class ServerMessageCalls(ServiceCalls):
    """Calls on messages of one server."""

    def __init__(self, session: Callable[[], tuple[Transport, OperateStream]], timeout_s: float, retry: Retry) -> None:
        """Create the calls; does no I/O. ``session`` returns the transport and the stream of this event loop."""
        self._session = session
        self.retry = retry
        self.timeout_s = timeout_s

    def _transport(self) -> Transport:
        return self._session()[0]

    async def operate(
        self,
        mailbox: str,
        call: Call,
        request: bytes,
        *,
        wait_s: float = 0.0,
        is_repeatable: bool = True,
        has_leases: bool = False,
        deadline: Deadline | None = None,
    ) -> tuple[Any, bool]:
        """See ``MessageCalls.operate``."""
        stream = self._session()[1]
        abandoned: Callable[[Any], None] | None = None
        if has_leases:

            def abandoned(answer: pb.FetchResponse) -> None:
                end_leases(stream, mailbox, answer)

        return await stream.operate(
            call, request, timeout_s=deadline.left_s if deadline else None, wait_s=wait_s, is_repeatable=is_repeatable,
            abandoned=abandoned,
        )  # fmt: skip

    async def call(
        self,
        mailbox: str,
        method: str,
        request: Any,
        *,
        is_read: bool,
        is_idempotent: bool = False,
        deadline: Deadline | None = None,
    ) -> Any:
        """See ``MessageCalls.call``."""
        stub = getattr(self._services.mailboxes, method)
        if is_read:
            return await self._read(stub, request, deadline)
        return await self._change(stub, request, is_idempotent=is_idempotent, deadline=deadline)

    async def put_blob(self, mailbox: str, data: bytes, deadline: Deadline | None = None) -> bytes:
        """See ``MessageCalls.put_blob``."""
        requests = list(parts_of(data, BLOB_ALGORITHM_SHA256, mailbox))
        stored: PutBlobResponse = await self._change(
            putting(self._services.blobs), requests, is_idempotent=True, deadline=deadline
        )
        return stored.key

    async def get_blob(
        self, mailbox: str, key: bytes, lock: bytes = b"", message_id: int = 0, deadline: Deadline | None = None
    ) -> bytes:
        """See ``MessageCalls.get_blob``."""
        request = GetBlobRequest(key=key, mailbox=mailbox, lock_id=lock, message_id=message_id)
        data: bytes = await self._read(getting(self._services.blobs), request, deadline)
        return data

    async def redrive(
        self, request: pb.RedriveRequest, deadline: Deadline | None = None
    ) -> AsyncGenerator[pb.RedriveResponse, None]:
        """See ``MessageCalls.redrive``."""
        answers = self._answers(
            lambda connection: connection.mailboxes.Redrive, request, is_read=False,
            later_within_s=lambda _: self.timeout_s + _PROGRESS_S, deadline=deadline,
        )  # fmt: skip
        async with aclosing(answers):
            async for answer in answers:
                yield answer


class ClusterMessageCalls:
    """Calls on messages in a cluster: the owner of a mailbox answers."""

    def __init__(self, mailboxes: AsyncClusterMailboxCalls, retry: Retry) -> None:
        """Create the calls; does no I/O. ``mailboxes`` finds the owners."""
        self._mailboxes = mailboxes
        self.retry = retry
        self.timeout_s = mailboxes.timeout_s

    async def operate(
        self,
        mailbox: str,
        call: Call,
        request: bytes,
        *,
        wait_s: float = 0.0,
        is_repeatable: bool = True,
        has_leases: bool = False,
        deadline: Deadline | None = None,
    ) -> tuple[Any, bool]:
        """See ``MessageCalls.operate``."""
        ends = deadline or Deadline(self.timeout_s)

        async def operate(client: Any) -> tuple[Any, bool]:
            calls: ServerMessageCalls = client.message_calls
            return await calls.operate(
                mailbox,
                call,
                request,
                wait_s=wait_s,
                is_repeatable=is_repeatable,
                has_leases=has_leases,
                deadline=ends,
            )

        return await self._mailboxes.at_owner(mailbox, operate, ends, is_read=False)

    async def call(
        self,
        mailbox: str,
        method: str,
        request: Any,
        *,
        is_read: bool,
        is_idempotent: bool = False,
        deadline: Deadline | None = None,
    ) -> Any:
        """See ``MessageCalls.call``."""
        ends = deadline or Deadline(self.timeout_s)

        async def call(client: Any) -> Any:
            calls: ServerMessageCalls = client.message_calls
            return await calls.call(
                mailbox, method, request, is_read=is_read, is_idempotent=is_idempotent, deadline=ends
            )

        return await self._mailboxes.at_owner(mailbox, call, ends, is_read=is_read)

    async def put_blob(self, mailbox: str, data: bytes, deadline: Deadline | None = None) -> bytes:
        """See ``MessageCalls.put_blob``."""
        ends = deadline or Deadline(self.timeout_s)

        async def put(client: Any) -> bytes:
            calls: ServerMessageCalls = client.message_calls
            return await calls.put_blob(mailbox, data, ends)

        return await self._mailboxes.at_owner(mailbox, put, ends, is_read=False)

    async def get_blob(
        self, mailbox: str, key: bytes, lock: bytes = b"", message_id: int = 0, deadline: Deadline | None = None
    ) -> bytes:
        """See ``MessageCalls.get_blob``."""
        ends = deadline or Deadline(self.timeout_s)

        async def get(client: Any) -> bytes:
            calls: ServerMessageCalls = client.message_calls
            return await calls.get_blob(mailbox, key, lock, message_id, ends)

        return await self._mailboxes.at_owner(mailbox, get, ends)

    async def redrive(
        self, request: pb.RedriveRequest, deadline: Deadline | None = None
    ) -> AsyncGenerator[pb.RedriveResponse, None]:
        """See ``MessageCalls.redrive``."""
        ends = deadline or Deadline(self.timeout_s)

        async def begin(client: Any) -> tuple[pb.RedriveResponse | None, AsyncGenerator[pb.RedriveResponse, None]]:
            calls: ServerMessageCalls = client.message_calls
            answers = calls.redrive(request, ends)
            return await anext(answers, None), answers

        first, answers = await self._mailboxes.at_owner(request.mailbox, begin, ends, is_read=False)
        async with aclosing(answers):
            if first is not None:
                yield first
            async for answer in answers:
                yield answer


def end_leases(stream: OperateStream, mailbox: str, answer: pb.FetchResponse) -> None:
    """Return messages that no caller waits for to their mailbox, available at once."""
    if answer.deliveries:
        rejected = [pb.Rejection(lock_id=each.lock_id, delay_ms=0) for each in answer.deliveries]
        request = pb.AckDeliveriesRequest(mailbox=mailbox, rejected=rejected)
        stream.operate_soon(Call.ACK, request.SerializeToString())
