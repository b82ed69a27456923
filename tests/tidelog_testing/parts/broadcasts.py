"""Broadcasts below gRPC: requests, and their messages in the log."""

from collections.abc import Sequence

from tidelog_server.broadcast.admission import BroadcastRequest
from tidelog_server.broadcast.records import digest_of
from tidelog_server.core.broadcasts import KeyName, ResourceKey
from tidelog_server.core.ticks import MAX_TICK
from tidelog_testing.parts.batches import a_batch, payloads_of
from tidelog_testing.parts.nodes import Node


def a_key(key: str, *, shared: bool = False, domain: str = "d") -> ResourceKey:
    """Return a resource key."""
    return ResourceKey(KeyName(domain, key), shared)


def a_broadcast(
    vchannels: Sequence[str],
    payload: bytes = b"payload",
    *,
    keys: Sequence[ResourceKey] = (),
    broadcast_id: int = 0,
    wait_s: float = 0.0,
) -> BroadcastRequest:
    """Return what the rpc layer makes of a request."""
    batch, in_order = a_batch(payload), tuple(sorted(keys))
    digest = digest_of(vchannels, in_order, batch.columns)
    return BroadcastRequest(list(vchannels), batch, in_order, digest, broadcast_id, wait_s)


def in_log(node: Node, vchannel: str) -> list[tuple[int, int, bytes]]:
    """Return broadcast id, tick and payload of each message of a vchannel in the store."""
    _, lane = node.directory.find(vchannel)
    entries = node.log.store.read(lane.vchannel_id, 0, MAX_TICK, 1 << 30)
    return [
        (entry.header.broadcast_id, entry.header.base_tick + number, payload)
        for entry in entries
        for number, payload in enumerate(payloads_of(entry.columns))
    ]
