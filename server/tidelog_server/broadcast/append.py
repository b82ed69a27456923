"""Broadcasts: one message to many vchannels, in one atomic write and at one tick.

All entries of a broadcast are one append to the committer and have the same base tick. So it is in the log of all its
vchannels or of none, and a reader that has read each of them up to that tick has a consistent snapshot: an aligned
barrier.
"""

from collections.abc import Callable, Sequence

from tidelog_server.broadcast.rows import LOGGED, LoggedKey
from tidelog_server.core.entries import NewEntry
from tidelog_server.log.append import Settled, TickedAppend
from tidelog_server.log.batch import Batch
from tidelog_server.log.channel_log import LogContext
from tidelog_server.log.protocols import Place


class BroadcastAppend(TickedAppend):
    """The append of a broadcast to all its vchannels."""

    __slots__ = ("_batch", "_broadcast_id", "_node", "_take_unneeded", "_targets")

    def __init__(
        self,
        node: LogContext,
        broadcast_id: int,
        targets: Sequence[Place],
        batch: Batch,
        *,
        barrier_tick: int,
        take_unneeded: Callable[[], Sequence[LoggedKey]],
        on_settled: Settled,
    ) -> None:
        """Create it; nothing is submitted yet.

        Args:
            node: Log of the node.
            broadcast_id: Id of the broadcast.
            targets: At least one; distinct vchannels, whose channels are not closed before this is settled.
            batch: One message.
            barrier_tick: Lower bound of its tick, exclusive.
            take_unneeded: Called once, at the submission; returns rows of earlier broadcasts to delete.
            on_settled: Called once with the outcome.
        """
        assert batch.count == 1
        assert 0 < len({vchannel.vchannel_id for _, vchannel in targets}) == len(targets)
        super().__init__(1, barrier_tick, True, on_settled)
        self._node = node
        self._broadcast_id = broadcast_id
        self._targets = targets
        self._batch = batch
        self._take_unneeded = take_unneeded

    def try_submit(self) -> bool:
        """See TickedAppend.

        The broadcast was accepted before, so no temporary condition refuses it here.
        """
        node, batch, broadcast_id, targets = self._node, self._batch, self._broadcast_id, self._targets
        tick = node.oracle.try_allocate(1, self.barrier_tick)
        if tick is None:
            return False
        message_type, columns_crc32c, columns = batch.message_type, batch.columns_crc32c, batch.columns
        # Positional arguments, because there may be a thousand entries.
        entries = [
            NewEntry(vchannel.vchannel_id, tick, 1, message_type, columns_crc32c, columns, None, None, broadcast_id)
            for _, vchannel in targets
        ]
        self.entries = entries
        key = LoggedKey(targets[0][1].vchannel_id, broadcast_id)
        self.rows = (LOGGED.row(key, tick), *map(LOGGED.gone, self._take_unneeded()))
        for (log, vchannel), entry in zip(targets, entries, strict=True):
            log.enter(vchannel, entry)
        node.committer.submit(self)
        return True
