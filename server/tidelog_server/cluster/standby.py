"""A process without a node: it applies the logs of nodes, and serves one that has no process. Drives ``choice``."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

import structlog

from tidelog_server.cluster.choice import NEVER, Seen, choose
from tidelog_server.cluster.followed_log import FollowedLog
from tidelog_server.cluster.log_records import (
    Lag,
    LogRecord,
    StandbyRecord,
    follows_of,
    log_key,
    standby_key,
    update_known,
)
from tidelog_server.cluster.session import Session, node_key
from tidelog_server.core.errors import DataLossError, TidelogServerError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.metadata.store import Put, SharedMetadataStore
from tidelog_server.recordlog.engine import EngineUnavailableError, LogMissingError, LogSetupError
from tidelog_server.recordlog.rules import FencedError, TenureEndedError
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.tasks import GuardingTasks
from tidelog_server.storage.engine.open import PreparedStore
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.format.folder_errors import DataFolderError, FolderInUseError

# A process that could not open a node leaves it to others for so long.
NODE_LEFT_S: Final = 30.0

_LOOK_AGAIN_S: Final = 0.1
# Renewals of the record of a standby in the duration of its lease.
_RENEWALS: Final = 3
_NOWHERE: Final = StandbyRecord(frozenset())
_NONE: Final = Lag(0, 0.0)
_log = structlog.get_logger()

NOT_OPENED: Final = (TidelogServerError, DataFolderError, LogSetupError, EngineUnavailableError, TenureEndedError)
"""Errors of a log, or of this process with it, after which another process may still serve the node."""

_Value = TypeVar("_Value")
OpenLog = Callable[[str, LogRecord, Callable[[], bool]], PreparedStore]
"""Opens the view of a node's log; see ``PrepareStore``."""


class LeftNodes:
    """Nodes that this process could not open, and leaves to others for a while; kept from one attempt to the next.

    Attributes:
        until_s: Until when, on the clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.until_s: dict[str, float] = {}

    def leave(self, node_id: str, error: Exception) -> None:
        """Leave a node that could not be opened because of ``error``."""
        self.until_s[node_id] = self._clock.monotonic_s() + NODE_LEFT_S
        _log.error("node_not_opened", node=node_id, problem=str(error), left_s=NODE_LEFT_S)


class Won(NamedTuple):
    """A node that this process serves from now on.

    Attributes:
        session: Its registration; its metadata store is fenced with it.
        store: Its log, claimed in the term of the registration.
    """

    session: Session
    store: EngineLogStore

    async def give_back(self) -> None:
        """Close the log and end the registration."""
        await asyncio.to_thread(self.store.close)
        await self.session.close()


class Standby:
    """A process without a node. Lives on the event loop; ``run`` once.

    Attributes:
        has_seen: Set once the metadata store has answered.
    """

    def __init__(
        self,
        store: SharedMetadataStore,
        clock: Clock,
        *,
        root: str,
        process: str,
        only: str | None,
        max_follows: int,
        lease_ttl_s: int,
        new_session: Callable[[str], Session],
        open_log: OpenLog,
        left: LeftNodes,
        described: StandbyRecord = _NOWHERE,
    ) -> None:
        """Prepare; does no I/O.

        Args:
            store: The metadata store, for what this process sees and says; not that of a registration.
            clock: Source of time.
            root: Root of the keys.
            process: Id of this process, unique.
            only: The node that it serves; None for any.
            max_follows: Greatest number of nodes whose logs it applies.
            lease_ttl_s: Seconds after which others notice that this process has died.
            new_session: Returns a registration under a node, with a metadata store of its own, that was not attempted.
            open_log: Opens the view of a log.
            left: Nodes that this process leaves to others.
            described: Where this process is.
        """
        self.has_seen = asyncio.Event()
        self._store = store
        self._clock = clock
        self._root = root
        self._process = process
        self._only = only
        self._max_follows = max_follows
        self._lease_ttl_s = lease_ttl_s
        self._new_session = new_session
        self._open_log = open_log
        self._left = left
        self._described = described
        self._changed = asyncio.Event()
        self._said = asyncio.Event()
        self._logs: dict[str, LogRecord] = {}
        self._registered: dict[str, bytes] = {}
        self._standbys: dict[str, StandbyRecord] = {}
        self._unseen = {"logs", "nodes", "standbys"}
        # Since when a node has no process; later, after an attempt that another process forestalled.
        self._free_since_s: dict[str, float] = {}
        self._followed: dict[str, FollowedLog] = {}
        self._lease_id = 0
        self._won: Won | None = None

    @property
    def follows(self) -> frozenset[str]:
        """The nodes whose logs this process applies."""
        return frozenset(self._followed)

    @property
    def caught_up(self) -> frozenset[str]:
        """Of those, the nodes whose logs it has applied up to their end."""
        return frozenset(node for node, followed in self._followed.items() if followed.has_caught_up)

    @property
    def lags(self) -> Mapping[str, Lag]:
        """Of those, how far this process is behind, by node, once that is known."""
        return {node: lag for node, followed in self._followed.items() if (lag := followed.lag()) is not None}

    async def run(self) -> Won:
        """Wait until this process serves a node, however long that takes.

        Raises:
            LogMissingError: There is no such node, or none at all.
            TidelogServerError, DataFolderError, LogSetupError, EngineUnavailableError, TenureEndedError: The node that
                this process is to serve cannot be opened. If it may serve any, it leaves that one to others.
        """
        tasks = GuardingTasks(lambda name, cause: _log.error("task_failed", task=name, error=repr(cause)))
        tasks.keep("logs", self._watch("logs", log_key(self._root, ""), self._logs, LogRecord.decode))
        tasks.keep("nodes", self._watch("nodes", node_key(self._root, ""), self._registered, lambda _, value: value))
        standbys = self._watch("standbys", standby_key(self._root, ""), self._standbys, StandbyRecord.decode)
        tasks.keep("standbys", standbys)
        tasks.keep("standby", self._say())
        try:
            try:
                await tasks.run(self._stand_by())
            finally:
                # Ordering: before the end, because what follows waits.
                await tasks.close()
                await self._stop_following()
                await self._say_no_more()
        except BaseException:
            # It may have won just before it was cancelled.
            if self._won is not None:
                await self._won.give_back()
            raise
        assert self._won is not None
        return self._won

    async def _stand_by(self) -> None:
        await self.has_seen.wait()
        self._check_nodes()
        _log.info("standby", process=self._process, nodes=sorted(self._nodes()), served=sorted(self._registered))
        while self._won is None:
            self._changed.clear()
            await self._drop_failed()
            choice = choose(self._seen())
            if choice.take is not None:
                await self._take(choice.take)
            else:
                await self._follow(choice.follow)
                until_s = choice.look_again_s
                await _wait(self._changed, None if until_s == NEVER else max(0.0, until_s - self._clock.monotonic_s()))

    # -- What this process sees ----------------------------------------------------------------------------

    def _nodes(self) -> frozenset[str]:
        return frozenset(self._logs) if self._only is None else frozenset(self._logs) & {self._only}

    def _check_nodes(self) -> None:
        if self._nodes():
            return
        if self._only is not None:
            raise LogMissingError(
                f"node '{self._only}' has no log: create it with `tidelog engine create {self._only}`, or correct "
                "cluster.node_id"
            )
        raise LogMissingError("the cluster has no node: create the log of one with `tidelog engine create NODE`")

    def _seen(self) -> Seen:
        return Seen(
            self._process, self._nodes(), self._free_since_s,
            {**follows_of(self._standbys), self._process: self.follows}, self.caught_up, self._left.until_s,
            self._max_follows, self._clock.monotonic_s(),
        )  # fmt: skip

    async def _watch(
        self, name: str, prefix: str, known: dict[str, _Value], decode: Callable[[str, bytes], _Value]
    ) -> None:
        async with aclosing(self._store.watch(prefix)) as changes:
            async for watched in changes:
                update_known(known, prefix, watched, decode)
                self._note_free()
                self._unseen.discard(name)
                if not self._unseen:
                    self.has_seen.set()
                self._changed.set()

    def _note_free(self) -> None:
        now_s = self._clock.monotonic_s()
        free = {} if "nodes" in self._unseen else dict.fromkeys(self._nodes() - self._registered.keys(), now_s)
        self._free_since_s = {node: self._free_since_s.get(node, since_s) for node, since_s in free.items()}

    # -- What this process says ----------------------------------------------------------------------------

    async def _say(self) -> None:
        """Keep the record of this process up to date, under a lease. Never returns."""
        while True:
            try:
                self._lease_id, lease_s = await self._store.grant_lease(self._lease_ttl_s)
                said: StandbyRecord | None = None
                while lease_s > 0:
                    self._said.clear()
                    if said != (record := replace(self._described, follows=self.follows, lags=self._told_lags())):
                        key, said = standby_key(self._root, self._process), record
                        await self._store.commit([Put(key, record.encode(), None, self._lease_id)])
                    await _wait(self._said, lease_s / _RENEWALS)
                    lease_s = await self._store.renew_lease(self._lease_id)
            except MetadataUnavailableError as error:
                _log.warning("standby_not_recorded", process=self._process, error=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)

    def _told_lags(self) -> dict[str, Lag]:
        # Those that only grow older while nothing is missing are not worth a write.
        return {
            node: Lag(lag.positions, round(lag.seconds, 1)) if lag.positions else _NONE
            for node, lag in self.lags.items()
        }

    async def _say_no_more(self) -> None:
        if self._lease_id:
            try:
                await self._store.revoke_lease(self._lease_id)
            except MetadataUnavailableError as error:
                _log.warning("standby_not_removed", process=self._process, error=str(error))

    # -- Logs ----------------------------------------------------------------------------------------------

    async def _follow(self, nodes: frozenset[str]) -> None:
        if nodes == self.follows:
            return
        for node in self.follows - nodes:
            await self._followed.pop(node).close()
        for node in sorted(nodes - self.follows):
            self._followed[node] = self._new_followed(node)
            self._followed[node].start()
        self._said.set()
        _log.info("follows", process=self._process, nodes=sorted(nodes))

    async def _stop_following(self) -> None:
        followed, self._followed = list(self._followed.values()), {}
        await asyncio.gather(*(each.close() for each in followed))

    def _new_followed(self, node: str) -> FollowedLog:
        prepare = partial(_prepare, self._open_log, node, self._logs[node])
        return FollowedLog(node, prepare, self._changed.set, self._clock)

    async def _drop_failed(self) -> None:
        for node, followed in list(self._followed.items()):
            if (failure := followed.failure) is not None:
                del self._followed[node]
                await followed.close()
                self._leave(node, failure)

    def _leave(self, node: str, error: Exception) -> None:
        """Leave a node to others; raise ``error`` if no other node or no other process helps."""
        if self._only is not None or isinstance(error, FolderInUseError) or not isinstance(error, NOT_OPENED):
            raise error
        self._left.leave(node, error)

    async def _take(self, node: str) -> None:
        """Register for a node, and claim its log. If that fails, this process stays a standby, or raises."""
        session = self._new_session(node)
        try:
            is_registered = await session.attempt()
        except MetadataUnavailableError as error:
            _log.warning("not_registered", node=node, error=str(error))
            is_registered = False
        except BaseException:
            await session.close()
            raise
        if not is_registered:
            self._free_since_s[node] = self._clock.monotonic_s() + _LOOK_AGAIN_S
            await session.close()
            return
        was_followed, begin_s = node in self.caught_up, self._clock.monotonic_s()
        followed = self._followed.pop(node, None) or self._new_followed(node)

        async def claim() -> EngineLogStore:
            claimed = await followed.claim(session.lease.term)
            await self._stop_following()
            return claimed

        try:
            store = await _while_held(session, claim())
        except BaseException as error:
            await followed.close()
            await session.close()
            if not isinstance(error, Exception):
                raise
            if isinstance(error, FencedError):
                error = await self._why_fenced(node, error)
            if isinstance(error, OwnershipLostError):
                _log.warning("claim_lost", node=node, error=str(error))
                return
            self._leave(node, error)
            return
        followed.release()
        took_s = self._clock.monotonic_s() - begin_s
        _log.info(
            "node_claimed", node=node, term=session.lease.term, was_followed=was_followed, seconds=round(took_s, 3)
        )
        self._won = Won(session, store)

    async def _why_fenced(self, node: str, error: FencedError) -> TidelogServerError:
        # Terms of claims are revisions of registrations, so none is above the revision of the metadata store.
        revision = await self._revision()
        if revision < error.by_term:
            return DataLossError(
                f"etcd is at revision {revision}, but the log of node '{node}' was claimed in term {error.by_term}: "
                "etcd was restored to an earlier state, or another cluster used the log; restore etcd's newest backup",
                revision=revision, seen_revision=error.by_term,
            )  # fmt: skip
        return OwnershipLostError.by_claim(self._logs[node].topic, error.by_term)

    async def _revision(self) -> int:
        async with aclosing(self._store.watch(log_key(self._root, ""))) as changes:
            async for watched in changes:
                return watched.revision
        raise AssertionError("a watch begins with a snapshot")


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, at most for ``seconds``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _while_held(session: Session, claim: Coroutine[None, None, EngineLogStore]) -> EngineLogStore:
    """Return the store that is claimed, and keep the registration until then. Raises OwnershipLostError if it ends."""
    tasks = GuardingTasks()
    tasks.keep("lease", session.keep())
    try:
        return await tasks.run(claim)
    finally:
        await tasks.close()


def _prepare(open_log: OpenLog, node: str, record: LogRecord, is_abandoned: Callable[[], bool]) -> PreparedStore:
    """Open the view of a log. Raises DataLossError if it is another log than the cluster has recorded."""
    prepared = open_log(node, record, is_abandoned)
    try:
        if prepared.incarnation() == record.incarnation:
            return prepared
        raise DataLossError(
            f"log '{record.topic}' is another one than the cluster has recorded: it was deleted and made again, or "
            "restored from a copy",
            log=record.topic,
        )
    except BaseException:
        prepared.close()
        raise
