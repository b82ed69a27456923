"""Broadcasts: one message to many vchannels, in one atomic write and at one tick.

All entries of a broadcast are one append to the committer and have the same base tick. So it is in the log of all its
vchannels or of none, and a reader that has read each of them up to that tick has a consistent snapshot: an aligned
barrier.
"""

from collections.abc import Sequence
from typing import Final

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.producers import ProducerKey, ProducerSequence
from tidelog_server.log.append import Batch
from tidelog_server.log.channel_log import LogContext
from tidelog_server.log.pending import PendingAppend, Settled
from tidelog_server.log.protocols import Place

WINDOW_PREFIX: Final = "_broadcast-"
"""Prefix of the windows that broadcasts have, as producers do; producer ids must not begin with it."""


def window_key(vchannel_id: int, broadcast_id: int) -> ProducerKey:
    """Return the key of the window that records whether a broadcast is in the log; ``vchannel_id`` is its first one."""
    return vchannel_id, f"{WINDOW_PREFIX}{broadcast_id}"


def try_append_broadcast(
    node: LogContext,
    broadcast_id: int,
    targets: Sequence[Place],
    batch: Batch,
    *,
    barrier_tick: int,
    forget: Sequence[ProducerKey],
    on_settled: Settled,
) -> PendingAppend | None:
    """Append ``batch`` to all targets at once; None if the oracle cannot allocate a tick now: then ``prepare`` it.

    A window is written with it, so that a restart knows that the broadcast is in the log even if it was trimmed. The
    broadcast was accepted before, so no temporary condition refuses it here.

    Args:
        node: Log of the node.
        broadcast_id: Id of the broadcast.
        targets: At least one; distinct vchannels, whose channels are not closed before this is settled.
        batch: One message.
        barrier_tick: Lower bound of its tick, exclusive.
        forget: Windows of earlier broadcasts to delete.
        on_settled: Called once with the outcome.
    """
    assert batch.count == 1
    assert 0 < len({vchannel.vchannel_id for _, vchannel in targets}) == len(targets)
    tick = node.oracle.try_allocate(1, barrier_tick)
    if tick is None:
        return None
    message_type, columns_crc32c, columns = batch.message_type, batch.columns_crc32c, batch.columns
    # Positional arguments, because there may be a thousand entries.
    entries = [
        NewEntry(vchannel.vchannel_id, tick, 1, message_type, columns_crc32c, columns, None, None, broadcast_id)
        for _, vchannel in targets
    ]
    append = PendingAppend(entries, True, on_settled)
    first_id, name = window_key(targets[0][1].vchannel_id, broadcast_id)
    node.producers.note(first_id, ProducerSequence(name, 0, 1), append)
    append.windows = (*append.windows, *map(node.producers.remove, forget))
    for (log, vchannel), entry in zip(targets, entries, strict=True):
        log.enter(vchannel, entry)
    node.committer.submit(append)
    return append
