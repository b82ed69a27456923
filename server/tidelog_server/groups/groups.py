"""Consumer groups: records, subscriptions and durable positions. Members are in ``sessions``.

Records are in the metadata; positions are in the log's store, so a commit shares the atomic write of a transaction and
the sync of a group of appends. Ordering: a record is written before its first position, and deleted after the last.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Executor
from weakref import WeakValueDictionary

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import (
    GroupAlreadyExistsError,
    GroupNotExistError,
    GroupNotSubscribedError,
    GroupPositionMovedError,
    PositionBeyondEndError,
    RateLimitRejectedError,
)
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.limits import MAX_GROUP_POSITIONS, MAX_POSITIONS_PER_GROUP
from tidelog_server.core.sorted_names import SortedNames
from tidelog_server.groups.catalog import GroupCatalog, GroupRecord, check_positions
from tidelog_server.groups.lag import Lag, lag_of
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.groups.sessions import GroupSessions, JoinTerms, MemberSession
from tidelog_server.groups.types import DEFAULT_SUBSCRIBER, Commit, GroupState, PositionState, Subscriber
from tidelog_server.log.append import Append, Settled
from tidelog_server.log.channel_log import ChannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Find, MovePositions, Place, no_positions
from tidelog_server.log.scan.positions import Start, StartAtTime, check_start_of_several, resolve_start
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.rows import Row


class Groups:
    """The consumer groups of a node. Lives on the event loop.

    Attributes:
        positions: Positions of all groups, including submitted changes.
        durable: Positions of all groups as a restart would find them.
        sessions: Members of the groups.
    """

    def __init__(
        self,
        node: LogNode,
        tasks: TaskOwner,
        readers: Executor,
        find: Find,
        find_channel: Callable[[str], ChannelLog],
    ) -> None:
        """Start empty; ``open`` loads the groups.

        Args:
            node: The logs.
            tasks: Owner of background tasks.
            readers: Executor that reads the log to compute lags.
            find: Returns a vchannel by name, or raises why it cannot.
            find_channel: The same for a channel.
        """
        self._node = node
        self._tasks = tasks
        self._readers = readers
        self._find = find
        self._find_channel = find_channel
        self._catalog: GroupCatalog
        self.positions = GroupPositions({}, lambda group: bytes.fromhex(self._catalog.records[group].tenant))
        self.durable = GroupPositions({})
        self.sessions = GroupSessions(node, tasks, self.positions)
        # Serialise changes of each group, by name; a lock exists only while it is in use.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, metadata: MetadataStore, commits: SharedCommits, root: str) -> None:
        """Load all groups.

        Raises:
            DataLossError: Records and positions contradict each other.
        """
        self._catalog = GroupCatalog(metadata, commits, root)
        await self._catalog.open()
        positions = self._node.store.rows(POSITIONS)
        check_positions(self._catalog.records, positions)
        for key, position in positions.items():
            self.positions.put(key, position)
            self.durable.put(key, position)
        self._node.on_rows[POSITIONS] = self._committed
        await self.sessions.open()

    # -- Groups --------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        channels: Sequence[str],
        start: Start,
        *,
        if_not_exists: bool,
        subscriber: Subscriber = DEFAULT_SUBSCRIBER,
    ) -> GroupState:
        """Create a group and subscribe it to channels, durably. Cancelling does not stop it.

        Raises:
            GroupAlreadyExistsError: The group exists, and ``if_not_exists`` is not set. Nothing happened.
            ChannelNotExistError, PositionTrimmedError, PositionBeyondEndError: A channel does not exist, or ``start``
                is not available on it. Nothing happened.
            InvalidRequestError: ``start`` is a tick, and there are several vchannels. Nothing happened.
            RateLimitRejectedError: There would be too many groups or positions. Nothing happened.
        """
        self._node.admission.check()
        return await self._tasks.finish(self._create(name, channels, start, subscriber, if_not_exists=if_not_exists))

    async def _create(
        self, name: str, channels: Sequence[str], start: Start, subscriber: Subscriber, *, if_not_exists: bool
    ) -> GroupState:
        async with self._lock(name):
            record = self._catalog.records.get(name)
            if record is None:
                # Check before anything is written, so a refusal has no effect.
                self._new_positions(name, channels, start, subscriber)
                tick = await self._node.shared.oracle.allocate(1)
                record = GroupRecord(name, tick, start, subscriber.tenant.hex())
                await self._catalog.add(record, self._node.admission.limits.max_principal_percent)
                hit(Failpoint.GROUP_MID_CREATE)
            elif not if_not_exists:
                raise GroupAlreadyExistsError(name)
            # Found again: the positions may have changed during the writes.
            found = self._new_positions(name, channels, start, subscriber)
            await self._write([self.positions.put(key, position) for key, position in found])
            self.sessions.changed(name)
            return self.describe(name)

    async def alter(
        self,
        name: str,
        subscribe: Sequence[str],
        unsubscribe: Sequence[str],
        start: Start | None,
        subscriber: Subscriber = DEFAULT_SUBSCRIBER,
    ) -> GroupState:
        """Subscribe a group to channels and end subscriptions, durably. Cancelling does not stop it.

        Raises:
            GroupNotExistError: The group does not exist. Nothing happened.
            GroupInUseError: Members hold vchannels to be unsubscribed. Nothing happened.
            ChannelNotExistError, PositionTrimmedError, PositionBeyondEndError, RateLimitRejectedError: See ``create``.
        """
        self._node.admission.check_storage()
        return await self._tasks.finish(self._alter(name, subscribe, unsubscribe, start, subscriber))

    async def _alter(
        self,
        name: str,
        subscribe: Sequence[str],
        unsubscribe: Sequence[str],
        start: Start | None,
        subscriber: Subscriber,
    ) -> GroupState:
        async with self._lock(name):
            record = self.record(name)
            ended = dict.fromkeys(vchannel for channel in unsubscribe for vchannel in self._subscribed(name, channel))
            self.sessions.check_not_held(name, ended)
            found = self._new_positions(name, subscribe, record.start if start is None else start, subscriber)
            # No await between finding and setting positions: channels may be destroyed meanwhile.
            added = [self.positions.put(key, position) for key, position in found]
            await self._write([*added, *(self.positions.remove(GroupKey(name, vchannel)) for vchannel in ended)])
            self.sessions.changed(name)
            return self.describe(name)

    async def join(self, name: str, terms: JoinTerms, subscriber: Subscriber = DEFAULT_SUBSCRIBER) -> MemberSession:
        """Add or reattach a member of a group; subscribe the group to the member's channels if necessary.

        Raises:
            GroupNotExistError: The group does not exist. Nothing happened.
            ChannelNotExistError, PositionTrimmedError, PositionBeyondEndError, RateLimitRejectedError: See ``create``.
        """
        self.record(name)
        if any(self._unsubscribed(name, channel) for channel in terms.channels):
            await self.alter(name, sorted(terms.channels), (), None, subscriber)
        # Check again, in one step with the join: the group may have been destroyed meanwhile.
        self.record(name)
        return self.sessions.join(name, terms)

    async def destroy(self, name: str, *, ignore_missing: bool, force: bool) -> bool:
        """Delete a group, durably; return True if it existed. Cancelling does not stop it.

        Raises:
            GroupNotExistError: The group does not exist, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: The group has members, and ``force`` is not set. Nothing happened.
        """
        self._node.admission.check_storage()
        return await self._tasks.finish(self._destroy(name, ignore_missing=ignore_missing, force=force))

    async def _destroy(self, name: str, *, ignore_missing: bool, force: bool) -> bool:
        async with self._lock(name):
            if name not in self._catalog.records:
                if ignore_missing:
                    return False
                raise GroupNotExistError(name)
            if not force:
                self.sessions.check_empty(name)
            self.sessions.destroyed(name)
            await self._write(
                [self.positions.remove(GroupKey(name, vchannel)) for vchannel in list(self.positions.of_group(name))]
            )
            hit(Failpoint.GROUP_MID_DESTROY)
            await self._catalog.remove(name)
            return True

    def record(self, name: str) -> GroupRecord:
        """Return the record of a group. Raises GroupNotExistError."""
        record = self._catalog.records.get(name)
        if record is None:
            raise GroupNotExistError(name)
        return record

    @property
    def names(self) -> SortedNames:
        """The names of all groups."""
        return self._catalog.names

    def exists(self, name: str) -> bool:
        """Return whether there is a group with this name."""
        return name in self._catalog.records

    def subscribed(self, name: str, channel: str) -> list[str]:
        """Return the vchannels of ``channel`` to which a group is subscribed."""
        return self._subscribed(name, channel)

    def describe(self, name: str, vchannels: Iterable[str] | None = None) -> GroupState:
        """Return the durable state of a group, without lag. Raises GroupNotExistError."""
        record, positions = self.record(name), self.durable.of_group(name)
        names = positions.keys() if vchannels is None else vchannels
        return GroupState(
            record,
            [
                PositionState(vchannel, positions[vchannel], self.sessions.holder(name, vchannel))
                for vchannel in sorted(names)
                if vchannel in positions
            ],
        )

    async def describe_with_lag(self, name: str) -> GroupState:
        """Return the durable state of a group with its lag, which is read from the index.

        Raises:
            GroupNotExistError: The group does not exist.
            DataLossError: The index is damaged.
        """
        state, store = self.describe(name), self._node.store

        def lags() -> list[Lag | None]:
            return [_lag(position) for position in state.positions]

        def _lag(position: PositionState) -> Lag | None:
            try:
                return lag_of(store, position.position.vchannel_id, position.position.next_tick)
            except KeyError:
                # The vchannel was destroyed meanwhile.
                return None

        found = await asyncio.get_running_loop().run_in_executor(self._readers, lags)
        positions = [each._replace(lag=lag) for each, lag in zip(state.positions, found, strict=True)]
        return GroupState(state.record, positions)

    # -- Positions -----------------------------------------------------------------------------------------

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
        assert all(self._position(key).next_tick <= position.next_tick for key, position in checked.items())
        return [self.positions.put(key, position) for key, position in checked.items()]

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
        await self._finish(self.changes(commits, is_repeatable=True))

    async def seek(self, name: str, vchannels: Sequence[str], start: Start) -> GroupState:
        """Set positions, forward or back, durably, and restart members there. Cancelling does not stop it.

        Raises:
            GroupNotExistError, GroupNotSubscribedError, ChannelNotExistError: There is no such position.
            PositionTrimmedError, PositionBeyondEndError: ``start`` is not available. Nothing happened.
            InvalidRequestError: ``start`` is a tick, and there are several vchannels. Nothing happened.
        """
        self._node.admission.check_storage()
        self.record(name)
        targets = [self._find(vchannel) for vchannel in self._named(name, vchannels)]
        check_start_of_several(start, len(targets), "to")
        for _, vchannel in targets:
            self._position(GroupKey(name, vchannel.name))
        ticks = [self._resolve(target, start) for target in targets]
        now_ms = self._node.shared.clock.wall_ms()
        keys = [GroupKey(name, vchannel.name) for _, vchannel in targets]
        changes = [
            self.positions.put(key, self._position(key)._replace(next_tick=tick, committed_ms=now_ms, taken=b""))
            for key, tick in zip(keys, ticks, strict=True)
        ]
        names = [vchannel.name for _, vchannel in targets]
        # Ordering: in one step with the changes, so that no commit under an old epoch follows them.
        self.sessions.restart(name, names)
        await self._finish(changes)
        return self.describe(name, names)

    def consumable(self, name: str, vchannel: str) -> GroupPosition:
        """Return the position of a group on a vchannel, given by its full name, that no member holds.

        Raises:
            GroupNotExistError, GroupNotSubscribedError: There is no such position.
            GroupInUseError: A member holds the vchannel.
        """
        self.record(name)
        position = self._position(GroupKey(name, vchannel))
        self.sessions.check_not_held(name, (vchannel,))
        return position

    async def consumed(
        self, key: GroupKey, position: GroupPosition, next_tick: int, consume_id: int, tenant: Tenant = NO_TENANT
    ) -> bool:
        """Move a position to ``next_tick`` for a consume call, durably.

        Return False, without effect, if the position is no longer ``position`` or a member holds the vchannel.
        Cancelling does not stop it.
        """
        self._node.admission.check_storage()
        if self.positions.get(key) is not position or self.sessions.holder(*key):
            return False
        moved = position.after(next_tick, self._node.shared.clock.wall_ms(), consume_id, tenant)
        if position.taken and len(moved.taken) == len(position.taken) and not position.has_called(consume_id):
            self._node.metrics.evictions.labels("consumes").inc()
        await self._finish([self.positions.put(key, moved)])
        return True

    async def rewrite(self, key: GroupKey, position: GroupPosition) -> None:
        """Return once a position that was submitted earlier is durable."""
        self._node.admission.check_storage()
        await self._finish([self.positions.put(key, position)])

    def refresh_metrics(self) -> None:
        """Update the gauges."""
        metrics = self._node.metrics
        metrics.groups.set(len(self._catalog.records))
        metrics.group_positions.set(len(self.positions))
        metrics.group_members.set(self.sessions.count())

    # -- Channels ------------------------------------------------------------------------------------------

    def positions_on(self, vchannels: Iterable[str]) -> list[GroupKey]:
        """Return the keys of all positions on vchannels."""
        return [GroupKey(group, vchannel) for vchannel in vchannels for group in self.positions.of_vchannel(vchannel)]

    def pinned_tick(self, vchannel_name: str) -> tuple[int, str] | None:
        """Return a vchannel's pinned tick, the smallest next tick of its groups, and that group; None without one."""
        # Both durable and submitted positions count: a group may have just subscribed, or seek back.
        tables = (self.durable, self.positions)
        pins = (table.pinned_tick(vchannel_name) for table in tables)
        return min((pin for pin in pins if pin is not None), default=None)

    def check_channels_unused(self, vchannels: Iterable[str]) -> None:
        """Raise GroupInUseError if a member of any group holds one of these vchannels."""
        for key in self.positions_on(vchannels):
            self.sessions.check_not_held(key.group, (key.vchannel,))

    def stored_on(self, vchannel_ids: Container[int]) -> list[Row]:
        """Return the changes that delete the positions on vchannels, whose removal a crash interrupted."""
        stored = self._node.store.rows(POSITIONS)
        return [POSITIONS.gone(key) for key, position in stored.items() if position.vchannel_id in vchannel_ids]

    def channels_left(self, vchannels: Sequence[str]) -> list[Row]:
        """Remove the positions on vchannels that are being destroyed, and return the changes that delete them.

        The caller writes them, then calls ``channels_gone``.
        """
        keys = self.positions_on(vchannels)
        changes = [self.positions.remove(key) for key in keys]
        self.sessions.channels_destroyed({vchannel.rpartition("/")[0] for vchannel in vchannels})
        for group in {key.group for key in keys}:
            self.sessions.changed(group)
        return changes

    def channels_gone(self, changes: Iterable[Row]) -> None:
        """Remove positions that the store has deleted. Ordering: after the last commit in flight to them."""
        self.durable.apply(changes)

    # -- Private -------------------------------------------------------------------------------------------

    def _committed(self, changes: Sequence[Row]) -> None:
        self.durable.apply(changes)
        self._node.metrics.group_commits.inc(len(changes))

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock that serialises changes of a group."""
        return self._locks.setdefault(name, asyncio.Lock())

    def _subscribed(self, name: str, channel: str) -> list[str]:
        """Return the subscribed vchannels of a channel; for the full name of a vchannel, that one if subscribed."""
        if "/" in channel:
            return [channel] if channel in self.positions.of_group(name) else []
        return [vchannel for vchannel in self.positions.of_group(name) if vchannel.rpartition("/")[0] == channel]

    def _unsubscribed(self, name: str, channel: str) -> list[Place]:
        """The counterpart of ``_subscribed``: vchannels without a position. Raises ChannelNotExistError."""
        positions = self.positions.of_group(name)
        if "/" in channel:
            targets = [self._find(channel)]
        else:
            log = self._find_channel(channel)
            targets = [Place(log, vchannel) for vchannel in log.vchannels]
        return [target for target in targets if target.vchannel.name not in positions]

    def _new_positions(
        self, name: str, channels: Sequence[str], start: Start, subscriber: Subscriber
    ) -> list[tuple[GroupKey, GroupPosition]]:
        """Return the positions that a subscription would add, without adding them."""
        now_ms = self._node.shared.clock.wall_ms()
        # Deduplicated: the request may name a channel and also one of its vchannels.
        targets = {target.vchannel.name: target for channel in channels for target in self._unsubscribed(name, channel)}
        check_start_of_several(start, len(targets), "start")
        found = [
            (
                GroupKey(name, vchannel),
                GroupPosition(
                    target.vchannel.vchannel_id, self._resolve(target, start), now_ms,
                    is_pinning=subscriber.may_pin(target.log.name),
                ),
            )
            for vchannel, target in targets.items()
        ]  # fmt: skip
        of_group = len(self.positions.of_group(name)) + len(found)
        if of_group > MAX_POSITIONS_PER_GROUP:
            raise RateLimitRejectedError(
                f"group '{name}' would be subscribed to {of_group} vchannels, at most {MAX_POSITIONS_PER_GROUP} are "
                "allowed: use several groups",
                positions=of_group, max_positions=MAX_POSITIONS_PER_GROUP,
            )  # fmt: skip
        if len(self.positions) + len(found) > MAX_GROUP_POSITIONS:
            raise RateLimitRejectedError(
                f"the groups of the node would have {len(self.positions) + len(found)} positions, at most "
                f"{MAX_GROUP_POSITIONS} are allowed: unsubscribe some first",
                positions=len(self.positions) + len(found), max_positions=MAX_GROUP_POSITIONS,
            )  # fmt: skip
        self._check_share(name, len(found), subscriber)
        return found

    def _check_share(self, name: str, positions: int, subscriber: Subscriber) -> None:
        """Raise RateLimitRejectedError if the group's principal may not have ``positions`` more positions."""
        record = self._catalog.records.get(name)
        tenant = subscriber.tenant if record is None else bytes.fromhex(record.tenant)
        if tenant and positions:
            percent = self._node.admission.limits.max_principal_percent
            self.positions.usage.check_share(tenant, positions, MAX_GROUP_POSITIONS, percent, "positions of groups")

    def _named(self, name: str, vchannels: Sequence[str]) -> list[str]:
        """Return the vchannels that a request names, with channels expanded and without duplicates."""
        if not vchannels:
            return list(self.positions.of_group(name))
        names: dict[str, None] = {}
        for given in vchannels:
            if "/" in given:
                names[self._find(given)[1].name] = None
            else:
                names.update(dict.fromkeys(vchannel.name for vchannel in self._find_channel(given).vchannels))
        return list(names)

    def _position(self, key: GroupKey) -> GroupPosition:
        position = self.positions.get(key)
        if position is None:
            raise GroupNotSubscribedError(*key)
        return position

    def _resolve(self, target: Place, start: Start) -> int:
        log, vchannel = target
        watermark, latest_tick = log.watermark(), self._node.shared.oracle.now()
        tick = resolve_start(
            start, vchannel=vchannel.name, trim_tick=vchannel.trim_tick, watermark=watermark, latest_tick=latest_tick
        )
        # A future time means the current end: clocks differ, and a position must not be beyond the end.
        return min(tick, watermark + 1) if isinstance(start, StartAtTime) else tick

    def _checked(self, commit: Commit, *, is_repeatable: bool) -> tuple[GroupKey, GroupPosition]:
        self.record(commit.group)
        log, vchannel = self._find(commit.vchannel)
        key = GroupKey(commit.group, vchannel.name)
        position = self._position(key)
        self.sessions.check_may_commit(key, commit.member_id, commit.epoch)
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

    async def _finish(self, changes: Sequence[Row]) -> None:
        """Submit changes without an await, and wait until they are durable. Cancelling does not stop it."""
        if changes:
            await self._tasks.finish(self._node.committer.submit_rows(changes))

    async def _write(self, changes: Sequence[Row]) -> None:
        if changes:
            await self._node.committer.submit_rows(changes)
