"""An argument that protobuf refuses is named in the error, with its value and what was expected."""

from typing import Any

import pytest

from tidelog import InvalidRequestError, MailboxSettings, OutgoingMessage
from tidelog.admin.mailbox_types import settings_to_wire
from tidelog.txn.companions import Companions
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.fields import FieldRangeError, with_fields

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"priority": -1}, FieldRangeError, "priority is -1, expected an integer from 0 to 4294967295"),
    ({"priority": "1"}, TypeError, "priority is '1', expected an integer from 0 to 4294967295"),
    ({"ttl_ms": 1.5}, TypeError, "ttl_ms is 1.5, expected an integer of 64 bits"),
    ({"group": 3}, TypeError, "group is 3, expected a str"),
    ({"blob_key": "abc"}, TypeError, "blob_key is 'abc', expected bytes"),
    (
        {"group": "g", "headers": {"a": 1}}, TypeError,
        "headers is {'a': 1}, expected a mapping, each key a str and each value a str",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "error", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_the_error_names_the_argument(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as refused:
        with_fields(pb.OutgoingMessage, **fields)
    assert str(refused.value) == text


def test_an_argument_may_have_another_name_than_its_field() -> None:
    with pytest.raises(TypeError, match="ids is 7, expected a sequence, each item an integer from 0"):
        with_fields(pb.RedriveRequest, {"mailbox": "name"}, ids=7)
    with pytest.raises(TypeError, match="name is 7, expected a str"):
        with_fields(pb.RedriveRequest, {"mailbox": "name"}, mailbox=7)
    with pytest.raises(TypeError, match=r"settings is \{'x': 1\}, expected a MailboxSettings"):
        with_fields(pb.CreateMailboxRequest, settings={"x": 1})


def test_a_large_value_is_shortened() -> None:
    with pytest.raises(TypeError) as refused:
        with_fields(pb.OutgoingMessage, priority="x" * 1_000_000)
    assert len(str(refused.value)) < 120


def test_fields_that_are_none_are_not_set() -> None:
    message = with_fields(pb.FetchRequest, mailbox="jobs", lease_ms=None)
    assert message == pb.FetchRequest(mailbox="jobs")
    assert not message.HasField("lease_ms")


def test_messages_and_settings_name_their_arguments() -> None:
    wrong: Any = {"a": 1}
    with pytest.raises(TypeError, match="headers is"):
        OutgoingMessage(b"", wrong).to_wire()
    with pytest.raises(InvalidRequestError, match=r"lease_ms is 9+, expected an integer of 64 bits") as refused:
        settings_to_wire(MailboxSettings(lease_ms=10**20 - 1))
    assert refused.value.values["field"] == "lease_ms"
    backoff: Any = 1_000
    with pytest.raises(TypeError, match="backoff_ms is 1000, expected a sequence"):
        settings_to_wire(MailboxSettings(backoff_ms=backoff))
    with pytest.raises(TypeError, match="settings is of type dict, expected MailboxSettings"):
        settings_to_wire(wrong)


def test_a_transaction_confirms_only_deliveries() -> None:
    wrong: Any = "lock"
    with pytest.raises(TypeError, match="the delivery is of type str, expected one of a mailbox"):
        Companions().add_delivery(wrong)
