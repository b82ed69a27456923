"""What a member of a consumer group sends, and what it knows of its vchannels. Pure: no I/O, no clock."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Protocol

from tidelog.errors import (
    ClosedError,
    GroupFencedError,
    OwnershipLostError,
    ShutdownError,
    TidelogError,
    UnavailableError,
    copy_of,
)
from tidelog.read.reader_events import WAITING_AFTER_S
from tidelog.transport.pipeline import After, Queue
from tidelog.transport.status import error_of_answer
from tidelog.transport.stream_end import look_at
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2

# Positions that the server accepts in a commit.
MAX_COMMIT_POSITIONS: Final = 1_024
# Number of heartbeats per lease.
_SIGNS_PER_LEASE: Final = 4
_HEARTBEAT: Final = pb.JoinGroupRequest(heartbeat=pb.JoinGroupHeartbeat()).SerializeToString()


class Holding(NamedTuple):
    """A vchannel that the member holds.

    Attributes:
        epoch: Epoch under which it holds the vchannel.
        next_tick: First tick to consume.
        is_revoked: Whether another member waits for it.
    """

    epoch: int
    next_tick: int
    is_revoked: bool


class Position(NamedTuple):
    """The member's position on a vchannel that it held under an epoch."""

    epoch: int
    next_tick: int


@dataclass(slots=True)
class _Commit:
    """Positions that are or will be in flight together, and the futures that wait for them.

    Attributes:
        positions: The positions.
        waiting: The futures.
        was_sent: Whether a request with some of them was sent.
        unsent: Those that were not sent on this stream, while it is in flight.
        error: Why the server refused some of them.
    """

    positions: dict[str, Position] = field(default_factory=dict)
    waiting: "list[asyncio.Future[None]]" = field(default_factory=list)
    was_sent: bool = False
    unsent: list[tuple[str, Position]] = field(default_factory=list)
    error: TidelogError | None = None

    def add(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        self.positions.update(positions)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # There may be no waiter.
        done.add_done_callback(look_at)
        self.waiting.append(done)
        return done

    def take_part(self) -> list[tuple[str, Position]]:
        """Return the positions of the next request."""
        part, self.unsent = self.unsent[:MAX_COMMIT_POSITIONS], self.unsent[MAX_COMMIT_POSITIONS:]
        self.was_sent = True
        return part

    def settle(self, error: TidelogError | None) -> None:
        for done in self.waiting:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)


class Listener(Protocol):
    """Learns what happens to a member."""

    def answered(self) -> None:
        """The server has sent something."""

    def lost(self, error: TidelogError) -> None:
        """The server is away, and why; called again after each attempt."""

    def ended(self, error: TidelogError) -> None:
        """The membership has ended."""

    def changed(self) -> None:
        """``version`` has changed."""


class MemberQueue(Queue):
    """The commits and releases of one member, across lost connections and restarts of the server.

    Attributes:
        holdings: The vchannels that the member holds, as the server last reported.
        version: Number of changes of ``holdings`` and ``failure``.
        failure: Why the membership ended; None while it lasts or the member tries to rejoin.
        is_leaving: Whether the member leaves, or has left.
    """

    holds_close = False
    connect_s = WAITING_AFTER_S

    def __init__(self, join: pb.JoinGroupStart, *, is_named: bool, listener: Listener) -> None:
        """Create the queue, which is idle until ``join``.

        Args:
            join: The join request, including a member id.
            is_named: Whether the caller chose the id: then another member with the same id ends this one.
            listener: Learns what happens.
        """
        self.idle_s = join.lease_ms / 1_000 / _SIGNS_PER_LEASE
        self._join = pb.JoinGroupRequest(join=join).SerializeToString()
        self._is_named = is_named
        self._listener = listener
        self.holdings: dict[str, Holding] = {}
        self.version = 0
        self.failure: TidelogError | None = None
        self.is_leaving = False
        self._is_member = False
        # Why the last stream ended, or none could be opened; None after an answer.
        self._reason: TidelogError | None = None
        # Whether the member has joined on the current stream, and whether the server has answered there.
        self._has_joined = self._has_answered = False
        # Releases that the server has not confirmed; they are sent again on the next stream.
        self._released: dict[str, int] = {}
        self._has_releases = False
        # At most one commit is in flight, in several requests if it is large; commits made meanwhile are combined into
        # the next one.
        self._next: _Commit | None = None
        self._sent: _Commit | None = None
        self._last_commit_id = 0

    @property
    def is_over(self) -> bool:
        """Whether the membership has ended, or the member has left."""
        return self.failure is not None or (self.is_leaving and not self._has_commits)

    @property
    def is_idle(self) -> bool:
        """Whether no commit is unsettled, and the member is connected unless it need not be."""
        return not self._has_commits and (self._has_answered or not self.has_waiting)

    @property
    def has_waiting(self) -> bool:
        """Whether the member needs a stream."""
        return self._is_member and not self.is_over

    @property
    def has_patience(self) -> bool:
        """Whether the member waits for the first answer of a server; its commits have bounds of their own."""
        return not self._has_answered

    @property
    def _has_commits(self) -> bool:
        return self._sent is not None or self._next is not None

    def join(self) -> None:
        """Join the group on the next stream, and again on each one after it, until ``end_waits``."""
        self._is_member = True

    def commit(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        """Commit positions; the future is done once the commit is durable.

        The future raises GroupFencedError if the member has lost one of the vchannels, and other TidelogErrors.
        """
        if self._next is None:
            self._next = _Commit()
        assert positions
        done = self._next.add(positions)
        if self.failure is not None or self.is_leaving:
            self._give_up(self.failure or ClosedError("the consumer is closed: create a new one"))
        return done

    def release(self, vchannels: Mapping[str, int]) -> None:
        """Release vchannels that are held under these epochs."""
        self._released.update(vchannels)
        self._has_releases = True

    def next_request(self) -> bytes | None:
        """Return the join on a new stream, then a commit if none is in flight, then releases.

        Ordering: releases follow the commits, because the member loses what it releases.
        """
        if not self._has_joined:
            self._has_joined, self._has_releases = True, bool(self._released)
            return self._join
        if self._sent is None and self._next is not None:
            self._sent, self._next = self._next, None
            self._sent.unsent, self._sent.error = list(self._sent.positions.items()), None
        if self._sent is not None and self._sent.unsent:
            return self._commit_request(self._sent.take_part())
        if self._sent is None and self._has_releases:
            self._has_releases = False
            released = [pb.GroupAssignment(vchannel=name, epoch=epoch) for name, epoch in self._released.items()]
            request = pb.JoinGroupRequest(release=pb.JoinGroupRelease(vchannels=released))
            return request.SerializeToString()
        return None

    def idle_request(self) -> bytes:
        """Return a heartbeat."""
        return _HEARTBEAT

    def answered(self, response: pb.JoinGroupResponse) -> After:
        """Settle the commit in flight, and take over the member's vchannels."""
        self._has_answered, self._reason = True, None
        self._listener.answered()
        afters = [self._committed(committed) for committed in response.committed]
        if response.HasField("assignments"):
            self._take_over({}, response.assignments.vchannels)
        if response.HasField("changes"):
            kept = dict(self.holdings)
            for vchannel in response.changes.lost:
                kept.pop(vchannel, None)
            self._take_over(kept, response.changes.vchannels)
        return After.FINISH if After.FINISH in afters else After.CONTINUE

    def may_pass(self, error: TidelogError, *, can_renew_token: bool) -> bool:
        """Return whether the member may join again after a stream that ended with ``error``."""
        if isinstance(error, GroupFencedError):
            # Its lease expired, for instance because this process was paused. With a name chosen by the caller, another
            # consumer may have joined under it, which the caller must learn.
            return not self._is_named and not self.is_leaving
        return isinstance(error, UnavailableError) and not self.is_leaving

    def unreachable(self, error: TidelogError, *, may_pass: bool) -> None:
        """Tell the listener."""
        self._reason = error
        if may_pass:
            self._listener.lost(error)

    def interrupted(self, reason: TidelogError, _max_request_bytes: float = inf) -> None:
        """Queue the unanswered commit to be sent again: commits are idempotent."""
        self._has_joined = self._has_answered = False
        self._put_back()
        self.unreachable(reason, may_pass=self.may_pass(reason, can_renew_token=False))

    def refused(self, error: TidelogError) -> None:
        """End the membership; the end of its last stream ends only the wait of a member that has left."""
        if self.is_over:
            return
        if isinstance(error, ClosedError):
            error = ClosedError("the client was closed while a consumer was open")
        self.failure = error
        self.holdings = {}
        self._give_up(error)
        self._listener.ended(error)
        self._change()

    def silent(self, silent_s: float, _why: object) -> None:
        """End the membership: no server was found for too long."""
        text = f"the server did not answer for {silent_s:.1f} s: check it, or raise Retry.give_up_s"
        self.refused(self._reason or UnavailableError(text))

    def expire(self, _now_s: float) -> float:
        """Commits have no deadlines."""
        return inf

    def end_waits(self) -> None:
        """Leave the group once all commits are answered."""
        self.is_leaving = True

    def closed(self, _why: str) -> None:
        """Fail the commits that are not answered."""
        self._give_up(ClosedError("the consumer was closed before the server answered the commit"))

    def _take_over(self, kept: dict[str, Holding], reported: Iterable[pb.GroupAssignment]) -> None:
        """Replace the holdings by ``kept`` and those that the server reported."""
        for each in reported:
            kept[each.vchannel] = Holding(each.epoch, each.next_tick, each.is_revoked)
        self.holdings = kept
        self._released = {
            name: epoch for name, epoch in self._released.items() if name in kept and kept[name].epoch == epoch
        }
        self._change()

    def _put_back(self) -> None:
        """Send the commit in flight again on the next stream, with what waits behind it."""
        if self._sent is not None:
            sent, self._sent = self._sent, None
            if self._next is not None:
                sent.positions.update(self._next.positions)
                sent.waiting += self._next.waiting
            self._next = sent

    def _committed(self, committed: pb.JoinGroupCommitted) -> After:
        """Note the answer to a request, and settle the commit in flight with that to its last one.

        A server that stops, or has lost the channel, refuses a commit that its successor accepts.
        """
        sent = self._sent
        if sent is None:
            return After.CONTINUE
        if committed.HasField("error"):
            error = error_of_answer(committed.error)
            if isinstance(error, ShutdownError | OwnershipLostError) and not self.is_leaving:
                self._put_back()
                return After.FINISH
            sent.error = sent.error or error
        if not sent.unsent and committed.commit_id == self._last_commit_id:
            self._sent = None
            sent.settle(sent.error)
        return After.CONTINUE

    def _commit_request(self, part: Sequence[tuple[str, Position]]) -> bytes:
        self._last_commit_id += 1
        positions = [
            wal_service_pb2.PositionCommit(vchannel=vchannel, epoch=position.epoch, next_tick=position.next_tick)
            for vchannel, position in part
        ]
        commit = pb.JoinGroupCommit(commit_id=self._last_commit_id, positions=positions)
        return pb.JoinGroupRequest(commit=commit).SerializeToString()

    def _give_up(self, error: TidelogError) -> None:
        for commit in (self._sent, self._next):
            if commit is not None:
                commit.settle(copy_of(error, effect="unknown") if commit.was_sent else error)
        self._sent = self._next = None

    def _change(self) -> None:
        self.version += 1
        self._listener.changed()
