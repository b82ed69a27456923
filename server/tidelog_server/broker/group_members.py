"""The members of a consumer group: who holds which vchannel, under which epoch, until when. Pure; no clock, no I/O.

A vchannel has one holder at a time. One that shall move is first revoked: its holder finishes, commits and releases it,
and only then, or when his time is up, somebody else gets it, under a greater epoch. Everything else goes on meanwhile,
as in Kafka's cooperative rebalancing (KIP-429); that the server decides who gets what is from its successor (KIP-848).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog_server.broker.group_balance import balanced
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.tenants import NO_TENANT, Tenant


@dataclass(slots=True, eq=False)
class Member:
    """A consumer that joined.

    Attributes:
        member_id: Unique in its group.
        description: What it says of itself.
        channels: Those that it wants vchannels of.
        lease_s: How long it lives without a sign.
        release_within_s: How long it may take to release a vchannel.
        expires_s: When it is gone unless it gives a sign.
        on_changed: Called when its holdings have changed, or it is gone.
        is_gone: Whether it was removed.
        incarnation: Of its process; 0 if it does not say.
        cause: Why it is gone, if that is known.
        tenant: The tenant of the principal that let it join.
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
    """A vchannel that a member holds.

    Attributes:
        vchannel: Its full name.
        member: Who holds it.
        epoch: Greater than that of whoever held it before.
        next_tick: Where it was to begin.
        release_by_s: When it is taken away; None while nobody waits for it.
    """

    vchannel: str
    member: Member
    epoch: int
    next_tick: int
    release_by_s: float | None = None


class Grants(NamedTuple):
    """Where new holdings get their values from.

    Attributes:
        next_epoch: Returns a number that was never returned before, greater than all before.
        next_tick: Returns the group's position on a vchannel.
    """

    next_epoch: Callable[[], int]
    next_tick: Callable[[str], int]


@dataclass(slots=True)
class GroupMembers:
    """The members of one group.

    Attributes:
        members: By id, in the order in which they joined.
        holdings: By vchannel.
    """

    members: dict[str, Member] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)

    def join(self, member: Member) -> None:
        """Add a member; follow with ``rebalance``."""
        assert member.member_id not in self.members
        self.members[member.member_id] = member

    def remove(self, member: Member) -> None:
        """Remove a member with its holdings; follow with ``rebalance``. Once more is no error."""
        if self.members.get(member.member_id) is not member:
            return
        del self.members[member.member_id]
        for vchannel in self.held_by(member):
            del self.holdings[vchannel]
        member.is_gone = True
        member.on_changed()

    def held_by(self, member: Member) -> list[str]:
        """Return the vchannels that a member holds, in order of name."""
        return sorted(vchannel for vchannel, holding in self.holdings.items() if holding.member is member)

    def holds(self, vchannel: str, member_id: str, epoch: int) -> bool:
        """Tell whether the member holds the vchannel under this epoch."""
        holding = self.holdings.get(vchannel)
        return holding is not None and (holding.member.member_id, holding.epoch) == (member_id, epoch)

    def release(self, vchannel: str, member_id: str, epoch: int) -> bool:
        """Take a vchannel back that its member gives, and return whether it held it; follow with ``rebalance``."""
        if not self.holds(vchannel, member_id, epoch):
            return False
        self._take(self.holdings[vchannel])
        return True

    def restart(self, vchannel: str, grants: Grants) -> None:
        """Let the holder of a vchannel, if there is one, begin anew at the group's position."""
        holding = self.holdings.get(vchannel)
        if holding is not None:
            holding.epoch, holding.next_tick = grants.next_epoch(), grants.next_tick(vchannel)
            holding.member.on_changed()

    def expire(self, now_s: float) -> list[Member]:
        """Remove the members whose lease ran out, and take what was not released in time; follow with ``rebalance``.

        Returns:
            Those members.
        """
        expired = [member for member in self.members.values() if member.expires_s <= now_s]
        for member in expired:
            self.remove(member)
        for holding in list(self.holdings.values()):
            if holding.release_by_s is not None and holding.release_by_s <= now_s:
                self._take(holding)
        return expired

    def rebalance(self, vchannels: Mapping[str, str], grants: Grants, now_s: float) -> None:
        """Give every vchannel a holder, and ask those for some who have too many.

        Args:
            vchannels: All that the group is subscribed to, each with its channel.
            grants: Where new holdings get their values from.
            now_s: The time.
        """
        candidates = {
            vchannel: [member.member_id for member in self.members.values() if channel in member.channels]
            for vchannel, channel in vchannels.items()
        }
        for vchannel, holding in list(self.holdings.items()):
            if holding.member.member_id not in candidates.get(vchannel, ()):
                self._take(holding)
        held = {vchannel: holding.member.member_id for vchannel, holding in self.holdings.items()}
        leaving = {vchannel for vchannel, holding in self.holdings.items() if holding.release_by_s is not None}
        for vchannel, member_id in balanced(held, candidates, leaving).items():
            self._move(vchannel, self.members[member_id], grants, now_s)

    def _move(self, vchannel: str, member: Member, grants: Grants, now_s: float) -> None:
        """Bring a vchannel one step nearer to ``member``."""
        holding = self.holdings.get(vchannel)
        if holding is None:
            self.holdings[vchannel] = Holding(vchannel, member, grants.next_epoch(), grants.next_tick(vchannel))
            member.on_changed()
        elif holding.member is not member and holding.release_by_s is None:
            holding.release_by_s = now_s + holding.member.release_within_s
            holding.member.on_changed()
        elif holding.member is member and holding.release_by_s is not None:
            # Who waited for it is gone.
            holding.release_by_s = None
            member.on_changed()

    def _take(self, holding: Holding) -> None:
        del self.holdings[holding.vchannel]
        holding.member.on_changed()
