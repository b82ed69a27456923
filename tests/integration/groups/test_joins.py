"""Members that join one after the other: what they receive, that they settle, and that no two have the same vchannel.

Promises of docs/reference/guarantees.md: G33.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tidelog import AsyncClient, AsyncConsumer, GroupNotFoundError, PermissionDeniedError
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.group_service_pb2_grpc import GroupServiceStub
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import connected, running_server
from tidelog_testing.servers.secured import secured_server, until

MEMBERS = 32
WIDE = ["wide.a", "wide.b"]
PER_CHANNEL = 640
VCHANNELS = [f"{channel}/{index}" for channel in WIDE for index in range(PER_CHANNEL)]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running_server() as server, connected(server) as client:
        await client.create(*WIDE, vchannels=PER_CHANNEL)
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.grpc_endpoint) as client:
        yield client


class RawMember:
    """A stream of JoinGroup, and the vchannels that the responses on it name."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.held: dict[str, pb.GroupAssignment] = {}
        # Of each response: whether it has everything, the vchannels that it has, and those that it reports as lost.
        self.told: list[tuple[bool, int, int]] = []

    async def read(self) -> None:
        response = await self.call.read()
        assert response.HasField("assignments") != response.HasField("changes")
        if response.HasField("assignments"):
            self.held.clear()
        for vchannel in response.changes.lost:
            del self.held[vchannel]
        reported = [*response.assignments.vchannels, *response.changes.vchannels]
        assert all(before.vchannel < after.vchannel for before, after in pairwise(reported))
        self.held |= {each.vchannel: each for each in reported}
        self.told.append((response.HasField("assignments"), len(reported), len(response.changes.lost)))

    async def read_until(self, count: int, *, revoked: int = 0) -> None:
        """Read until the member has ``count`` vchannels, of which ``revoked`` are to be released."""
        while (len(self.held), len(self.revoked)) != (count, revoked):
            await self.read()

    @property
    def revoked(self) -> list[pb.GroupAssignment]:
        return [each for each in self.held.values() if each.is_revoked]

    async def release(self) -> None:
        await self.call.write(pb.JoinGroupRequest(release=pb.JoinGroupRelease(vchannels=self.revoked)))


@asynccontextmanager
async def raw_member(server: Server, name: str, *, accepts_changes: bool) -> AsyncIterator[RawMember]:
    async with connected(server) as client:
        stub = GroupServiceStub(client.channel)  # type: ignore[no-untyped-call]  # Generated.
        call: Any = stub.JoinGroup()
        start = pb.JoinGroupStart(group="g", channels=WIDE, member_id=name, accepts_changes=accepts_changes)
        await call.write(pb.JoinGroupRequest(join=start))
        yield RawMember(call)


async def test_a_member_receives_all_at_first_and_then_only_what_changes(server: Server, client: AsyncClient) -> None:
    await client.create_group("g", WIDE)
    everything, half = len(VCHANNELS), len(VCHANNELS) // 2
    async with (
        raw_member(server, "a", accepts_changes=True) as first,
        raw_member(server, "b", accepts_changes=True) as second,
    ):
        await first.read_until(everything)
        await first.read_until(everything, revoked=half)
        await second.read_until(0)
        await first.release()
        await first.read_until(half)
        await second.read_until(half)
        assert not first.held.keys() & second.held.keys()
        assert first.told == [(True, everything, 0), (False, half, 0), (False, 0, half)]
        assert second.told == [(True, 0, 0), (False, half, 0)]
        # A stream that takes the member over knows nothing of what the one before received.
        async with raw_member(server, "b", accepts_changes=True) as again:
            await again.read_until(half)
            assert again.told == [(True, half, 0)]
            assert again.held.keys() == second.held.keys()


async def test_a_member_that_does_not_accept_changes_always_receives_all(server: Server, client: AsyncClient) -> None:
    await client.create_group("g", WIDE)
    everything, half = len(VCHANNELS), len(VCHANNELS) // 2
    async with (
        raw_member(server, "a", accepts_changes=False) as first,
        raw_member(server, "b", accepts_changes=False) as second,
    ):
        await first.read_until(everything, revoked=half)
        await second.read_until(0)
        await first.release()
        await first.read_until(half)
        await second.read_until(half)
        assert first.told[-2:] == [(True, everything, 0), (True, half, 0)]
        assert second.told == [(True, 0, 0), (True, half, 0)]


class Owners:
    """Who has each vchannel, according to the callbacks of the consumers, and what they received."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.received: Counter[str] = Counter()
        self.consumers: list[AsyncConsumer] = []

    def consumer(self, client: AsyncClient) -> AsyncConsumer:
        number = len(self.consumers)

        def assigned(names: Sequence[str]) -> None:
            assert not self.of.keys() & set(names)
            self.of.update(dict.fromkeys(names, number))

        def revoked(names: Sequence[str]) -> None:
            for name in names:
                assert self.of.pop(name) == number

        consumer = client.consumer("g", WIDE, on_assigned=assigned, on_revoked=revoked)
        self.consumers.append(consumer)
        return consumer

    async def consume(self, number: int) -> None:
        async for batch in self.consumers[number]:
            assert self.of[batch.vchannel] == number
            self.received.update(bytes(payload).decode() for payload in batch.payloads)

    def are_settled(self) -> bool:
        shares = Counter(self.of.values())
        return (
            self.of.keys() == set(VCHANNELS)
            and len(shares) == len(self.consumers)
            and max(shares.values()) - min(shares.values()) <= 1
            and all(len(each.assignment) == shares[number] for number, each in enumerate(self.consumers))
        )


@pytest.mark.parametrize("settles_each", [True, False])
async def test_members_that_join_one_after_the_other_settle(
    server: Server, client: AsyncClient, settles_each: bool
) -> None:
    owners = Owners()
    await client.create_group("g", WIDE)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        consuming = []
        for number in range(MEMBERS):
            await stack.enter_async_context(owners.consumer(client))
            consuming.append(tasks.create_task(owners.consume(number)))
            await client.append(VCHANNELS[number * 40], [b"%d" % number])
            if settles_each:
                await until(owners.are_settled)
        await until(owners.are_settled)
        described = await client.describe_group("g")
        of = {vchannel: each.member_id for each in described.members for vchannel in each.vchannels}
        assert of == {vchannel: owners.consumers[number].member_id for vchannel, number in owners.of.items()}
        await until(lambda: len(owners.received) == MEMBERS)
        assert set(owners.received) == {str(number) for number in range(MEMBERS)}
        # Once nothing changes any more, each member has one scan of its vchannels.
        scanners = server._node.log.metrics.scanners
        await until(lambda: scanners._value.get() == MEMBERS)
        for task in consuming:
            task.cancel()


async def test_a_consumer_of_more_vchannels_than_a_scan_may_have_reads_and_commits_them_all(
    client: AsyncClient,
) -> None:
    await asyncio.gather(*(client.append(vchannel, [vchannel.encode()]) for vchannel in VCHANNELS))
    received: Counter[str] = Counter()
    async with client.consumer("g", WIDE, auto_commit=False) as consumer:
        assert len(consumer.assignment) == len(VCHANNELS)
        while len(received) < len(VCHANNELS):
            received.update(bytes(payload).decode() for payload in (await anext(consumer)).payloads)
        await consumer.commit()
    assert received == Counter(VCHANNELS)
    assert (await client.describe_group("g")).lag_messages == 0


async def test_a_consumer_needs_no_permission_to_manage_a_group_that_exists(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured, secured.client() as admin:
        await admin.create_channels(["orders"], vchannels=2)
        token = await secured.token("read:orders", "group.consume:*")
        async with secured.client(token) as client:
            # It does not exist, and the caller may not create it.
            with pytest.raises(PermissionDeniedError):
                await client.consumer("billing", "orders").join()
            await admin.create_group("billing")
            async with client.consumer("billing", "orders") as consumer:
                assert consumer.assignment == ("orders/0", "orders/1")


async def test_a_consumer_creates_its_group_once_and_not_again(client: AsyncClient) -> None:
    async with AsyncExitStack() as stack:
        consumers = [client.consumer("g", WIDE) for _ in range(4)]
        await asyncio.gather(*(stack.enter_async_context(consumer) for consumer in consumers))
        await client.destroy_group("g", force=True)
        with pytest.raises(GroupNotFoundError):
            await anext(consumers[0])
        with pytest.raises(GroupNotFoundError):
            await consumers[0].join()
