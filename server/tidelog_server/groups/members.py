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
from tidelog_server.groups.balance import moves


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
        holdings: Its holdings by vchannel.
        unsent: Vchannels whose holding began, changed or ended since the last ``take_changes`` or ``take_all``.
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
    holdings: "dict[str, Holding]" = field(default_factory=dict)
    unsent: set[str] = field(default_factory=set)

    def change(self, vchannel: str) -> None:
        """Note that the holding of a vchannel began, changed or ended."""
        self.unsent.add(vchannel)
        self.on_changed()

    def take_all(self) -> "Changes":
        """Return all holdings, sorted by vchannel; they count as sent."""
        self.unsent.clear()
        return Changes([self.holdings[vchannel] for vchannel in sorted(self.holdings)], [], is_complete=True)

    def take_changes(self) -> "Changes":
        """Return what changed since it was taken last; it counts as sent. The cost is that of the changes."""
        names = sorted(self.unsent)
        self.unsent.clear()
        return Changes(
            [self.holdings[vchannel] for vchannel in names if vchannel in self.holdings],
            [vchannel for vchannel in names if vchannel not in self.holdings],
            is_complete=False,
        )


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


class Changes(NamedTuple):
    """Holdings of one member.

    Attributes:
        held: Holdings that are new or have changed, or all, sorted by vchannel.
        lost: Vchannels that it no longer holds, sorted.
        is_complete: True if ``held`` has all holdings.
    """

    held: list[Holding]
    lost: list[str]
    is_complete: bool


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
        leaving: Those of them that are being revoked.

    Invariant: ``holdings`` is the union of those of ``members``, which are disjoint.
    """

    members: dict[str, Member] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)
    leaving: dict[str, Holding] = field(default_factory=dict)

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
        for vchannel in member.holdings:
            del self.holdings[vchannel]
            self.leaving.pop(vchannel, None)
        member.holdings.clear()
        member.is_gone = True
        member.on_changed()

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
            holding.member.change(vchannel)

    def expire(self, now_s: float) -> list[Member]:
        """Remove members whose lease expired, and end holdings that were not released in time.

        Follow with ``rebalance``.

        Returns:
            The removed members.
        """
        expired = [member for member in self.members.values() if member.expires_s <= now_s]
        for member in expired:
            self.remove(member)
        for holding in list(self.leaving.values()):
            assert holding.release_by_s is not None
            if holding.release_by_s <= now_s:
                self._take(holding)
        return expired

    def rebalance(self, vchannels: Mapping[str, str], grants: Grants, now_s: float) -> None:
        """Assign all free vchannels, and revoke vchannels of members that hold too many.

        Args:
            vchannels: Subscribed vchannels, each with its channel.
            grants: Sources of the values of new holdings.
            now_s: Current time in seconds.
        """
        for holding in [
            each for vchannel, each in self.holdings.items() if vchannels.get(vchannel) not in each.member.channels
        ]:
            self._take(holding)
        candidates: dict[str, list[str]] = {channel: [] for channel in vchannels.values()}
        for member in self.members.values():
            for channel in member.channels.intersection(candidates):
                candidates[channel].append(member.member_id)
        holders = {member_id: member.holdings for member_id, member in self.members.items() if member.holdings}
        moved = moves(holders, vchannels, candidates, self.leaving)
        for vchannel, member_id in moved.items():
            self._move(vchannel, self.members[member_id], grants, now_s)
        for holding in [each for vchannel, each in self.leaving.items() if vchannel not in moved]:
            self._move(holding.vchannel, holding.member, grants, now_s)
        assert self.holdings.keys() <= vchannels.keys()
        assert sum(len(member.holdings) for member in self.members.values()) == len(self.holdings)

    def _move(self, vchannel: str, member: Member, grants: Grants, now_s: float) -> None:
        """Make one step of moving a vchannel to ``member``: assign it, revoke it, or cancel a revocation."""
        holding = self.holdings.get(vchannel)
        if holding is None:
            holding = Holding(vchannel, member, grants.next_epoch(), grants.next_tick(vchannel))
            self.holdings[vchannel] = member.holdings[vchannel] = holding
            member.change(vchannel)
        elif holding.member is not member and holding.release_by_s is None:
            holding.release_by_s = now_s + holding.member.release_within_s
            self.leaving[vchannel] = holding
            holding.member.change(vchannel)
        elif holding.member is member and holding.release_by_s is not None:
            # The member that was to get it is gone: cancel the revocation.
            holding.release_by_s = None
            del self.leaving[vchannel]
            member.change(vchannel)

    def _take(self, holding: Holding) -> None:
        assert self.holdings.get(holding.vchannel) is holding
        del self.holdings[holding.vchannel], holding.member.holdings[holding.vchannel]
        self.leaving.pop(holding.vchannel, None)
        holding.member.change(holding.vchannel)
