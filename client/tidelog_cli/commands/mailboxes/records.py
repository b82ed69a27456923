"""Messages of mailboxes as records and as lines of JSON."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidelog import DeadLetter, MessageHeader, OutgoingMessage, PeekedMessage
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog_cli.output.escapes import say_bytes, shown
from tidelog_cli.output.framing import Decoder, Framing, JsonLines, bytes_of_json, decoder_of, json_of_bytes
from tidelog_cli.output.records import Output, Record, chosen_output, cut, print_records

_FIELDS: Final = frozenset({"body", "body_base64", "headers", "priority", "group", "dedup_key", "delay_ms", "ttl_ms"})
# Fields that `fetch` and `peek` print and `send` ignores: a message that they printed can be sent again.
_PASSED_OVER: Final = frozenset(
    {
        "body_bytes", "dead_letter", "delivery_count", "due", "expires", "id", "is_body_missing", "leased_until",
        "lock_id", "mailbox", "received_at", "state", "status",
    }
)  # fmt: skip
_BODY_COLUMNS: Final = 60


def print_messages(messages: Sequence[tuple[Record, bytes]], output: Output | None) -> None:
    """Print messages, each a record and a body: ``text`` prints the bodies alone, a line each."""
    match chosen_output(output):
        case Output.TEXT:
            say_bytes(b"".join(body + b"\n" for _, body in messages))
        case Output.TABLE:
            print_records([{**record, "body": cut(shown(body), _BODY_COLUMNS)} for record, body in messages], output)
        case Output.WIDE:
            print_records([{**record, "body": shown(body)} for record, body in messages], output)
        case _:
            print_records([{**record, **json_of_bytes("body", body)} for record, body in messages], output)


def delivery_record(delivery: DeliveryFields) -> Record:
    """Return a delivery without its body."""
    return {
        "id": str(delivery.id),
        "lock_id": delivery.lock_id,
        "mailbox": delivery.mailbox,
        "delivery_count": delivery.delivery_count,
        "status": delivery.status.name.lower(),
        "received_at": iso(delivery.received_at),
        "due": iso(delivery.due),
        "leased_until": iso(delivery.leased_until),
        "priority": delivery.priority,
        "group": delivery.group,
        "headers": dict(delivery.headers),
        "dead_letter": _dead_letter(delivery.dead_letter),
    }


def header_record(header: MessageHeader) -> Record:
    """Return a header."""
    return {
        "id": str(header.id),
        "state": header.state.name.lower(),
        "delivery_count": header.delivery_count,
        "status": header.status.name.lower(),
        "received_at": iso(header.received_at),
        "due": iso(header.due),
        "leased_until": iso(header.leased_until),
        "expires": iso(header.expires),
        "priority": header.priority,
        "group": header.group,
        "body_bytes": header.body_bytes,
    }


def peeked_record(message: PeekedMessage) -> Record:
    """Return a message without its body."""
    return {
        **header_record(message.header),
        "headers": dict(message.headers),
        "dead_letter": _dead_letter(message.dead_letter),
        **({"is_body_missing": True} if message.is_body_missing else {}),
    }


def iso(time: datetime | None) -> str | None:
    """Return a time as text, to the millisecond; None for None."""
    return None if time is None else f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _dead_letter(letter: DeadLetter | None) -> Record | None:
    return None if letter is None else {**letter._asdict(), "id": str(letter.id)}


class _Bodies:
    """Decodes a stream into messages for a mailbox, whose bodies are all that it has."""

    def __init__(self, framing: Framing, make: Callable[[bytes], OutgoingMessage]) -> None:
        self._make = make
        self._decoder = decoder_of(framing)

    def feed(self, chunk: bytes) -> list[OutgoingMessage]:
        return [self._make(each.payload) for each in self._decoder.feed(chunk)]

    def finish(self) -> list[OutgoingMessage]:
        return [self._make(each.payload) for each in self._decoder.finish()]


def message_decoder(framing: Framing, make: Callable[[bytes], OutgoingMessage]) -> Decoder[OutgoingMessage]:
    """Return a decoder; ``make`` returns the message for a body, which is a template for lines of JSON."""
    if framing is Framing.JSONL:
        return JsonLines(lambda fields: message_of_json(fields, make(b"")), ": it is not a JSON object")
    return _Bodies(framing, make)


def message_of_json(fields: Mapping[str, Any], template: OutgoingMessage) -> OutgoingMessage:
    """Return the message of a JSON object; fields that it lacks are those of ``template``.

    Args:
        fields: ``body`` or ``body_base64``; optionally ``headers``, ``priority``, ``group``, ``dedup_key``,
            ``delay_ms`` and ``ttl_ms``.
        template: The message for the fields that are missing.

    Raises:
        ValueError: A field is unknown, missing or of the wrong type.
    """
    if unknown := fields.keys() - _FIELDS - _PASSED_OVER:
        raise ValueError(f"unknown field '{min(unknown)}', expected {', '.join(sorted(_FIELDS))}")
    body = bytes_of_json(fields, "body")
    if body is None:
        raise ValueError("neither 'body' nor 'body_base64' is present, expected one")
    headers = fields.get("headers", dict(template.headers))
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        raise ValueError("'headers' must be an object of strings")
    for name in ("group", "dedup_key"):
        if not isinstance(fields.get(name, ""), str):
            raise ValueError(f"'{name}' must be a string")
    delay_ms, ttl_ms = _number(fields, "delay_ms"), _number(fields, "ttl_ms")
    priority = _number(fields, "priority")
    return OutgoingMessage(
        body,
        headers,
        template.delay if delay_ms is None else timedelta(milliseconds=delay_ms),
        template.due if delay_ms is None else None,
        template.priority if priority is None else priority,
        fields.get("group", template.group),
        fields.get("dedup_key", template.dedup_key),
        template.ttl if ttl_ms is None else timedelta(milliseconds=ttl_ms),
    )


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53):
        raise ValueError(f"'{name}' is {value!r}, expected an integer from 0 to {(1 << 53) - 1}")
    return value
