"""A member of a consumer group: keeps its stream up, knows what it holds, commits and releases."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import grpc.aio

from tidelog._errors import ClosedError, GroupFencedError, TidelogError, UnavailableError, copy_of
from tidelog._reader_watch import Patience, ReaderWatch
from tidelog._retry import may_repeat
from tidelog._status import error_of_answer, error_of_status, is_of_server
from tidelog._stream_end import StreamEnd, half_close
from tidelog._transport import Transport
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2

# A sign of life so many times in each lease.
_SIGNS_PER_LEASE: Final = 4
_LEAVE_WITHIN_S: Final = 2.0


class Holding(NamedTuple):
    """A vchannel that the member holds.

    Attributes:
        epoch: Under which.
        next_tick: Where to begin.
        is_revoked: Whether another member waits for it.
    """

    epoch: int
    next_tick: int
    is_revoked: bool


class Position(NamedTuple):
    """How far the member got on a vchannel that it held under an epoch."""

    epoch: int
    next_tick: int


@dataclass(slots=True)
class _Commit:
    """Positions that are, or will be, on their way together, and who waits for them."""

    positions: dict[str, Position] = field(default_factory=dict)
    waiting: "list[asyncio.Future[None]]" = field(default_factory=list)
    was_sent: bool = False

    def add(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        self.positions.update(positions)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may wait for it.
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


class MemberStream:
    """One member of a group, across lost connections and restarts of the server. Lives on one event loop.

    Attributes:
        holdings: What the member holds, as the server said last.
        version: Counts the changes of ``holdings``, and of ``failure``.
        failure: Why the member is none any more; None while it is, or tries to be again.
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
        """Do nothing yet.

        Args:
            transport: Returns the client's connections.
            join: Who joins what, with a member id.
            is_named: Whether somebody chose the id: then another member with it ends this one.
            on_changed: Called when ``version`` has changed.
            watch: Is told of the connection.
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
        # What was given back and is still this member's for the server; to be sent again on another stream.
        self._released: dict[str, int] = {}
        self._has_releases = False
        # At most one commit is on its way; what is committed meanwhile goes together after it.
        self._next: _Commit | None = None
        self._sent: _Commit | None = None
        self._last_commit_id = 0
        self._is_leaving = False
        # Whether ``aclose`` has given up on the rest.
        self._is_over = False
        # Whether the server has answered on this stream.
        self._has_answered = False

    async def start(self) -> None:
        """Join, and return once the server has said what the member holds.

        Raises:
            TidelogError: It cannot be a member.
        """
        self._runner = asyncio.create_task(self._run(), name="tidelog-member")
        await self._has_joined.wait()
        if self.failure is not None:
            raise self.failure

    def commit(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        """Move positions forward; the future is done once that is durable.

        It gets GroupFencedError if one of the vchannels is not the member's any more, and other TidelogErrors.
        """
        if self._next is None:
            self._next = _Commit()
        done = self._next.add(positions)
        if self.failure is not None or self._is_leaving:
            self._give_up(self.failure or ClosedError("the consumer is closed: make a new one"))
        self._due.set()
        return done

    def release(self, vchannels: Mapping[str, int]) -> None:
        """Give vchannels back that are held under these epochs."""
        self._released.update(vchannels)
        self._has_releases = True
        self._due.set()

    def leave(self) -> None:
        """Begin to leave the group; follow with ``aclose``."""
        self._is_leaving = True
        self._due.set()

    async def aclose(self) -> None:
        """Send what is to be sent, leave the group, and end the stream. Idempotent."""
        self.leave()
        if self._runner is not None:
            try:
                await asyncio.wait((self._runner,), timeout=_LEAVE_WITHIN_S)
            finally:
                self._is_over = True
                self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        self._give_up(ClosedError("the consumer was closed before the commit was answered"))

    async def _run(self) -> None:
        try:
            with self._transport().waiting():
                await self._stay()
        except TidelogError as error:
            self._end(error)
        except asyncio.CancelledError:
            if not self._is_over:
                # The client was closed, which cancels its calls.
                self._end(ClosedError("the client was closed while it consumed"))
            raise

    async def _stay(self) -> None:
        """Be a member until it leaves, on one stream after the other.

        Raises:
            TidelogError: It cannot be a member any more, or the server stayed away too long.
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
            # Its lease ran out, for instance because this process was paused. Whoever gave it a name of its own wants
            # to know that another has the name too.
            return not self._is_named
        return may_repeat(error) or isinstance(error, UnavailableError)

    async def _serve(self, transport: Transport) -> None:
        """Be a member on one stream. Returns when the member has left.

        Raises:
            TidelogError: The stream ended before.
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
            # The latter is what a write says that begins after the end.
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
        # An RPC that is over raises either of these; the reader tells why.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                self._due.clear()
                if self._sent is None and self._next is not None:
                    await call.write(self._commit_request())
                if self._has_releases and self._sent is None and self._next is None:
                    # Behind the commits: what is released is not this member's any more.
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
        """Let what was sent and not answered be sent again: twice is the same as once."""
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
