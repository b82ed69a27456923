"""Broadcasts: one message to many vchannels, in one atomic write and at one tick.

All entries of a broadcast are one append to the committer and have the same base tick. So it is in the log of all its
vchannels or of none, and whoever has read each of them up to that tick has the same moment on all: an aligned barrier.
"""

from collections.abc import Sequence
from typing import Final

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.producers import ProducerKey, ProducerSequence
from tidelog_server.log.batch import Batch
from tidelog_server.log.channel_log import ChannelLog, NodeLog, VchannelLog
from tidelog_server.log.committer import PendingAppend, Settled

WINDOW_PREFIX: Final = "_broadcast-"
"""Begins the names under which broadcasts have windows, as producers do; no producer may have such a name."""

Target = tuple[ChannelLog, VchannelLog]


def window_key(vchannel_id: int, broadcast_id: int) -> ProducerKey:
    """Return the key of the window that says whether a broadcast is in the log; ``vchannel_id`` is its first."""
    return vchannel_id, f"{WINDOW_PREFIX}{broadcast_id}"


def try_append_broadcast(
    node: NodeLog,
    broadcast_id: int,
    targets: Sequence[Target],
    batch: Batch,
    *,
    barrier_tick: int,
    forget: Sequence[ProducerKey],
    on_settled: Settled,
) -> PendingAppend | None:
    """Append ``batch`` to all targets at once; None if the oracle cannot give a tick now: then ``prepare`` it.

    With it a window is written, so that a restart knows whether it is in the log, also when it was trimmed there. Who
    calls this has accepted the broadcast, so nothing that can be waited out refuses it.

    Args:
        node: The node.
        broadcast_id: Its number.
        targets: At least one, no vchannel twice; none is closed before this is settled.
        batch: One message.
        barrier_tick: Its tick must be greater.
        forget: Windows of earlier broadcasts that nobody needs any more.
        on_settled: Called once with the outcome.
    """
    assert batch.count == 1
    tick = node.oracle.try_allocate(1, barrier_tick)
    if tick is None:
        return None
    message_type, columns_crc32c, columns = batch.message_type, batch.columns_crc32c, batch.columns
    # Positional, for there may be a thousand.
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
