"""Messages of mailboxes as records and as lines of JSON."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidelog import DeadLetter, Message, MessageHeader, OutgoingMessage, PeekedMessage
from tidelog.json_text import json_text
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.escapes import say, say_bytes, shown
from tidelog_cli.output.framing import Framing, bytes_of_json, decoder_of, json_in, json_of_bytes
from tidelog_cli.output.records import Output, Record, chosen_output, print_records

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
            print_records([{**record, "body": _cut(shown(body))} for record, body in messages], Output.TABLE)
        case Output.JSON:
            say(json_text([{**record, **json_of_bytes("body", body)} for record, body in messages], indent=2))
        case Output.JSONL:
            for record, body in messages:
                say(json_text({**record, **json_of_bytes("body", body)}))


def _cut(text: str) -> str:
    return text if len(text) <= _BODY_COLUMNS else text[: _BODY_COLUMNS - 1] + "…"


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


class MessageDecoder:
    """Decodes a stream into messages for a mailbox. Chunk boundaries are arbitrary."""

    def __init__(self, framing: Framing, make: Callable[[bytes], OutgoingMessage]) -> None:
        """Create the decoder; ``make`` returns the message for a body, which is a template for lines of JSON."""
        self._make = make
        self._has_json = framing is Framing.JSONL
        self._decoder = decoder_of(Framing.LINES if self._has_json else framing)
        self._count = 0

    def feed(self, chunk: bytes) -> list[OutgoingMessage]:
        """Return the messages that ``chunk`` completes. Raises CommandError."""
        return self._messages(self._decoder.feed(chunk))

    def finish(self) -> list[OutgoingMessage]:
        """Return the messages that the end of the stream completes. Raises CommandError."""
        return self._messages(self._decoder.finish())

    def _messages(self, several: Sequence[Message]) -> list[OutgoingMessage]:
        if not self._has_json:
            return [self._make(each.payload) for each in several]
        messages = []
        for each in several:
            self._count += 1
            if each.payload.strip():
                messages.append(self._of_json(each.payload))
        return messages

    def _of_json(self, line: bytes) -> OutgoingMessage:
        fields = json_in(line, self._count)
        try:
            if not isinstance(fields, dict):
                raise ValueError("it is not a JSON object")
            return message_of_json(fields, self._make(b""))
        except ValueError as error:
            raise CommandError(f"line {self._count} of the input: {error}", ExitCode.USAGE) from error


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
