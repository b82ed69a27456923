"""Mailbox calls of the asynchronous client: create, configure, describe, list and delete."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tidelog.admin import mailbox_types as _wire
from tidelog.admin.mailbox_types import DEFAULT_SETTINGS, MailboxDescription, MailboxSettings
from tidelog.errors import ChannelNotFoundError, MailboxNotFoundError, NotOwnerError
from tidelog.journals.calls import AnyNode, no_transport
from tidelog.transport.deadline import Deadline
from tidelog.transport.looks import Looks
from tidelog.transport.service_calls import ServiceCalls
from tidelog.v1 import mailbox_service_pb2 as pb

_Result = TypeVar("_Result")


class AsyncMailboxCalls(ServiceCalls):
    """Mailboxes: ``AsyncClient.mailboxes``. In a cluster, the owner of a mailbox answers; see ``AsyncCluster``."""

    async def create(
        self, name: str, settings: MailboxSettings = DEFAULT_SETTINGS, *, if_not_exists: bool = False
    ) -> MailboxDescription:
        """Create a mailbox, durably, and return it.

        Args:
            name: Its name: 1 to 256 bytes of UTF-8 without control characters.
            settings: Its settings; those that are None have their default values.
            if_not_exists: Return an existing mailbox, whatever its settings.

        Raises:
            MailboxAlreadyExistsError: The name is taken. Nothing was created.
            MailboxNotFoundError: ``dead_letter`` does not exist. Nothing was created.
            DeadLetterCycleError: ``dead_letter`` is the mailbox itself. Nothing was created.
            InvalidRequestError: The name is invalid, or a setting is out of its range. Nothing was created.
            TypeError: A setting has another type.
        """
        request = pb.CreateMailboxRequest(
            name=name, settings=_wire.settings_to_wire(settings), if_not_exists=if_not_exists
        )
        # A retry is safe only if the mailbox may exist already.
        answer = await self._change(self._services.mailboxes.CreateMailbox, request, is_idempotent=if_not_exists)
        return _wire.description(answer.mailbox)

    async def configure(self, name: str, settings: MailboxSettings) -> MailboxDescription:
        """Change settings of a mailbox, durably, and return it. Settings that are None keep their values.

        Raises:
            MailboxNotFoundError: The mailbox, or ``dead_letter``, does not exist. Nothing was changed.
            DeadLetterCycleError: Dead letters would form a cycle. Nothing was changed.
            InvalidRequestError: Every setting is None, one is out of its range, two contradict each other, or another
                node owns ``dead_letter``. Nothing was changed.
            TypeError: A setting has another type.
        """
        request = pb.ConfigureMailboxRequest(name=name, settings=_wire.settings_to_wire(settings))
        answer = await self._change(self._services.mailboxes.ConfigureMailbox, request, is_idempotent=True)
        return _wire.description(answer.mailbox)

    async def describe(self, name: str) -> MailboxDescription:
        """Return a mailbox with the counts of its messages. Raises MailboxNotFoundError."""
        return _wire.described(
            await self._read(self._services.mailboxes.DescribeMailbox, pb.DescribeMailboxRequest(name=name))
        )

    async def list(self, prefix: str = "") -> tuple[MailboxDescription, ...]:
        """Return the mailboxes whose names begin with ``prefix``, in order of name, without counts."""
        deadline = Deadline(self.timeout_s)
        request = pb.ListMailboxesRequest(prefix=prefix)
        return tuple(
            [
                _wire.description(each)
                async for answer in self._pages(lambda services: services.mailboxes.ListMailboxes, request, deadline)
                for each in answer.mailboxes
            ]
        )

    async def delete(self, name: str, *, ignore_missing: bool = False) -> bool:
        """Delete a mailbox with its messages, durably, and return whether it existed.

        Raises:
            MailboxNotFoundError: It does not exist, and ``ignore_missing`` is not set.
            MailboxInUseError: Dead letters of another mailbox go there. Nothing was deleted.
        """
        request = pb.DeleteMailboxRequest(name=name, ignore_missing=ignore_missing)
        answer: pb.DeleteMailboxResponse = await self._change(self._services.mailboxes.DeleteMailbox, request)
        return answer.existed

    async def channel_of(self, name: str) -> str:
        """Return the channel of a mailbox of any node. Empty if it does not exist, or the caller may not see it."""
        # Of the names that begin with ``name``, itself is the first.
        request = pb.ListMailboxesRequest(prefix=name, page_size=1)
        found = (await self._read(self._services.mailboxes.ListMailboxes, request)).mailboxes
        return found[0].channel if found and found[0].name == name else ""


class AsyncClusterMailboxCalls(AsyncMailboxCalls):
    """Mailboxes: ``AsyncCluster.mailboxes``. The owner of a mailbox answers, any node lists and creates them."""

    def __init__(
        self, any_node: AnyNode, client_of: Callable[[str, Deadline], Awaitable[Any]], timeout_s: float
    ) -> None:
        """Create the calls; does no I/O. ``client_of`` returns a client of the node that owns a channel."""
        super().__init__(no_transport, timeout_s)
        self._any_node = any_node
        self._client_of = client_of
        # Channels of mailboxes by name; one may belong to a mailbox that was deleted.
        self._channels: dict[str, str] = {}

    async def create(
        self, name: str, settings: MailboxSettings = DEFAULT_SETTINGS, *, if_not_exists: bool = False
    ) -> MailboxDescription:
        """See ``AsyncMailboxCalls.create``. The mailbox is placed on the node of ``dead_letter`` if that is set."""
        return await self._changed(
            settings.dead_letter or "", lambda calls: calls.create(name, settings, if_not_exists=if_not_exists)
        )

    async def configure(self, name: str, settings: MailboxSettings) -> MailboxDescription:
        """See ``AsyncMailboxCalls.configure``."""
        return await self._changed(name, lambda calls: calls.configure(name, settings))

    async def describe(self, name: str) -> MailboxDescription:
        """See ``AsyncMailboxCalls.describe``."""
        deadline = Deadline(self.timeout_s)
        return await self.at_owner(name, lambda client: client.within(deadline).mailboxes.describe(name), deadline)

    async def list(self, prefix: str = "") -> tuple[MailboxDescription, ...]:
        """See ``AsyncMailboxCalls.list``."""
        return await self._any_node(lambda client: client.mailboxes.list(prefix), Deadline(self.timeout_s))

    async def delete(self, name: str, *, ignore_missing: bool = False) -> bool:
        """See ``AsyncMailboxCalls.delete``."""
        return await self._changed(name, lambda calls: calls.delete(name, ignore_missing=ignore_missing))

    async def _changed(self, owner_of: str, call: Callable[[AsyncMailboxCalls], Awaitable[_Result]]) -> _Result:
        """Return the answer to a change of the owner of a mailbox; of any node if ``owner_of`` is empty."""
        deadline = Deadline(self.timeout_s)

        async def within(client: Any) -> _Result:
            return await call(client.within(deadline).mailboxes)

        if owner_of:
            return await self.at_owner(owner_of, within, deadline, is_read=False)
        return await self._any_node(within, deadline, is_read=False)

    async def channel_of(self, name: str, deadline: Deadline | None = None) -> str:
        """See ``AsyncMailboxCalls.channel_of``; ``deadline`` is that of a call with several requests."""
        deadline = deadline or Deadline(self.timeout_s)
        return await self._any_node(lambda client: client.mailboxes.channel_of(name), deadline)

    async def at_owner(
        self, name: str, call: Callable[[Any], Awaitable[_Result]], deadline: Deadline, *, is_read: bool = True
    ) -> _Result:
        """Return the answer of the owner of a mailbox to ``call``, which gets the node's client.

        The search for the owner ends at ``deadline``; ``call`` must bound its request by it.
        A mailbox that no node lists is asked of any node, whose answer states the reason. An owner that does not know
        the mailbox yet is asked again for up to two seconds.
        """
        looks = Looks(deadline)
        while True:
            channel = self._channels.get(name) or await self.channel_of(name, deadline)
            if not channel:
                return await self._any_node(call, deadline, is_read=is_read)
            try:
                answer = await call(await self._client_of(channel, deadline))
            except (MailboxNotFoundError, ChannelNotFoundError, NotOwnerError) as error:
                self._channels.pop(name, None)
                await looks.again(error)
            else:
                self._channels[name] = channel
                return answer
