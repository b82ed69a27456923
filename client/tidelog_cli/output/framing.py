r"""Framings of messages in a byte stream, with incremental decoders.

========  ==========================================================================================
framing   one message is
========  ==========================================================================================
lines     a line without its ``\n``; a key delimiter separates key and payload at its first occurrence
jsonl     a line with a JSON object, see ``message_of_json``
length    the payload's length in bytes as a 4-byte big-endian integer, then the payload
none      the whole stream
========  ==========================================================================================
"""

import base64
import binascii
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from tidelog import Message, StoredMessage
from tidelog_cli.exit_codes import CommandError, ExitCode

MAX_MESSAGE_BYTES: Final = 64 << 20
"""The highest limit that a server can be configured with."""
_LENGTH: Final = struct.Struct(">I")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = frozenset({"payload", "payload_base64", "key", "key_base64", "type", "properties", "event_time_ms"})
# Fields that `scan` prints and `append` ignores: a scanned message can be appended unchanged, and gets a new tick.
_PASSED_OVER: Final = frozenset({"vchannel", "tick", "time", "txn_id", "broadcast_id"})

_Made = TypeVar("_Made")


class Framing(StrEnum):
    """See the module's docstring."""

    LINES = "lines"
    JSONL = "jsonl"
    LENGTH = "length"
    NONE = "none"


class Decoder(Protocol[_Made]):
    """Decodes a stream into messages. Chunk boundaries are arbitrary."""

    def feed(self, chunk: bytes) -> list[_Made]:
        """Return the messages that ``chunk`` completes, in order.

        Raises:
            CommandError: The stream does not follow the framing; the error names the message.
        """
        ...

    def finish(self) -> list[_Made]:
        """Return the messages that the end of the stream completes.

        Raises:
            CommandError: The stream ends within a message.
        """
        ...


def decoder_of(framing: Framing, key_delimiter: str | None = None) -> Decoder[Message]:
    """Return a decoder.

    Raises:
        CommandError: ``key_delimiter`` is empty, or is given and the framing is not ``lines``.
    """
    if key_delimiter is not None and (framing is not Framing.LINES or not key_delimiter):
        raise CommandError("--key-delim needs --framing lines and at least one character", ExitCode.USAGE)
    match framing:
        case Framing.LINES:
            return _Lines(key_delimiter.encode() if key_delimiter else None)
        case Framing.JSONL:
            return JsonLines(message_of_json)
        case Framing.LENGTH:
            return _Lengths()
        case Framing.NONE:
            return _Whole()


def encode_payload(payload: bytes, framing: Framing) -> bytes:
    """Return the framed payload. Raises CommandError for ``jsonl``, which does not frame bare payloads."""
    match framing:
        case Framing.LINES:
            return payload + b"\n"
        case Framing.LENGTH:
            return _LENGTH.pack(len(payload)) + payload
        case Framing.NONE:
            return payload
        case Framing.JSONL:
            raise CommandError("--framing jsonl is for input only: use -o jsonl for output", ExitCode.USAGE)


class MessagePrinter(ABC):
    """Prints messages to stdout."""

    @abstractmethod
    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        """Print the first ``count`` of ``messages`` and flush stdout, so that its reader sees them immediately."""

    def finish(self) -> None:  # noqa: B027 - most formats have no end
        """Print the end of the output, if the format has one."""


def json_of_message(message: StoredMessage) -> dict[str, object]:
    """Return a message as a JSON object.

    Payloads and keys that are not UTF-8 become ``payload_base64`` and ``key_base64``. Ticks and ids are strings,
    because programs that read numbers as floats would round them (``tidelog.json_text``).
    """
    shown: dict[str, object] = {
        "vchannel": message.vchannel,
        "tick": str(message.tick),
        "time": f"{message.tick.time.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z",
    }
    shown |= {"txn_id": str(message.txn_id)} if message.txn_id is not None else {}
    shown |= {"broadcast_id": str(message.broadcast_id)} if message.broadcast_id is not None else {}
    shown |= json_of_bytes("key", message.key) if message.key is not None else {}
    shown |= {"type": message.type} if message.type else {}
    shown |= {"properties": dict(message.properties)} if message.properties else {}
    shown |= {"event_time_ms": message.event_time_ms} if message.event_time is not None else {}
    return shown | json_of_bytes("payload", message.payload)


def message_of_json(fields: Mapping[str, Any]) -> Message:
    """Return the message of a JSON object.

    Args:
        fields: ``payload`` or ``payload_base64``; optionally ``key`` or ``key_base64``, ``type``, ``properties`` and
            ``event_time_ms``.

    Raises:
        ValueError: A field is unknown, missing or of the wrong type.
    """
    if unknown := fields.keys() - _FIELDS - _PASSED_OVER:
        raise ValueError(f"unknown field '{min(unknown)}', expected {', '.join(sorted(_FIELDS))}")
    payload = bytes_of_json(fields, "payload")
    if payload is None:
        raise ValueError("neither 'payload' nor 'payload_base64' is present, expected one")
    message_type, properties = fields.get("type", 0), fields.get("properties", {})
    if isinstance(message_type, bool) or not isinstance(message_type, int) or not 0 <= message_type < 1 << 32:
        raise ValueError(f"'type' is {message_type!r}, expected an integer from 0 to 4294967295")
    if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
        raise ValueError("'properties' must be an object of strings")
    return Message(
        payload,
        key=bytes_of_json(fields, "key"),
        type=message_type,
        properties=properties,
        event_time=_event_time(fields.get("event_time_ms")),
    )


def json_in(line: bytes | str, number: int, source: str = "the input") -> Any:
    """Return the value of a line of JSON.

    Raises:
        CommandError: The line is not JSON, or has half a character; the error names its number.
    """
    try:
        # Why not leave it to json: it takes other bytes for UTF-16.
        found = json.loads(line if isinstance(line, str) else line.decode("utf-8-sig"))
        # A pair of UTF-16 without its other half is valid JSON, but no text that could be encoded.
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise CommandError(f"line {number} of {source} has half of a surrogate pair", ExitCode.USAGE) from error
    except RecursionError as error:
        raise CommandError(f"line {number} of {source} is nested too deeply", ExitCode.USAGE) from error
    except ValueError as error:
        raise CommandError(
            f"line {number} of {source} is not valid JSON: {_problem(error)}. Use --framing lines for plain text",
            ExitCode.USAGE,
        ) from error
    return found


def _problem(error: ValueError) -> str:
    # The line that json counts is that of the text it got, which is one line.
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


class _Lines:
    r"""Decoder of ``lines``; a non-empty last line may lack its ``\n``."""

    def __init__(self, key_delimiter: bytes | None) -> None:
        self._key_delimiter = key_delimiter
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Message]:
        end = chunk.rfind(b"\n")
        if end < 0:
            self._rest += _bounded(chunk, self._rest)
            return []
        lines = bytes(self._rest + chunk[:end]).split(b"\n")
        self._rest = bytearray(chunk[end + 1 :])
        return [self._message(line) for line in lines]

    def finish(self) -> list[Message]:
        return [self._message(bytes(self._rest))] if self._rest else []

    def _message(self, line: bytes) -> Message:
        if self._key_delimiter is None:
            return Message(line)
        key, found, payload = line.partition(self._key_delimiter)
        return Message(payload, key=key) if found else Message(line)


class JsonLines(Generic[_Made]):
    """Decoder of ``jsonl``: one JSON object per line; blank lines are skipped."""

    def __init__(self, make: Callable[[Mapping[str, Any]], _Made], no_object: str = " is not a JSON object") -> None:
        """Return what ``make`` makes of each object; ``no_object`` ends the error for a line that is not one."""
        self._make = make
        self._no_object = no_object
        self._lines = _Lines(None)
        self._count = 0

    def feed(self, chunk: bytes) -> list[_Made]:
        """See Decoder."""
        return self._parsed(self._lines.feed(chunk))

    def finish(self) -> list[_Made]:
        """See Decoder."""
        return self._parsed(self._lines.finish())

    def _parsed(self, lines: list[Message]) -> list[_Made]:
        messages = []
        for line in lines:
            self._count += 1
            if not line.payload.strip():
                continue
            fields = json_in(line.payload, self._count)
            if not isinstance(fields, dict):
                raise CommandError(f"line {self._count} of the input{self._no_object}", ExitCode.USAGE)
            try:
                messages.append(self._make(fields))
            except ValueError as error:
                raise CommandError(f"line {self._count} of the input: {error}", ExitCode.USAGE) from error
        return messages


class _Lengths:
    """Decoder of ``length``: each payload is preceded by its length."""

    def __init__(self) -> None:
        self._rest = b""
        self._count = 0

    def feed(self, chunk: bytes) -> list[Message]:
        buffer, begin = self._rest + chunk, 0
        messages = []
        while len(buffer) - begin >= _LENGTH.size:
            length = _LENGTH.unpack_from(buffer, begin)[0]
            if length > MAX_MESSAGE_BYTES:
                raise CommandError(
                    f"message {self._count} of the input has a length of {length} bytes, over the maximum of "
                    f"{MAX_MESSAGE_BYTES}: the input is not framed by 4-byte big-endian lengths",
                    ExitCode.USAGE,
                )
            end = begin + _LENGTH.size + length
            if len(buffer) < end:
                break
            messages.append(Message(buffer[begin + _LENGTH.size : end]))
            self._count += 1
            begin = end
        self._rest = buffer[begin:]
        return messages

    def finish(self) -> list[Message]:
        if self._rest:
            raise CommandError(f"the input ends in the middle of message {self._count}", ExitCode.USAGE)
        return []


class _Whole:
    """Decoder of ``none``: the whole input is one message, even if empty."""

    def __init__(self) -> None:
        self._payload = bytearray()

    def feed(self, chunk: bytes) -> list[Message]:
        self._payload += _bounded(chunk, self._payload)
        return []

    def finish(self) -> list[Message]:
        return [Message(bytes(self._payload))]


def _bounded(chunk: bytes, before: bytearray) -> bytes:
    """Return ``chunk``. Raises CommandError if the message would exceed the maximum of every server."""
    if len(before) + len(chunk) > MAX_MESSAGE_BYTES:
        raise CommandError(
            f"a message of the input is over {MAX_MESSAGE_BYTES} bytes: choose a --framing that splits it",
            ExitCode.USAGE,
        )
    return chunk


def json_of_bytes(name: str, content: bytes) -> dict[str, object]:
    """Return the field ``name`` with UTF-8, or ``name_base64``."""
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def bytes_of_json(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes that ``json_of_bytes`` has encoded; None without the field. Raises ValueError."""
    text, encoded = fields.get(name), fields.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise ValueError(f"'{name}' and '{name}_base64' are both present, expected one")
    if not isinstance(text if encoded is None else encoded, str | None):
        raise ValueError(f"'{name}' must be a string")
    if encoded is None:
        return None if text is None else text.encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"'{name}_base64' is not valid Base64: {error}") from error


def _event_time(milliseconds: object) -> datetime | None:
    if milliseconds is None:
        return None
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        raise ValueError("'event_time_ms' must be an integer")
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise ValueError(f"'event_time_ms' is {milliseconds}, expected a time in the years 1 to 9999") from error
