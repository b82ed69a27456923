"""What consumer groups refuse: each with a reason of its own, and nothing happened. Method: bare gRPC."""

from typing import Any, cast

import grpc.aio
import pytest

from tidelog.v1 import error_pb2, wal_service_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.channel_service_pb2 import DestroyChannelsRequest
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import Client, refusal_of, refused

SERVICE = "/tidelog.v1.GroupService"
LATEST = wal_service_pb2.DeliverPolicy(latest=wal_service_pb2.DeliverLatest())
NEVER = 1 << 62
R = error_pb2
server, client = server_with({"orders": 2, "payments": 1})


@pytest.fixture
async def groups(client: Client) -> Any:
    await client.groups.CreateGroup(pb.CreateGroupRequest(group="billing", channels=["orders"]))
    return client.groups


def commit(group: str = "billing", vchannel: str = "orders/0", next_tick: int = 1, **fields: Any) -> Any:
    return wal_service_pb2.PositionCommit(group=group, vchannel=vchannel, next_tick=next_tick, **fields)


def committing(*arguments: Any, **fields: Any) -> pb.CommitPositionsRequest:
    return pb.CommitPositionsRequest(positions=[commit(*arguments, **fields)])


def consume(**fields: Any) -> pb.ConsumeRequest:
    return pb.ConsumeRequest(**{"group": "billing", "vchannel": "orders/0", "max_messages": 1, **fields})


NAMES = ["", "/", "a/b", "_ours", "_Ours", "x" * 128, "X" * 128, "ü", "a b", "-A"]
CASES: list[tuple[str, Any, int, str]] = [
    *(("CreateGroup", pb.CreateGroupRequest(group=name), R.REASON_INVALID_NAME, "") for name in NAMES),
    ("CreateGroup", pb.CreateGroupRequest(group="billing"), R.REASON_GROUP_ALREADY_EXISTS, ""),
    ("CreateGroup", pb.CreateGroupRequest(group="a", channels=["none"]), R.REASON_CHANNEL_NOT_EXIST, ""),
    ("CreateGroup", pb.CreateGroupRequest(group="a", channels=["orders/2"]), R.REASON_CHANNEL_NOT_EXIST, ""),
    ("CreateGroup", pb.CreateGroupRequest(group="a", channels=["orders"] * 2), R.REASON_INVALID_ARGUMENT, "channels"),
    ("CreateGroup", pb.CreateGroupRequest(group="a", channels=["orders"] * 101), R.REASON_INVALID_ARGUMENT, "channels"),
    ("CreateGroup",
     pb.CreateGroupRequest(group="a", channels=["orders"], start=wal_service_pb2.DeliverPolicy(from_tick=NEVER)),
     R.REASON_POSITION_BEYOND_END, ""),
    (
        "CreateGroup",
        pb.CreateGroupRequest(
            group="a", channels=["orders"], start=wal_service_pb2.DeliverPolicy(from_message_id=b"short")
        ),
        R.REASON_WAL_NAME_MISMATCH, "",
    ),
    ("AlterGroup", pb.AlterGroupRequest(group="none", subscribe=["orders"]), R.REASON_GROUP_NOT_EXIST, ""),
    ("AlterGroup", pb.AlterGroupRequest(group="billing", subscribe=["none"]), R.REASON_CHANNEL_NOT_EXIST, ""),
    ("AlterGroup", pb.AlterGroupRequest(group="billing", subscribe=["orders"], unsubscribe=["orders"]),
     R.REASON_INVALID_ARGUMENT, "channels"),
    ("DestroyGroup", pb.DestroyGroupRequest(group="none"), R.REASON_GROUP_NOT_EXIST, ""),
    ("DescribeGroup", pb.DescribeGroupRequest(group="none"), R.REASON_GROUP_NOT_EXIST, ""),
    ("DescribeGroup", pb.DescribeGroupRequest(group=""), R.REASON_INVALID_NAME, ""),
    ("ListGroups", pb.ListGroupsRequest(page_size=1_001), R.REASON_INVALID_ARGUMENT, "page_size"),
    ("CommitPositions", pb.CommitPositionsRequest(), R.REASON_INVALID_ARGUMENT, "positions"),
    ("CommitPositions", pb.CommitPositionsRequest(positions=[commit()] * 2), R.REASON_INVALID_ARGUMENT, "positions"),
    ("CommitPositions", committing("none"), R.REASON_GROUP_NOT_EXIST, ""),
    ("CommitPositions", committing(vchannel="orders/2"), R.REASON_CHANNEL_NOT_EXIST, ""),
    ("CommitPositions", committing(vchannel="payments"), R.REASON_GROUP_NOT_SUBSCRIBED, ""),
    ("CommitPositions", committing(next_tick=NEVER), R.REASON_POSITION_BEYOND_END, ""),
    ("CommitPositions", committing(next_tick=1 << 63), R.REASON_INVALID_ARGUMENT, "next_tick"),
    ("CommitPositions", committing(member_id="unknown", epoch=1), R.REASON_GROUP_MEMBER_FENCED, ""),
    ("SeekGroup", pb.SeekGroupRequest(group="none", to=LATEST), R.REASON_GROUP_NOT_EXIST, ""),
    ("SeekGroup", pb.SeekGroupRequest(group="billing", vchannels=["payments"]), R.REASON_GROUP_NOT_SUBSCRIBED, ""),
    ("SeekGroup", pb.SeekGroupRequest(group="billing", vchannels=["none"]), R.REASON_CHANNEL_NOT_EXIST, ""),
    ("SeekGroup", pb.SeekGroupRequest(group="billing", to=wal_service_pb2.DeliverPolicy(from_tick=NEVER)),
     R.REASON_POSITION_BEYOND_END, ""),
    *(
        ("SeekGroup", pb.SeekGroupRequest(group="billing", vchannels=names, from_ticks=ticks),
         R.REASON_INVALID_ARGUMENT, "from_ticks")
        for names, ticks in (
            ([], [0, 0]), (["orders"], [0]), (["orders", "orders/0"], [0, 0]), (["orders/0"] * 2, [0, 0]),
            (["orders/0", "orders/1"], [0]), (["orders/0"], [1 << 63]),
        )
    ),
    ("SeekGroup", pb.SeekGroupRequest(group="billing", vchannels=["orders/0", "payments/0"], from_ticks=[0, 0]),
     R.REASON_GROUP_NOT_SUBSCRIBED, ""),
    ("SeekGroup", pb.SeekGroupRequest(group="billing", vchannels=["orders/0", "orders/1"], from_ticks=[0, NEVER]),
     R.REASON_POSITION_BEYOND_END, ""),
    ("Consume", consume(group="none"), R.REASON_GROUP_NOT_EXIST, ""),
    ("Consume", consume(vchannel="none"), R.REASON_CHANNEL_NOT_EXIST, ""),
    ("Consume", consume(vchannel="payments"), R.REASON_GROUP_NOT_SUBSCRIBED, ""),
    ("Consume", consume(vchannel="orders"), R.REASON_INVALID_ARGUMENT, "vchannel"),
    ("Consume", consume(max_messages=0), R.REASON_INVALID_ARGUMENT, "max_messages"),
    ("Consume", consume(max_messages=100_001), R.REASON_INVALID_ARGUMENT, "max_messages"),
    ("Consume", consume(max_bytes=(4 << 20) + 1), R.REASON_INVALID_ARGUMENT, "max_bytes"),
    ("Consume", consume(wait_ms=60_001), R.REASON_INVALID_ARGUMENT, "wait_ms"),
    ("Consume", consume(consume_id=5), R.REASON_INVALID_ARGUMENT, "consume_id"),
    ("Consume", consume(mode=cast("Any", 3)), R.REASON_INVALID_ARGUMENT, "mode"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "request_", "reason", "field"), CASES)
async def test_what_is_wrong_has_its_reason(groups: Any, method: str, request_: Any, reason: int, field: str) -> None:
    before = await groups.DescribeGroup(pb.DescribeGroupRequest(group="billing"))
    refusal = await refusal_of(getattr(groups, method)(request_))
    assert (refusal.reason, refusal.effect) == (reason, error_pb2.EFFECT_NONE), refusal
    assert refusal.values.get("field", "") == field
    assert await groups.DescribeGroup(pb.DescribeGroupRequest(group="billing")) == before
    assert [group.name for group in (await groups.ListGroups(pb.ListGroupsRequest())).groups] == ["billing"]


async def test_a_commit_is_taken_whole_or_not_at_all(client: Client, groups: Any) -> None:
    result = await client.append("orders/0", b"a", b"b")
    wrong = pb.CommitPositionsRequest(positions=[commit(next_tick=result.last_tick), commit(vchannel="payments")])
    await refusal_of(groups.CommitPositions(wrong))
    described = await groups.DescribeGroup(pb.DescribeGroupRequest(group="billing"))
    assert described.group.positions[0].next_tick == 0


async def test_a_trimmed_position_is_out_of_range_with_the_first_available(client: Client, groups: Any) -> None:
    result = await client.append("orders/0", b"a", b"b", b"c")
    await client.wal.Trim(wal_service_pb2.TrimRequest(vchannel="orders/0", before_tick=result.first_tick + 2))
    for call in (
        groups.Consume(consume()),
        groups.SeekGroup(
            pb.SeekGroupRequest(
                group="billing", vchannels=["orders/0"],
                to=wal_service_pb2.DeliverPolicy(from_tick=result.first_tick),
            )
        ),
    ):  # fmt: skip
        refusal = await refusal_of(call)
        assert refusal.code == grpc.StatusCode.OUT_OF_RANGE.value[0]
        assert refusal.reason == R.REASON_POSITION_TRIMMED
        assert int(refusal.values["first_available_tick"]) == result.first_tick + 2


_WRONG_STARTS: list[tuple[dict[str, Any], int, str]] = [
    ({"group": "none"}, R.REASON_GROUP_NOT_EXIST, ""),
    ({"group": ""}, R.REASON_INVALID_NAME, ""),
    ({"channels": []}, R.REASON_INVALID_ARGUMENT, "channels"),
    ({"channels": ["none"]}, R.REASON_CHANNEL_NOT_EXIST, ""),
    ({"channels": ["orders/0"]}, R.REASON_INVALID_NAME, ""),
    ({"member_id": "x" * 65}, R.REASON_INVALID_ARGUMENT, "member_id"),
    ({"description": "x" * 257}, R.REASON_INVALID_ARGUMENT, "description"),
    ({"lease_ms": 499}, R.REASON_INVALID_ARGUMENT, "lease_ms"),
    ({"lease_ms": 600_001}, R.REASON_INVALID_ARGUMENT, "lease_ms"),
    ({"release_within_ms": 3_600_001}, R.REASON_INVALID_ARGUMENT, "release_within_ms"),
]
JOINS: list[tuple[list[pb.JoinGroupRequest], int, str]] = [
    ([], R.REASON_INVALID_ARGUMENT, "step"),
    ([pb.JoinGroupRequest()], R.REASON_INVALID_ARGUMENT, "step"),
    ([pb.JoinGroupRequest(heartbeat=pb.JoinGroupHeartbeat())], R.REASON_INVALID_ARGUMENT, "step"),
    *(
        (
            [pb.JoinGroupRequest(join=pb.JoinGroupStart(**{"group": "billing", "channels": ["orders"]} | fields))],
            reason, field,
        )
        for fields, reason, field in _WRONG_STARTS
    ),
    ([pb.JoinGroupRequest(join=pb.JoinGroupStart(group="billing", channels=["orders"]))] * 2,
     R.REASON_INVALID_ARGUMENT, "step"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "reason", "field"), JOINS)
async def test_who_cannot_join_learns_why(
    groups: Any, steps: list[pb.JoinGroupRequest], reason: int, field: str
) -> None:
    async with refused() as found:
        async for _ in groups.JoinGroup(iter(steps)):
            pass
    assert (found[0].reason, found[0].values.get("field", "")) == (reason, field)


async def test_bytes_that_are_no_step_are_told(client: Client, groups: Any) -> None:
    del groups
    join: Any = client.channel.stream_stream(f"{SERVICE}/JoinGroup")
    async with refused() as found:
        async for _ in join(iter([b"\xff\xff"])):
            pass
    assert found[0].reason == R.REASON_MALFORMED_REQUEST


async def test_what_members_hold_is_in_use(client: Client, groups: Any) -> None:
    await client.append("orders/0", b"a")
    call = groups.JoinGroup()
    await call.write(pb.JoinGroupRequest(join=pb.JoinGroupStart(group="billing", channels=["orders"], member_id="m")))
    while not (response := await call.read()).HasField("assignments"):
        pass
    held = {each.vchannel: each.epoch for each in response.assignments.vchannels}
    assert held.keys() == {"orders/0", "orders/1"}
    for request in (
        groups.DestroyGroup(pb.DestroyGroupRequest(group="billing")),
        groups.AlterGroup(pb.AlterGroupRequest(group="billing", unsubscribe=["orders"])),
        groups.CommitPositions(committing()),
        groups.Consume(consume()),
        client.channels.DestroyChannels(DestroyChannelsRequest(names=["orders"])),
    ):
        refusal = await refusal_of(request)
        assert (refusal.reason, refusal.values["group"]) == (R.REASON_GROUP_IN_USE, "billing")
    for member_id, epoch in (("m", held["orders/0"] - 1), ("other", held["orders/0"])):
        positions = [commit(member_id=member_id, epoch=epoch)]
        refusal = await refusal_of(groups.CommitPositions(pb.CommitPositionsRequest(positions=positions)))
        assert refusal.reason == R.REASON_GROUP_MEMBER_FENCED
    positions = [commit(member_id="m", epoch=held["orders/0"])]
    await groups.CommitPositions(pb.CommitPositionsRequest(positions=positions))
    await groups.DestroyGroup(pb.DestroyGroupRequest(group="billing", force=True))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while await call.read() is not grpc.aio.EOF:
            pass
    assert ended.value.code() is grpc.StatusCode.NOT_FOUND
