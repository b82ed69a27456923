"""Consumers: members of a group that share the vchannels of channels and commit their positions."""

import asyncio
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

from tidelog.errors import ClosedError, GroupFencedError, GroupPositionMovedError, PositionTrimmedError, TidelogError
from tidelog.groups.member_queue import Holding, Position
from tidelog.groups.member_stream import MemberStream
from tidelog.read.positions import EARLIEST, FOLLOW, Start
from tidelog.read.reader_events import OnEvent
from tidelog.read.reader_watch import Patience, ReaderWatch, patiently
from tidelog.read.scan import ScanCore
from tidelog.read.scan_plan import DEFAULT_RESPONSE_BYTES, scan_plan
from tidelog.read.scan_sources import Begin
from tidelog.tick import Tick
from tidelog.transport import tracing as _tracing
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.transport import Transport
from tidelog.types import PositionCommit
from tidelog.v1 import group_service_pb2 as pb
from tidelog.wire.batch import Batch
from tidelog.wire.durations import check_seconds

DEFAULT_LEASE_S: Final = 10.0
DEFAULT_RELEASE_WITHIN_S: Final = 30.0
_MEMBER_ID_BYTES: Final = 8
_MAX_INCARNATION: Final = (1 << 63) - 1

Notify = Callable[[Sequence[str]], Awaitable[None] | None]
"""Called with names of vchannels."""


class ConsumerOptions(TypedDict, total=False):
    """Options of a consumer.

    Attributes:
        start: Start of the group if this consumer creates it; default earliest.
        auto_commit: Commit processed batches automatically; default True. A batch counts as processed when the caller
            requests the next one. If False, call ``commit``, or ``commit_positions`` of a transaction.
        auto_commit_s: Minimum interval between automatic commits while there is more to process, in seconds; default 1.
        member_id: Name of the member, with which it regains its vchannels if it restarts within its lease; default
            None, a random name. Another consumer of the group with the same name ends this one.
        description: Description of this member, for information only; up to 256 bytes.
        lease_s: Lease of the member without a heartbeat, 0.5 to 600 s; default 10. The server detects a lost
            connection sooner.
        release_within_s: Maximum time to process a batch while another member waits for its vchannel, up to 3,600 s;
            default 30. After that the other member gets the vchannel, and the batch again.
        on_assigned: Called with the vchannels that the member was assigned.
        on_revoked: Called with the vchannels that the member is about to release; may ``commit``.
        on_lost: Called with the vchannels that the member has already lost.
        skips_trimmed: Skip messages that were trimmed before they were consumed, instead of raising
            PositionTrimmedError; default False.
        max_response_bytes: Approximate maximum size of a response, up to 4 MiB; default 1 MiB.
        on_event: Called with each ReaderEvent of the consumer; default None.
    """

    start: Start
    auto_commit: bool
    auto_commit_s: float
    member_id: str | None
    description: str
    lease_s: float
    release_within_s: float
    on_assigned: Notify | None
    on_revoked: Notify | None
    on_lost: Notify | None
    skips_trimmed: bool
    max_response_bytes: int
    on_event: OnEvent | None


@dataclass(slots=True)
class _Assignment:
    """A vchannel that the consumer holds.

    Attributes:
        epoch: Epoch under which it holds the vchannel.
        delivered_tick: Everything below was delivered to the caller.
        processed_tick: Everything below counts as processed.
        committed_tick: Everything below is committed, or its commit is in flight.
        claimed_tick: Everything below is committed, or claimed by a transaction; the next transaction expects it.
    """

    epoch: int
    delivered_tick: int
    processed_tick: int
    committed_tick: int
    claimed_tick: int


EnsureGroup = Callable[[str, list[str], Start], Awaitable[None]]


class AsyncConsumer(InOneProcess, AsyncIterator[Batch]):
    """A member of a consumer group: ``async with`` joins, ``async for batch in consumer`` delivers.

    Each vchannel of the channels belongs to one member of the group at a time; batches of one vchannel arrive in tick
    order. When members join or leave, vchannels move. This member releases a vchannel when the caller requests the next
    batch, so that it processes and commits the current one first. The server detects a dead member within about a
    second; another member then receives what it had not committed: at-least-once delivery. For exactly-once processing
    into Tidelog, set ``auto_commit=False`` and call ``commit_positions(consumer)`` in each transaction.

    The consumer reconnects after lost connections and restarts of the server, for up to ``Retry.give_up_s``. Cancelling
    a wait for the next batch loses nothing. Do not use a consumer from several tasks at once.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        ensure_group: EnsureGroup,
        group: str,
        channels: Sequence[str],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.group = group
        self.channels = tuple(channels)
        self._transport = transport
        self._ensure_group = ensure_group
        self._start = options.get("start", EARLIEST)
        self.auto_commit = options.get("auto_commit", True)
        self._auto_commit_s = check_seconds("auto_commit_s", options.get("auto_commit_s", 1.0))
        self._on_assigned = options.get("on_assigned")
        self._on_revoked = options.get("on_revoked")
        self._on_lost = options.get("on_lost")
        self._skips_trimmed = options.get("skips_trimmed", False)
        member_id = options.get("member_id")
        self.member_id = member_id or secrets.token_hex(_MEMBER_ID_BYTES)
        self._plan = scan_plan(
            EARLIEST, FOLLOW, max_response_bytes=options.get("max_response_bytes", DEFAULT_RESPONSE_BYTES)
        )
        release_within_s = check_seconds("release_within_s", options.get("release_within_s", DEFAULT_RELEASE_WITHIN_S))
        join = pb.JoinGroupStart(
            group=group,
            channels=self.channels,
            member_id=self.member_id,
            description=options.get("description", ""),
            lease_ms=round(check_seconds("lease_s", options.get("lease_s", DEFAULT_LEASE_S)) * 1_000),
            release_within_ms=round(release_within_s * 1_000),
            incarnation=secrets.randbelow(_MAX_INCARNATION) + 1,
        )
        self._changed = asyncio.Event()
        # Shared by the member and the scan.
        self._watch = ReaderWatch(options.get("on_event"))
        self._member = MemberStream(
            transport, join, is_named=member_id is not None, on_changed=self._changed.set, watch=self._watch
        )
        self._seen_version = 0
        self._assignments: dict[str, _Assignment] = {}
        # Those with batches that were delivered and are not processed yet.
        self._in_hand: list[_Assignment] = []
        self._core: ScanCore | None = None
        self._fetching: asyncio.Task[bool] | None = None
        self._commit_due_s = 0.0
        # Done once all commits so far are durable.
        self._last_commit: asyncio.Future[None] | None = None
        # Whether the scan is ahead of what must be delivered next.
        self._is_rewound = False
        # Released vchannels, and the epochs under which this member had them.
        self._released: dict[str, int] = {}
        # Vchannels to report through ``on_lost`` and ``on_assigned``.
        self._unreported_lost: list[str] = []
        self._unreported_gained: list[str] = []
        self._is_closed = False

    @property
    def assignment(self) -> tuple[str, ...]:
        """The vchannels that this member holds now, in order of name."""
        return tuple(sorted(self._assignments))

    @property
    def positions(self) -> Mapping[str, Tick]:
        """For each vchannel of this member, the tick after the last delivered message."""
        return {vchannel: Tick(assignment.delivered_tick) for vchannel, assignment in self._assignments.items()}

    def commits(self) -> list[PositionCommit]:
        """Return position commits for everything delivered since the last call of this, for use in a transaction.

        Raises:
            ValueError: The consumer commits automatically: create it with ``auto_commit=False``.
        """
        if self.auto_commit:
            raise ValueError(
                "the consumer commits automatically, outside of transactions: create it with auto_commit=False"
            )
        commits = []
        for vchannel, assignment in self._assignments.items():
            if assignment.claimed_tick < assignment.delivered_tick:
                # It begins where the previous transaction ends: if that is not committed, this one is refused.
                claim = PositionCommit(
                    self.group,
                    vchannel,
                    assignment.delivered_tick,
                    self.member_id,
                    assignment.epoch,
                    assignment.claimed_tick,
                )
                commits.append(claim)
                assignment.claimed_tick = assignment.delivered_tick
        return commits

    def note_committed(self, commits: Iterable[PositionCommit]) -> None:
        """Record that ``commits`` are committed; transactions call this themselves."""
        for commit in commits:
            assignment = self._assignments.get(commit.vchannel)
            if commit.group == self.group and assignment is not None and assignment.epoch == commit.epoch:
                assignment.committed_tick = max(assignment.committed_tick, commit.next_tick)

    def rewind(self, cause: TidelogError | None = None) -> None:
        """Deliver uncommitted batches of this member's vchannels again; transactions call this when they fail.

        Args:
            cause: Why a transaction was refused. A GroupPositionMovedError states the group's actual position.
        """
        if (
            isinstance(cause, GroupPositionMovedError)
            and (assignment := self._assignments.get(cause.vchannel)) is not None
        ):
            assignment.committed_tick = cause.next_tick
        for assignment in self._assignments.values():
            assignment.delivered_tick = assignment.processed_tick = assignment.claimed_tick = assignment.committed_tick
        self._in_hand.clear()
        self._is_rewound = True

    async def join(self) -> None:
        """Join the group, and create it if it does not exist; ``async with`` calls this. Idempotent.

        Raises:
            ChannelNotFoundError: A channel does not exist.
            InvalidRequestError, OverloadedError, UnavailableError: The group cannot be joined, at the latest after
                ``Retry.give_up_s``.
        """
        transport = self._transport()
        async with Patience(self._watch, self, transport).bounded():
            if not self._member.is_started:
                await patiently(self._watch, self, transport, self._ensure)
            await self._member.start()
        await self._take_assignment()

    async def _ensure(self) -> None:
        await self._ensure_group(self.group, list(self.channels), self._start)

    async def commit(self) -> None:
        """Commit everything delivered so far, durably.

        Raises:
            GroupFencedError: Another member now has one of the vchannels, and receives its messages again. Nothing was
                committed; the next commit includes the vchannels that this member still has.
            TidelogError: The member has left the group, or the server did not answer for ``Retry.give_up_s``.
        """
        self._note_processed()
        while True:
            self._commit_processed()
            await self._committed()
            # An earlier commit may have failed meanwhile; retry it.
            if all(assignment.processed_tick <= assignment.committed_tick for assignment in self._assignments.values()):
                return

    def commit_soon(self) -> None:
        """Commit everything delivered so far without waiting for it.

        At most one commit is in flight; commits made meanwhile are combined into the next one. A failed commit is
        retried with the next one, so call ``commit`` at the end and wait for it.
        """
        self._note_processed()
        self._commit_processed()

    async def wait_rebalance(self, timeout_s: float = 0.0) -> tuple[str, ...]:
        """Wait up to ``timeout_s`` for a rebalance, apply it, and return the assignment.

        Batches delivered before count as processed. Requesting the next batch also applies rebalances.

        Raises:
            TidelogError: As ``__anext__``.
        """
        check_seconds("timeout_s", timeout_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._seen_version == self._member.version:
                    self._changed.clear()
                    await self._changed.wait()
        await self._prepare()
        return self.assignment

    async def poll(self, timeout_s: float = 1.0, *, max_batches: int = 100) -> list[Batch]:
        """Return up to ``max_batches`` available batches; wait up to ``timeout_s`` for the first, else return ``[]``.

        Raises:
            TidelogError: As ``__anext__``.
        """
        check_seconds("timeout_s", timeout_s)
        batches: list[Batch] = []
        try:
            async with asyncio.timeout(timeout_s):
                batches.append(await anext(self))
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            return batches
        while len(batches) < max_batches and self._core is not None and self._core.has_batch:
            batches.append(self._take(self._core))
        return batches

    def take_ready(self) -> Batch | None:
        """Return the next batch if it was received and no other work is due; the synchronous twin uses this too."""
        core = self._core
        if core is None or not core.has_batch or self._is_rewound or self._seen_version != self._member.version:
            return None
        if self.auto_commit and self._commit_due_s <= time.monotonic():
            return None
        self._note_processed()
        return self._take(core)

    async def aclose(self) -> None:
        """Commit processed batches if ``auto_commit`` is set, and leave the group. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.auto_commit and self._member.failure is None:
            self._commit_processed()
        try:
            await self._close_scan()
        finally:
            # Also if this is cancelled: the member must not stay in the group.
            await self._member.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Return the next batch; batches delivered before count as processed.

        Raises:
            PositionTrimmedError: Unconsumed messages were trimmed; see ``skips_trimmed`` and ``seek_group``.
            GroupNotFoundError: The group was destroyed.
            GroupFencedError: Another consumer joined under the same member id.
            DataLossError: A batch does not match its CRC.
            TidelogError: The server was unavailable for too long.
        """
        while True:
            batch = self.take_ready()
            if batch is not None:
                return batch
            await self._prepare()
            if (core := self._core) is not None and core.has_batch:
                return self._take(core)
            await self._wait()

    async def __aenter__(self) -> Self:
        try:
            await self.join()
        except BaseException:
            await self._member.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._note_processed()
        await self.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    def _take(self, core: ScanCore) -> Batch:
        batch = core.take()
        assignment = self._assignments[batch.vchannel]
        assignment.delivered_tick = batch.ticks[-1] + 1
        self._in_hand.append(assignment)
        if _tracing.hooks is not None:
            _tracing.hooks.consumed(batch, self.group)
        return batch

    def _note_processed(self) -> None:
        """Mark delivered batches as processed: the caller requests more, or commits."""
        for assignment in self._in_hand:
            assignment.processed_tick = assignment.delivered_tick
        self._in_hand.clear()

    async def _prepare(self) -> None:
        """Do the work that is due before the next batch: changes of the assignment, and commits."""
        if self._is_closed:
            raise ClosedError("the consumer is closed: create a new one")
        self._note_processed()
        await self._take_assignment()
        if self._is_rewound:
            await self._close_scan()
            self._is_rewound = False
        if self._member.failure is not None:
            raise self._member.failure
        if self.auto_commit and self._commit_due_s <= time.monotonic():
            self._begin_auto_commit()
        if self._core is None and self._assignments:
            begins = {
                vchannel: Begin.tick(assignment.delivered_tick) for vchannel, assignment in self._assignments.items()
            }
            self._core = ScanCore.at(self._transport, begins, self._plan, self._watch)

    async def _take_assignment(self) -> None:
        """Apply the server's assignment: add gained vchannels, drop lost ones, release revoked ones."""
        while self._seen_version != self._member.version:
            version = self._member.version
            self._changed.clear()
            # If this is cancelled meanwhile, the next call starts over.
            await self._follow(self._member.holdings)
            self._seen_version = version

    async def _follow(self, holdings: Mapping[str, Holding]) -> None:
        lost = [
            vchannel
            for vchannel, assignment in self._assignments.items()
            if vchannel not in holdings or holdings[vchannel].epoch != assignment.epoch
        ]
        gained = [
            vchannel
            for vchannel, holding in holdings.items()
            if (vchannel not in self._assignments or vchannel in lost) and self._released.get(vchannel) != holding.epoch
        ]
        self._released = {name: epoch for name, epoch in self._released.items() if name in holdings}
        for vchannel in lost:
            del self._assignments[vchannel]
        for vchannel in gained:
            epoch, tick, _ = holdings[vchannel]
            self._assignments[vchannel] = _Assignment(epoch, tick, tick, tick, tick)
        if lost or gained:
            # Ordering: in one step with the assignments, so that no batch of a lost vchannel is delivered.
            self._is_rewound = True
        # A vchannel under a new epoch was lost in between, or its position was sought. The lists stay until reported,
        # because this task may be cancelled.
        self._unreported_lost += lost
        if lost:
            self._watch.fenced(_lost_error(self.group, lost), lost)
        self._unreported_gained += gained
        await _notify(self._on_lost, self._unreported_lost)
        self._unreported_lost = []
        await _notify(self._on_assigned, self._unreported_gained)
        self._unreported_gained = []
        await self._give_back([name for name in self._assignments if holdings[name].is_revoked])

    async def _give_back(self, vchannels: Sequence[str]) -> None:
        if not vchannels:
            return
        await _notify(self._on_revoked, vchannels)
        if self.auto_commit:
            self._commit_processed()
        # If a vchannel is lost already, its new member receives these messages again.
        with suppress(GroupFencedError):
            await self._committed()
        for vchannel in vchannels:
            self._released[vchannel] = self._assignments.pop(vchannel).epoch
        self._is_rewound = True
        self._member.release({vchannel: self._released[vchannel] for vchannel in vchannels})

    def _commit_processed(self) -> None:
        """Start a commit of batches that are processed and not committed."""
        due = {
            vchannel: Position(assignment.epoch, assignment.processed_tick)
            for vchannel, assignment in self._assignments.items()
            if assignment.committed_tick < assignment.processed_tick
        }
        if not due:
            return
        before = {vchannel: self._assignments[vchannel].committed_tick for vchannel in due}
        for vchannel, position in due.items():
            assignment = self._assignments[vchannel]
            assignment.committed_tick = position.next_tick
            assignment.claimed_tick = max(assignment.claimed_tick, position.next_tick)
        done = self._member.commit(due)
        assignments = {vchannel: self._assignments[vchannel] for vchannel in due}
        done.add_done_callback(lambda ended: _undo(ended, assignments, before))
        self._last_commit = done

    async def _committed(self) -> None:
        """Wait until all commits so far are durable. If the last one failed, raise its error, once."""
        last = self._last_commit
        if last is None:
            return
        transport = self._transport()
        try:
            async with Patience(self._watch, self, transport).bounded(), transport.calls.entered(holds_close=True):
                await asyncio.shield(last)
        except ClosedError:
            if last.done():
                raise
            raise ClosedError("the client was closed before the server answered the commit", effect="unknown") from None
        finally:
            if last.done() and self._last_commit is last:
                self._last_commit = None

    def _begin_auto_commit(self) -> None:
        """Commit processed batches without waiting; a failed commit is retried with the next one."""
        self._commit_due_s = time.monotonic() + self._auto_commit_s
        self._commit_processed()

    async def _wait(self) -> None:
        """Wait until a batch arrives or the assignment changes."""
        # Before the wait too: a caller with a timeout of 0 must get what has arrived.
        if await self._take_fetched():
            return
        if self.auto_commit:
            # The consumer is idle: commit now instead of after ``auto_commit_s``.
            self._begin_auto_commit()
        changed = asyncio.create_task(self._changed.wait(), name="tidelog-consumer-changed")
        waiting: set[asyncio.Task[bool]] = {changed}
        try:
            if self._core is not None:
                if self._fetching is None:
                    self._fetching = asyncio.create_task(self._core.fetch(), name="tidelog-consumer-fetch")
                waiting.add(self._fetching)
            if self._seen_version == self._member.version:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        await self._take_fetched()

    async def _take_fetched(self) -> bool:
        """Return whether a fetch has ended; raise its error if it failed."""
        if self._fetching is None or not self._fetching.done():
            return False
        fetching, self._fetching = self._fetching, None
        try:
            fetching.result()
        except PositionTrimmedError as error:
            await self._close_scan()
            if not self._skips_trimmed:
                raise
            self._skip(error)
        return True

    def _skip(self, error: PositionTrimmedError) -> None:
        """Resume at the first available tick after a trim."""
        assignment = self._assignments.get(error.values.get("vchannel", ""))
        if assignment is None:
            raise error
        assignment.delivered_tick = max(assignment.delivered_tick, error.first_available_tick)

    async def _close_scan(self) -> None:
        """Close the scan; the next one receives undelivered batches again."""
        fetching, self._fetching = self._fetching, None
        core, self._core = self._core, None
        try:
            if fetching is not None:
                fetching.cancel()
                await asyncio.gather(fetching, return_exceptions=True)
        finally:
            if core is not None:
                # It cancels its call before its first await.
                await core.aclose()


def _lost_error(group: str, vchannels: Sequence[str]) -> GroupFencedError:
    return GroupFencedError(
        f"group {group} reassigned {', '.join(vchannels)}, or its position was changed there: uncommitted messages "
        "are delivered again, to this consumer or another",
        values={"group": group},
    )


async def _notify(notify: Notify | None, vchannels: Sequence[str]) -> None:
    if notify is not None and vchannels:
        notified = notify(sorted(vchannels))
        if inspect.isawaitable(notified):
            await notified


def _undo(ended: "asyncio.Future[None]", assignments: Mapping[str, _Assignment], before: Mapping[str, int]) -> None:
    """If a commit failed, restore its positions so that the next one includes them."""
    if not ended.cancelled() and ended.exception() is not None:
        for vchannel, assignment in assignments.items():
            assignment.committed_tick = min(assignment.committed_tick, before[vchannel])
