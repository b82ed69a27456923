"""Trims the logs from which states are folded."""

from tidelog_server.core.ticks import Tick
from tidelog_server.log.channel_log import VchannelLog
from tidelog_server.log.node import LogNode


def kept_bytes(node: LogNode, vchannel: VchannelLog) -> int:
    """Return the bytes of a log that are not trimmed."""
    tail = node.store.tail(vchannel.vchannel_id)
    return tail.columns_bytes - tail.trimmed_bytes


async def trim_below(node: LogNode, vchannel: VchannelLog, tick: int) -> None:
    """Remove the messages of a log below ``tick``, which the snapshot of its state must not exceed."""
    # Ordering: set before the trim is submitted, as for other trims.
    vchannel.trim_tick = Tick(tick)
    tail = await node.committer.run(lambda: node.store.trim(vchannel.vchannel_id, tick))
    vchannel.trim_tick = Tick(tail.trim_tick)
    node.reclaim_wanted.set()
