"""Journal calls of the asynchronous client: apply, list and watch."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

from tidelog.journals import types as _wire
from tidelog.journals.types import JournalChange, JournalSpec, ListRequest, ListResponse
from tidelog.transport.deadline import Deadline
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.transport import Transport
from tidelog.v1 import journal_service_pb2 as pb

_Result = TypeVar("_Result")

EVERY_JOURNAL: Final = ListRequest()
"""Selects every journal."""


class AsyncJournalCalls(ServiceCalls):
    """Journals: ``AsyncClient.journals``. In a cluster any node answers.

    The frames of a journal are the messages of the vchannel ``<spec.channel>/0``.
    """

    async def apply(self, changes: Iterable[JournalChange]) -> tuple[JournalSpec, ...]:
        """Create, change and delete 1 to 60 journals, all or none, durably; return those that were not deleted.

        Deleting a journal deletes its frames, and ends its use by members of groups.

        Raises:
            JournalRevisionError: A journal has another revision than expected. Nothing was applied.
            InvalidRequestError: A name or label is invalid, a journal is named twice, or there are too many changes.
                Nothing was applied.
        """
        wire = list(map(_wire.change_to_wire, changes))
        # With any revision, repeating the changes has the same result.
        is_idempotent = all(change.expected_revision == _wire.ANY_REVISION for change in wire)
        answer = await self._change(
            self._services.journals.ApplyJournals, pb.ApplyJournalsRequest(changes=wire), is_idempotent=is_idempotent
        )
        return tuple(map(_wire.spec, answer.journals))

    async def list(self, request: ListRequest = EVERY_JOURNAL) -> ListResponse:
        """Return the journals that ``request`` selects, in order of name.

        Raises:
            InvalidRequestError: The selector has too many terms.
        """
        deadline = Deadline(self.timeout_s)
        wire = pb.ListJournalsRequest(selector=_wire.selector_to_wire(request.selector))
        return ListResponse(
            tuple(
                [
                    _wire.spec(each)
                    async for answer in self._pages(lambda services: services.journals.ListJournals, wire, deadline)
                    for each in answer.journals
                ]
            )
        )

    async def watch(self, request: ListRequest = EVERY_JOURNAL) -> AsyncGenerator[ListResponse, None]:
        """Yield the journals that ``request`` selects, then all of them again after every change. Never ends by itself.

        Changes that come in quick succession may be yielded together.

        Raises:
            InvalidRequestError: The selector has too many terms.
            UnavailableError: The first answer did not arrive within the timeout; or the server, of a version that sends
                heartbeats, was silent for ``Retry.give_up_s`` and an interval of at most 10 s; or the connection was
                lost: watch again.
        """
        known: dict[str, JournalSpec] = {}
        wire = pb.WatchJournalsRequest(selector=_wire.selector_to_wire(request.selector))
        answers = self._watched(lambda connection: connection.journals.WatchJournals, wire)
        async with aclosing(answers) as changes:
            async for answer in changes:
                for name in answer.gone:
                    known.pop(name, None)
                known.update((each.name, _wire.spec(each)) for each in answer.journals)
                if answer.is_complete:
                    yield ListResponse(tuple(known[name] for name in sorted(known)))


class AnyNode(Protocol):
    """Makes a call to any node of a cluster."""

    async def __call__(
        self, call: Callable[[Any], Awaitable[_Result]], deadline: Deadline, *, is_read: bool = True
    ) -> _Result:
        """Return the answer of a node to ``call``, which gets the node's client; one that is not a read bounds it."""
        ...


class AsyncClusterJournalCalls(AsyncJournalCalls):
    """Journals: ``AsyncCluster.journals``. Any node answers; the owner of its channel has the frames of a journal."""

    def __init__(self, any_node: AnyNode, timeout_s: float) -> None:
        """Create the calls; does no I/O."""
        super().__init__(no_transport, timeout_s)
        self._any_node = any_node

    async def apply(self, changes: Iterable[JournalChange]) -> tuple[JournalSpec, ...]:
        """See ``AsyncJournalCalls.apply``."""
        several, deadline = list(changes), Deadline(self.timeout_s)
        return await self._any_node(
            lambda client: client.within(deadline).journals.apply(several), deadline, is_read=False
        )

    async def list(self, request: ListRequest = EVERY_JOURNAL) -> ListResponse:
        """See ``AsyncJournalCalls.list``."""
        return await self._any_node(lambda client: client.journals.list(request), Deadline(self.timeout_s))

    async def watch(self, request: ListRequest = EVERY_JOURNAL) -> AsyncGenerator[ListResponse, None]:
        """See ``AsyncJournalCalls.watch``. It ends with its node; a new watch asks another one."""
        deadline = Deadline(self.timeout_s)
        node = await self._any_node(_reached, deadline)
        async with aclosing(node.within(deadline).journals.watch(request)) as watched:
            async for listed in watched:
                yield listed


def no_transport() -> Transport:
    """Fail: the calls of a cluster have no transport of their own."""
    raise AssertionError("the calls of a cluster have no transport of their own")


async def _reached(client: Any) -> Any:
    """Return the client of a node that answers."""
    await client.wal_name()
    return client
