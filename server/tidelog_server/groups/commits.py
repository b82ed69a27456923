"""Moves of consumer groups' positions: by commits, alone or within a transaction, and by consume calls."""

from collections.abc import Callable, Sequence

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import PositionBeyondEndError
from tidelog_server.core.errors.groups import GroupNotSubscribedError, GroupPositionMovedError
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.groups.catalog import GroupRecord
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.groups.sessions import GroupSessions
from tidelog_server.groups.types import Commit
from tidelog_server.log.append import Append, Settled
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Find, MovePositions, no_positions
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.rows import Row


class GroupCommits:
    """Moves positions of the groups of a node. Lives on the event loop."""

    def __init__(
        self, node: LogNode, tasks: TaskOwner, find: Find, record: Callable[[str], GroupRecord],
        *, positions: GroupPositions, sessions: GroupSessions,
    ) -> None:  # fmt: skip
        """Create it.

        Args:
            node: The logs.
            tasks: Owner of background tasks.
            find: Returns a vchannel by name, or raises why it cannot.
            record: Returns the record of a group. Raises GroupNotExistError.
            positions: Positions of all groups, including submitted changes.
            sessions: Members of the groups.
        """
        self._node = node
        self._tasks = tasks
        self._find = find
        self._record = record
        self._positions = positions
        self._sessions = sessions

    def changes(self, commits: Sequence[Commit], *, is_repeatable: bool) -> list[Row]:
        """Move positions forward, all or none; return the changes, which the caller must submit without an await.

        A position never moves back: a smaller ``next_tick`` leaves it unchanged. With ``is_repeatable``, a position
        that is already at ``next_tick`` satisfies any ``expected_tick``.

        Raises:
            GroupNotExistError, GroupNotSubscribedError, ChannelNotExistError: There is no such position.
            GroupMemberFencedError, GroupInUseError: The member does not hold the vchannel; or the commit names no
                member, and a member holds it.
            PositionBeyondEndError: ``next_tick`` is more than 1 above the watermark.
            GroupPositionMovedError: The position is not ``expected_tick``.
        """
        checked: dict[GroupKey, GroupPosition] = {}
        for commit in commits:
            key, position = self._checked(commit, is_repeatable=is_repeatable)
            # One vchannel may be named twice, with and without its index.
            if key not in checked or checked[key].next_tick < position.next_tick:
                checked[key] = position
        assert all(self.position(key).next_tick <= position.next_tick for key, position in checked.items())
        return [self._positions.put(key, position) for key, position in checked.items()]

    def position_move(self, commits: Sequence[Commit]) -> MovePositions:
        """Return a function that moves positions within a transaction; it raises as ``changes``."""
        return (lambda: self.changes(commits, is_repeatable=False)) if commits else no_positions

    def commit(self, commits: Sequence[Commit], on_settled: Settled) -> Append:
        """Move positions forward; call ``on_settled`` once they are durable or failed. Raises as ``changes``."""
        self._node.admission.check_storage()
        append = Append((), True, on_settled, rows=self.changes(commits, is_repeatable=True))
        self._node.committer.submit(append)
        return append

    async def commit_and_wait(self, commits: Sequence[Commit]) -> None:
        """Move positions forward, durably. Cancelling does not stop it. Raises as ``changes``; StorageFailedError."""
        self._node.admission.check_storage()
        await self.finish(self.changes(commits, is_repeatable=True))

    def consumable(self, name: str, vchannel: str) -> GroupPosition:
        """Return the position of a group on a vchannel, given by its full name, that no member holds.

        Raises:
            GroupNotExistError, GroupNotSubscribedError: There is no such position.
            GroupInUseError: A member holds the vchannel.
        """
        self._record(name)
        position = self.position(GroupKey(name, vchannel))
        self._sessions.check_not_held(name, (vchannel,))
        return position

    async def consumed(
        self, key: GroupKey, position: GroupPosition, next_tick: int, consume_id: int, tenant: Tenant = NO_TENANT
    ) -> bool:
        """Move a position to ``next_tick`` for a consume call, durably.

        Return False, without effect, if the position is no longer ``position`` or a member holds the vchannel.
        Cancelling does not stop it.
        """
        self._node.admission.check_storage()
        if self._positions.get(key) is not position or self._sessions.holder(*key):
            return False
        moved = position.after(next_tick, self._node.shared.clock.wall_ms(), consume_id, tenant)
        if position.taken and len(moved.taken) == len(position.taken) and not position.has_called(consume_id):
            self._node.metrics.evictions.labels("consumes").inc()
        await self.finish([self._positions.put(key, moved)])
        return True

    async def rewrite(self, key: GroupKey, position: GroupPosition) -> None:
        """Return once a position that was submitted earlier is durable."""
        self._node.admission.check_storage()
        await self.finish([self._positions.put(key, position)])

    def position(self, key: GroupKey) -> GroupPosition:
        """Return a submitted position. Raises GroupNotSubscribedError."""
        position = self._positions.get(key)
        if position is None:
            raise GroupNotSubscribedError(*key)
        return position

    async def finish(self, changes: Sequence[Row]) -> None:
        """Submit changes without an await, and wait until they are durable. Cancelling does not stop it."""
        if changes:
            await self._tasks.finish(self._node.committer.submit_rows(changes))

    def _checked(self, commit: Commit, *, is_repeatable: bool) -> tuple[GroupKey, GroupPosition]:
        self._record(commit.group)
        log, vchannel = self._find(commit.vchannel)
        key = GroupKey(commit.group, vchannel.name)
        position = self.position(key)
        self._sessions.check_may_commit(key, commit.member_id, commit.epoch)
        is_there = is_repeatable and commit.next_tick == position.next_tick
        if commit.expected_tick not in (None, position.next_tick) and not is_there:
            raise GroupPositionMovedError(
                group=commit.group, vchannel=vchannel.name, expected_tick=commit.expected_tick or 0,
                next_tick=position.next_tick,
            )  # fmt: skip
        watermark = log.watermark()
        if commit.next_tick > watermark + 1:
            raise PositionBeyondEndError(requested_tick=commit.next_tick, latest_tick=watermark)
        if commit.next_tick <= position.next_tick:
            # Write the position again: the commit is acknowledged only when the position is durable.
            return key, position
        return key, position._replace(next_tick=commit.next_tick, committed_ms=self._node.shared.clock.wall_ms())
