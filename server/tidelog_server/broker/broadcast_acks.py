"""Acknowledging broadcasts, and waiting until others have."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from tidelog_server.broker.broadcast_book import BroadcastBook
from tidelog_server.broker.broadcast_records import Tombstone
from tidelog_server.broker.broadcast_table import Task
from tidelog_server.core.broadcasts import BroadcastState, KeyName
from tidelog_server.core.errors import (
    BroadcastAbortedError,
    BroadcastNotExistError,
    BroadcastVchannelUnknownError,
    ChannelNotExistError,
)
from tidelog_server.core.names import parse_vchannel_name
from tidelog_server.core.tenants import NO_TENANT, Tenant
from tidelog_server.log.broadcast import Target
from tidelog_server.log.node import LogNode


class BroadcastAcks:
    """Acknowledgements of the broadcasts of a node. Lives on the event loop."""

    def __init__(self, node: LogNode, book: BroadcastBook, find: Callable[[str], Target]) -> None:
        self._node = node
        self._book = book
        self._find = find

    async def ack(self, broadcast_id: int, vchannels: Sequence[str]) -> None:
        """Note, durably, that vchannels have acknowledged a broadcast. Doing so twice, or late, is no error.

        Acknowledgements that come while one is made durable share a commit. Cancelling ends the wait only.

        Raises:
            BroadcastNotExistError: The broadcast was never accepted. Nothing happened.
            BroadcastVchannelUnknownError: It is not for one of them. Nothing happened.
            InvalidNameError, InvalidRequestError: A name is none. Nothing happened.
            StorageFailedError, ShutdownError: See ``effect``.
        """
        self._node.admission.check_storage()
        book = self._book
        names = [self._full_name(name) for name in vchannels]
        if (live := book.live.get(broadcast_id)) is not None and broadcast_id not in book.table.open:
            # Named before it is accepted, by somebody who chose the id himself.
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
        found.want_acks(acks, book.now_ms())
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
        """Wait for acknowledgements; return an empty list once they are there, and at the timeout who is waited for.

        Args:
            broadcast_ids: Which broadcasts; if empty, those that hold ``name`` now.
            name: A resource key, whose holders are waited for; then it does not matter why one holds it no more.
            timeout_s: How long.
            once: Whether one acknowledgement of one of them is enough; else all of them must be finished.
            tenant: The tenant of the principal that waits.

        Raises:
            BroadcastAbortedError: One was, and no key was named.
            BroadcastNotExistError: One is not known, and is not among those that are forgotten.
            RateLimitRejectedError, ShutdownError, StorageFailedError: Nothing happened.
        """
        self._node.admission.check_storage()
        wanted = list(broadcast_ids)
        if name is None:
            for broadcast_id in wanted:
                self._check_accepted(broadcast_id)
        elif not wanted:
            # Not those that were given the key this very moment, and may never be accepted.
            book = self._book
            wanted = [each for each in book.keys.holders(name) if each in book.live or each in book.table.open]
        left = deque(wanted)
        with self._book.watching(wanted, tenant) as changed:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        # First: one whose acceptance failed is in no table, and yet not over.
                        self._node.admission.check_storage()
                        if self._is_acked(left, once=once, may_be_aborted=name is not None):
                            break
                        changed.clear()
                        await changed.wait()
            except TimeoutError:
                return wanted
        return []

    def _check_accepted(self, broadcast_id: int) -> None:
        book = self._book
        is_known = broadcast_id in book.live or book.table.find(broadcast_id) is not None
        # Who sent it is not known: one at or below the floor of any tenant may have been accepted and finished.
        if not is_known and broadcast_id > book.table.floors.highest:
            raise BroadcastNotExistError(broadcast_id)

    def _is_acked(self, left: deque[int], *, once: bool, may_be_aborted: bool) -> bool:
        """Tell whether there is nothing to wait for any more; those that are over are taken from ``left``."""
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
        return not isinstance(found, Task) and broadcast_id not in book.live and broadcast_id not in book.unsure

    def _acks(self, broadcast_id: int) -> int:
        task = self._book.table.open.get(broadcast_id)
        return 0 if task is None else task.durable.acked

    def _full_name(self, name: str) -> str:
        """Return ``<channel>/<index>`` for a name in either form, also of a channel that is gone."""
        if parse_vchannel_name(name).index is not None:
            return name
        try:
            return self._find(name)[1].name
        except ChannelNotExistError:
            return f"{name}/0"
