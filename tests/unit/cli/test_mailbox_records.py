"""Messages of mailboxes as lines of JSON. Method: the decoder with chunks of any size, and invalid objects."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import OutgoingMessage
from tidelog_cli.commands.mailboxes.records import message_decoder, message_of_json
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.output.framing import Decoder, Framing, json_of_bytes

TEMPLATE = OutgoingMessage(b"", {"a": "b"}, priority=3, group="g")


def decoder(framing: Framing) -> Decoder[OutgoingMessage]:
    return message_decoder(framing, lambda body: OutgoingMessage(body, TEMPLATE.headers, priority=3, group="g"))


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9))
def test_any_body_survives_lines_of_json_in_chunks_of_any_size(bodies: list[bytes], size: int) -> None:
    text = b"".join(json.dumps(json_of_bytes("body", body)).encode() + b"\n" for body in bodies)
    lines = decoder(Framing.JSONL)
    found = [message for at in range(0, len(text), size) for message in lines.feed(text[at : at + size])]

    assert [message.body for message in found + lines.finish()] == bodies
    assert all(message.priority == 3 and message.headers == {"a": "b"} for message in found)


def test_fields_of_a_line_replace_those_of_the_template() -> None:
    fields = {"body": "x", "headers": {}, "priority": 0, "group": "h", "dedup_key": "k", "delay_ms": 5, "ttl_ms": 0}

    assert message_of_json(fields, TEMPLATE) == OutgoingMessage(
        b"x", {}, timedelta(milliseconds=5), None, 0, "h", "k", timedelta(0)
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "neither 'body' nor 'body_base64'"),
        ({"body": "x", "body_base64": "eA=="}, "both present"),
        ({"body": "x", "colour": 1}, "unknown field 'colour'"),
        ({"body": "x", "headers": {"a": 1}}, "'headers' must be an object of strings"),
        ({"body": "x", "group": 5}, "'group' must be a string"),
        ({"body": "x", "priority": True}, "'priority' is True, expected an integer"),
        ({"body": "x", "delay_ms": -1}, "'delay_ms' is -1, expected an integer"),
    ],
)
def test_invalid_objects_are_refused_with_the_reason(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        message_of_json(fields, TEMPLATE)


def test_an_invalid_line_is_named() -> None:
    with pytest.raises(CommandError, match="line 2 of the input: it is not a JSON object"):
        decoder(Framing.JSONL).feed(b'{"body": "x"}\n[]\n')
    with pytest.raises(CommandError, match="line 1 of the input is not valid JSON: Expecting value at column 1"):
        decoder(Framing.JSONL).feed(b"x\n")
