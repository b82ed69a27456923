"""Framing: decoding returns the encoded messages, regardless of chunk boundaries.

Method: hypothesis draws messages and chunk sizes; malformed streams are literal.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import Message, StoredMessage, Tick
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.framing import (
    Framing,
    decoder_of,
    encode_payload,
    json_of_message,
    message_of_json,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGES = st.builds(
    StoredMessage,
    payload=st.binary(max_size=50),
    key=st.none() | st.binary(max_size=10),
    type=st.integers(0, (1 << 32) - 1),
    properties=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    event_time=st.none() | st.integers(-(10**12), 10**12).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    vchannel=st.just("orders/0"),
    tick=st.integers(1, (1 << 53) - 1).map(Tick),
)
CUTS = st.lists(st.integers(0, 60), max_size=30)


def decoded(stream: bytes, framing: Framing, cuts: list[int], key_delimiter: str | None = None) -> list[Message]:
    decoder = decoder_of(framing, key_delimiter)
    messages = []
    for size in cuts:
        messages += decoder.feed(stream[:size])
        stream = stream[size:]
    return messages + decoder.feed(stream) + decoder.finish()


def payloads(stream: bytes, framing: Framing, cuts: list[int]) -> list[bytes]:
    return [message.payload for message in decoded(stream, framing, cuts)]


def refused(stream: bytes, framing: Framing) -> str:
    with pytest.raises(CommandError) as caught:
        decoded(stream, framing, [])
    assert caught.value.code is ExitCode.USAGE
    return caught.value.message


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), CUTS)
def test_lines_come_back(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(encode_payload(line, Framing.LINES) for line in lines)

    assert payloads(stream, Framing.LINES, cuts) == lines


@given(st.lists(st.binary(max_size=40)), CUTS)
def test_payloads_with_lengths_come_back_whatever_they_hold(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(encode_payload(content, Framing.LENGTH) for content in contents)

    assert payloads(stream, Framing.LENGTH, cuts) == contents


@given(st.lists(MESSAGES), CUTS)
def test_scanned_json_lines_come_back_as_the_same_messages(stored: list[StoredMessage], cuts: list[int]) -> None:
    stream = b"".join(json.dumps(json_of_message(message)).encode() + b"\n" for message in stored)

    expected = [
        Message(item.payload, key=item.key, type=item.type, properties=item.properties, event_time=item.event_time)
        for item in stored
    ]
    assert decoded(stream, Framing.JSONL, cuts) == expected


@given(st.binary(max_size=200), CUTS)
def test_without_framing_the_stream_is_one_message(stream: bytes, cuts: list[int]) -> None:
    assert payloads(stream, Framing.NONE, cuts) == [stream]


def test_a_last_line_without_its_end_counts() -> None:
    assert payloads(b"a\n\nb", Framing.LINES, []) == [b"a", b"", b"b"]


def test_a_key_delimiter_divides_at_its_first_occurrence() -> None:
    messages = decoded(b"k:v:w\nalone\n:x\n", Framing.LINES, [], key_delimiter=":")

    assert [(item.key, item.payload) for item in messages] == [(b"k", b"v:w"), (None, b"alone"), (b"", b"x")]


@pytest.mark.parametrize("framing", [Framing.JSONL, Framing.LENGTH, Framing.NONE])
def test_a_key_delimiter_is_for_lines_only(framing: Framing) -> None:
    with pytest.raises(CommandError, match="--framing lines"):
        decoder_of(framing, ":")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", "line 2 of the input is not valid JSON"),
        (b"\xff", "line 2 of the input is not valid JSON"),
        (b"two", "--framing lines"),
        (b"[1]", "line 2 of the input is not a JSON object"),
        (b"{}", "neither 'payload' nor 'payload_base64'"),
        (b'{"payload": 1}', "'payload' must be a string"),
        (b'{"payload": "a", "payload_base64": "YQ=="}', "both present"),
        (b'{"payload_base64": "!"}', "not valid Base64"),
        (b'{"paylod": "a"}', "unknown field 'paylod'"),
        (b'{"payload": "a", "type": -1}', "from 0 to 4294967295"),
        (b'{"payload": "a", "type": true}', "from 0 to 4294967295"),
        (b'{"payload": "a", "properties": {"x": 1}}', "object of strings"),
        (b'{"payload": "a", "event_time_ms": "now"}', "must be an integer"),
        (b'{"payload": "a", "event_time_ms": 99999999999999999999}', "the years 1 to 9999"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_number(line: bytes, expected: str) -> None:
    text = refused(b'{"payload": "fine"}\n' + line, Framing.JSONL)

    assert "line 2" in text
    assert expected in text


def test_a_stream_that_ends_within_a_message_is_refused() -> None:
    assert "ends in the middle of message 1" in refused(
        encode_payload(b"whole", Framing.LENGTH) + b"\0\0\0\5abc", Framing.LENGTH
    )


def test_a_stream_that_is_not_framed_by_lengths_is_refused() -> None:
    assert "not framed" in refused(b"plain text", Framing.LENGTH)


def test_key_and_payload_that_are_no_text_travel_as_base64() -> None:
    fields = {"payload_base64": "/w==", "key_base64": "/g=="}

    assert message_of_json(fields) == Message(b"\xff", key=b"\xfe")
