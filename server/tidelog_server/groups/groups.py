"""Consumer groups: records, subscriptions and durable positions. Members are in ``sessions``.

Records are in the metadata; positions are in the log's store, so a commit shares the atomic write of a transaction and
the sync of a group of appends. Ordering: a record is written before its first position, and deleted after the last.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final
from weakref import WeakValueDictionary

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.errors.groups import GroupAlreadyExistsError, GroupNotExistError
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.groups.catalog import GroupCatalog, GroupRecord, check_positions
from tidelog_server.groups.commits import GroupCommits
from tidelog_server.groups.lag import Lag, lag_at
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.groups.sessions import GroupSessions, JoinTerms, MemberSession
from tidelog_server.groups.types import DEFAULT_SUBSCRIBER, GroupState, PositionState, Subscriber
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Find, Place
from tidelog_server.log.scan.positions import Start, StartAtTime, check_start_of_several, resolve_start
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner, to_its_end
from tidelog_server.storage.rows import Row

# Positions of groups on vchannels: about 300 bytes of memory each.
MAX_GROUP_POSITIONS: Final = 200_000
# Written in one step of the event loop: about 3 us each.
MAX_POSITIONS_PER_GROUP: Final = 10_000


class Groups:
    """The consumer groups of a node. Lives on the event loop.

    Attributes:
        positions: Positions of all groups, including submitted changes.
        durable: Positions of all groups as a restart would find them.
        sessions: Members of the groups.
        commits: Moves positions.
        catalog: Records of the groups; set by ``open``.
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
        self.catalog: GroupCatalog
        self.positions = GroupPositions({}, lambda group: bytes.fromhex(self.catalog.records[group].tenant))
        self.durable = GroupPositions({})
        self.sessions = GroupSessions(node, tasks, self.positions)
        self.commits = GroupCommits(node, tasks, find, self.record, positions=self.positions, sessions=self.sessions)
        # Serialise changes of each group, by name; a lock exists only while it is in use.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, metadata: MetadataStore, commits: SharedCommits, root: str) -> None:
        """Load all groups.

        Raises:
            DataLossError: Records and positions contradict each other.
        """
        self.catalog = GroupCatalog(metadata, commits, root)
        await self.catalog.open()
        positions = self._node.store.rows(POSITIONS)
        check_positions(self.catalog.records, positions)
        for key, position in positions.items():
            self.positions.put(key, position)
            self.durable.put(key, position)
        self._node.on_rows[POSITIONS] = self._committed
        await self.sessions.open()

    # -- Groups --------------------------------------------------------------------------------------------

    @to_its_end
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
        async with self._lock(name):
            record = self.catalog.records.get(name)
            if record is None:
                # Check before anything is written, so a refusal has no effect.
                self._new_positions(name, channels, start, subscriber)
                tick = await self._node.shared.oracle.allocate(1)
                record = GroupRecord(name, tick, start, subscriber.tenant.hex())
                await self.catalog.add(record, self._node.admission.limits.max_principal_percent)
                hit(Failpoint.GROUP_MID_CREATE)
            elif not if_not_exists:
                raise GroupAlreadyExistsError(name)
            # Found again: the positions may have changed during the writes.
            found = self._new_positions(name, channels, start, subscriber)
            await self._write([self.positions.put(key, position) for key, position in found])
            self.sessions.changed(name)
            return self.describe(name)

    @to_its_end
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
        async with self._lock(name):
            record = self.record(name)
            ended = dict.fromkeys(vchannel for channel in unsubscribe for vchannel in self.subscribed(name, channel))
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

    @to_its_end
    async def destroy(self, name: str, *, ignore_missing: bool, force: bool) -> bool:
        """Delete a group, durably; return True if it existed. Cancelling does not stop it.

        Raises:
            GroupNotExistError: The group does not exist, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: The group has members, and ``force`` is not set. Nothing happened.
        """
        self._node.admission.check_storage()
        async with self._lock(name):
            if name not in self.catalog.records:
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
            await self.catalog.remove(name)
            return True

    def record(self, name: str) -> GroupRecord:
        """Return the record of a group. Raises GroupNotExistError."""
        record = self.catalog.records.get(name)
        if record is None:
            raise GroupNotExistError(name)
        return record

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
            return [lag_at(store, each.position) for each in state.positions]

        found = await asyncio.get_running_loop().run_in_executor(self._readers, lags)
        positions = [each._replace(lag=lag) for each, lag in zip(state.positions, found, strict=True)]
        return GroupState(state.record, positions)

    # -- Positions -----------------------------------------------------------------------------------------

    async def seek(self, name: str, vchannels: Sequence[str], start: Start | Sequence[Start]) -> GroupState:
        """Set positions, forward or back, durably, and restart members there. Cancelling does not stop it.

        Args:
            name: Name of the group.
            vchannels: Names of channels or vchannels; empty for all that the group is subscribed to.
            start: The position of all; or of each of ``vchannels``, which are then full names.

        Raises:
            GroupNotExistError, GroupNotSubscribedError, ChannelNotExistError: There is no such position.
            PositionTrimmedError, PositionBeyondEndError: ``start`` is not available. Nothing happened.
            InvalidRequestError: ``start`` is a tick, and there are several vchannels. Nothing happened.
        """
        self._node.admission.check_storage()
        self.record(name)
        targets = [self._find(vchannel) for vchannel in self._named(name, vchannels)]
        if isinstance(start, Sequence):
            starts = start
        else:
            check_start_of_several(start, len(targets), "to")
            starts = [start] * len(targets)
        for _, vchannel in targets:
            self.commits.position(GroupKey(name, vchannel.name))
        ticks = [self._resolve(target, each) for target, each in zip(targets, starts, strict=True)]
        now_ms = self._node.shared.clock.wall_ms()
        keys = [GroupKey(name, vchannel.name) for _, vchannel in targets]
        changes = [
            self.positions.put(key, self.commits.position(key)._replace(next_tick=tick, committed_ms=now_ms, taken=b""))
            for key, tick in zip(keys, ticks, strict=True)
        ]
        names = [vchannel.name for _, vchannel in targets]
        # Ordering: in one step with the changes, so that no commit under an old epoch follows them.
        self.sessions.restart(name, names)
        await self.commits.finish(changes)
        return self.describe(name, names)

    def refresh_metrics(self) -> None:
        """Update the gauges."""
        metrics = self._node.metrics
        metrics.groups.set(len(self.catalog.records))
        metrics.group_positions.set(len(self.positions))
        metrics.group_members.set(self.sessions.count())

    # -- Channels that grow, are trimmed or destroyed ------------------------------------------------------

    def pinned_tick(self, vchannel_name: str) -> tuple[int, str] | None:
        """Return a vchannel's pinned tick, the smallest next tick of its groups, and that group; None without one."""
        # Both durable and submitted positions count: a group may have just subscribed, or seek back.
        pins = (table.pinned_tick(vchannel_name) for table in (self.durable, self.positions))
        return min((pin for pin in pins if pin is not None), default=None)

    def check_growth(self, growing: Iterable[tuple[ChannelLog, int]]) -> None:
        """Raise RateLimitRejectedError if groups have no room for positions on vchannels, a number of each channel."""
        added: Counter[str] = Counter()
        for log, number in growing:
            added.update(dict.fromkeys(self._subscribed_to(log.vchannels), number))
        for group, number in added.items():
            self._check_room(group, number, added.total())

    def channel_grown(self, log: ChannelLog, vchannels: int) -> list[Row]:
        """Subscribe groups to vchannels that were added, from the first message; return the changes to write.

        Those are the groups that are subscribed to each of the first ``vchannels`` vchannels. The caller writes the
        changes, then calls ``growth_written``. Idempotent.
        """
        now_ms = self._node.shared.clock.wall_ms()
        earlier, added = log.vchannels[:vchannels], log.vchannels[vchannels:]
        changes = []
        for group in self._subscribed_to(earlier):
            of_group = self.positions.of_group(group)
            is_pinning = of_group[earlier[0].name].is_pinning
            for vchannel in added:
                if vchannel.name not in of_group:
                    position = GroupPosition(vchannel.vchannel_id, vchannel.trim_tick, now_ms, is_pinning=is_pinning)
                    changes.append(self.positions.put(GroupKey(group, vchannel.name), position))
        return changes

    def growth_written(self, changes: Iterable[Row]) -> None:
        """Rebalance groups whose new positions, which ``channel_grown`` returned, are durable."""
        for group in {change.key.group for change in changes}:
            self.sessions.changed(group)

    def _subscribed_to(self, vchannels: Sequence[VchannelLog]) -> list[str]:
        """Return the groups that have a position on each of these vchannels; at least one."""
        groups = self.positions.of_vchannel(vchannels[0].name)
        names = {vchannel.name for vchannel in vchannels}
        return [group for group in groups if names <= self.positions.of_group(group).keys()]

    def check_channels_unused(self, vchannels: Iterable[str]) -> None:
        """Raise GroupInUseError if a member of any group holds one of these vchannels."""
        for key in self.positions.on_vchannels(vchannels):
            self.sessions.check_not_held(key.group, (key.vchannel,))

    def stored_on(self, vchannel_ids: Container[int]) -> list[Row]:
        """Return the changes that delete the positions on vchannels, whose removal a crash interrupted."""
        stored = self._node.store.rows(POSITIONS)
        return [POSITIONS.gone(key) for key, position in stored.items() if position.vchannel_id in vchannel_ids]

    def channels_left(self, vchannels: Sequence[str]) -> list[Row]:
        """Remove the positions on vchannels that are being destroyed, and return the changes that delete them.

        The caller writes them, then calls ``channels_gone``.
        """
        keys = self.positions.on_vchannels(vchannels)
        changes = [self.positions.remove(key) for key in keys]
        self.sessions.channels_destroyed({vchannel.rpartition("/")[0] for vchannel in vchannels})
        for group in {key.group for key in keys}:
            self.sessions.changed(group)
        return changes

    def channels_gone(self, changes: Iterable[Row]) -> None:
        """Remove positions that the store has deleted. Ordering: after the last commit in flight to them.

        Why this only passes on: channels know groups by a protocol only.
        """
        self.durable.apply(changes)

    # -- Private -------------------------------------------------------------------------------------------

    def _committed(self, changes: Sequence[Row]) -> None:
        self.durable.apply(changes)
        self._node.metrics.group_commits.inc(len(changes))

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock that serialises changes of a group."""
        return self._locks.setdefault(name, asyncio.Lock())

    def subscribed(self, name: str, channel: str) -> list[str]:
        """Return the subscribed vchannels of a channel; for the full name of a vchannel, that one if subscribed."""
        if "/" in channel:
            return [channel] if channel in self.positions.of_group(name) else []
        return [vchannel for vchannel in self.positions.of_group(name) if vchannel.rpartition("/")[0] == channel]

    def _unsubscribed(self, name: str, channel: str) -> list[Place]:
        """The counterpart of ``subscribed``: vchannels without a position. Raises ChannelNotExistError."""
        positions = self.positions.of_group(name)
        if "/" in channel:
            targets = [self._find(channel)]
            return [target for target in targets if target.vchannel.name not in positions]
        log = self._find_channel(channel)
        return [Place(log, vchannel) for vchannel in log.vchannels if vchannel.name not in positions]

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
        self._check_room(name, len(found), len(found))
        self._check_share(name, len(found), subscriber)
        return found

    def _check_room(self, name: str, added: int, added_to_all: int) -> None:
        """Raise RateLimitRejectedError unless a group may get ``added`` positions, and all ``added_to_all``."""
        of_group, total = len(self.positions.of_group(name)) + added, len(self.positions) + added_to_all
        if of_group > MAX_POSITIONS_PER_GROUP:
            raise RateLimitRejectedError(
                f"group '{name}' would be subscribed to {of_group} vchannels, at most {MAX_POSITIONS_PER_GROUP} are "
                "allowed: use several groups",
                positions=of_group, max_positions=MAX_POSITIONS_PER_GROUP,
            )  # fmt: skip
        if total > MAX_GROUP_POSITIONS:
            raise RateLimitRejectedError(
                f"the groups of the node would have {total} positions, at most {MAX_GROUP_POSITIONS} are allowed: "
                "unsubscribe some first",
                positions=total, max_positions=MAX_GROUP_POSITIONS,
            )  # fmt: skip

    def _check_share(self, name: str, positions: int, subscriber: Subscriber) -> None:
        """Raise RateLimitRejectedError if the group's principal may not have ``positions`` more positions."""
        record = self.catalog.records.get(name)
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

    def _resolve(self, target: Place, start: Start) -> int:
        log, vchannel = target
        watermark, latest_tick = log.watermark(), self._node.shared.oracle.now()
        tick = resolve_start(
            start, vchannel=vchannel.name, trim_tick=vchannel.trim_tick, watermark=watermark, latest_tick=latest_tick
        )
        # A future time means the current end: clocks differ, and a position must not be beyond the end.
        return min(tick, watermark + 1) if isinstance(start, StartAtTime) else tick

    async def _write(self, changes: Sequence[Row]) -> None:
        if changes:
            await self._node.committer.submit_rows(changes)
