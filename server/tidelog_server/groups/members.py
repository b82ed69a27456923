"""The members of a consumer group: which member holds which vchannel, under which epoch. Pure: no clock, no I/O.

A vchannel has one holder at a time. To move a vchannel, the server revokes it first: its holder finishes, commits and
releases it. After that, or after ``release_within_s``, the next member gets it under a greater epoch. All other
vchannels are consumed meanwhile.

Source: Kafka's cooperative rebalancing (KIP-429), with the assignment by the server as in its successor (KIP-848).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.groups.balance import balanced


@dataclass(slots=True, eq=False)
class Member:
    """A consumer that joined.

    Attributes:
        member_id: Id, unique in the group.
        description: Free text from the member.
        channels: Channels of which it consumes vchannels.
        lease_s: Lifetime without a keepalive, in seconds.
        release_within_s: Maximum time to release a revoked vchannel, in seconds.
        expires_s: Time of the expiry on the caller's clock, in seconds.
        on_changed: Called when the member's holdings changed or the member was removed.
        is_gone: True once the member was removed.
        incarnation: Incarnation of the member's process; 0 if the member does not state one.
        cause: Why the member was removed, if known.
        tenant: Tenant of the member's principal.
    """

    member_id: str
    description: str
    channels: frozenset[str]
    lease_s: float
    release_within_s: float
    expires_s: float
    on_changed: Callable[[], None]
    is_gone: bool = False
    incarnation: int = 0
    cause: TidelogServerError | None = None
    tenant: Tenant = NO_TENANT


@dataclass(slots=True, eq=False)
class Holding:
    """A vchannel held by a member.

    Attributes:
        vchannel: Full name.
        member: Holder of the vchannel.
        epoch: Epoch of the holding, greater than those of all earlier ones.
        next_tick: Tick at which the holder starts.
        release_by_s: Time at which the vchannel is taken away; None unless it is being revoked.
    """

    vchannel: str
    member: Member
    epoch: int
    next_tick: int
    release_by_s: float | None = None


class Grants(NamedTuple):
    """Sources of the values of new holdings.

    Attributes:
        next_epoch: Returns a number greater than all that it returned before.
        next_tick: Returns the group's position on a vchannel.
    """

    next_epoch: Callable[[], int]
    next_tick: Callable[[str], int]


@dataclass(slots=True)
class GroupMembers:
    """The members of one group.

    Attributes:
        members: Members by id, in the order in which they joined.
        holdings: Holdings by vchannel.
    """

    members: dict[str, Member] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)

    def join(self, member: Member) -> None:
        """Add a member; follow with ``rebalance``."""
        assert member.member_id not in self.members
        assert not member.is_gone
        self.members[member.member_id] = member

    def remove(self, member: Member) -> None:
        """Remove a member with its holdings; follow with ``rebalance``. Idempotent."""
        if self.members.get(member.member_id) is not member:
            return
        del self.members[member.member_id]
        for vchannel in self.held_by(member):
            del self.holdings[vchannel]
        member.is_gone = True
        member.on_changed()

    def held_by(self, member: Member) -> list[str]:
        """Return the vchannels that a member holds, sorted by name."""
        return sorted(vchannel for vchannel, holding in self.holdings.items() if holding.member is member)

    def held(self) -> dict[str, list[str]]:
        """Return the vchannels that each member holds, sorted by name, in one pass over all of them."""
        held: dict[str, list[str]] = {}
        for vchannel in sorted(self.holdings):
            held.setdefault(self.holdings[vchannel].member.member_id, []).append(vchannel)
        return held

    def holds(self, vchannel: str, member_id: str, epoch: int) -> bool:
        """Return True if the member holds the vchannel under this epoch."""
        holding = self.holdings.get(vchannel)
        return holding is not None and (holding.member.member_id, holding.epoch) == (member_id, epoch)

    def release(self, vchannel: str, member_id: str, epoch: int) -> bool:
        """End a member's holding; return False if there is no such holding. Follow with ``rebalance``."""
        if not self.holds(vchannel, member_id, epoch):
            return False
        self._take(self.holdings[vchannel])
        return True

    def restart(self, vchannel: str, grants: Grants) -> None:
        """Restart the holder of a vchannel, if any, at the group's position, under a new epoch."""
        holding = self.holdings.get(vchannel)
        if holding is not None:
            epoch = grants.next_epoch()
            assert holding.epoch < epoch
            holding.epoch, holding.next_tick = epoch, grants.next_tick(vchannel)
            holding.member.on_changed()

    def expire(self, now_s: float) -> list[Member]:
        """Remove members whose lease expired, and end holdings that were not released in time.

        Follow with ``rebalance``.

        Returns:
            The removed members.
        """
        expired = [member for member in self.members.values() if member.expires_s <= now_s]
        for member in expired:
            self.remove(member)
        for holding in list(self.holdings.values()):
            if holding.release_by_s is not None and holding.release_by_s <= now_s:
                self._take(holding)
        return expired

    def rebalance(self, vchannels: Mapping[str, str], grants: Grants, now_s: float) -> None:
        """Assign all free vchannels, and revoke vchannels of members that hold too many.

        Args:
            vchannels: Subscribed vchannels, each with its channel.
            grants: Sources of the values of new holdings.
            now_s: Current time in seconds.
        """
        for vchannel, holding in list(self.holdings.items()):
            if vchannels.get(vchannel) not in holding.member.channels:
                self._take(holding)
        candidates: dict[str, list[str]] = {channel: [] for channel in vchannels.values()}
        for member in self.members.values():
            for channel in member.channels.intersection(candidates):
                candidates[channel].append(member.member_id)
        held = {vchannel: holding.member.member_id for vchannel, holding in self.holdings.items()}
        leaving = {vchannel for vchannel, holding in self.holdings.items() if holding.release_by_s is not None}
        for vchannel, member_id in balanced(held, vchannels, candidates, leaving).items():
            self._move(vchannel, self.members[member_id], grants, now_s)
        assert self.holdings.keys() <= vchannels.keys()
        assert all(self.members.get(each.member.member_id) is each.member for each in self.holdings.values())

    def _move(self, vchannel: str, member: Member, grants: Grants, now_s: float) -> None:
        """Make one step of moving a vchannel to ``member``: assign it, revoke it, or cancel a revocation."""
        holding = self.holdings.get(vchannel)
        if holding is None:
            self.holdings[vchannel] = Holding(vchannel, member, grants.next_epoch(), grants.next_tick(vchannel))
            member.on_changed()
        elif holding.member is not member and holding.release_by_s is None:
            holding.release_by_s = now_s + holding.member.release_within_s
            holding.member.on_changed()
        elif holding.member is member and holding.release_by_s is not None:
            # The member that was to get it is gone: cancel the revocation.
            holding.release_by_s = None
            member.on_changed()

    def _take(self, holding: Holding) -> None:
        assert self.holdings.get(holding.vchannel) is holding
        del self.holdings[holding.vchannel]
        holding.member.on_changed()
