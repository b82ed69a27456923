"""Acknowledging broadcasts, and waiting for acknowledgements."""

import asyncio
from collections import deque
from collections.abc import Sequence

from tidelog_server.broadcast.book import BroadcastBook
from tidelog_server.broadcast.records import Tombstone
from tidelog_server.broadcast.table import Task
from tidelog_server.core.broadcasts import BroadcastState, KeyName
from tidelog_server.core.errors import (
    BroadcastAbortedError,
    BroadcastNotExistError,
    BroadcastVchannelUnknownError,
    ChannelNotExistError,
)
from tidelog_server.core.names import parse_vchannel_name
from tidelog_server.core.tenants import NO_TENANT, Tenant
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Find


class BroadcastAcks:
    """Acknowledgements of the broadcasts of a node. Lives on the event loop."""

    def __init__(self, node: LogNode, book: BroadcastBook, find: Find) -> None:
        self._node = node
        self._book = book
        self._find = find

    async def ack(self, broadcast_id: int, vchannels: Sequence[str]) -> None:
        """Persist that vchannels have acknowledged a broadcast. Repeated and late acknowledgements succeed.

        Acknowledgements that arrive during a commit share the next one. Cancelling ends the wait only.

        Raises:
            BroadcastNotExistError: The broadcast was never accepted. Nothing happened.
            BroadcastVchannelUnknownError: The broadcast does not include one of the vchannels. Nothing happened.
            InvalidNameError, InvalidRequestError: A name is invalid. Nothing happened.
            StorageFailedError, ShutdownError: See ``effect``.
        """
        self._node.admission.check_storage()
        book = self._book
        names = [self._full_name(name) for name in vchannels]
        if (live := book.live.get(broadcast_id)) is not None and broadcast_id not in book.table.open:
            # A client that chose the id may acknowledge before the broadcast is accepted.
            await asyncio.shield(live.outcome)
        self._check_accepted(broadcast_id)
        found = book.table.find(broadcast_id)
        if not isinstance(found, Task):
            return
        positions = found.positions()
        acks = 0
        for name in names:
            if name not in positions:
                raise BroadcastVchannelUnknownError(broadcast_id=broadcast_id, vchannel=name)
            acks |= 1 << positions[name]
        found.mark_acked(acks, book.now_ms())
        await book.saved(found)

    async def wait(
        self,
        broadcast_ids: Sequence[int],
        name: KeyName | None,
        timeout_s: float,
        *,
        once: bool,
        tenant: Tenant = NO_TENANT,
    ) -> list[int]:
        """Wait for acknowledgements; return an empty list once they arrived, or the awaited ids at the timeout.

        Args:
            broadcast_ids: Broadcasts to wait for; if empty, the current holders of ``name``.
            name: A resource key whose holders are awaited. With it, an aborted broadcast counts as finished.
            timeout_s: Maximum wait in seconds.
            once: True to return after one acknowledgement of any of them; False to wait until all are finished.
            tenant: Tenant of the principal that waits.

        Raises:
            BroadcastAbortedError: A broadcast was aborted, and ``name`` is None.
            BroadcastNotExistError: A broadcast is unknown, and its id is too great to be a forgotten one.
            RateLimitRejectedError, ShutdownError, StorageFailedError: Nothing happened.
        """
        self._node.admission.check_storage()
        awaited = list(broadcast_ids)
        if name is None:
            for broadcast_id in awaited:
                self._check_accepted(broadcast_id)
        elif not awaited:
            # Holders that have just acquired the key may still fail to be accepted: exclude them.
            book = self._book
            awaited = [each for each in book.keys.holders(name) if each in book.live or each in book.table.open]
        left = deque(awaited)
        with self._book.watching(awaited, tenant) as changed:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        # Check storage first: a broadcast whose acceptance failed is in no table, yet not finished.
                        self._node.admission.check_storage()
                        if self._is_acked(left, once=once, may_be_aborted=name is not None):
                            break
                        changed.clear()
                        await changed.wait()
            except TimeoutError:
                return awaited
        return []

    def _check_accepted(self, broadcast_id: int) -> None:
        book = self._book
        is_known = broadcast_id in book.live or book.table.find(broadcast_id) is not None
        # The sender is unknown, so any tenant's floor counts: an id at or below it may have been accepted and finished.
        if not is_known and broadcast_id > book.table.floors.highest:
            raise BroadcastNotExistError(broadcast_id)

    def _is_acked(self, left: deque[int], *, once: bool, may_be_aborted: bool) -> bool:
        """Return True if the wait is over; remove finished broadcasts from ``left``."""
        if once and left:
            if any(self._acks(each) for each in left):
                return True
            return any(self._is_over(each, may_be_aborted=may_be_aborted) for each in left)
        while left and self._is_over(left[0], may_be_aborted=may_be_aborted):
            left.popleft()
        return not left

    def _is_over(self, broadcast_id: int, *, may_be_aborted: bool) -> bool:
        found = self._book.table.find(broadcast_id)
        if isinstance(found, Tombstone) and found.state is BroadcastState.ABORTED and not may_be_aborted:
            raise BroadcastAbortedError(broadcast_id=broadcast_id, abort_reason=found.abort_reason)
        book = self._book
        return not isinstance(found, Task) and broadcast_id not in book.live and broadcast_id not in book.in_doubt

    def _acks(self, broadcast_id: int) -> int:
        task = self._book.table.open.get(broadcast_id)
        return 0 if task is None else task.durable.acked

    def _full_name(self, name: str) -> str:
        """Return ``<channel>/<index>`` for a name in either form; the channel may have been destroyed."""
        if parse_vchannel_name(name).index is not None:
            return name
        try:
            return self._find(name)[1].name
        except ChannelNotExistError:
            return f"{name}/0"
