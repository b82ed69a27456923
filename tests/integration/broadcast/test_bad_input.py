"""Every bad request to BroadcastService gets its status, its reason and a text that says what to do; nothing changes.

Method: one server for each test; after the refusal nothing is in the log, no key is held, and a good broadcast works.
"""

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message as Proto

from tidelog.v1 import broadcast_service_pb2 as pb
from tidelog.v1 import error_pb2, message_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.broadcast.admission import MAX_BROADCAST_BYTES
from tidelog_server.rpc.services.broadcasts import MAX_BROADCAST_MESSAGE_BYTES
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import Client, refused

BROADCASTS = "/tidelog.v1.BroadcastService"
Code = grpc.StatusCode
R = error_pb2
INVALID, MISSING = Code.INVALID_ARGUMENT, Code.NOT_FOUND
# Reasons with their codes.
WRONG, UNKNOWN = (R.REASON_INVALID_ARGUMENT, INVALID), (R.REASON_BROADCAST_NOT_EXIST, MISSING)
MAX = (1 << 63) - 1
KEY = pb.ResourceKey(domain="d", key="k")
server, client = server_with(
    {"one": 1, "four": 4, "many": 1_024}, limits__max_message_bytes=2_000_000, limits__max_batch_bytes=2_500_000
)


def broadcast(*vchannels: str, payload: bytes = b"x", **fields: Any) -> pb.BroadcastRequest:
    message = fields.pop("message", message_pb2.Message(payload=payload))
    return pb.BroadcastRequest(vchannels=vchannels or ("one", "four/1"), message=message, **fields)


def key(domain: str = "d", key: str = "k", *, shared: bool = False) -> pb.ResourceKey:
    return pb.ResourceKey(domain=domain, key=key, shared=shared)


CALLS: list[tuple[str, str, Proto, int, Code, str]] = [
    ("no vchannel", "Broadcast", pb.BroadcastRequest(message=message_pb2.Message()),
     *WRONG, "names 0 vchannels, expected 1 to 1024"),
    ("many vchannels", "Broadcast", broadcast(*["one"] * 1_025), *WRONG, "1 to 1024"),
    ("a vchannel twice", "Broadcast", broadcast("four/1", "four/1"), *WRONG, "names a vchannel twice: name each once"),
    ("a vchannel under two names", "Broadcast", broadcast("one", "one/0"), *WRONG, "names a vchannel twice"),
    ("an unknown vchannel", "Broadcast", broadcast("one", "nowhere"),
     R.REASON_CHANNEL_NOT_EXIST, MISSING, "create it with `tidelog channel create nowhere`, or correct the name"),
    ("a vchannel beyond", "Broadcast", broadcast("four/4"), R.REASON_CHANNEL_NOT_EXIST, MISSING, "vchannels 0 to 3"),
    ("a channel and one of its vchannels", "Broadcast", broadcast("four", "four/1"), *WRONG, "names a vchannel twice"),
    ("a wrong name", "Broadcast", broadcast("UPPER"), R.REASON_INVALID_NAME, INVALID, "begin with a lowercase letter"),
    ("no message", "Broadcast", pb.BroadcastRequest(vchannels=["one"]),
     *WRONG, "no message: give one, which may be empty"),
    ("a large message", "Broadcast", broadcast(payload=bytes(2_000_001)),
     R.REASON_MESSAGE_TOO_LARGE, INVALID, "at most 2000000"),
    ("a message too large for a broadcast", "Broadcast", broadcast("one", payload=bytes(1_200_000)),
     R.REASON_BATCH_TOO_LARGE, INVALID, f"at most {MAX_BROADCAST_MESSAGE_BYTES} are allowed"),
    ("much in all", "Broadcast", broadcast(*(f"many/{i}" for i in range(1_024)), payload=bytes(9_000)),
     R.REASON_BATCH_TOO_LARGE, INVALID, f"at most {MAX_BROADCAST_BYTES} are allowed"),
    ("a reserved property", "Broadcast", broadcast(message=message_pb2.Message(properties={"_t": ""})),
     R.REASON_RESERVED_PROPERTY, INVALID, "does not begin with '_'"),
    ("a key shared and exclusive", "Broadcast", broadcast(resource_keys=[key(shared=True), key()]),
     *WRONG, "names the resource key 'k' of domain 'd' twice: name it once"),
    ("a key twice", "Broadcast", broadcast(resource_keys=[key(), key("e"), key()]), *WRONG, "twice"),
    ("many keys", "Broadcast", broadcast(resource_keys=[key(key=str(i)) for i in range(65)]),
     *WRONG, "resource_keys is 65, at most 64"),
    ("a key without domain", "Broadcast", broadcast(resource_keys=[key("")]),
     *WRONG, "domain has 0 bytes, expected 1 to 64"),
    ("a long key", "Broadcast", broadcast(resource_keys=[key(key="ä" * 129)]),
     *WRONG, "key has 258 bytes, expected 1 to 256"),
    ("a long wait", "Broadcast", broadcast(wait_timeout_ms=600_001),
     *WRONG, "wait_timeout_ms is 600001, at most 600000"),
    ("an impossible barrier", "Broadcast", broadcast(barrier_tick=MAX + 1), *WRONG, "greatest possible tick"),
    ("an impossible id", "Broadcast", broadcast(broadcast_id=MAX + 1), *WRONG, "greatest possible tick"),
    ("an id from the future", "Broadcast", broadcast(broadcast_id=MAX), *WRONG, "beyond the latest tick"),
    ("a withdrawal of no id", "WithdrawBroadcast", pb.WithdrawBroadcastRequest(), *WRONG, "the broadcast id is 0"),
    ("an ack of nothing", "Ack", pb.AckRequest(vchannels=["one"]), *WRONG, "the broadcast id is 0"),
    ("an ack of no vchannel", "Ack", pb.AckRequest(broadcast_id=1), *WRONG, "names 0 vchannels"),
    ("an ack of a wrong name", "Ack", pb.AckRequest(broadcast_id=1, vchannels=["one/x"]),
     R.REASON_INVALID_NAME, INVALID, "<channel>/<index>"),
    ("an ack of an unknown one", "Ack", pb.AckRequest(broadcast_id=5, vchannels=["one"]),
     *UNKNOWN, "broadcast 5 is unknown"),
    ("a wait for nothing", "WaitAcked", pb.WaitAckedRequest(), *WRONG, "nothing to wait for"),
    ("a wait for no id", "WaitAcked", pb.WaitAckedRequest(broadcast_ids=[0]), *WRONG, "the broadcast id is 0"),
    ("a wait for many", "WaitAcked", pb.WaitAckedRequest(broadcast_ids=range(1, 10_002)), *WRONG, "at most 10000"),
    ("an endless wait", "WaitAcked", pb.WaitAckedRequest(resource_key=KEY, timeout_ms=60_001),
     *WRONG, "timeout_ms is 60001, at most 60000"),
    ("an unknown mode", "WaitAcked", pb.WaitAckedRequest(resource_key=KEY, mode=9),  # type: ignore[arg-type]  # the point of the test
     *WRONG, "use 1 (once) or 2 (all)"),
    ("a wait for a key without name", "WaitAcked", pb.WaitAckedRequest(resource_key=key(key="")),
     *WRONG, "key has 0 bytes"),
    ("a wait for an unknown one", "WaitAcked", pb.WaitAckedRequest(broadcast_ids=[5]),
     *UNKNOWN, "broadcast 5 is unknown"),
    ("a large page", "ListBroadcasts", pb.ListBroadcastsRequest(page_size=101), *WRONG, "at most 100"),
    ("a made up token", "ListBroadcasts", pb.ListBroadcastsRequest(page_token="x"),
     *WRONG, "the page token is invalid"),
    ("an unknown state", "ListBroadcasts", pb.ListBroadcastsRequest(states=[7]),  # type: ignore[list-item]  # the point of the test
     *WRONG, "state 7 is unknown"),
    ("no state", "ListBroadcasts", pb.ListBroadcastsRequest(states=[0]),  # type: ignore[list-item]  # the point of the test
     *WRONG, "state 0 is unknown"),
    ("nothing to describe", "DescribeBroadcast", pb.DescribeBroadcastRequest(), *WRONG, "the broadcast id is 0"),
    ("an unknown one", "DescribeBroadcast", pb.DescribeBroadcastRequest(broadcast_id=5), *UNKNOWN, "correct the id"),
    ("an abort without a reason", "AbortBroadcast", pb.AbortBroadcastRequest(broadcast_id=5),
     *WRONG, "reason has 0 bytes, expected 1 to 256"),
    ("an abort with a long reason", "AbortBroadcast", pb.AbortBroadcastRequest(broadcast_id=5, reason="x" * 257),
     *WRONG, "reason has 257 bytes"),
    ("an abort of an unknown one", "AbortBroadcast", pb.AbortBroadcastRequest(broadcast_id=5, reason="x"),
     *UNKNOWN, "broadcast 5 is unknown"),
]  # fmt: skip


async def check_unharmed(client: Client) -> None:
    """Nothing is there and nothing is held, and a good broadcast with the same key works."""
    names = ["one", *(f"four/{index}" for index in range(4))]
    assert await client.rows(*names) == []
    response = await call(client, "Broadcast", broadcast(resource_keys=[KEY]), pb.BroadcastResponse)
    rows = [("one/0", response.tick, b"x"), ("four/1", response.tick, b"x")]
    assert await client.rows(*names) == rows
    listed = await call(client, "ListBroadcasts", pb.ListBroadcastsRequest(), pb.ListBroadcastsResponse)
    assert [each.broadcast_id for each in listed.broadcasts] == [response.broadcast_id]


async def call(client: Client, method: str, request: Proto, response: Any) -> Any:
    return response.FromString(await client.raw_unary(f"{BROADCASTS}/{method}", request.SerializeToString()))


@pytest.mark.parametrize(
    ("method", "request_", "reason", "code", "text"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS]
)
async def test_a_bad_request_is_refused(
    client: Client, method: str, request_: Proto, reason: int, code: Code, text: str
) -> None:
    async with refused() as found:
        await client.raw_unary(f"{BROADCASTS}/{method}", request_.SerializeToString())

    (refusal,) = found
    assert (refusal.code, refusal.reason) == (code.value[0], reason), refusal.text
    assert refusal.effect == error_pb2.EFFECT_NONE
    assert text in refusal.text
    await check_unharmed(client)


@pytest.mark.parametrize(
    "method", ["Broadcast", "WithdrawBroadcast", "Ack", "WaitAcked", "ListBroadcasts", "AbortBroadcast"]
)
async def test_bytes_that_are_no_request_are_refused(client: Client, method: str) -> None:
    async with refused() as found:
        await client.raw_unary(f"{BROADCASTS}/{method}", b"\xff\xff")

    assert found[0].reason == error_pb2.REASON_MALFORMED_REQUEST
    await check_unharmed(client)


async def test_an_ack_for_another_vchannel_is_refused_and_counts_for_none(client: Client) -> None:
    response = await call(client, "Broadcast", broadcast(), pb.BroadcastResponse)
    async with refused() as found:
        request = pb.AckRequest(broadcast_id=response.broadcast_id, vchannels=["one", "four/0"])
        await client.raw_unary(f"{BROADCASTS}/Ack", request.SerializeToString())

    assert (found[0].code, found[0].reason) == (INVALID.value[0], R.REASON_BROADCAST_VCHANNEL_UNKNOWN)
    assert found[0].values == {"broadcast_id": str(response.broadcast_id), "vchannel": "four/0"}
    described = await call(
        client, "DescribeBroadcast", pb.DescribeBroadcastRequest(broadcast_id=response.broadcast_id),
        pb.DescribeBroadcastResponse,
    )  # fmt: skip
    assert (list(described.acked), list(described.missing)) == ([], ["one/0", "four/1"])


async def test_an_id_that_is_used_again_is_refused(client: Client) -> None:
    tick = (await client.wal.AllocateTicks(wal.AllocateTicksRequest())).first_tick
    first = await call(client, "Broadcast", broadcast(broadcast_id=tick), pb.BroadcastResponse)
    for other in (
        broadcast(broadcast_id=tick, payload=b"y"),
        broadcast("one", broadcast_id=tick),
        broadcast(broadcast_id=tick, resource_keys=[KEY]),
    ):
        async with refused() as found:
            await call(client, "Broadcast", other, pb.BroadcastResponse)
        assert (found[0].reason, found[0].effect) == (R.REASON_BROADCAST_REUSED, R.EFFECT_NONE)
        assert found[0].values == {"broadcast_id": str(tick)}

    again = await call(client, "Broadcast", broadcast(broadcast_id=tick), pb.BroadcastResponse)

    assert again == pb.BroadcastResponse(broadcast_id=tick, tick=first.tick, duplicate=True)
    assert len(await client.rows("one")) == 1


async def test_a_held_key_tells_who_holds_it(client: Client) -> None:
    first = await call(client, "Broadcast", broadcast(resource_keys=[KEY]), pb.BroadcastResponse)
    async with refused() as found:
        await call(client, "Broadcast", broadcast(resource_keys=[key(shared=True)]), pb.BroadcastResponse)

    assert (found[0].code, found[0].reason) == (Code.FAILED_PRECONDITION.value[0], R.REASON_RESOURCE_ACQUIRED)
    assert found[0].values == {"domain": "d", "key": "k", "mode": "shared", "broadcast_id": str(first.broadcast_id)}
    assert len(await client.rows("one")) == 1
