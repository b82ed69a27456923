"""Acknowledgements of broadcasts, and waits for them."""

import asyncio
from collections import deque
from collections.abc import Sequence

from tidelog_server.broadcast.records import Tombstone
from tidelog_server.broadcast.saver import BroadcastSaver
from tidelog_server.broadcast.table import Task
from tidelog_server.core.broadcasts import BroadcastState, KeyName
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import (
    BroadcastAbortedError,
    BroadcastNotExistError,
    BroadcastVchannelUnknownError,
)
from tidelog_server.core.names import parse_vchannel_name
from tidelog_server.log.node import LogNode


class BroadcastAcks:
    """Records which vchannels have acknowledged a broadcast. Lives on the event loop."""

    def __init__(self, node: LogNode, saver: BroadcastSaver) -> None:
        self._node = node
        self._saver = saver
        self._table, self._keys, self._live = saver.table, saver.keys, saver.live

    async def ack(self, broadcast_id: int, vchannels: Sequence[str]) -> None:
        """Persist that vchannels have acknowledged a broadcast. Repeated and late acknowledgements succeed.

        The name of a channel stands for all of its vchannels that the broadcast includes. Acknowledgements that arrive
        during a commit share the next one. Cancelling ends the wait only.

        Raises:
            BroadcastNotExistError: The broadcast was never accepted. Nothing happened.
            BroadcastVchannelUnknownError: The broadcast does not include one of the vchannels. Nothing happened.
            InvalidNameError, InvalidRequestError: A name is invalid. Nothing happened.
            StorageFailedError, ShutdownError: See ``effect``.
        """
        self._node.admission.check_storage()
        for name in vchannels:
            parse_vchannel_name(name)
        if (live := self._live.get(broadcast_id)) is not None and broadcast_id not in self._table.open:
            # A client that chose the id may acknowledge before the broadcast is accepted.
            await asyncio.shield(live.outcome)
        self._check_accepted(broadcast_id)
        found = self._table.find(broadcast_id)
        if not isinstance(found, Task):
            return
        by_name = found.acks_by_name()
        acks = 0
        for name in vchannels:
            if name not in by_name:
                raise BroadcastVchannelUnknownError(broadcast_id=broadcast_id, vchannel=name)
            acks |= by_name[name]
        found.mark_acked(acks, self._saver.now_ms())
        await self._saver.saved(found)

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
            awaited = [each for each in self._keys.holders(name) if each in self._live or each in self._table.open]
        unfinished = deque(awaited)
        with self._saver.watching(awaited, tenant) as changed:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        # Check storage first: a broadcast whose acceptance failed is in no table, yet not finished.
                        self._node.admission.check_storage()
                        if self._is_acked(unfinished, once=once, may_be_aborted=name is not None):
                            break
                        changed.clear()
                        await changed.wait()
            except TimeoutError:
                return awaited
        return []

    def _check_accepted(self, broadcast_id: int) -> None:
        is_known = broadcast_id in self._live or self._table.find(broadcast_id) is not None
        # The sender is unknown, so any tenant's floor counts: an id at or below it may have been accepted and finished.
        if not is_known and broadcast_id > self._table.floors.highest:
            raise BroadcastNotExistError(broadcast_id)

    def _is_acked(self, unfinished: deque[int], *, once: bool, may_be_aborted: bool) -> bool:
        """Return True if the wait is over; remove finished broadcasts from ``unfinished``."""
        if once and unfinished:
            if any(self._acks(each) for each in unfinished):
                return True
            return any(self._is_over(each, may_be_aborted=may_be_aborted) for each in unfinished)
        while unfinished and self._is_over(unfinished[0], may_be_aborted=may_be_aborted):
            unfinished.popleft()
        return not unfinished

    def _is_over(self, broadcast_id: int, *, may_be_aborted: bool) -> bool:
        found = self._table.find(broadcast_id)
        if isinstance(found, Tombstone) and found.state is BroadcastState.ABORTED and not may_be_aborted:
            raise BroadcastAbortedError(broadcast_id=broadcast_id, abort_reason=found.abort_reason)
        return (
            not isinstance(found, Task) and broadcast_id not in self._live and broadcast_id not in self._saver.in_doubt
        )

    def _acks(self, broadcast_id: int) -> int:
        task = self._table.open.get(broadcast_id)
        return 0 if task is None else task.durable.acked
