"""Answers of Operate that are written by hand, compared with protobuf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.mailboxes import LockUnknownError
from tidelog_server.core.mailboxes import DeliveryStatus
from tidelog_server.core.ticks import compose, physical_ms
from tidelog_server.mailboxes.events import Origin, Sent, encode_relocated, encode_sent
from tidelog_server.mailboxes.operations import Fetched, Grant, LockFailures, SentIds
from tidelog_server.rpc import status
from tidelog_server.rpc.services.mailboxes.answers import (
    acked_answer,
    error_answer,
    extended_answer,
    fetched_answer,
    fetched_answer_of_events,
    sent_answer,
)

TICKS = st.integers(1, (1 << 62) - 1)
NUMBERS = st.integers(0, (1 << 64) - 1)
PLAIN = st.builds(Sent, st.binary(max_size=300))
WITH_OPTIONS = st.builds(
    Sent,
    st.binary(max_size=300),
    headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    priority=st.integers(0, 255),
    group=st.text(max_size=10),
    origin=st.none() | st.builds(Origin, TICKS, TICKS, st.integers(1, 1_000)),
)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[Fetched, list[bytes], dict[int, Sent]]:
    """Draw a result of a fetch, the events that have its messages, and the messages."""
    grants, events, messages = list[Grant](), list[bytes](), dict[int, Sent]()
    for message_id in sorted(draw(st.sets(TICKS, max_size=5))):
        message = draw(PLAIN | WITH_OPTIONS)
        place, event = message_id, encode_sent(message)
        if draw(st.booleans()):
            place, event = message_id + 1, encode_relocated(message_id, event)
        grants.append(
            Grant(
                message_id, draw(st.binary(min_size=20, max_size=20)), place, draw(st.integers(1, 1 << 31)),
                draw(TICKS), draw(st.sampled_from(DeliveryStatus)), len(message.body),
            )
        )  # fmt: skip
        events.append(event)
        messages[message_id] = message
    return Fetched(grants, draw(TICKS)), events, messages


def name_of(mailbox_id: int) -> str:
    return f"mailbox {mailbox_id}"


def result_of(encoded: bytes) -> pb.OperationResult:
    [result] = pb.OperateResponse.FromString(encoded).results
    return result


def expected_delivery(grant: Grant, message: Sent) -> pb.Delivery:
    delivery = pb.Delivery(
        id=grant.message_id, lock_id=grant.lock_id, body=message.body, delivery_count=grant.delivery_count,
        headers=message.headers, due_ms=physical_ms(grant.due_tick), priority=message.priority, group=message.group,
    )  # fmt: skip
    delivery.status = grant.status  # type: ignore[assignment]  # an enumeration of the same numbers
    if (origin := message.origin) is not None:
        delivery.dead_letter.mailbox = name_of(origin.mailbox_id)
        delivery.dead_letter.id = origin.message_id
        delivery.dead_letter.delivery_count = origin.deliveries
    return delivery


@given(number=NUMBERS, drawn=deliveries())
def test_fetched_messages_are_encoded_as_protobuf_does(
    number: int, drawn: tuple[Fetched, list[bytes], dict[int, Sent]]
) -> None:
    fetched, events, messages = drawn
    expected = pb.OperationResult(number=number, fetched=pb.FetchResponse())
    if fetched.grants:
        expected.fetched.leased_until_ms = physical_ms(fetched.until)
        expected.fetched.deliveries.extend(
            expected_delivery(grant, messages[grant.message_id]) for grant in fetched.grants
        )
        assert result_of(fetched_answer(number, fetched, messages, name_of)) == expected

    assert result_of(fetched_answer_of_events(number, fetched, events, name_of)) == expected


def test_a_message_that_was_deleted_meanwhile_is_left_out() -> None:
    fetched = Fetched([Grant(7, bytes(20), 7, 1, 7, DeliveryStatus.NOT_DELIVERED, 0)], compose(1))

    assert result_of(fetched_answer(1, fetched, {}, name_of)).fetched == pb.FetchResponse(leased_until_ms=1)


def test_the_event_of_another_message_is_refused() -> None:
    fetched = Fetched([Grant(7, bytes(20), 9, 1, 7, DeliveryStatus.NOT_DELIVERED, 0)], 1)

    with pytest.raises(DataLossError, match="is not the copy of message 7"):
        fetched_answer_of_events(1, fetched, [encode_relocated(8, encode_sent(Sent(b"x")))], name_of)


@given(number=NUMBERS, ids=st.lists(TICKS, max_size=20), duplicates=st.lists(st.integers(0, 999), max_size=5))
def test_sent_messages_are_encoded_as_protobuf_does(number: int, ids: list[int], duplicates: list[int]) -> None:
    expected = pb.OperationResult(number=number, sent=pb.SendResponse(ids=ids, duplicates=duplicates))

    assert result_of(sent_answer(number, SentIds(ids, duplicates))) == expected


@pytest.mark.parametrize("is_refused", [False, True])
def test_acknowledgements_and_extensions_are_encoded_as_protobuf_does(*, is_refused: bool) -> None:
    error = LockUnknownError("jobs", bytes(20))
    failures = LockFailures([(bytes(20), error)] if is_refused else [])
    refused = [pb.DeliveryFailure(lock_id=lock, error=status.call_error_of(why)) for lock, why in failures.failures]

    acked = pb.OperationResult(number=300, acked=pb.AckDeliveriesResponse(failures=refused))
    assert result_of(acked_answer(300, failures)) == acked
    extended = pb.OperationResult(number=1, extended=pb.ExtendResponse(leased_until_ms=77, failures=refused))
    assert result_of(extended_answer(1, compose(77), failures)) == extended
    assert result_of(error_answer(0, error)) == pb.OperationResult(error=status.call_error_of(error))
