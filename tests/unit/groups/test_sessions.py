"""Members of a group on a node, below gRPC: what their sessions receive while they join one after the other.

Each member takes what its session has, as the server does, and releases at once what is revoked.
"""

import asyncio
from typing import NamedTuple

from tidelog_server.groups.sessions import JoinTerms, MemberSession
from tidelog_server.log.scan.positions import StartAll
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.nodes import Node, running_node

CHANNELS, PER_CHANNEL, MEMBERS = ["wide.a", "wide.b", "wide.c"], 256, 24
VCHANNELS = len(CHANNELS) * PER_CHANNEL


class Told(NamedTuple):
    """What one ``take`` returned: whether it was complete, and the numbers of vchannels."""

    is_complete: bool
    held: int
    lost: int


class Members:
    """Members with a task each, until the test cancels them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sessions: list[MemberSession] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.told: list[list[Told]] = []
        self.progress = asyncio.Event()

    async def join(self, *, accepts_changes: bool = True) -> None:
        name = f"m{len(self.sessions)}"
        terms = JoinTerms(name, "", frozenset(CHANNELS), 600.0, 30.0, accepts_changes=accepts_changes)
        self.sessions.append(await self.node.groups.join("g", terms))
        self.told.append([])
        self.tasks.append(asyncio.create_task(self.serve(len(self.sessions) - 1)))

    async def serve(self, number: int) -> None:
        session = self.sessions[number]
        while True:
            if session.is_stale:
                changes = session.take()
                self.told[number].append(Told(changes.is_complete, len(changes.held), len(changes.lost)))
                session.release([(each.vchannel, each.epoch) for each in changes.held if each.release_by_s is not None])
                self.progress.set()
            await session.changed.wait()
            session.changed.clear()

    async def settle(self) -> None:
        """Wait until each vchannel is held, fairly, none is being revoked, and all members know."""
        while not self.are_settled():
            self.progress.clear()
            await self.progress.wait()

    def are_settled(self) -> bool:
        loads = [len(session.member.holdings) for session in self.sessions]
        revoked = [each for session in self.sessions for each in session.member.holdings.values() if each.release_by_s]
        return (
            sum(loads) == VCHANNELS
            and max(loads) - min(loads) <= 1
            and not revoked
            and not any(session.is_stale for session in self.sessions)
        )

    async def aclose(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


async def test_a_join_sends_each_member_only_what_moves() -> None:
    async with running_node(MemoryLogStore()) as node:
        for channel in CHANNELS:
            await node.create(channel, PER_CHANNEL)
        await node.groups.create("g", CHANNELS, StartAll(), if_not_exists=False)
        members = Members(node)
        for number in range(1, MEMBERS + 1):
            before = [len(told) for told in members.told]
            await members.join()
            await members.settle()
            moved = VCHANNELS // number if number > 1 else 0
            later = [told[count:] for told, count in zip(members.told, before, strict=False)]
            assert all(not told.is_complete for each in later for told in each)
            # Each vchannel that moves is revoked and lost, and those who have some receive nothing else.
            assert sum(told.held for each in later for told in each) == moved
            assert sum(told.lost for each in later for told in each) == moved
            first, *rest = members.told[-1]
            assert first.is_complete
            assert first.held + sum(told.held for told in rest) == VCHANNELS // number
        await members.aclose()


async def test_a_member_that_accepts_no_changes_receives_all_each_time() -> None:
    async with running_node(MemoryLogStore()) as node:
        for channel in CHANNELS:
            await node.create(channel, PER_CHANNEL)
        await node.groups.create("g", CHANNELS, StartAll(), if_not_exists=False)
        members = Members(node)
        for _ in range(2):
            await members.join(accepts_changes=False)
            await members.settle()
        assert members.told[0] == [(True, VCHANNELS, 0), (True, VCHANNELS, 0), (True, VCHANNELS // 2, 0)]
        assert members.told[1][-1] == (True, VCHANNELS // 2, 0)
        await members.aclose()
