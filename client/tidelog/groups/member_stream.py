"""A member of a consumer group: maintains its stream, tracks its vchannels, commits and releases."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import grpc.aio

from tidelog.errors import ClosedError, GroupFencedError, TidelogError, UnavailableError, copy_of
from tidelog.read.reader_watch import Patience, ReaderWatch
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.retry import may_repeat
from tidelog.transport.status import error_of_answer, error_of_status, is_of_server
from tidelog.transport.stream_end import StreamEnd, half_close
from tidelog.transport.transport import Transport
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2

# Number of heartbeats per lease.
_SIGNS_PER_LEASE: Final = 4
_LEAVE_WITHIN_S: Final = 2.0


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
    """Positions that are or will be in flight together, and the futures that wait for them."""

    positions: dict[str, Position] = field(default_factory=dict)
    waiting: "list[asyncio.Future[None]]" = field(default_factory=list)
    was_sent: bool = False

    def add(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        self.positions.update(positions)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # There may be no waiter, and asyncio logs exceptions that were never retrieved.
        done.add_done_callback(_look_at)
        self.waiting.append(done)
        return done

    def settle(self, error: TidelogError | None) -> None:
        for done in self.waiting:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)


class MemberStream(InOneProcess):
    """One member of a group, across lost connections and restarts of the server. Lives on one event loop.

    Attributes:
        holdings: The vchannels that the member holds, as the server last reported.
        version: Number of changes of ``holdings`` and ``failure``.
        failure: Why the membership ended; None while it lasts or the member tries to rejoin.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        join: pb.JoinGroupStart,
        *,
        is_named: bool,
        on_changed: Callable[[], None],
        watch: ReaderWatch,
    ) -> None:
        """Create the member; ``start`` joins.

        Args:
            transport: Returns the client's connections.
            join: The join request, including a member id.
            is_named: Whether the caller chose the id: then another member with the same id ends this one.
            on_changed: Called when ``version`` has changed.
            watch: Receives the state of the connection.
        """
        self._transport = transport
        self._join = join
        self._is_named = is_named
        self._on_changed = on_changed
        self._watch = watch
        self.holdings: dict[str, Holding] = {}
        self.version = 0
        self.failure: TidelogError | None = None
        self._has_joined = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._call: Any = None
        self._due = asyncio.Event()
        # Releases that the server has not confirmed; they are sent again on the next stream.
        self._released: dict[str, int] = {}
        self._has_releases = False
        # At most one commit is in flight; commits made meanwhile are combined into the next one.
        self._next: _Commit | None = None
        self._sent: _Commit | None = None
        self._last_commit_id = 0
        self._is_leaving = False
        # Whether ``aclose`` has stopped waiting for the rest.
        self._is_over = False
        # Whether the server has answered on this stream.
        self._has_answered = False

    async def start(self) -> None:
        """Join, and return once the server has sent the member's vchannels.

        Raises:
            TidelogError: The member cannot join.
        """
        self._runner = asyncio.create_task(self._run(), name="tidelog-member")
        await self._has_joined.wait()
        if self.failure is not None:
            raise self.failure

    def commit(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        """Commit positions; the future is done once the commit is durable.

        The future raises GroupFencedError if the member has lost one of the vchannels, and other TidelogErrors.
        """
        if self._next is None:
            self._next = _Commit()
        done = self._next.add(positions)
        if self.failure is not None or self._is_leaving:
            self._give_up(self.failure or ClosedError("the consumer is closed: create a new one"))
        self._due.set()
        return done

    def release(self, vchannels: Mapping[str, int]) -> None:
        """Release vchannels that are held under these epochs."""
        self._released.update(vchannels)
        self._has_releases = True
        self._due.set()

    def leave(self) -> None:
        """Begin to leave the group; follow with ``aclose``."""
        self._is_leaving = True
        self._due.set()

    async def aclose(self) -> None:
        """Send pending commits and releases, leave the group, and end the stream. Idempotent."""
        self.leave()
        if self._runner is not None:
            try:
                await asyncio.wait((self._runner,), timeout=_LEAVE_WITHIN_S)
            finally:
                self._is_over = True
                self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        self._give_up(ClosedError("the consumer was closed before the server answered the commit"))

    async def _run(self) -> None:
        try:
            with self._transport().waiting():
                await self._stay()
        except TidelogError as error:
            self._end(error)
        except asyncio.CancelledError:
            if not self._is_over:
                # The client was closed, which cancels its calls.
                self._end(ClosedError("the client was closed while a consumer was open"))
            raise

    async def _stay(self) -> None:
        """Maintain the membership until the member leaves, on one stream after another.

        Raises:
            TidelogError: The membership has ended, or the server was unavailable for too long.
        """
        patience: Patience | None = None
        while True:
            transport = self._transport()
            patience = patience or Patience(self._watch, self, transport)
            self._has_answered = False
            try:
                await patience.connected()
                await self._serve(transport)
            except TidelogError as error:
                if self._is_leaving or not self._may_join_again(error):
                    raise
                if self._has_answered:
                    patience = Patience(self._watch, self, transport)
                await patience.bear(error, may_pass=True)
            else:
                return

    def _may_join_again(self, error: TidelogError) -> bool:
        if isinstance(error, GroupFencedError):
            # Its lease expired, for instance because this process was paused. With a name chosen by the caller, another
            # consumer may have joined under it, which the caller must learn.
            return not self._is_named
        return may_repeat(error) or isinstance(error, UnavailableError)

    async def _serve(self, transport: Transport) -> None:
        """Maintain the membership on one stream. Returns when the member has left.

        Raises:
            TidelogError: The stream ended before that.
        """
        connection = transport.lease()
        call = connection.join_group(metadata=transport.metadata())
        self._call, end = call, StreamEnd(call)
        writer: asyncio.Task[None] | None = None
        try:
            await call.write(pb.JoinGroupRequest(join=self._join))
            self._has_releases = bool(self._released)
            writer = asyncio.create_task(self._write(call), name="tidelog-member-write")
            while (response := await call.read()) is not grpc.aio.EOF:
                self._take(response)
            if not self._is_leaving:
                raise UnavailableError("the server ended the stream of the member", effect="unknown")
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # A write that begins after the end raises the latter.
            failure = await end.failure(call)
            raise _error_of(failure) from failure
        finally:
            self._put_back()
            if writer is not None:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)
            call.cancel()
            self._call = None
            transport.release(connection)

    def _take(self, response: pb.JoinGroupResponse) -> None:
        self._has_answered = True
        self._watch.answered(self)
        for committed in response.committed:
            if self._sent is not None and committed.commit_id == self._last_commit_id:
                sent, self._sent = self._sent, None
                sent.settle(error_of_answer(committed.error) if committed.HasField("error") else None)
                self._due.set()
        if response.HasField("assignments"):
            self.holdings = {
                each.vchannel: Holding(each.epoch, each.next_tick, each.is_revoked)
                for each in response.assignments.vchannels
            }
            self._released = {
                name: epoch
                for name, epoch in self._released.items()
                if name in self.holdings and self.holdings[name].epoch == epoch
            }
            self._change()
            self._has_joined.set()

    async def _write(self, call: Any) -> None:
        sign_s = self._join.lease_ms / 1_000 / _SIGNS_PER_LEASE
        # An RPC that is over raises either of these; the reader of the stream reports the reason.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                self._due.clear()
                if self._sent is None and self._next is not None:
                    await call.write(self._commit_request())
                if self._has_releases and self._sent is None and self._next is None:
                    # Ordering: after the commits, because the member loses what it releases.
                    self._has_releases = False
                    await call.write(self._release_request())
                if self._is_leaving and self._sent is None and self._next is None:
                    await half_close(call)
                    return
                try:
                    async with asyncio.timeout(sign_s):
                        await self._due.wait()
                except TimeoutError:
                    await call.write(pb.JoinGroupRequest(heartbeat=pb.JoinGroupHeartbeat()))

    def _commit_request(self) -> pb.JoinGroupRequest:
        assert self._next is not None
        self._sent, self._next = self._next, None
        self._sent.was_sent = True
        self._last_commit_id += 1
        positions = [
            wal_service_pb2.PositionCommit(vchannel=vchannel, epoch=position.epoch, next_tick=position.next_tick)
            for vchannel, position in self._sent.positions.items()
        ]
        return pb.JoinGroupRequest(commit=pb.JoinGroupCommit(commit_id=self._last_commit_id, positions=positions))

    def _release_request(self) -> pb.JoinGroupRequest:
        released = [pb.GroupAssignment(vchannel=name, epoch=epoch) for name, epoch in self._released.items()]
        return pb.JoinGroupRequest(release=pb.JoinGroupRelease(vchannels=released))

    def _put_back(self) -> None:
        """Queue the unanswered commit to be sent again: commits are idempotent."""
        if self._sent is not None:
            sent, self._sent = self._sent, None
            if self._next is not None:
                sent.positions.update(self._next.positions)
                sent.waiting += self._next.waiting
            self._next = sent

    def _end(self, error: TidelogError) -> None:
        self._watch.failed(self, error)
        self.failure = error
        self.holdings = {}
        self._give_up(error)
        self._change()
        self._has_joined.set()

    def _give_up(self, error: TidelogError) -> None:
        for commit in (self._sent, self._next):
            if commit is not None:
                commit.settle(copy_of(error, effect="unknown") if commit.was_sent else error)
        self._sent = self._next = None

    def _change(self) -> None:
        self.version += 1
        self._on_changed()


def _error_of(failure: grpc.aio.AioRpcError) -> TidelogError:
    if is_of_server(failure):
        return error_of_status(failure, is_read=False)
    return UnavailableError(f"the stream of the member broke: {failure.details()}", effect="unknown")


def _look_at(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()
