"""A message that cannot be encoded fails alone, where it is given; what shares a producer or a batch with it is kept.

Method: every kind of bad message through every call that accepts messages, against a server in this process, with good
messages before and after it; and batches whose encoded size is a multiple of their number of characters.
"""

import re
from array import array
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, cast

import numpy as np
import pytest

import tidelog
from tidelog import AsyncClient, Client, InvalidRequestError, Message
from tidelog.append.message_checks import (
    MAX_EVENT_TIME_MS,
    MAX_KEY_BYTES,
    MAX_PROPERTIES,
    MAX_PROPERTY_BYTES,
    MIN_EVENT_TIME_MS,
)
from tidelog.append.sizes import Appendable, in_batches, measure, measure_all
from tidelog.msgstream import GeneralMsg, MalformedMessageError, MsgPack
from tidelog.msgstream._repack import encoded
from tidelog.testing import start_server
from tidelog.wire.columns import encode_messages
from tidelog_server.rpc.columns import checks
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=1)


class _NoOffset(tzinfo):
    def utcoffset(self, _moment: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, _moment: datetime | None) -> str | None:
        return None


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a text as payload": ({"payload": "text"}, "payload is of type str, expected bytes"),
    "no payload": ({"payload": None}, "payload is of type NoneType"),
    "a view of wide items": ({"payload": memoryview(array("q", [1, 2]))}, "payload is a view"),
    "a text as key": ({"key": "k"}, "key is of type str"),
    "a long key": ({"key": b"k" * 1025}, "key has 1025 bytes, expected at most 1024"),
    "a negative type": ({"type": -1}, "type is -1"),
    "a type beyond 32 bits": ({"type": 4294967301}, "type is 4294967301, expected a whole number from 0 to 4294967295"),
    "a bool as type": ({"type": True}, "type is True"),
    "a float as type": ({"type": 5.0}, "type is 5.0"),
    "a wide numpy type": ({"type": np.int64(1 << 40)}, "type is "),
    "a text as type": ({"type": "5"}, "type is '5'"),
    "a time without a zone": ({"event_time": datetime(2026, 1, 1)}, "event_time is invalid: 2026"),  # noqa: DTZ001 - the point
    "a zone without an offset": ({"event_time": datetime(2026, 1, 1, tzinfo=_NoOffset())}, "has no time zone"),
    "a number as time": ({"event_time": 7}, "event_time is invalid: expected a datetime"),
    "a time before the year 1 in UTC": (
        {"event_time": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))}, "event_time is 0001-01-01",
    ),
    "a list as properties": ({"properties": [("a", "b")]}, "properties are of type list"),
    "many properties": ({"properties": {f"k{i}": "" for i in range(17)}}, "17 properties, expected at most 16"),
    "large properties": ({"properties": {"k": "\U0001f600" * 2048}}, "properties have 8193 bytes in UTF-8"),
    "a number as property": ({"properties": {"k": 1}}, "property 'k': 1 is not of text: expected str, not int"),
    "a surrogate in a property": ({"properties": {"k": "\ud800"}}, "property 'k': .*surrogates not allowed"),
    "bytes as a key of properties": ({"properties": {b"k": "v"}}, "property b'k': .*: expected str, not bytes"),
    "a reserved property": ({"properties": {"_k": "v"}}, "'_k' is reserved"),
    "an empty key of properties": ({"properties": {"": "v"}}, "'' is reserved"),
}  # fmt: skip


def the_message(fields: dict[str, Any]) -> Message:
    return Message(**{"payload": b"bad", **fields})


async def test_a_shared_producer_refuses_only_the_bad_message(client: AsyncClient) -> None:
    async with client.producer("orders", linger_s=60) as producer:
        tickets = []
        for number, (fields, problem) in enumerate(WRONG.values()):
            tickets.append(await producer.send(b"%d" % number))
            with pytest.raises(InvalidRequestError, match=problem):
                await producer.send(the_message(fields))
            with pytest.raises(InvalidRequestError, match=problem):
                producer.send_nowait(the_message(fields))
            with pytest.raises(InvalidRequestError, match=r"messages\[1\]: .*" + problem):
                await producer.send_many([b"with it", the_message(fields)])
        await producer.flush()

    assert all(ticket.done() for ticket in tickets)
    assert await payloads(client, "orders") == [b"%d" % number for number in range(len(WRONG))]


def test_the_synchronous_producer_refuses_only_the_bad_message() -> None:
    with start_server() as process, Client(process.endpoint) as client:
        client.create_channel("orders")
        with client.producer("orders", linger_s=60) as producer:
            first = producer.send(b"first")
            for fields, problem in WRONG.values():
                with pytest.raises(InvalidRequestError, match=problem):
                    producer.send(the_message(fields))
                with pytest.raises(InvalidRequestError, match=r"messages\[0\]: .*" + problem):
                    producer.send_many([the_message(fields), b"with it"])
            last = producer.send(b"last")
            producer.flush()
            assert first.result().first_tick < last.result().first_tick
        assert [payload for batch in client.scan("orders") for payload in batch.payloads] == [b"first", b"last"]


@pytest.mark.parametrize("name", WRONG)
async def test_every_other_call_refuses_the_bad_message_by_its_field(client: AsyncClient, name: str) -> None:
    fields, problem = WRONG[name]
    wrong = the_message(fields)
    wal = client.wal()

    with pytest.raises(InvalidRequestError, match=problem):
        await client.append("orders", wrong)
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]: .*" + problem):
        await client.append("orders", [b"good", wrong])
    with pytest.raises(InvalidRequestError, match=problem):
        await client.broadcast("orders", wrong)
    # Each vchannel has an outcome of its own.
    refused = [response.error for response in await wal.append_messages([("orders", b"good"), ("orders", wrong)])]
    assert [type(error) for error in refused] == [InvalidRequestError] * 2
    assert re.search(problem, str(refused[0]))
    async with client.txn() as txn:
        await txn.append("orders", b"kept")
        with pytest.raises(InvalidRequestError, match=problem):
            await txn.append("orders", wrong)

    assert await payloads(client, "orders") == [b"kept"]


def test_the_limits_are_those_of_the_server() -> None:
    assert (MAX_KEY_BYTES, MAX_PROPERTIES, MAX_PROPERTY_BYTES, MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS) == (
        checks.MAX_KEY_BYTES, checks.MAX_PROPERTIES_PER_MESSAGE, checks.MAX_PROPERTY_BYTES_PER_MESSAGE,
        checks.MIN_EVENT_TIME_MS, checks.MAX_EVENT_TIME_MS,
    )  # fmt: skip


async def test_what_is_within_the_limits_is_appended(client: AsyncClient) -> None:
    largest = Message(
        cast("bytes", bytearray(b"x")), key=b"k" * 1024, type=(1 << 32) - 1,
        event_time=datetime.max.replace(tzinfo=UTC),
        properties={"k": "\U0001f600" * 2047 + "abc"},
    )  # fmt: skip
    await client.append("orders", [largest, Message(b"y", type=cast("int", np.uint32(7)))])

    messages = [message async for batch in client.scan("orders") for message in batch]
    assert [(m.payload, m.key, m.type) for m in messages] == [(b"x", b"k" * 1024, (1 << 32) - 1), (b"y", None, 7)]
    assert messages[0].properties == largest.properties


FACES = {f"p{i:02}": "\U0001f600" * 5 for i in range(16)}


def with_faces(number: int) -> Message:
    return Message(
        b"%d" % number, key=b"k", type=number % 3, properties=FACES, event_time=datetime(2026, 1, 1, tzinfo=UTC)
    )


async def test_a_producer_and_a_transaction_compose_batches_that_the_server_accepts(client: AsyncClient) -> None:
    messages = [with_faces(number) for number in range(10_000)]

    async with client.producer("orders", max_batch_bytes=4 << 20) as producer:
        await producer.send_many(messages)
        for message in messages[:5_000]:
            await producer.send(message)
    async with client.txn() as txn:
        await txn.append("orders", messages)

    assert len(await payloads(client, "orders")) == 25_000


async def test_payloads_that_share_a_batch_with_one_message_are_counted_with_its_columns(client: AsyncClient) -> None:
    async with client.producer("orders", max_batch_bytes=4 << 20, linger_s=60) as producer:
        for _ in range(9_500):
            producer.send_nowait(b"x" * 425)
        await producer.send(with_faces(0))
        await producer.send_many([b"y" * 425] * 9_000)
        await producer.send_many([with_faces(1)])

    assert len(await payloads(client, "orders")) == 9_500 + 9_000 + 2


def test_the_size_of_a_batch_is_an_upper_bound_of_its_encoded_size() -> None:
    for messages in (
        [with_faces(number) for number in range(100)],
        [Message(b""), with_faces(0), *[Message(b"x" * i) for i in range(100)]],
        [Message(b"", key=b"")] * 3,
    ):
        _, size_bytes = measure_all(messages)
        encoded_bytes = encode_messages(messages).size_bytes
        assert encoded_bytes <= size_bytes + 20
        assert sum(size for *_, size in in_batches(messages, max_bytes=1 << 10, max_messages=7)) == size_bytes

    mixed: list[Appendable] = [b"x", with_faces(0), *[b""] * 100]
    as_messages = [each if isinstance(each, Message) else Message(each) for each in mixed]
    assert encode_messages(as_messages).size_bytes <= measure_all(mixed)[1]
    assert measure(b"") == 8


async def test_a_bad_message_of_a_mailbox_fails_alone(client: AsyncClient) -> None:
    await client.mailboxes.create("jobs")
    mailbox = client.mailbox("jobs")
    wrong_fields: tuple[dict[str, Any], ...] = (
        {"body": "text"},
        {"priority": -1},
        {"priority": 1 << 32},
        {"priority": True},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"headers": {"k": "\ud800"}},
        {"due": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point of the test
    )
    for fields in wrong_fields:
        wrong = tidelog.OutgoingMessage(**{"body": b"bad", **fields})
        with pytest.raises((TypeError, ValueError), match=r"messages\[1\].*" + next(iter(fields))):
            await mailbox.send_many([b"good", wrong])
    await mailbox.send(b"kept")

    assert [delivery.body for delivery in await mailbox.fetch(10)] == [b"kept"]


@pytest.mark.parametrize("wrong", [3.7, True, -1, 1 << 32])
def test_a_message_stream_refuses_a_type_that_is_no_integer_of_32_bits(wrong: Any) -> None:
    with pytest.raises(MalformedMessageError, match=f"has type {wrong}"):
        encoded({"a": MsgPack(msgs=[GeneralMsg(type=wrong, body=b"x")])}, 1 << 20)
