"""The members of all consumer groups of a node: drives ``members`` with time, epochs and positions.

Members are in memory only. After a restart they join again under greater epochs, so commits under older epochs are
refused.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import structlog

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import ChannelNotExistError, RateLimitRejectedError
from tidelog_server.core.errors.groups import GroupInUseError, GroupMemberFencedError, GroupNotExistError
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.limits import MAX_MEMBERS, MAX_MEMBERS_PER_GROUP, RECONNECT_WITHIN_S
from tidelog_server.core.usage import Usage
from tidelog_server.groups.members import Grants, GroupMembers, Holding, Member
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.clock import AwakeClock
from tidelog_server.runtime.tasks import TaskOwner

_SWEEP_EVERY_S: Final = 0.1
# Minimum interval between two rebalances of a group.
_REBALANCE_EVERY_S: Final = 0.05
# A longer delay of a sweep counts as a pause of the process, during which no lease runs out.
_MAX_PAUSE_S: Final = 0.2
_log = structlog.get_logger()


class JoinTerms(NamedTuple):
    """A request to join a group.

    Attributes:
        member_id: Id, unique in the group.
        description: Free text from the member.
        channels: Channels of which it consumes vchannels; the group is subscribed to them.
        lease_s: Lifetime without a keepalive, in seconds.
        release_within_s: Maximum time to release a revoked vchannel, in seconds.
        incarnation: Incarnation of the member's process; 0 if the member does not state one.
        tenant: Tenant of the member's principal.
    """

    member_id: str
    description: str
    channels: frozenset[str]
    lease_s: float
    release_within_s: float
    incarnation: int = 0
    tenant: Tenant = NO_TENANT


class MemberState(NamedTuple):
    """The state of a member, with its vchannels and the seconds until its lease expires."""

    member: Member
    vchannels: list[str]
    expires_in_s: float


class MemberSession:
    """A call's access to its member. Ends when the member is removed or another call attaches to it.

    Attributes:
        changed: Set when the holdings changed, the member was removed, or another call attached to it.
        is_stale: True if one of these happened since the caller set it to False.
        member: The member.
    """

    def __init__(self, sessions: "GroupSessions", group: str, changed: asyncio.Event) -> None:
        self.changed = changed
        self.is_stale = True
        self._sessions = sessions
        self._group = group
        self.member: Member

    def attach(self, member: Member) -> None:
        """Attach this session to ``member``; the session that was attached before ends."""
        assert not member.is_gone
        replaced, member.on_changed = member.on_changed, self._change
        self.member = member
        replaced()
        self._change()

    @property
    def is_over(self) -> bool:
        """True once the member was removed, or another call attached to it."""
        return self.member.is_gone or self.member.on_changed != self._change

    def holdings(self) -> list[Holding]:
        """Return the member's holdings, sorted by vchannel."""
        return self._sessions.holdings(self._group, self.member)

    def keep_alive(self) -> None:
        """Renew the member's lease."""
        if not self.is_over:
            self._sessions.keep_alive(self.member, self.member.lease_s)

    def release(self, vchannels: Sequence[tuple[str, int]]) -> None:
        """Release vchannels that the member holds under these epochs."""
        if not self.is_over:
            self._sessions.release(self._group, self.member.member_id, vchannels)

    def leave(self) -> None:
        """Remove the member, unless this session is over."""
        if not self.is_over:
            self._sessions.remove(self._group, self.member)

    def _change(self) -> None:
        self.is_stale = True
        self.changed.set()

    def detach(self) -> None:
        """Handle the end of the call: the member is removed unless it rejoins within RECONNECT_WITHIN_S."""
        if not self.is_over:
            self._sessions.keep_alive(self.member, min(RECONNECT_WITHIN_S, self.member.lease_s))


class GroupSessions:
    """The members of all groups. Lives on the event loop; no method except ``open`` waits."""

    def __init__(self, node: LogNode, tasks: TaskOwner, positions: GroupPositions) -> None:
        self._node = node
        self._tasks = tasks
        self._positions = positions
        # Groups that have members.
        self._groups: dict[str, GroupMembers] = {}
        self._epoch = 0
        # Time of each group's last rebalance, and the groups with a scheduled one.
        self._rebalanced_s: dict[str, float] = {}
        self._due: set[str] = set()
        self._clock: AwakeClock

    async def open(self) -> None:
        """Start expiring leases."""
        # A tick is above every epoch of an earlier run: epochs are handed out more slowly than ticks pass.
        self._epoch = await self._node.shared.oracle.allocate(1)
        self._clock = AwakeClock(self._node.shared.clock, _MAX_PAUSE_S)
        self._tasks.keep("groups", self._sweep())

    def join(self, group: str, terms: JoinTerms) -> MemberSession:
        """Add a member, or reattach an existing one.

        Raises:
            RateLimitRejectedError: There are too many members. Nothing happened.
        """
        members = self._groups.get(group) or GroupMembers()
        session = MemberSession(self, group, asyncio.Event())
        member = members.members.get(terms.member_id)
        if member is None:
            self._check_room(group, members, terms.tenant)
            member = Member(
                terms.member_id, terms.description, terms.channels, terms.lease_s, terms.release_within_s, 0.0, _ignore,
                tenant=terms.tenant,
            )  # fmt: skip
            members.join(member)
            self._groups[group] = members
            _log.info("group_member_joined", group=group, member_id=terms.member_id, members=len(members.members))
        elif member.incarnation != terms.incarnation or not terms.incarnation:
            # A new process under this id has not received the earlier holdings; new epochs fence the old process.
            self.restart(group, members.held_by(member))
        member.incarnation = terms.incarnation
        member.description, member.channels = terms.description, terms.channels
        member.lease_s, member.release_within_s = terms.lease_s, terms.release_within_s
        self.keep_alive(member, member.lease_s)
        assert members.members[terms.member_id] is member
        session.attach(member)
        self.changed(group)
        return session

    def keep_alive(self, member: Member, lease_s: float) -> None:
        """Set a member's expiry to ``lease_s`` seconds from now."""
        member.expires_s = self._clock.now_s() + lease_s

    def release(self, group: str, member_id: str, vchannels: Sequence[tuple[str, int]]) -> None:
        """Release vchannels that a member holds under these epochs, and rebalance."""
        members = self._groups.get(group)
        if members is not None:
            released = [members.release(vchannel, member_id, epoch) for vchannel, epoch in vchannels]
            if any(released):
                self.changed(group)

    def remove(self, group: str, member: Member) -> None:
        """Remove a member, and rebalance."""
        self._groups[group].remove(member)
        _log.info("group_member_left", group=group, member_id=member.member_id)
        self.changed(group)

    def changed(self, group: str) -> None:
        """Rebalance after members or subscriptions changed: now, or _REBALANCE_EVERY_S after the last rebalance.

        Why rate-limited: a rebalance visits all vchannels and members, and hundreds of members may join at once.
        """
        if group in self._due:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._rebalanced_s.get(group, -_REBALANCE_EVERY_S) + _REBALANCE_EVERY_S - loop.time()
        if wait_s <= 0:
            self._rebalance(group)
        else:
            self._due.add(group)
            loop.call_later(wait_s, self._rebalance, group)

    def _rebalance(self, group: str) -> None:
        self._due.discard(group)
        self._rebalanced_s[group] = asyncio.get_running_loop().time()
        members = self._groups.get(group)
        if members is None:
            self._rebalanced_s.pop(group, None)
            return
        if members.members:
            vchannels = {vchannel: vchannel.rpartition("/")[0] for vchannel in self._positions.of_group(group)}
            members.rebalance(vchannels, self._grants(group), self._clock.now_s())
        else:
            del self._groups[group]
            self._rebalanced_s.pop(group, None)

    def restart(self, group: str, vchannels: Sequence[str]) -> None:
        """Restart the holders of vchannels at the group's positions, under new epochs."""
        members = self._groups.get(group)
        if members is not None:
            for vchannel in vchannels:
                members.restart(vchannel, self._grants(group))

    def destroyed(self, group: str) -> None:
        """Remove all members of a group that is being destroyed."""
        members = self._groups.pop(group, None)
        if members is not None:
            for member in list(members.members.values()):
                member.cause = GroupNotExistError(group)
                members.remove(member)

    def channels_destroyed(self, channels: Collection[str]) -> None:
        """Remove the members that consume destroyed channels. They receive the cause, and may rejoin without them."""
        for group, members in list(self._groups.items()):
            for member in list(members.members.values()):
                gone = member.channels.intersection(channels)
                if gone:
                    member.cause = ChannelNotExistError(min(gone), "was destroyed")
                    members.remove(member)
                    self.changed(group)

    def holdings(self, group: str, member: Member) -> list[Holding]:
        """Return a member's holdings, sorted by vchannel."""
        members = self._groups.get(group)
        return [] if members is None else [members.holdings[vchannel] for vchannel in members.held_by(member)]

    def holder(self, group: str, vchannel: str) -> str:
        """Return the id of the member that holds a vchannel; empty if none does."""
        members = self._groups.get(group)
        holding = None if members is None else members.holdings.get(vchannel)
        return "" if holding is None else holding.member.member_id

    def members(self, group: str) -> list[MemberState]:
        """Return the members of a group, in the order in which they joined."""
        members = self._groups.get(group)
        if members is None:
            return []
        now_s, held = self._clock.now_s(), members.held()
        return [
            MemberState(member, held.get(member.member_id, []), max(0.0, member.expires_s - now_s))
            for member in members.members.values()
        ]

    def count(self, group: str | None = None) -> int:
        """Return the number of members of a group, or of all groups."""
        if group is None:
            return sum(len(members.members) for members in self._groups.values())
        members = self._groups.get(group)
        return 0 if members is None else len(members.members)

    def check_may_commit(self, key: GroupKey, member_id: str, epoch: int) -> None:
        """Check that a caller may commit a position.

        Raises:
            GroupMemberFencedError: The member does not hold the vchannel under this epoch.
            GroupInUseError: ``member_id`` is empty, and a member holds the vchannel.
        """
        if not member_id:
            self.check_not_held(key.group, (key.vchannel,))
            return
        members = self._groups.get(key.group)
        if members is None or not members.holds(key.vchannel, member_id, epoch):
            raise GroupMemberFencedError(group=key.group, vchannel=key.vchannel, member_id=member_id, epoch=epoch)

    def check_not_held(self, group: str, vchannels: Collection[str]) -> None:
        """Raise GroupInUseError if members hold one of these vchannels."""
        for vchannel in vchannels:
            if self.holder(group, vchannel):
                raise GroupInUseError(
                    group, self.count(group), f"share its vchannels, including {vchannel}: stop them, or join the group"
                )

    def check_empty(self, group: str) -> None:
        """Raise GroupInUseError if the group has members."""
        if self.count(group):
            raise GroupInUseError(group, self.count(group), "consume its vchannels: stop them, or use force")

    def _check_room(self, group: str, members: GroupMembers, tenant: Tenant) -> None:
        for what, count, maximum in (
            (f"group '{group}'", len(members.members), MAX_MEMBERS_PER_GROUP),
            ("the node", self.count(), MAX_MEMBERS),
        ):
            if count >= maximum:
                raise RateLimitRejectedError(
                    f"{what} has {maximum} members, the maximum: stop some first",
                    members=count, max_members=maximum,
                )  # fmt: skip
        usage = Usage()
        for each in self._groups.values():
            for member in each.members.values():
                usage.add(member.tenant, 1)
        percent = self._node.admission.limits.max_principal_percent
        usage.check_share(tenant, 1, MAX_MEMBERS, percent, "members of groups")

    def _grants(self, group: str) -> Grants:
        positions = self._positions.of_group(group)
        return Grants(self._next_epoch, lambda vchannel: positions[vchannel].next_tick)

    def _next_epoch(self) -> int:
        self._epoch += 1
        self._node.metrics.group_assignments.inc()
        return self._epoch

    async def _sweep(self) -> None:
        """Remove expired members, and end holdings that were not released in time. Never returns."""
        while True:
            # Before the first sleep, because the clock stands still if the recovery has taken long.
            self._clock.beat()
            for group, members in list(self._groups.items()):
                held = len(members.holdings)
                expired = members.expire(self._clock.now_s())
                for member in expired:
                    _log.info("group_member_expired", group=group, member_id=member.member_id)
                    self._node.metrics.group_members_expired.inc()
                if expired or len(members.holdings) < held:
                    self.changed(group)
            await asyncio.sleep(_SWEEP_EVERY_S)


def _ignore() -> None:
    """No-op callback."""
