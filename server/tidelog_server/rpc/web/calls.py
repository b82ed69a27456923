"""Makes the calls of MailboxService for requests by HTTP, through the checks and with the handlers of gRPC."""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiohttp import web
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.cluster import NotOwnerError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.limits import CALL_COST_BYTES
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.mailboxes import Mailboxes
from tidelog_server.mailboxes.registry import Registry
from tidelog_server.rpc.calls import CallSupervisor
from tidelog_server.rpc.context import Context, Method
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import candidates
from tidelog_server.rpc.services.mailboxes.bodies import Bodies
from tidelog_server.rpc.web.bounds import ApiBounds
from tidelog_server.rpc.web.context import HttpContext
from tidelog_server.security.access import Access, current_access
from tidelog_server.security.grants import OF_MAILBOXES, Verb
from tidelog_server.security.permissions import Row

# Locks that the HTTP API remembers with their mailboxes; the mailbox of another one is searched.
MAX_REMEMBERED_LOCKS: Final = 16_384

SERVICE: Final = pb.DESCRIPTOR.services_by_name["MailboxService"]
_MANAGERS: Final = frozenset((Verb.MAILBOX_MANAGE,))
SEARCH: Final = "search"
"""A call that does nothing but make its request, for a search in ``make`` of its Pending.

It needs what a list of mailboxes needs: to be known. A search finds what the caller has a permission on.
"""


async def _no_content() -> bytes:
    return b""


@dataclass(slots=True)
class Pending:
    """A request whose content is read once its caller is known and has the permission.

    Attributes:
        make: Makes the request of the content. It may raise OtherAnswerError.
        read: Reads the content. It may raise OtherAnswerError.
        size_bytes: Size of the content; None if it is known after reading only.
        named: The request as far as it is known before its content is read; None if the content names the mailbox.
    """

    make: Callable[[bytes], Awaitable[Message]]
    read: Callable[[], Awaitable[bytes]] = _no_content
    size_bytes: int | None = 0
    named: Message | None = None


class _Begun(NamedTuple):
    """A call whose caller is not known yet. Its length is the size of its content."""

    http: web.Request
    name: str
    pending: Pending

    def __len__(self) -> int:
        return self.pending.size_bytes or 0


class Holder(NamedTuple):
    """A mailbox with a message.

    Attributes:
        mailbox: Its name.
        message_id: Id of the message.
        mid: Its id, see ``mid_of``.
    """

    mailbox: str
    message_id: int
    mid: str


class WebCalls:
    """Calls for requests by HTTP.

    Attributes:
        bounds: Bound the calls.
    """

    def __init__(
        self,
        supervisor: CallSupervisor,
        methods: Mapping[str, Method],
        registry: Registry,
        opened: Mailboxes,
        bounds: ApiBounds,
    ) -> None:
        """Make calls.

        Args:
            supervisor: Wraps the methods in the checks of calls by gRPC.
            methods: Handlers of MailboxService.
            registry: Mailboxes of this node.
            opened: Those that are open.
            bounds: Bound the calls.
        """
        self.bounds = bounds
        self._registry = registry
        self._opened = opened
        self._bodies = Bodies(opened.blobs)
        self._methods = {
            name: supervisor.local(descriptor, methods[name], self._begin)
            for name, descriptor in SERVICE.methods_by_name.items()
            if not descriptor.client_streaming
        }
        self._methods[SEARCH] = supervisor.local(SERVICE.methods_by_name["ListMailboxes"], _nothing, self._begin)
        # Mailboxes of locks that were fetched by HTTP, the oldest first.
        self._mailbox_of_lock: OrderedDict[bytes, str] = OrderedDict()

    async def call(self, request: web.Request, name: str, message: Message | Pending) -> Any:
        """Make a call and return its response; of a stream, the last message; of SEARCH, its request.

        Raises:
            RefusedCallError: It was refused, or failed.
            OtherAnswerError: The request could not be made.
        """
        pending = _ready(message) if isinstance(message, Message) else message
        context: Any = HttpContext(request)
        response = await self._methods[name](_Begun(request, name, pending), context)
        if response is not None:
            return response
        return GetMessageClass(SERVICE.methods_by_name[name].output_type).FromString(context.written)

    async def _begin(self, call: _Begun, access: Access | None, row: Row) -> Message:
        """Return the request of a call whose caller is known.

        A call with credentials begins before its content is read.
        """
        pending = call.pending
        if access is None:
            with self.bounds.arriving(call.http):
                content = await pending.read()
            self.bounds.begin(call.http)
            return await pending.make(content)
        if pending.read is not _no_content:
            _check_first(access, row, pending.named, call.name)
        self.bounds.begin(call.http)
        content = await pending.read()
        if pending.size_bytes is None:
            await access.quota.received(len(content), 0)
            await access.quota.turn(len(content) // CALL_COST_BYTES, 0)
        return await pending.make(content)

    def exists(self, name: str) -> bool:
        """Return whether a mailbox exists on any node."""
        return name in self._registry.catalog.records

    def max_lease_ms(self, name: str) -> int | None:
        """Return the longest lease of a mailbox; None if it does not exist."""
        record = self._registry.catalog.records.get(name)
        return None if record is None else record.settings.max_lease_ms

    def remember_lock(self, lock_id: bytes, mailbox: str) -> None:
        """Remember the mailbox of a lock."""
        if len(self._mailbox_of_lock) >= MAX_REMEMBERED_LOCKS:
            self._mailbox_of_lock.popitem(last=False)
        self._mailbox_of_lock[lock_id] = mailbox

    async def holder_of_lock(self, request: web.Request, lock_id: bytes) -> Holder | None:
        """Return the leased message under a lock, in a mailbox of this node on which the caller has a permission.

        Call it within a call, for ``make`` of a Pending.
        """
        name = self._mailbox_of_lock.get(lock_id)
        first = self._opened.opened_by_name(name) if name is not None and self.exists(name) else None
        return await self._find(lambda log: log.state.locks.message_of(lock_id), self._looks(request), first)

    async def holder_of_key(self, request: web.Request, key: str) -> Holder | None:
        """Return the message that was sent with a deduplication key, if a mailbox of this node still has it.

        See ``holder_of_lock``.
        """
        return await self._find(lambda log: log.state.keys.find(key, 0), self._looks(request), None)

    async def leasing(self, request: web.Request) -> list[str]:
        """Return the mailboxes of this node with leases that the caller manages. See ``holder_of_lock``.

        Raises:
            PermissionDeniedError: The caller manages no mailbox.
        """
        access = current_access()
        if access is not None:
            access.require_somewhere(Verb.MAILBOX_MANAGE)
        names = self._visible(_MANAGERS, self._looks(request))
        return [name async for name in names if (log := self._opened_or_none(name)) and log.state.leases]

    def _looks(self, request: web.Request) -> Looks:
        context: Any = HttpContext(request)
        return Looks.of(self._opened.shared.node, context)

    async def _visible(self, verbs: frozenset[Verb], looks: Looks) -> AsyncIterator[str]:
        """Yield the mailboxes of this node on which the caller has one of ``verbs``, in turns."""
        access = current_access()
        async for name in candidates(self._registry.catalog.names, verbs, looks):
            if self._registry.is_own(name) and (access is None or access.may(verbs, name)):
                yield name

    def _opened_or_none(self, name: str) -> Mailbox | None:
        record = self._registry.catalog.records.get(name)
        return None if record is None else self._opened.opened(record.mailbox_id)

    async def _find(self, message_of: Callable[[Mailbox], int], looks: Looks, first: Mailbox | None) -> Holder | None:
        """Return the message that ``message_of`` finds in a mailbox, ``first`` before others, the open before the rest.

        After a start, the mailboxes that are not open yet are opened one after another; only those on which the caller
        has a permission.
        """
        if first is not None and _is_seen(first.name) and (found := await self._held(first, message_of)):
            return found
        closed = list[str]()
        async for name in self._visible(OF_MAILBOXES, looks):
            if (log := self._opened_or_none(name)) is None:
                closed.append(name)
            elif found := await self._held(log, message_of):
                return found
        for name in closed:
            try:
                log = await self._opened.open(name)
            except (MailboxNotExistError, NotOwnerError, DataLossError):
                # Deleted or moved meanwhile; or damaged, which calls on it report.
                continue
            await looks.take()
            if found := await self._held(log, message_of):
                return found
        return None

    async def _held(self, log: Mailbox, message_of: Callable[[Mailbox], int]) -> Holder | None:
        message_id = message_of(log)
        if not message_id:
            return None
        stored = await self._opened.reader.messages(log, [message_id])
        message = (await self._bodies.complete(stored)).get(message_id)
        if message is None:
            return None
        return Holder(log.name, message_id, mid_of(message.body, message.headers, message.blob_key))


def mid_of(body: bytes, headers: Mapping[str, str], blob_key: bytes) -> str:
    """Return pandora's id of a message, in hexadecimal digits.

    It is the SHA-1 of the body. A body that is not stored any more, or too large to deliver, has the id of the header
    ``mid``, or the key of its blob.
    """
    if body or not blob_key:
        return hashlib.sha1(body, usedforsecurity=False).hexdigest()
    return headers.get("mid", blob_key.hex())


def _ready(message: Message) -> Pending:
    async def make(_: bytes) -> Message:
        return message

    return Pending(make, size_bytes=message.ByteSize())


def _check_first(access: Access, row: Row, named: Message | None, name: str) -> None:
    """Check before the content is read that a call may be permitted. Raises PermissionDeniedError."""
    if named is not None:
        row.check(access, named)
    elif row.needs:
        for verb, _ in row.needs(GetMessageClass(SERVICE.methods_by_name[name].input_type)()):
            access.require_somewhere(verb)


def _is_seen(mailbox: str) -> bool:
    access = current_access()
    return access is None or access.may(OF_MAILBOXES, mailbox)


async def _nothing(request: Message, _: Context) -> Message:
    return request
