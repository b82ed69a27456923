"""Consumers: members of a group that share the vchannels of channels and commit their positions."""

import asyncio
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

from tidelog.errors import (
    ClosedError,
    GroupFencedError,
    GroupNotFoundError,
    GroupPositionMovedError,
    PositionTrimmedError,
    TidelogError,
)
from tidelog.groups.assignment import Assignment, lost_error, undo_commit
from tidelog.groups.consumer_scans import ConsumerScans
from tidelog.groups.handling import Handling
from tidelog.groups.member_queue import Holding, Position
from tidelog.groups.member_stream import MemberStream
from tidelog.read.positions import EARLIEST, FOLLOW, Start
from tidelog.read.reader_events import OnEvent
from tidelog.read.reader_watch import Patience, ReaderWatch, patiently
from tidelog.read.scan_plan import DEFAULT_RESPONSE_BYTES, scan_arguments
from tidelog.tick import Tick
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.node.located import located
from tidelog.transport.transport import Transport
from tidelog.types import PositionCommit
from tidelog.v1 import group_service_pb2 as pb
from tidelog.wire.batch import Batch
from tidelog.wire.durations import Duration, check_seconds

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
    auto_commit_s: Duration
    member_id: str | None
    description: str
    lease_s: Duration
    release_within_s: Duration
    on_assigned: Notify | None
    on_revoked: Notify | None
    on_lost: Notify | None
    skips_trimmed: bool
    max_response_bytes: int
    on_event: OnEvent | None


CreateIfMissing = Callable[[str, list[str], Start], Awaitable[None]]


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
        create_if_missing: CreateIfMissing,
        group: str,
        channels: Sequence[str],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.group = group
        self.channels = tuple(channels)
        self._transport = transport
        self._create_if_missing = create_if_missing
        self._start = options.get("start", EARLIEST)
        self.auto_commit = options.get("auto_commit", True)
        self._auto_commit_s = check_seconds("auto_commit_s", options.get("auto_commit_s", 1.0))
        self._on_assigned = options.get("on_assigned")
        self._on_revoked = options.get("on_revoked")
        self._on_lost = options.get("on_lost")
        self._skips_trimmed = options.get("skips_trimmed", False)
        member_id = options.get("member_id")
        self.member_id = member_id or secrets.token_hex(_MEMBER_ID_BYTES)
        plan = scan_arguments(
            EARLIEST, FOLLOW, max_response_bytes=options.get("max_response_bytes", DEFAULT_RESPONSE_BYTES)
        )
        release_within_s = check_seconds("release_within_s", options.get("release_within_s", DEFAULT_RELEASE_WITHIN_S))
        self._is_named = member_id is not None
        self._join_request = pb.JoinGroupStart(
            group=group,
            channels=self.channels,
            member_id=self.member_id,
            description=options.get("description", ""),
            lease_ms=round(check_seconds("lease_s", options.get("lease_s", DEFAULT_LEASE_S)) * 1_000),
            release_within_ms=round(release_within_s * 1_000),
            incarnation=secrets.randbelow(_MAX_INCARNATION) + 1,
            accepts_changes=True,
        )
        self._changed = asyncio.Event()
        # Shared by the member and the scans.
        self._watch = ReaderWatch(options.get("on_event"))
        self._scans = ConsumerScans(transport, plan, self._watch, self._changed.set, group)
        self._handling = Handling(group, release_within_s, self._watch, self._epochs, lambda: self._member.endpoint)
        self._member = self._new_member()
        self._has_joined = False
        self._seen_version = 0
        self._assignments: dict[str, Assignment] = {}
        # Those with batches that were delivered and are not processed yet.
        self._in_hand: list[Assignment] = []
        self._commit_due_s = 0.0
        # Done once all commits so far are durable.
        self._last_commit: asyncio.Future[None] | None = None
        # Whether the scans are ahead of what must be delivered next.
        self._is_rewound = False
        # Released vchannels, and the epochs under which this member had them.
        self._released: dict[str, int] = {}
        # Vchannels to report through ``on_lost`` and ``on_assigned``.
        self._unreported_lost: list[str] = []
        self._unreported_gained: list[str] = []
        self._is_paused = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<AsyncConsumer of group {self.group!r}, {len(self.assignment)} vchannels>"

    @property
    def assignment(self) -> tuple[str, ...]:
        """The vchannels that this member holds now, in order of name."""
        return tuple(sorted(self._assignments))

    @property
    def positions(self) -> Mapping[str, Tick]:
        """For each vchannel of this member, the tick after the last delivered message."""
        return {vchannel: Tick(assignment.delivered_tick) for vchannel, assignment in self._assignments.items()}

    @property
    def is_paused(self) -> bool:
        """Whether ``pause`` was called, and not ``resume`` since."""
        return self._is_paused

    def pause(self) -> None:
        """Deliver nothing until ``resume``: requests of batches wait, and ``poll`` returns ``[]``. Idempotent.

        The consumer stays in the group, and requests still apply rebalances. What was delivered does not count as
        processed meanwhile, unless it is committed: a vchannel that another member gets is delivered there again.
        """
        self._is_paused = True

    def resume(self) -> None:
        """Deliver again after ``pause``. Idempotent."""
        self._is_paused = False
        self._changed.set()

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
        self._handling.ended(cause)
        self._is_rewound = True

    async def join(self) -> None:
        """Join the group, and create it if it does not exist; ``async with`` calls this. Idempotent.

        Raises:
            ChannelNotFoundError: A channel does not exist.
            InvalidRequestError, OverloadedError, UnavailableError: The group cannot be joined, at the latest after
                ``Retry.give_up_s``.
        """
        await located(self._transport, self.channels)
        transport = self._transport()
        async with Patience(self._watch, self, transport).bounded():
            member = self._member
            try:
                await member.start()
            except GroupNotFoundError:
                if self._has_joined:
                    raise
                await self._create_group(transport, member)
                await self._member.start()
        self._has_joined = True
        await self._take_assignment()

    async def _create_group(self, transport: Transport, member: MemberStream) -> None:
        """Create the group, and replace the member that found none, unless another call has. Its stream has ended."""

        async def create() -> None:
            await self._create_if_missing(self.group, list(self.channels), self._start)

        await patiently(self._watch, self, transport, create)
        if self._member is member:
            self._member = self._new_member()
            await member.aclose()

    def _new_member(self) -> MemberStream:
        return MemberStream(
            self._transport, self._join_request, is_named=self._is_named, on_changed=self._holdings_changed,
            watch=self._watch,
        )  # fmt: skip

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

    async def wait_rebalance(self, timeout_s: Duration = 0.0) -> tuple[str, ...]:
        """Wait up to ``timeout_s`` for a rebalance, apply it, and return the assignment.

        Batches delivered before count as processed, unless the consumer is paused. Requesting the next batch also
        applies rebalances.

        Raises:
            TidelogError: As ``__anext__``.
        """
        timeout_s = check_seconds("timeout_s", timeout_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._seen_version == self._member.queue.version:
                    self._changed.clear()
                    await self._changed.wait()
        await self._prepare()
        return self.assignment

    async def poll(self, timeout_s: Duration = 1.0, *, max_batches: int = 100) -> list[Batch]:
        """Return up to ``max_batches`` available batches; wait up to ``timeout_s`` for the first, else return ``[]``.

        Raises:
            TidelogError: As ``__anext__``.
        """
        timeout_s = check_seconds("timeout_s", timeout_s)
        batches: list[Batch] = []
        try:
            async with asyncio.timeout(timeout_s):
                batches.append(await anext(self))
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            return batches
        while len(batches) < max_batches and self._has_batch:
            batches.append(self._take())
        return batches

    def take_ready(self) -> Batch | None:
        """Return the next batch if it was received and no other work is due; the synchronous twin uses this too."""
        if not self._has_batch or self._is_rewound or self._seen_version != self._member.queue.version:
            return None
        if self.auto_commit and self._commit_due_s <= time.monotonic():
            return None
        self._note_processed()
        return self._take()

    async def aclose(self) -> None:
        """Commit processed batches if ``auto_commit`` is set, and leave the group. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._handling.close()
        if self.auto_commit and self._member.queue.failure is None:
            self._commit_processed()
        try:
            await self._scans.aclose()
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
            if self._has_batch:
                return self._take()
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
        self._handling.ended(error)
        await self.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    @property
    def _has_batch(self) -> bool:
        """Whether a batch may be delivered.

        None while the member is without its server: a restarted one gives the vchannels out under other epochs, and
        refuses commits of what was delivered before.
        """
        return not self._is_paused and self._scans.has_batch and not self._member.is_away

    def _epochs(self) -> Mapping[str, int]:
        """Return the epochs of the vchannels that were not released."""
        return {vchannel: assignment.epoch for vchannel, assignment in self._assignments.items()}

    def _holdings_changed(self) -> None:
        if not self._is_closed:
            self._handling.revoked(self._member.queue.holdings)
        self._changed.set()

    def _take(self) -> Batch:
        batch = self._scans.take()
        assignment = self._assignments[batch.vchannel]
        assignment.delivered_tick = batch.ticks[-1] + 1
        self._in_hand.append(assignment)
        self._handling.took(batch)
        return batch

    def _note_processed(self) -> None:
        """Mark delivered batches as processed: the caller requests more, or commits."""
        for assignment in self._in_hand:
            assignment.processed_tick = assignment.delivered_tick
        self._in_hand.clear()
        self._handling.ended()

    async def _prepare(self) -> None:
        """Do the work that is due before the next batch: changes of the assignment, and commits."""
        if self._is_closed:
            raise ClosedError("the consumer is closed: create a new one")
        # What has set it is looked at below, or changes `version`.
        self._changed.clear()
        if not self._is_paused:
            self._note_processed()
        await self._take_assignment()
        if self._is_rewound:
            await self._scans.aclose()
            self._is_rewound = False
        if self._member.queue.failure is not None:
            raise self._member.queue.failure
        if self.auto_commit and self._commit_due_s <= time.monotonic():
            self._begin_auto_commit()
        if self._scans.is_due or len(self._scans) != len(self._assignments):
            ticks = {vchannel: assignment.delivered_tick for vchannel, assignment in self._assignments.items()}
            await self._scans.follow(ticks)

    async def _take_assignment(self) -> None:
        """Apply the server's assignment: add gained vchannels, drop lost ones, release revoked ones."""
        while self._seen_version != self._member.queue.version:
            version = self._member.queue.version
            self._changed.clear()
            # If this is cancelled meanwhile, the next call starts over.
            await self._follow(self._member.queue.holdings)
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
            self._assignments[vchannel] = Assignment(epoch, tick, tick, tick, tick)
        # Ordering: in one step with the assignments, so that no batch of a lost vchannel is delivered.
        self._scans.drop(lost)
        # A vchannel under a new epoch was lost in between, or its position was sought. The lists stay until reported,
        # because this task may be cancelled.
        self._unreported_lost += lost
        if lost:
            self._watch.fenced(lost_error(self.group, lost), lost)
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
        self._scans.drop(vchannels)
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
        done.add_done_callback(lambda ended: undo_commit(ended, assignments, before))
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
            # Once the member is back, its vchannels have changed.
            if not self._member.is_away and not self._is_paused:
                waiting.update(self._scans.fetches())
            if self._seen_version == self._member.queue.version:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        await self._take_fetched()

    async def _take_fetched(self) -> bool:
        """Return whether a fetch has ended; raise its error if it failed."""
        try:
            return self._scans.take_fetched()
        except PositionTrimmedError as error:
            # The next scans receive undelivered batches again.
            await self._scans.aclose()
            self._skip(error)
        return True

    def _skip(self, error: PositionTrimmedError) -> None:
        """Resume at the first available tick after a trim, or raise the error; lost vchannels are of no interest."""
        vchannel = error.values.get("vchannel", "")
        assignment = self._assignments.get(vchannel)
        if assignment is not None and self._skips_trimmed:
            assignment.delivered_tick = max(assignment.delivered_tick, error.first_available_tick)
        elif assignment is not None or not vchannel:
            raise error


async def _notify(notify: Notify | None, vchannels: Sequence[str]) -> None:
    if notify is not None and vchannels:
        notified = notify(sorted(vchannels))
        if inspect.isawaitable(notified):
            await notified
