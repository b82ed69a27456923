"""Placement of new channels: on the node with the fewest vchannels. Pure."""

import heapq
from collections.abc import Mapping


def place(loads: Mapping[str, int], channels: int, vchannels: int) -> list[str]:
    """Return the node id for each of ``channels`` new channels.

    Each channel goes to the node with the fewest vchannels, counting those placed before it; ties go to the smallest
    node id. So a cluster fills evenly, and equal loads give equal placements.

    Args:
        loads: Number of vchannels of each candidate node; not empty.
        channels: Number of new channels.
        vchannels: Number of vchannels of each new channel.
    """
    heap = [(load, node_id) for node_id, load in loads.items()]
    heapq.heapify(heap)
    placed = []
    for _ in range(channels):
        load, node_id = heap[0]
        placed.append(node_id)
        heapq.heapreplace(heap, (load + vchannels, node_id))
    return placed
