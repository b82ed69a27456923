"""The members of all consumer groups of a node: drives ``members`` with time, epochs and positions.

Members are in memory only. After a restart they join again under greater epochs, so commits under older epochs are
refused.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from time import thread_time
from typing import Final, NamedTuple

import structlog

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import ChannelNotExistError, RateLimitRejectedError
from tidelog_server.core.errors.groups import GroupInUseError, GroupMemberFencedError, GroupNotExistError
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.usage import Usage
from tidelog_server.groups.members import Changes, Grants, GroupMembers, Member
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.clock import AwakeClock
from tidelog_server.runtime.tasks import TaskOwner

MAX_MEMBERS_PER_GROUP: Final = 256
MAX_MEMBERS: Final = 10_000
# Time for a member whose stream broke to reconnect before its vchannels are reassigned.
RECONNECT_WITHIN_S: Final = 0.5

_SWEEP_EVERY_S: Final = 0.1
# Minimum pause between two rebalances of a group: this, and this multiple of the time that the first one took.
_MIN_PAUSE_S: Final = 0.005
_PAUSE_FACTOR: Final = 4
# A longer delay of a sweep counts as a pause of the process, during which no lease runs out.
_MAX_PAUSE_S: Final = 0.2
# The members of a group without any. Never changed.
_NOBODY: Final = GroupMembers()
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
        accepts_changes: False if the member expects all of its holdings each time.
    """

    member_id: str
    description: str
    channels: frozenset[str]
    lease_s: float
    release_within_s: float
    incarnation: int = 0
    tenant: Tenant = NO_TENANT
    accepts_changes: bool = False


class MemberState(NamedTuple):
    """The state of a member, with its vchannels and the seconds until its lease expires."""

    member: Member
    vchannels: list[str]
    expires_in_s: float


class MemberSession:
    """A call's access to its member. Ends when the member is removed or another call attaches to it.

    Attributes:
        changed: Set when the holdings changed, the member was removed, or another call attached to it.
        is_stale: True if one of these happened since the last ``take``.
        member: The member.
    """

    def __init__(
        self, sessions: "GroupSessions", group: str, changed: asyncio.Event, *, accepts_changes: bool = False
    ) -> None:
        self.changed = changed
        self.is_stale = True
        self._sessions = sessions
        self._group = group
        self._accepts_changes = accepts_changes
        self._has_taken = False
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

    def take(self) -> Changes:
        """Return the member's holdings: all at first, then, if the caller accepts that, only what has changed."""
        self.is_stale = False
        if self._has_taken and self._accepts_changes:
            return self.member.take_changes()
        self._has_taken = True
        return self.member.take_all()

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
        # Time from which each group may be rebalanced again, and the groups with a scheduled rebalance.
        self._next_s: dict[str, float] = {}
        # Of groups that have members: the channel of each vchannel, as of a version of the positions.
        self._channels: dict[str, tuple[int, Mapping[str, str]]] = {}
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
        session = MemberSession(self, group, asyncio.Event(), accepts_changes=terms.accepts_changes)
        member = members.members.get(terms.member_id)
        if member is None:
            self._check_room(group, members, terms.tenant)
            member = Member(
                terms.member_id, terms.description, terms.channels, terms.lease_s, terms.release_within_s, 0.0,
                on_changed=lambda: None,
                tenant=terms.tenant,
            )  # fmt: skip
            members.join(member)
            self._groups[group] = members
            _log.info("group_member_joined", group=group, member_id=terms.member_id, members=len(members.members))
        elif member.incarnation != terms.incarnation or not terms.incarnation:
            # A new process under this id has not received the earlier holdings; new epochs fence the old process.
            self.restart(group, sorted(member.holdings))
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
        members = self._groups.get(group, _NOBODY)
        released = [members.release(vchannel, member_id, epoch) for vchannel, epoch in vchannels]
        if any(released):
            self.changed(group)

    def remove(self, group: str, member: Member) -> None:
        """Remove a member, and rebalance."""
        self._groups[group].remove(member)
        _log.info("group_member_left", group=group, member_id=member.member_id)
        self.changed(group)

    def changed(self, group: str) -> None:
        """Rebalance after members or subscriptions changed: now, or after a pause since the last rebalance.

        Why a pause: a rebalance visits all vchannels and members, and hundreds of members may join or release at once.
        With it, the rebalances of a group take at most a fifth of the event loop's time.
        """
        if group in self._due:
            return
        loop = asyncio.get_running_loop()
        next_s = self._next_s.get(group)
        if next_s is None or next_s <= loop.time():
            self._rebalance(group)
        else:
            self._due.add(group)
            loop.call_at(next_s, self._rebalance, group)

    def _rebalance(self, group: str) -> None:
        self._due.discard(group)
        self._next_s.pop(group, None)
        members = self._groups.get(group)
        if members is None:
            return
        if not members.members:
            del self._groups[group]
            self._channels.pop(group, None)
            return
        begin_s = thread_time()
        members.rebalance(self._channels_of(group), self._grants(group), self._clock.now_s())
        took_s = thread_time() - begin_s
        self._next_s[group] = asyncio.get_running_loop().time() + took_s + max(_MIN_PAUSE_S, _PAUSE_FACTOR * took_s)

    def _channels_of(self, group: str) -> Mapping[str, str]:
        """Return the vchannels to which a group is subscribed, each with its channel."""
        version, channels = self._channels.get(group, (-1, {}))
        if version != self._positions.version:
            channels = {vchannel: vchannel.rpartition("/")[0] for vchannel in self._positions.of_group(group)}
            self._channels[group] = self._positions.version, channels
        return channels

    def restart(self, group: str, vchannels: Sequence[str]) -> None:
        """Restart the holders of vchannels at the group's positions, under new epochs."""
        members = self._groups.get(group, _NOBODY)
        for vchannel in vchannels:
            members.restart(vchannel, self._grants(group))

    def destroyed(self, group: str) -> None:
        """Remove all members of a group that is being destroyed."""
        members = self._groups.pop(group, _NOBODY)
        self._next_s.pop(group, None)
        self._channels.pop(group, None)
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

    def holder(self, group: str, vchannel: str) -> str:
        """Return the id of the member that holds a vchannel; empty if none does."""
        holding = self._groups.get(group, _NOBODY).holdings.get(vchannel)
        return "" if holding is None else holding.member.member_id

    def members(self, group: str) -> list[MemberState]:
        """Return the members of a group, in the order in which they joined."""
        now_s = self._clock.now_s()
        return [
            MemberState(member, sorted(member.holdings), max(0.0, member.expires_s - now_s))
            for member in self._groups.get(group, _NOBODY).members.values()
        ]

    def count(self, group: str | None = None) -> int:
        """Return the number of members of a group, or of all groups."""
        if group is None:
            return sum(len(members.members) for members in self._groups.values())
        return len(self._groups.get(group, _NOBODY).members)

    def check_may_commit(self, key: GroupKey, member_id: str, epoch: int) -> None:
        """Check that a caller may commit a position.

        Raises:
            GroupMemberFencedError: The member does not hold the vchannel under this epoch.
            GroupInUseError: ``member_id`` is empty, and a member holds the vchannel.
        """
        if not member_id:
            self.check_not_held(key.group, (key.vchannel,))
            return
        if not self._groups.get(key.group, _NOBODY).holds(key.vchannel, member_id, epoch):
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
