"""Where new channels go: to the node that has least. Pure."""

import heapq
from collections.abc import Mapping


def place(loads: Mapping[str, int], channels: int, vchannels: int) -> list[str]:
    """Return the node of each of ``channels`` new channels that have ``vchannels`` vchannels.

    Args:
        loads: Vchannels of each node that may get some; not empty.
        channels: How many are new.
        vchannels: Of each.

    Each goes to the node that has fewest vchannels by then; of several, the one whose name comes first. So a cluster
    fills evenly, and the same loads give the same places.
    """
    heap = [(load, node_id) for node_id, load in loads.items()]
    heapq.heapify(heap)
    placed = []
    for _ in range(channels):
        load, node_id = heap[0]
        placed.append(node_id)
        heapq.heapreplace(heap, (load + vchannels, node_id))
    return placed
