"""The queue of a member of a group, against a model of a server whose streams break.

A commit is acknowledged only if the server has taken it, or a later one that covers it, from this member; positions
never fall back; a release follows the commits made before it, and is repeated until the server has taken it. The server
sends all holdings at first on a stream, then what has changed.
"""

import asyncio
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import GroupFencedError, TidelogError, UnavailableError
from tidelog.groups.member_queue import MemberQueue, Position
from tidelog.transport.pipeline import After
from tidelog.v1 import error_pb2, wal_service_pb2
from tidelog.v1 import group_service_pb2 as pb

LOST = UnavailableError("lost", effect="unknown")
EPOCH = 7
VCHANNELS = ("a/0", "a/1")
_NAMES = ("commit", "release", "write", "serve", "answer", "refuse", "stop", "cut")
STEPS = st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(0, 1)), max_size=60)


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []

    def answered(self) -> None:
        self.events.append("answered")

    def lost(self, error: TidelogError) -> None:
        self.events.append(f"lost: {error}")

    def ended(self, error: TidelogError) -> None:
        self.events.append(f"ended: {error}")

    def changed(self) -> None:
        pass


class World:
    """A member, its server, and what is on the way between them."""

    def __init__(self, *, is_named: bool = False) -> None:
        self.listener = Listener()
        self.queue = MemberQueue(pb.JoinGroupStart(lease_ms=10_000), is_named=is_named, listener=self.listener)
        self.queue.join()
        self.requests: deque[pb.JoinGroupRequest] = deque()
        self.answers: deque[pb.JoinGroupResponse] = deque()
        self.stored = dict.fromkeys(VCHANNELS, 0)
        self.held = dict.fromkeys(VCHANNELS, EPOCH)
        self.next = dict.fromkeys(VCHANNELS, 0)
        # What the member received on the current stream; None before the first answer.
        self.told: set[str] | None = None
        # Each commit: its vchannel, tick and future.
        self.commits: list[tuple[str, int, asyncio.Future[None]]] = []
        self.refused = 0
        # Whether the server refuses commits because it stops; whether the member ends the stream for that reason.
        self.is_stopping = self.is_finishing = False

    def step(self, name: str, number: int) -> None:
        vchannel = VCHANNELS[number]
        match name:
            case "commit":
                self.next[vchannel] += 1
                done = self.queue.commit({vchannel: Position(EPOCH, self.next[vchannel])})
                self.commits.append((vchannel, self.next[vchannel], done))
            case "release":
                self.queue.release({vchannel: EPOCH})
            case "write":
                if not self.is_finishing and (request := self.queue.next_request()) is not None:
                    self.requests.append(pb.JoinGroupRequest.FromString(request))
            case "serve" | "refuse":
                self.serve(is_refused=name == "refuse")
            case "answer":
                if self.answers and self.queue.answered(self.answers.popleft()) is After.FINISH:
                    self.is_finishing = True
            case "stop":
                self.is_stopping = True
            case _:
                self.is_stopping = self.is_finishing = False
                self.requests.clear()
                self.answers.clear()
                self.told = None
                self.queue.interrupted(LOST)

    def serve(self, *, is_refused: bool) -> None:
        if not self.requests:
            return
        request = self.requests.popleft()
        if request.HasField("commit"):
            self.answers.append(pb.JoinGroupResponse(committed=[self.commit(request.commit, is_refused=is_refused)]))
            return
        for each in request.release.vchannels:
            # Everything that was committed before the release has arrived.
            if self.held.get(each.vchannel) == each.epoch:
                del self.held[each.vchannel]
        self.answers.append(self.holdings())

    def holdings(self) -> pb.JoinGroupResponse:
        told, self.told = self.told, set(self.held)
        held = [
            pb.GroupAssignment(vchannel=vchannel, epoch=epoch, next_tick=self.stored[vchannel])
            for vchannel, epoch in self.held.items()
            if told is None or vchannel not in told
        ]
        if told is None:
            return pb.JoinGroupResponse(assignments=pb.GroupAssignments(vchannels=held))
        lost = sorted(told - self.held.keys())
        return pb.JoinGroupResponse(changes=pb.GroupAssignmentChanges(vchannels=held, lost=lost))

    def commit(self, commit: pb.JoinGroupCommit, *, is_refused: bool) -> Any:
        result = pb.JoinGroupCommitted(commit_id=commit.commit_id)
        if self.is_stopping:
            detail = error_pb2.ErrorDetail(reason=error_pb2.REASON_ON_SHUTDOWN, effect=error_pb2.EFFECT_NONE)
            result.error.CopyFrom(wal_service_pb2.AppendError(message="stopping", detail=detail))
            return result
        if is_refused or any(each.vchannel not in self.held for each in commit.positions):
            self.refused += 1
            detail = error_pb2.ErrorDetail(reason=error_pb2.REASON_GROUP_MEMBER_FENCED, effect=error_pb2.EFFECT_NONE)
            result.error.CopyFrom(wal_service_pb2.AppendError(message="fenced", detail=detail))
            return result
        for each in commit.positions:
            assert each.next_tick >= self.stored[each.vchannel]
            self.stored[each.vchannel] = each.next_tick
        return result

    def check(self) -> None:
        for vchannel, tick, done in self.commits:
            if done.done() and done.exception() is None:
                assert self.stored[vchannel] >= tick

    def finish(self) -> None:
        """Serve everything, on a stream that lasts."""
        if self.is_stopping:
            self.step("cut", 0)
        for _ in range(2 * len(self.commits) + 20):
            for name in ("write", "serve", "answer"):
                self.step(name, 0)


@given(STEPS)
async def test_what_is_acknowledged_is_committed_and_everything_is_settled(steps: list[tuple[str, int]]) -> None:
    world = World()
    for name, number in steps:
        world.step(name, number)
        world.check()
    world.finish()
    world.check()
    assert world.queue.is_idle
    assert world.queue.next_request() is None
    failed = [done for _, _, done in world.commits if done.exception() is not None]
    assert all(isinstance(done.exception(), GroupFencedError) for done in failed)
    assert not failed or world.refused
    assert set(world.queue.holdings) == set(world.held)


def joined() -> MemberQueue:
    """Return the queue of a member whose join was sent."""
    queue = MemberQueue(pb.JoinGroupStart(lease_ms=10_000), is_named=False, listener=Listener())
    queue.join()
    assert queue.next_request() is not None
    return queue


def commits_of(queue: MemberQueue) -> list[pb.JoinGroupCommit]:
    """Return the commits that may be sent now."""
    commits = []
    while (request := queue.next_request()) is not None:
        commits.append(pb.JoinGroupRequest.FromString(request).commit)
    return commits


def answer(queue: MemberQueue, commit: pb.JoinGroupCommit, reason: "error_pb2.Reason | None" = None) -> None:
    result = pb.JoinGroupCommitted(commit_id=commit.commit_id)
    if reason is not None:
        detail = error_pb2.ErrorDetail(reason=reason, effect=error_pb2.EFFECT_NONE)
        result.error.CopyFrom(wal_service_pb2.AppendError(message="refused", detail=detail))
    queue.answered(pb.JoinGroupResponse(committed=[result]))


MANY = {f"a/{number}": Position(EPOCH, number) for number in range(2_500)}


async def test_a_large_commit_is_several_requests_and_done_with_the_last_answer() -> None:
    queue = joined()
    done = queue.commit(MANY)
    parts = commits_of(queue)
    assert [len(part.positions) for part in parts] == [1_024, 1_024, 452]
    assert {each.vchannel: each.next_tick for part in parts for each in part.positions} == {
        name: position.next_tick for name, position in MANY.items()
    }
    later = queue.commit({"a/0": Position(EPOCH, 9)})
    # The next one waits, and so do releases.
    assert queue.next_request() is None
    for part in parts:
        assert not done.done()
        answer(queue, part)
    await done
    (rest,) = commits_of(queue)
    assert not later.done()
    answer(queue, rest)
    await later
    assert queue.next_request() is None


async def test_a_large_commit_fails_with_the_first_refusal_once_all_is_answered() -> None:
    queue = joined()
    done = queue.commit(MANY)
    first, second, third = commits_of(queue)
    answer(queue, first)
    answer(queue, second, error_pb2.REASON_GROUP_MEMBER_FENCED)
    assert not done.done()
    answer(queue, third)
    with pytest.raises(GroupFencedError):
        await done


async def test_a_large_commit_is_sent_again_as_a_whole_on_the_next_stream() -> None:
    queue = joined()
    done = queue.commit(MANY)
    first, second, _ = commits_of(queue)
    answer(queue, first)
    answer(queue, second, error_pb2.REASON_GROUP_MEMBER_FENCED)
    queue.interrupted(LOST)
    assert queue.next_request() is not None
    again = commits_of(queue)
    assert [len(part.positions) for part in again] == [1_024, 1_024, 452]
    for part in again:
        answer(queue, part)
    await done
