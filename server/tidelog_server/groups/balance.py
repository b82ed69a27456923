"""Assignment of a consumer group's vchannels to its members. Pure."""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import compress


def moves(
    holders: Mapping[str, Collection[str]],
    vchannels: Mapping[str, str],
    members: Mapping[str, Sequence[str]],
    leaving: Collection[str] = (),
) -> dict[str, str]:
    """Return the few moves of vchannels that make an assignment to members balanced.

    Then the numbers of vchannels of two members differ by at most one, unless ``members`` prevents that: no vchannel
    could move to a member that has at least two fewer. A vchannel moves only for that, and if all members consume the
    same channels, as few move as possible. Source: Kafka's sticky assignor (KIP-54).

    Cost: if all channels have the same members, the moves, times the logarithm of the members, and some passes over the
    vchannels at the speed of a copy. Each further set of members adds its size for each pass.

    Args:
        holders: The vchannels of each member, all of them in ``vchannels``, and all of channels that it may hold.
        vchannels: All vchannels, each with its channel.
        members: The members that may hold the vchannels of each channel, in the order of preference.
        leaving: Vchannels that are already being revoked; of a member's vchannels, these move first.

    Returns:
        The new member of each vchannel that moves, and of each that no member has and one may hold.
    """
    loads = {member: len(holders.get(member, ())) for each in members.values() for member in each}
    pools = _pools(holders, vchannels, members, loads)
    for pool in pools:
        pool.assign_free()
    if leaving:
        for pool in pools:
            pool.put_last(leaving)
    # Ends, because each move reduces the sum of the squares of the loads.
    while sum(pool.even_out() for pool in pools):
        pass
    return {vchannel: member for pool in pools for vchannel, member in pool.moved.items()}


class _Pool:
    """The vchannels of all channels that have the same members.

    Attributes:
        members: The members.
        loads: Number of vchannels of each member, also of other pools.
        held: Vchannels of each member, the first to move last.
        free: Vchannels without a member.
        moved: New member of each vchannel that has moved.
    """

    def __init__(self, members: Sequence[str], loads: dict[str, int]) -> None:
        self.members = members
        self.loads = loads
        self.held: dict[str, list[str]] = {member: [] for member in members}
        self.free: list[str] = []
        self.moved: dict[str, str] = {}

    def assign_free(self) -> None:
        """Assign each free vchannel to the member with the fewest vchannels."""
        lightest = self._lightest() if self.free else []
        for vchannel in self.free:
            load, number = lightest[0]
            heapreplace(lightest, (load + 1, number))
            self._give(vchannel, self.members[number])
        self.free.clear()

    def put_last(self, leaving: Collection[str]) -> None:
        """Put the vchannels that are being revoked where they move first."""
        for own in self.held.values():
            own.sort(key=leaving.__contains__)

    def even_out(self) -> bool:
        """Move vchannels from the members with the most to those with the fewest; return whether any moved.

        Afterwards no member that holds one has two more than another member.

        Why the heaps need no entries for members that have received or given: no member has more than the one that
        gives, nor fewer than the one that receives, and their loads stay at least one apart. So a member that has given
        never receives, nor the other way round.
        """
        of = self.loads.__getitem__
        most = max(map(of, compress(self.members, map(self.held.__getitem__, self.members))), default=0)
        if most - min(map(of, self.members)) < 2:
            return False
        heaviest = [(-of(member), number) for number, member in enumerate(self.members) if self.held[member]]
        lightest = self._lightest()
        heapify(heaviest)
        has_moved = False
        while heaviest and -heaviest[0][0] - lightest[0][0] >= 2:
            (negated, giver), (fewest, taker) = heaviest[0], lightest[0]
            self._move(self.members[giver], self.members[taker])
            has_moved = True
            heapreplace(lightest, (fewest + 1, taker))
            if self.held[self.members[giver]]:
                heapreplace(heaviest, (negated + 1, giver))
            else:
                heappop(heaviest)
        return has_moved

    def _lightest(self) -> list[tuple[int, int]]:
        lightest = [(self.loads[member], number) for number, member in enumerate(self.members)]
        heapify(lightest)
        return lightest

    def _give(self, vchannel: str, member: str) -> None:
        self.held[member].append(vchannel)
        self.moved[vchannel] = member
        self.loads[member] += 1

    def _move(self, giver: str, taker: str) -> None:
        self.loads[giver] -= 1
        self._give(self.held[giver].pop(), taker)


def _pools(
    holders: Mapping[str, Collection[str]],
    vchannels: Mapping[str, str],
    members: Mapping[str, Sequence[str]],
    loads: dict[str, int],
) -> list[_Pool]:
    """Return the pools with what is held, those with few members first: others can make way for them."""
    by_members: dict[tuple[str, ...], _Pool] = {}
    of_channel: dict[str, _Pool] = {}
    for channel, each in members.items():
        if each:
            of_channel[channel] = by_members.setdefault(tuple(each), _Pool(each, loads))
    pools = sorted(by_members.values(), key=lambda pool: len(pool.members))
    if len(pools) == 1:
        (pool,) = pools
        for member, own in holders.items():
            pool.held[member].extend(own)
    else:
        for member, own in holders.items():
            for vchannel in own:
                of_channel[vchannels[vchannel]].held[member].append(vchannel)
    if sum(map(len, holders.values())) < len(vchannels):
        held = set().union(*holders.values())
        for vchannel, channel in vchannels.items():
            if vchannel not in held and channel in of_channel:
                of_channel[channel].free.append(vchannel)
    return pools
