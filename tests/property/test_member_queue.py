"""The queue of a member of a group, against a model of a server whose streams break.

A commit is acknowledged only if the server has taken it, or a later one that covers it, from this member; positions
never fall back; a release follows the commits made before it, and is repeated until the server has taken it.
"""

import asyncio
from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog import GroupFencedError, TidelogError, UnavailableError
from tidelog.groups.member_queue import MemberQueue, Position
from tidelog.v1 import error_pb2, wal_service_pb2
from tidelog.v1 import group_service_pb2 as pb

LOST = UnavailableError("lost", effect="unknown")
EPOCH = 7
VCHANNELS = ("a/0", "a/1")
STEPS = st.lists(
    st.tuples(st.sampled_from(["commit", "release", "write", "serve", "answer", "refuse", "cut"]), st.integers(0, 1)),
    max_size=60,
)


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
        # Each commit: its vchannel, tick and future.
        self.commits: list[tuple[str, int, asyncio.Future[None]]] = []
        self.refused = 0

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
                if (request := self.queue.next_request()) is not None:
                    self.requests.append(pb.JoinGroupRequest.FromString(request))
            case "serve" | "refuse":
                self.serve(is_refused=name == "refuse")
            case "answer":
                if self.answers:
                    self.queue.answered(self.answers.popleft())
            case _:
                self.requests.clear()
                self.answers.clear()
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
        assignments = [
            pb.GroupAssignment(vchannel=vchannel, epoch=epoch, next_tick=self.stored[vchannel])
            for vchannel, epoch in self.held.items()
        ]
        self.answers.append(pb.JoinGroupResponse(assignments=pb.GroupAssignments(vchannels=assignments)))

    def commit(self, commit: pb.JoinGroupCommit, *, is_refused: bool) -> Any:
        result = pb.JoinGroupCommitted(commit_id=commit.commit_id)
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
    assert not world.queue.may_write
    failed = [done for _, _, done in world.commits if done.exception() is not None]
    assert all(isinstance(done.exception(), GroupFencedError) for done in failed)
    assert not failed or world.refused
    assert set(world.queue.holdings) == set(world.held)
