"""Every bad input gets its status, its reason and a text that says what to do; the server is unharmed.

Method: one server for the module; after each refusal a good append on the same connection must work. The table of
broken batches is that of the pure check, sent over the wire.

Promises of docs/reference/guarantees.md: G12.
"""

import struct
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message as Proto

from property.test_columns import BROKEN
from tidelog.v1 import channel_service_pb2 as channels
from tidelog.v1 import error_pb2, message_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.core import limits
from tidelog_server.rpc.columns.view import sealed
from tidelog_testing.parts.batches import a_columns
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import (
    CHANNELS,
    WAL,
    Client,
    a_request,
    refusal_in,
    refused,
    with_columns,
)

Code = grpc.StatusCode
R = error_pb2
server, client = server_with({"one": 1, "four": 4}, limits__max_message_bytes=100_000, limits__max_batch_bytes=200_000)


async def check_unharmed(client: Client) -> None:
    """A good append and a scan work on the same connection."""
    result = await client.append("one", b"good")
    assert ("one/0", result.first_tick, b"good") in await client.rows("one")


def message(payload: bytes = b"x", **fields: Any) -> message_pb2.Message:
    return message_pb2.Message(payload=payload, **fields)


def append(vchannel: str = "one", *messages: message_pb2.Message, **options: Any) -> wal.AppendRequest:
    return wal.AppendRequest(vchannel=vchannel, messages=messages or [message()], options=wal.AppendOptions(**options))


def scan(*vchannels: str, **fields: Any) -> wal.ScanRequest:
    return wal.ScanRequest(sources=[wal.ScanSource(vchannel=name) for name in vchannels or ("one",)], **fields)


def policy(**start: Any) -> wal.DeliverPolicy:
    return wal.DeliverPolicy(**start)


def types(*numbers: int) -> wal.DeliverFilter:
    return wal.DeliverFilter(message_types=wal.MessageTypes(types=numbers))


MAX = (1 << 63) - 1
INVALID = Code.INVALID_ARGUMENT
# Reasons with their codes.
WRONG, MISNAMED = (R.REASON_INVALID_ARGUMENT, INVALID), (R.REASON_INVALID_NAME, INVALID)
MALFORMED, LARGE = (R.REASON_MALFORMED_COLUMNS, INVALID), (R.REASON_BATCH_TOO_LARGE, INVALID)
UNKNOWN = (R.REASON_CHANNEL_NOT_EXIST, Code.NOT_FOUND)

NAMES = [
    ("", *MISNAMED, "begin with a lowercase letter or digit"),
    ("UPPER", *MISNAMED, "begin with a lowercase letter or digit"),
    ("_hidden", *MISNAMED, "reserved"),
    ("a" * 128, *MISNAMED, "at most 127 characters"),
    ("new\nline", *MISNAMED, r"new\nline"),
    ("one/", *MISNAMED, "<channel>/<index>"),
    ("one/00", *MISNAMED, "<channel>/<index>"),
    ("one/x", *MISNAMED, "<channel>/<index>"),
    ("one/1024", *MISNAMED, "index from 0 to 1023"),
    ("one/0/0", *MISNAMED, "<channel>/<index>"),
    ("nowhere", *UNKNOWN, "create it with `tidelog channel create nowhere`, or correct the name"),
    ("four/4", *UNKNOWN, "has vchannels 0 to 3"),
    ("four", *WRONG, "name one, 'four/0' to 'four/3'"),
]


def transaction(*parts: wal.TransactionPart, **fields: Any) -> wal.AppendStreamRequest:
    return wal.AppendStreamRequest(transaction=wal.Transaction(parts=parts), **fields)


def part(vchannel: str = "one", *messages: bytes, **conditions: Any) -> wal.TransactionPart:
    return wal.TransactionPart(vchannel=vchannel, batches=[a_columns(messages or [b"x"])], **conditions)


def shared(ends: list[int], *messages: bytes) -> message_pb2.Columns:
    """Return a batch that several transactions share."""
    columns = a_columns(messages)
    columns.txn_ends = struct.pack(f"<{len(ends)}I", *ends)
    return message_pb2.Columns.FromString(sealed(columns))


def shared_part(vchannel: str, *batches: message_pb2.Columns) -> wal.TransactionPart:
    return wal.TransactionPart(vchannel=vchannel, batches=batches)


TRANSACTIONS: list[tuple[str, wal.AppendStreamRequest, int, Code, str]] = [
    ("no parts", transaction(), *WRONG, "0 parts or more, expected 1 to 256"),
    ("many parts", transaction(*[part()] * 1_025), *WRONG, "257 parts or more, expected 1 to 256"),
    ("many batches", transaction(wal.TransactionPart(vchannel="one", batches=[a_columns([b"x"])] * 600)),
     *LARGE, "513 batches, at most 512"),
    ("a part without batches", transaction(part(), wal.TransactionPart(vchannel="four/0")),
     R.REASON_EMPTY_BATCH, INVALID, "at least one"),
    ("one vchannel twice", transaction(part("four/1"), part("four/1")), *WRONG, "names four/1 twice"),
    ("one vchannel under two names", transaction(part("one"), part("one/0")), *WRONG, "names one/0 twice"),
    ("an unknown vchannel", transaction(part(), part("nowhere")),
     *UNKNOWN, "create it with `tidelog channel create nowhere`, or correct the name"),
    ("a bad name", transaction(part(), part("UPPER")), *MISNAMED, "begin with a lowercase letter"),
    ("a batch in the same request", transaction(part(), vchannel="one", columns=a_columns([b"x"])),
     *WRONG, "put the batch into a part"),
    ("a condition for all", transaction(part(), options=wal.AppendOptions(fencing_token=1)),
     *WRONG, "set it in the part of the vchannel"),
    ("a token that is not set", transaction(part(), part("four/0", fencing_token=1)),
     R.REASON_FENCING_TOKEN_MISMATCH, Code.FAILED_PRECONDITION, "of four/0 is 0, not 1"),
    ("a last tick that is not", transaction(part(), part("four/0", expected_last_tick=5)),
     R.REASON_LAST_TICK_MISMATCH, Code.ABORTED, "of four/0 is 0, expected 5"),
    ("a large message", transaction(part(), part("four/0", bytes(100_001))),
     R.REASON_MESSAGE_TOO_LARGE, INVALID, "at most 100000"),
    ("much in all", transaction(*[part(name, bytes(90_000)) for name in ("one", "four/0", "four/1")]),
     *LARGE, "at most 200000 are allowed"),
    ("a damaged batch",
     transaction(part(), wal.TransactionPart(vchannel="four/0", batches=[message_pb2.Columns(count=1)])),
     R.REASON_CHECKSUM_MISMATCH, INVALID, "damaged in transit"),
    ("transactions that share one batch only",
     transaction(shared_part("one", shared([1, 2], b"a", b"b")), part("four/0")),
     *MALFORMED, "into 2 transactions: each part must have one batch, divided likewise"),
    ("transactions that share several batches of a part",
     transaction(shared_part("one", shared([1, 2], b"a", b"b"), shared([1, 2], b"a", b"b"))),
     *MALFORMED, "each part must have one batch"),
    ("more transactions than messages", transaction(shared_part("one", shared([0, 0, 1], b"a"))),
     *MALFORMED, "3 transactions, more than messages"),
    ("a shared batch that is no part", with_columns("one", shared([1, 2], b"a", b"b")),
     *MALFORMED, "not part of a transaction"),
    ("a sequence that leaves a gap",
     transaction(part(), options=wal.AppendOptions(producer=wal.ProducerSequence(producer_id="p", sequence=2))),
     R.REASON_SEQUENCE_GAP, Code.FAILED_PRECONDITION, "expected 1"),
]  # fmt: skip


CALLS: list[tuple[str, str, Proto, int, Code, str]] = [
    ("empty batch", "Append", wal.AppendRequest(vchannel="one"), R.REASON_EMPTY_BATCH, INVALID, "at least one"),
    ("large message", "Append", append("one", message(), message(bytes(100_001))),
     R.REASON_MESSAGE_TOO_LARGE, INVALID, "message 1 has 100001 bytes, at most 100000"),
    ("large batch", "Append", append("one", *[message(bytes(90_000))] * 3),
     *LARGE, "at most 200000 are allowed: send smaller"),
    ("many messages", "Append", append("one", *[message(b"")] * 10_001), *LARGE, "10001 messages, at most 10000"),
    ("large key", "Append", append("one", message(key=bytes(1_025))), R.REASON_MESSAGE_TOO_LARGE, INVALID, "the key"),
    ("reserved property", "Append", append("one", message(properties={"_t": ""})),
     R.REASON_RESERVED_PROPERTY, INVALID, "does not begin with '_'"),
    ("empty property key", "Append", append("one", message(properties={"": "v"})), *MALFORMED, "empty key"),
    ("many properties", "Append", append("one", message(properties={str(i): "" for i in range(17)})),
     *MALFORMED, "at most 16"),
    ("event time before the year 1", "Append", append("one", message(), message(event_time_ms=-62_135_596_800_001)),
     *MALFORMED, "event_times_ms: is -62135596800001 at message 1, expected"),
    ("event time after the year 9999", "Append", append("one", message(event_time_ms=253_402_300_800_000)),
     *MALFORMED, "the years 1 to 9999"),
    ("unknown durability", "Append", append(durability=9), *WRONG, "use DURABILITY_SYNC"),
    ("negative durability", "Append", append(durability=-1), *WRONG, "unknown"),
    ("too many ticks", "AllocateTicks", wal.AllocateTicksRequest(count=1_000_001), *WRONG, "expected 1 to 1000000"),
    ("no source", "Scan", wal.ScanRequest(), *WRONG, "names 0 vchannels, expected 1 to"),
    ("source twice", "Scan", scan("one", "one/0"), *WRONG, "names a vchannel twice"),
    ("too many sources", "Scan", scan(*["one"] * 1_025), *WRONG, "expected 1 to 1024"),
    ("unknown format", "Scan", scan(format=7), *WRONG, "use 1 (rows) or 2 (columns)"),
    ("empty filter", "Scan", scan(filters=[wal.DeliverFilter()]), *WRONG, "filter is empty"),
    ("no types", "Scan", scan(filters=[types()]), *WRONG, "names 0 types"),
    ("many types", "Scan", scan(filters=[types(*range(1_025))]), *WRONG, "1 to 1024"),
    ("many filters", "Scan", scan(filters=[types(1)] * 17), *WRONG, "at most 16"),
    ("large response", "Scan", scan(max_response_bytes=(4 << 20) + 1), *WRONG, "or 0"),
    ("fast watermark", "Scan", scan(watermark_interval_ms=9), *WRONG, "10 to 60000"),
    ("beyond the end", "Scan", scan(policy=policy(from_tick=MAX)),
     R.REASON_POSITION_BEYOND_END, Code.OUT_OF_RANGE, "another cluster"),
    ("after beyond the end", "Scan", scan(policy=policy(after_tick=MAX)),
     R.REASON_POSITION_BEYOND_END, Code.OUT_OF_RANGE, "another cluster"),
    ("impossible tick", "Scan", scan(policy=policy(from_tick=MAX + 1)), *WRONG, "greatest possible tick"),
    ("impossible end", "Scan", scan(end=wal.ScanEnd(before_tick=MAX + 1)), *WRONG, "greatest possible tick"),
    ("short id", "Scan", scan(policy=policy(from_message_id=b"1234567")),
     R.REASON_WAL_NAME_MISMATCH, Code.FAILED_PRECONDITION, "ids of 8 bytes"),
    ("long id", "Scan", scan(policy=policy(after_message_id=bytes(9))),
     R.REASON_WAL_NAME_MISMATCH, Code.FAILED_PRECONDITION, "ids of 8 bytes"),
    ("id beyond all ticks", "Scan", scan(policy=policy(from_message_id=b"\xff" * 8)),
     R.REASON_WAL_NAME_MISMATCH, Code.FAILED_PRECONDITION, "not made by this server"),
    ("plan of nothing", "PlanScan", wal.PlanScanRequest(), *WRONG, "names 0 vchannels"),
    ("plan of one twice", "PlanScan", wal.PlanScanRequest(vchannels=["one", "one"]), *WRONG, "twice"),
    ("plan of one under two names", "PlanScan", wal.PlanScanRequest(vchannels=["one", "one/0"]), *WRONG, "twice"),
    ("plan with many splits", "PlanScan", wal.PlanScanRequest(vchannels=["one"], min_splits=100_001),
     *WRONG, "at most 100000"),
    ("plan beyond the end", "PlanScan", wal.PlanScanRequest(vchannels=["one"], end_tick=MAX),
     R.REASON_POSITION_BEYOND_END, Code.OUT_OF_RANGE, "another cluster"),
    ("fence with nothing", "SetFencingToken", wal.SetFencingTokenRequest(vchannel="one"),
     *WRONG, "expected 1 or greater"),
    ("token that is not set", "Append", append(fencing_token=1), R.REASON_FENCING_TOKEN_MISMATCH,
     Code.FAILED_PRECONDITION, "is 0, not 1: set it first with `tidelog channel fence one/0 1`"),
    ("last tick that is not", "Append", append(expected_last_tick=5),
     R.REASON_LAST_TICK_MISMATCH, Code.ABORTED, "expected 5: read the messages in between"),
    ("producer without a name", "Append", append(producer=wal.ProducerSequence(sequence=1)),
     *WRONG, "the producer id has 0 bytes, expected 1 to 64"),
    ("producer with a long name", "Append", append(producer=wal.ProducerSequence(producer_id="é" * 33, sequence=1)),
     *WRONG, "the producer id has 66 bytes"),
    ("producer without a sequence", "Append", append(producer=wal.ProducerSequence(producer_id="p")),
     *WRONG, "sequence is 0, expected 1"),
    ("producer beyond all sequences", "Append",
     append(producer=wal.ProducerSequence(producer_id="p", sequence=(1 << 64) - 1)),
     *WRONG, "the first batch has sequence 1"),
    ("epoch that was not opened", "Append",
     append(producer=wal.ProducerSequence(producer_id="p", sequence=1, epoch=(1 << 64) - 1)),
     R.REASON_PRODUCER_FENCED, Code.FAILED_PRECONDITION, "get epochs from OpenProducer"),
    ("unknown producer that continues", "Append", append(producer=wal.ProducerSequence(producer_id="p", sequence=2)),
     R.REASON_SEQUENCE_GAP, Code.FAILED_PRECONDITION, "expected 1: the producer is unknown or was forgotten"),
    ("open a producer without a name", "OpenProducer", wal.OpenProducerRequest(vchannel="one"),
     *WRONG, "the producer id has 0 bytes"),
    ("trim without a bound", "Trim", wal.TrimRequest(vchannel="one"), *WRONG, "`until` is not set"),
    ("trim beyond all ticks", "Trim", wal.TrimRequest(vchannel="one", before_tick=MAX + 1),
     *WRONG, "beyond the greatest possible tick"),
    ("trim beyond all times", "Trim", wal.TrimRequest(vchannel="one", before_time_ms=1 << 60),
     *WRONG, "beyond the greatest possible tick"),
    ("create nothing", "CreateChannels", channels.CreateChannelsRequest(), *WRONG, "either"),
    ("create both ways", "CreateChannels", channels.CreateChannelsRequest(names=["a"], number=1), *WRONG, "not both"),
    ("create many", "CreateChannels", channels.CreateChannelsRequest(number=101), *WRONG, "expected 1 to 100"),
    ("create a name twice", "CreateChannels", channels.CreateChannelsRequest(names=["a", "a"]), *WRONG, "twice"),
    ("create with many vchannels", "CreateChannels", channels.CreateChannelsRequest(names=["a"], vchannels=1_025),
     *WRONG, "expected 1 to 1024"),
    ("create what exists", "CreateChannels", channels.CreateChannelsRequest(names=["fresh", "one"]),
     R.REASON_CHANNEL_ALREADY_EXISTS, Code.ALREADY_EXISTS, "choose another name"),
    ("create in another shape", "CreateChannels",
     channels.CreateChannelsRequest(names=["four"], vchannels=3, if_not_exists=True),
     R.REASON_CHANNEL_ALREADY_EXISTS, Code.ALREADY_EXISTS, "with 4 vchannels, not 3"),
    ("large owner", "CreateChannels",
     channels.CreateChannelsRequest(names=["a"], owner=channels.OwnerDescription(role="é" * 129)),
     *WRONG, "258 bytes, at most 256"),
    ("create with a cap below the bytes", "CreateChannels",
     channels.CreateChannelsRequest(names=["a"], retention=channels.Retention(bytes=2, hard_bytes=1)),
     *WRONG, "hard_bytes is 1, below retention.bytes, which is 2"),
    ("create with a retention beyond bounds", "CreateChannels",
     channels.CreateChannelsRequest(names=["a"], retention=channels.Retention(age_ms=(1 << 43) + 1)),
     *WRONG, "retention.age_ms is 8796093022209, at most 8796093022208"),
    ("alter nothing", "AlterChannels", channels.AlterChannelsRequest(names=["one"]), *WRONG, "changes nothing"),
    ("alter no channel", "AlterChannels", channels.AlterChannelsRequest(retention=channels.RetentionChange(bytes=1)),
     *WRONG, "names 0 channels"),
    ("alter what is not there", "AlterChannels",
     channels.AlterChannelsRequest(names=["one", "nowhere"], retention=channels.RetentionChange(bytes=1)),
     *UNKNOWN, "'nowhere' does not exist"),
    ("alter to bytes beyond bounds", "AlterChannels",
     channels.AlterChannelsRequest(names=["one"], retention=channels.RetentionChange(hard_bytes=(1 << 60) + 1)),
     *WRONG, "retention.hard_bytes of channel 'one' is"),
    ("destroy what is not there", "DestroyChannels", channels.DestroyChannelsRequest(names=["one", "nowhere"]),
     *UNKNOWN, "'nowhere' does not exist"),
    ("describe nothing", "DescribeChannels", channels.DescribeChannelsRequest(), *WRONG, "names 0 channels"),
    ("large page", "ListChannels", channels.ListChannelsRequest(page_size=1_001), *WRONG, "expected 1 to 1000"),
]  # fmt: skip


async def call(client: Client, method: str, request: Proto) -> None:
    if method == "Scan":
        async for _ in client.wal.Scan(request):
            pass
    else:
        stub = client.channels if method.endswith("Channels") else client.wal
        await getattr(stub, method)(request)


@pytest.mark.parametrize(
    ("method", "request_", "reason", "code", "text"), [pytest.param(*case[1:], id=case[0]) for case in CALLS]
)
async def test_a_bad_call_is_refused_with_what_to_do(
    client: Client, method: str, request_: Proto, reason: int, code: Code, text: str
) -> None:
    async with refused() as found:
        await call(client, method, request_)
    assert (found[0].code, found[0].reason) == (code.value[0], reason)
    assert text in found[0].text
    assert found[0].effect == R.EFFECT_NONE
    await check_unharmed(client)


async def test_a_bad_name_is_refused_wherever_one_is_named(client: Client) -> None:
    requests: list[tuple[str, Callable[[str], Proto]]] = [
        ("Append", append),
        ("Scan", scan),
        ("PlanScan", lambda name: wal.PlanScanRequest(vchannels=[name])),
        ("Trim", lambda name: wal.TrimRequest(vchannel=name, all=wal.TrimAll())),
        ("SetFencingToken", lambda name: wal.SetFencingTokenRequest(vchannel=name, fencing_token=1)),
        ("OpenProducer", lambda name: wal.OpenProducerRequest(vchannel=name, producer_id="p")),
        ("GetLatestMvccTick", lambda name: wal.GetLatestMvccTickRequest(vchannel=name)),
    ]
    for name, reason, code, text in NAMES:
        for method, build in requests:
            if method == "OpenProducer" and "name one" in text:
                # A producer is opened on all vchannels of a channel.
                continue
            async with refused() as found:
                await call(client, method, build(name))
            assert (method, name, found[0].reason, found[0].code) == (method, name, reason, code.value[0])
            assert text in found[0].text
        (answer,) = await client.append_all([a_request(name)])
        refusal = refusal_in(answer)
        assert (refusal.reason, refusal.code) == (reason, code.value[0])
        assert text in refusal.text
        assert "\n" not in refusal.text
    await check_unharmed(client)


@pytest.mark.parametrize("method", ["CreateChannels", "DestroyChannels", "DescribeChannels"])
async def test_a_bad_channel_name_is_refused(client: Client, method: str) -> None:
    build = getattr(channels, f"{method}Request")
    for name in ("", "UPPER", "_hidden", "a" * 128, "one/0", "é", "a b"):
        async with refused() as found:
            await call(client, method, build(names=[name]))
        assert found[0].reason == R.REASON_INVALID_NAME
    await check_unharmed(client)


@pytest.mark.parametrize(("build", "kind", "text"), [pytest.param(*case[1:], id=case[0]) for case in BROKEN])
async def test_a_broken_batch_is_refused_and_its_neighbours_are_not(
    client: Client, build: Callable[[], message_pb2.Columns], kind: type[Exception], text: str
) -> None:
    if kind.__name__ == "MessageTooLargeError" and "at most 64" in text:
        text = ""  # The pure check ran with another limit.
    broken = message_pb2.Columns.FromString(sealed(build()))
    answers = await client.append_all([a_request("one"), with_columns("one", broken), a_request("one")])
    assert [answer.HasField("result") for answer in answers][::2] == [True, True]
    if text:
        refusal = refusal_in(answers[1])
        assert refusal.code == INVALID.value[0]
        assert refusal.effect == R.EFFECT_NONE
        assert text.split(".*")[0] in refusal.text
    await check_unharmed(client)


async def test_a_wrong_crc_is_refused(client: Client) -> None:
    columns = a_columns([b"x"])
    columns.crc32c ^= 1
    (answer,) = await client.append_all([with_columns("one", columns)])
    assert refusal_in(answer).reason == R.REASON_CHECKSUM_MISMATCH
    await check_unharmed(client)


async def test_truncated_buffers_are_refused(client: Client) -> None:
    encoded = a_columns([b"abc", b"de"]).SerializeToString()
    requests = [b"\x12\x03one\x1a" + bytes([length]) + encoded[:length] for length in range(len(encoded))]
    answers = [wal.AppendStreamResponse.FromString(raw) async for raw in client.raw_append_stream(iter(requests))]
    reasons = {refusal_in(answer).reason for answer in answers}
    assert reasons <= {
        R.REASON_MALFORMED_REQUEST, R.REASON_CHECKSUM_MISMATCH, R.REASON_EMPTY_BATCH,
    }  # fmt: skip
    assert len(answers) == len(encoded)
    await check_unharmed(client)


UNARY = [
    *(f"{WAL}/{name}" for name in ("GetWalName", "AllocateTicks", "GetLatestMvccTick", "Append", "PlanScan", "Trim")),
    *(f"{CHANNELS}/{name}Channels" for name in ("Create", "Destroy", "Describe", "List")),
]


@pytest.mark.parametrize("method", [*UNARY, f"{WAL}/Scan"])
async def test_bytes_that_are_no_request_are_refused_by_every_method(client: Client, method: str) -> None:
    for encoded in (b"\xff\xff\xff", b"\x0a\xff", b"\x0f", struct.pack("<Q", 7)):
        async with refused() as found:
            if method.endswith("/Scan"):
                async for _ in client.raw_server_stream(method, encoded):
                    pass
            else:
                await client.raw_unary(method, encoded)
        assert (found[0].code, found[0].reason) == (INVALID.value[0], R.REASON_MALFORMED_REQUEST)
        assert method.rpartition("/")[2] in found[0].text
    await check_unharmed(client)


@pytest.mark.parametrize(("size", "is_taken"), [(99_999, True), (100_000, True), (100_001, False)])
async def test_the_limit_of_a_message_is_inclusive(client: Client, size: int, *, is_taken: bool) -> None:
    (answer,) = await client.append_all([a_request("one", bytes(size))])
    assert answer.HasField("result") == is_taken
    await check_unharmed(client)


@pytest.mark.parametrize(("spare", "is_taken"), [(1, True), (0, True), (-1, False)])
async def test_the_limit_of_a_batch_is_inclusive(client: Client, spare: int, *, is_taken: bool) -> None:
    overhead = len(a_columns([bytes(66_000)] * 3).SerializeToString()) - 198_000
    rest = 200_000 - overhead - 132_000 - spare
    request = a_request("one", bytes(66_000), bytes(66_000), bytes(rest))
    assert len(request.columns.SerializeToString()) == 200_000 - spare
    (answer,) = await client.append_all([request])
    assert answer.HasField("result") == is_taken
    await check_unharmed(client)


async def test_a_request_over_grpcs_limit_is_refused_and_the_connection_stays(client: Client) -> None:
    for method in ("Append", "AppendStream"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            if method == "Append":
                await client.append("one", bytes(limits.MAX_RESPONSE_BYTES + limits.MIB))
            else:
                await client.append_all([a_request("one", bytes(limits.MAX_RESPONSE_BYTES + limits.MIB))])
        assert caught.value.code() == Code.RESOURCE_EXHAUSTED
    await check_unharmed(client)


async def test_metadata_over_eight_kib_is_refused_each_time_and_below_it_never(client: Client) -> None:
    async def ask(size_bytes: int) -> Code:
        try:
            await client.wal.GetWalName(wal.GetWalNameRequest(), metadata=(("x-filler", "f" * size_bytes),))
        except grpc.aio.AioRpcError as error:
            return error.code()
        return Code.OK

    for _ in range(10):
        assert await ask(6_000) == Code.OK
        assert await ask(9_000) != Code.OK
    await check_unharmed(client)


async def test_a_method_that_is_not_there_is_unimplemented(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.raw_unary(f"{WAL}/NoSuchMethod", b"")
    assert caught.value.code() == Code.UNIMPLEMENTED
    await check_unharmed(client)


@pytest.mark.parametrize(
    ("request_", "reason", "code", "text"), [row[1:] for row in TRANSACTIONS], ids=[row[0] for row in TRANSACTIONS]
)
async def test_a_bad_transaction_is_refused_as_a_whole(
    client: Client, request_: wal.AppendStreamRequest, reason: int, code: Code, text: str
) -> None:
    [answer] = await client.append_all([request_])

    refusal = refusal_in(answer)
    assert (refusal.reason, refusal.code) == (reason, code.value[0])
    assert refusal.effect == error_pb2.EFFECT_NONE
    assert text in refusal.text
    assert await client.rows("one") == []
    await check_unharmed(client)


async def test_a_transaction_repeated_with_other_content_is_refused(client: Client) -> None:
    options = wal.AppendOptions(producer=wal.ProducerSequence(producer_id="p", sequence=1))
    first, repeated, other, other_vchannel = await client.append_all(
        [
            transaction(part(), part("four/0"), options=options),
            transaction(part(), part("four/0"), options=options),
            transaction(part(), part("four/0", b"other"), options=options),
            transaction(part(), part("four/1"), options=options),
        ]
    )

    assert (first.transaction.first_tick, first.transaction.last_tick) == (
        repeated.transaction.first_tick,
        repeated.transaction.last_tick,
    )
    assert [part.duplicate for part in repeated.transaction.parts] == [True, True]
    for answer in (other, other_vchannel):
        assert refusal_in(answer).reason == R.REASON_SEQUENCE_REUSED
    assert len(await client.rows("four/0")) == 1
    assert await client.rows("four/1") == []


async def test_rows_of_transactions_that_share_a_request_carry_their_own_ids(client: Client) -> None:
    [answer] = await client.append_all(
        [
            transaction(
                shared_part("one", shared([1, 3], b"a", b"b", b"c")),
                shared_part("four/0", shared([2, 3], b"d", b"e", b"f")),
            )
        ]
    )
    first = answer.transaction.txn_id

    async def ids(vchannel: str, **fields: Any) -> list[tuple[bytes, int]]:
        responses = [response async for response in client.wal.Scan(scan(vchannel, **fields))]
        return [(row.message.payload, row.txn_id) for response in responses for row in response.rows]

    assert await ids("one") == [(b"a", first), (b"b", first + 1), (b"c", first + 1)]
    assert await ids("four/0") == [(b"d", first), (b"e", first), (b"f", first + 1)]
    assert await ids("four/0", policy=policy(after_tick=first + 4)) == [(b"f", first + 1)]
