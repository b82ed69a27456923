"""Assignment of a consumer group's vchannels to its members. Pure."""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush


def balanced(
    held: Mapping[str, str], candidates: Mapping[str, Sequence[str]], leaving: Collection[str] = ()
) -> dict[str, str]:
    """Return a balanced assignment of vchannels to members that moves as few vchannels as possible.

    The numbers of vchannels of two members differ by at most one, unless ``candidates`` prevents that. A vchannel moves
    only if balance requires it. Source: Kafka's sticky assignor (KIP-54).

    Args:
        held: Current member of each assigned vchannel.
        candidates: All vchannels, each with the members that may hold it.
        leaving: Vchannels that are already being revoked; of a member's vchannels, these move first.

    Returns:
        The member of each vchannel; vchannels without candidates are left out.
    """
    loads: dict[str, list[str]] = {member: [] for members in candidates.values() for member in members}
    assignment: dict[str, str] = {}
    for vchannel, members in candidates.items():
        member = held.get(vchannel)
        if member is not None and member in members:
            assignment[vchannel] = member
            loads[member].append(vchannel)
    for vchannel, members in candidates.items():
        if vchannel not in assignment and members:
            member = _least(members, loads)
            assignment[vchannel] = member
            loads[member].append(vchannel)
    for vchannels in loads.values():
        vchannels.sort(key=lambda vchannel: vchannel in leaving)
    while _even_out(assignment, loads, candidates):
        pass
    assert all(member in candidates[vchannel] for vchannel, member in assignment.items())
    return assignment


def _even_out(assignment: dict[str, str], loads: dict[str, list[str]], candidates: Mapping[str, Sequence[str]]) -> bool:
    """Move vchannels from the most loaded members to members with at least two fewer; return True if any moved.

    Repeated calls terminate: each move reduces the sum of the squares of the loads.
    """
    has_moved = False
    order = {member: number for number, member in enumerate(loads)}
    heap = [(-len(vchannels), order[member], member) for member, vchannels in loads.items()]
    heapify(heap)
    while heap:
        load, _, member = heappop(heap)
        if -load != len(loads[member]):
            # A stale heap item: the member's load has changed since, and was pushed again.
            continue
        found = next(
            (vchannel for vchannel in reversed(loads[member]) if _gap(member, candidates[vchannel], loads) >= 2), None
        )
        if found is None:
            continue
        other = _least(candidates[found], loads)
        loads[member].remove(found)
        loads[other].append(found)
        assignment[found] = other
        has_moved = True
        for each in (member, other):
            heappush(heap, (-len(loads[each]), order[each], each))
    return has_moved


def _least(members: Sequence[str], loads: Mapping[str, list[str]]) -> str:
    return min(members, key=lambda member: len(loads[member]))


def _gap(member: str, members: Sequence[str], loads: Mapping[str, list[str]]) -> int:
    return len(loads[member]) - min(len(loads[each]) for each in members)
