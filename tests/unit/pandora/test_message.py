"""Messages have the ids, lock ids and texts of pandora's. Method: literal vectors."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tidelog.pandora import (
    AckStatus,
    InvalidHeaderEncodingError,
    InvalidMailBoxError,
    Message,
    SHA1Key,
    Values,
    check_mailbox,
    encode_values,
    format_time,
    parse_time,
    parse_values,
    print_key_string,
)

NOON = datetime(2014, 6, 30, 12, tzinfo=UTC)
FIRST: Values = {
    "topic": ["text"],
    "sender": ["a@local"],
    "receiver": ["b@remote"],
    "p-server": ["Pandora-Default-Server"],
    "clientTime": ["2014-06-30T12:00:00Z"],
}
FIRST_ENCODED = (
    b"clientTime=2014-06-30T12%3A00%3A00Z&p-server=Pandora-Default-Server&receiver=b%40remote&sender=a%40local"
    b"&topic=text"
)
BODIES = [
    (FIRST, 115, "995e5df1ea6c7a2b84fc92a83a0dc400ce0ffa54"),
    (FIRST | {"clientTime": ["2014-06-30T12:00:00.123456789Z"]}, 125, "6cfa1763c6ea925de1ff181de05f887e54c10187"),
    (FIRST | {"info": ["testing....", "second value & more~*()"]}, 169, "081d6dddeea6e9244b07bbba843d20db7a80c48d"),
    (FIRST | {"p-server": ["Pandora-Default-Server"] * 2}, 147, "12d2b0c57d1f9ba7967f3f6e5aeda7511a784816"),
    (FIRST | {"topic": ["olá mundo"]}, 125, "5dd97e06848acd9b395f10d56a041b61f3d64c30"),
]
LOCKS = [
    ("2014-06-30T12:05:00Z", "b90313fecb1e663e4136e08afb9bdefb0c95f4e5"),
    ("2014-06-30T12:05:00.5Z", "cd1545a93e6e9e2d7ea5ac88e377b37434a283b3"),
    ("2014-06-30T09:05:00.123456789-03:00", "f0d2b87031a0645f0a44472c123d54be9baad998"),
]


@pytest.mark.parametrize(("body", "size", "mid"), BODIES)
def test_the_id_is_the_hash_of_the_encoded_body(body: Values, size: int, mid: str) -> None:
    message = Message(body=body)
    message.calculate_mid()
    assert len(encode_values(body)) == size
    assert print_key_string(message.mid) == mid
    assert parse_values(encode_values(body)) == body


def test_the_encoded_form_of_the_first_body() -> None:
    assert encode_values(FIRST) == FIRST_ENCODED


@pytest.mark.parametrize(("expiry", "lid"), LOCKS)
@pytest.mark.parametrize("lease", [timedelta(minutes=5), timedelta(), timedelta(days=400)])
def test_a_lease_has_the_hash_of_its_end_as_lock_id(expiry: str, lid: str, lease: timedelta) -> None:
    end = parse_time(expiry)
    _, dot, digits = expiry.partition(".")
    begin = format_time((end - lease).replace(microsecond=0))
    now = begin[:19] + dot + digits.rstrip("Z") + ("Z" if digits.endswith("Z") else "") if dot else begin
    message = Message()
    message.calculate_lease_for(now, lease)
    assert print_key_string(message.lid) == lid
    assert message.leased_until == end


def test_a_lease_from_a_datetime_is_in_its_time_zone() -> None:
    message = Message()
    message.calculate_lease_for(NOON, timedelta(minutes=5))
    assert print_key_string(message.lid) == LOCKS[0][1]
    message.calculate_lease_for(NOON.astimezone(timezone(timedelta(hours=1))), timedelta(minutes=5))
    assert print_key_string(message.lid) != LOCKS[0][1]
    assert message.leased_until == NOON + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (NOON, "2014-06-30T12:00:00Z"),
        (NOON.replace(microsecond=500_000), "2014-06-30T12:00:00.5Z"),
        (NOON.replace(microsecond=1), "2014-06-30T12:00:00.000001Z"),
        (NOON.replace(year=1, tzinfo=timezone(timedelta(hours=5, minutes=30))), "0001-06-30T12:00:00+05:30"),
        (NOON.replace(tzinfo=timezone(-timedelta(hours=3, minutes=6, seconds=28))), "2014-06-30T12:00:00-03:06"),
        ("2014-06-30T12:00:00.120000000+00:00", "2014-06-30T12:00:00.12Z"),
        ("2014-06-30T12:00:00.1234567899-00:00", "2014-06-30T12:00:00.123456789Z"),
        ("2014-06-30T12:00:00,000000001-03:30", "2014-06-30T12:00:00.000000001-03:30"),
    ],
)
def test_times_are_printed_as_go_prints_them(time: datetime | str, text: str) -> None:
    assert format_time(time) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2014-06-30", "2014-06-30 12:00:00Z", "2014-06-30T12:00:00", "2014-06-30t12:00:00z",
        "2014-06-31T12:00:00Z", "2014-06-30T24:00:00Z", "2014-06-30T12:00:60Z", "2014-06-30T12:00:00.Z",
        "2014-06-30T12:00:00+24:00", "2014-06-30T12:00:00+01:60", "0000-06-30T12:00:00Z", " 2014-06-30T12:00:00Z",
        "\uff12014-06-30T12:00:00Z",
    ],
)  # fmt: skip
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="expected RFC 3339"):
        parse_time(text)


def test_a_time_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="2014-06-30T12:00:00 has no time zone, expected"):
        Message().set_client_time(NOON.replace(tzinfo=None))


def test_fields_of_the_body() -> None:
    message = Message()
    assert (message.sender(), message.receiver(), message.client_time(), message.get("any")) == ("", "", None, "")
    message.set_sender("a@local")
    message.set_receiver("b@remote")
    message.set_client_time("2014-06-30T12:00:00.123456789Z")
    message.set("any", "first")
    message.body["any"].append("second")
    assert (message.sender(), message.receiver(), message.get("any")) == ("a@local", "b@remote", "first")
    assert message.client_time() == NOON.replace(microsecond=123_456)
    assert message.get("clientTime") == "2014-06-30T12:00:00.123456789Z"
    message.set("any", "only")
    message.set("clientTime", "noon")
    assert (message.body["any"], message.client_time()) == (["only"], None)


def test_an_empty_message_is_one_that_was_sent_now() -> None:
    body = {"topic": ["text"]}
    message = Message(SHA1Key(), SHA1Key(), AckStatus.REJECTED, NOON, NOON, NOON, NOON, timedelta(1), 3, FIRST)
    message.body_error = ValueError("any")
    assert message.empty(body, now=NOON) is message
    sent = Message(received_at=NOON, send_when=NOON, body=body | {"clientTime": ["2014-06-30T12:00:00Z"]})
    assert (message, message.valid_body(), body) == (sent, True, {"topic": ["text"]})
    before = datetime.now(UTC)
    now = message.empty().client_time()
    assert now is not None
    assert before <= now <= datetime.now(UTC)
    assert message.body.keys() == {"clientTime"}


def test_the_header_is_written_as_fields() -> None:
    out = {"mid": ["of the user"], "topic": ["text"]}
    message = Message(body=FIRST, delivery_count=2, send_when=NOON, received_at=NOON.replace(microsecond=500_000))
    message.calculate_mid()
    message.calculate_lease_for(NOON, timedelta(minutes=5))
    message.write_to(out)
    assert out == {
        "mid": [BODIES[0][2]],
        "lid": [LOCKS[0][1]],
        "statusCode": ["8"],
        "status": ["notDelivered"],
        "leasedUntil": ["2014-06-30T12:05:00Z"],
        "receivedAt": ["2014-06-30T12:00:00.5Z"],
        "deliveryCount": ["2"],
        "sendWhen": ["2014-06-30T12:00:00Z"],
        "validBody": ["true"],
        "topic": ["text"],
    }
    unset: Values = {}
    replace(Message(), body_error=ValueError("any")).write_to(unset)
    assert (unset["mid"], unset["lid"], unset["validBody"]) == ([""], [""], ["false"])
    assert unset["leasedUntil"] == unset["sendWhen"] == ["0001-01-01T00:00:00Z"]


def test_the_statuses_have_the_codes_and_texts_of_pandora() -> None:
    texts = {1: "confirmed", 2: "rejected", 4: "timeout", 8: "notDelivered"}
    assert {int(each): str(each) for each in AckStatus} == texts
    assert f"{AckStatus.TIMEOUT}" == "timeout"


@pytest.mark.parametrize("encoded", [b"a=%", b"a=%4", b"a=%4g", b"%zz=b", b"a=1;b=2"])
def test_an_invalid_encoded_body_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="the encoded body is invalid at byte"):
        parse_values(encoded)


@pytest.mark.parametrize(
    ("encoded", "values"),
    [
        (b"", {}),
        (b"&&", {}),
        (b"a", {"a": [""]}),
        (b"=b&=", {"": ["b", ""]}),
        (b"a=1&b=2&a=0", {"a": ["1", "0"], "b": ["2"]}),
        (b"a+b=c+d%2B%2b=", {"a b": ["c d++="]}),
        ("á=%C3%a1".encode(), {"á": ["á"]}),
        (b"a=%FF\xfe", {"a": ["\udcff\udcfe"]}),
    ],
)
def test_encoded_bodies_are_read_as_go_reads_them(encoded: bytes, values: Values) -> None:
    assert parse_values(encoded) == values


def test_names_are_in_the_order_of_their_bytes_and_need_a_value() -> None:
    values = {"\U0001f600": ["4"], "\uffff": ["3"], "b": [], "é": ["2"], "Z": ["1"], "\udcff": ["5"]}
    assert encode_values(values) == b"Z=1&%C3%A9=2&%EF%BF%BF=3&%F0%9F%98%80=4&%FF=5"


@pytest.mark.parametrize("values", [{"\ud800": ["value"]}, {"name": ["\ud800"]}])
def test_text_that_utf8_cannot_encode_is_refused(values: Values) -> None:
    with pytest.raises(InvalidHeaderEncodingError, match="header should be a valid utf-8"):
        Message(body=values).calculate_mid()


@pytest.mark.parametrize("name", ["a", "b@remote", "olá mundo", "a" * 256, "é" * 128, "\u2028", " "])
def test_names_of_mailboxes(name: str) -> None:
    check_mailbox(name)


@pytest.mark.parametrize("name", ["", "a" * 257, "é" * 128 + "a", "a\0", "\x1f", "\x7f", "\x85", "\x9f", "a\n"])
def test_invalid_names_of_mailboxes(name: str) -> None:
    with pytest.raises(InvalidMailBoxError, match="invalid mailbox"):
        check_mailbox(name)


def test_a_name_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidHeaderEncodingError):
        check_mailbox("a\udcff")
