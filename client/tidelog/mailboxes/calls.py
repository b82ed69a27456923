"""The calls on messages of mailboxes, on one server."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tidelog.admin.blobs import getting, parts_of, putting
from tidelog.admin.mailboxes import AsyncClusterMailboxCalls
from tidelog.mailboxes.operate_stream import OperationStream
from tidelog.mailboxes.operations import Action
from tidelog.transport.deadline import Deadline
from tidelog.transport.retry import Retry
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.transport import Transport
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1.blob_service_pb2 import BLOB_ALGORITHM_SHA256, GetBlobRequest, PutBlobResponse

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
# Interval at which the server reports progress of a redrive, at most.
_PROGRESS_S: Final = 1.0


class ServerMessageCalls(ServiceCalls):
    """Calls on messages of one server.

    Where there is a ``deadline``, it is that of a caller that makes several calls; None for the timeout of one.

    Attributes:
        retry: Backoff and time limit of the client.
        timeout_s: Timeout of a call in seconds.
    """

    def __init__(
        self, transport: Callable[[], Transport], stream: Callable[[], OperationStream], timeout_s: float, retry: Retry
    ) -> None:
        """Create the calls; does no I/O. Both functions are those of this event loop."""
        super().__init__(transport, timeout_s)
        self._stream = stream
        self.retry = retry

    async def operate(
        self,
        mailbox: str,
        call: Action,
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
        stream = self._stream()
        return await stream.operate(
            call, request, timeout_s=deadline.left_s if deadline else None, wait_s=wait_s, is_repeatable=is_repeatable,
            abandoned=partial(end_leases, stream, mailbox) if has_leases else None,
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
        """Return the answer to a unary call."""
        stub = getattr(self._services.mailboxes, method)
        if is_read:
            return await self._read(stub, request, deadline)
        return await self._change(stub, request, is_idempotent=is_idempotent, deadline=deadline)

    async def put_blob(self, mailbox: str, data: bytes, *, deadline: Deadline | None = None) -> bytes:
        """Store the body of a message that will be sent; return its key."""
        requests = list(parts_of(data, BLOB_ALGORITHM_SHA256, mailbox))
        stored: PutBlobResponse = await self._change(
            putting(self._services.blobs), requests, is_idempotent=True, deadline=deadline
        )
        return stored.key

    async def get_blob(
        self, mailbox: str, key: bytes, lock: bytes = b"", message_id: int = 0, *, deadline: Deadline | None = None
    ) -> bytes:
        """Return the body of a message, given by its lock or its id."""
        request = GetBlobRequest(key=key, mailbox=mailbox, lock_id=lock, message_id=message_id)
        data: bytes = await self._read(getting(self._services.blobs), request, deadline)
        return data

    async def redrive(
        self, request: pb.RedriveRequest, deadline: Deadline | None = None
    ) -> AsyncGenerator[pb.RedriveResponse, None]:
        """Yield the answers to Redrive. ``deadline`` is that of the first answer."""
        answers = self._answers(
            lambda connection: connection.mailboxes.Redrive, request, is_read=False,
            later_within_s=lambda _: self.timeout_s + _PROGRESS_S, deadline=deadline,
        )  # fmt: skip
        async with aclosing(answers):
            async for answer in answers:
                yield answer


def _owned(
    method: Callable[Concatenate[ServerMessageCalls, str, _P], Awaitable[_Result]], *, is_read: bool = False
) -> Callable[Concatenate["ClusterMessageCalls", str, _P], Coroutine[Any, Any, _Result]]:
    """Return a call on a mailbox that its owner answers with ``method``."""

    async def call(self: "ClusterMessageCalls", mailbox: str, /, *args: _P.args, **options: _P.kwargs) -> _Result:
        several: dict[str, Any] = options
        deadline = several.get("deadline") or Deadline(self.timeout_s)
        bounded: Callable[..., Awaitable[_Result]] = partial(method, **several | {"deadline": deadline})
        return await self.mailboxes.at_owner(
            mailbox, lambda client: bounded(client.message_calls, mailbox, *args), deadline,
            is_read=several.get("is_read", is_read),
        )  # fmt: skip

    return call


class ClusterMessageCalls:
    """Calls on messages in a cluster: the owner of a mailbox answers. See ``ServerMessageCalls``."""

    def __init__(self, mailboxes: AsyncClusterMailboxCalls, retry: Retry) -> None:
        """Create the calls; does no I/O. ``mailboxes`` finds the owners."""
        self.mailboxes = mailboxes
        self.retry = retry
        self.timeout_s = mailboxes.timeout_s

    operate = _owned(ServerMessageCalls.operate)
    call = _owned(ServerMessageCalls.call)
    put_blob = _owned(ServerMessageCalls.put_blob)
    get_blob = _owned(ServerMessageCalls.get_blob, is_read=True)

    async def redrive(self, request: pb.RedriveRequest) -> AsyncGenerator[pb.RedriveResponse, None]:
        """See ``ServerMessageCalls.redrive``."""
        deadline = Deadline(self.timeout_s)

        async def begin(client: Any) -> tuple[pb.RedriveResponse | None, AsyncGenerator[pb.RedriveResponse, None]]:
            calls: ServerMessageCalls = client.message_calls
            answers = calls.redrive(request, deadline)
            return await anext(answers, None), answers

        first, answers = await self.mailboxes.at_owner(request.mailbox, begin, deadline, is_read=False)
        async with aclosing(answers):
            if first is not None:
                yield first
            async for answer in answers:
                yield answer


MessageCalls = ServerMessageCalls | ClusterMessageCalls
"""Calls on messages: of one server, or of the owner of a mailbox in a cluster."""


def end_leases(stream: OperationStream, mailbox: str, answer: pb.FetchResponse) -> None:
    """Return messages that no caller waits for to their mailbox, available at once."""
    if answer.deliveries:
        rejected = [pb.Rejection(lock_id=each.lock_id, delay_ms=0) for each in answer.deliveries]
        request = pb.AckDeliveriesRequest(mailbox=mailbox, rejected=rejected)
        stream.operate_soon(Action.ACK, request.SerializeToString())
