"""Bounds of requests, and their parsing in bounded steps: many small parts take tens of milliseconds to parse."""

import asyncio
from itertools import islice
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from tidelog.wire import protowire
from tidelog_server.core.errors import InvalidRequestError, MalformedRequestError
from tidelog_server.core.limits import MAX_DENSE_REQUEST_BYTES, MAX_LARGE_REQUEST_FIELDS, PARSE_STEP_BYTES

# A larger request is parsed in pieces of about this many fields, with turns for other work between them: 10 ms for the
# many small parts of one.
PARSE_STEP_FIELDS: Final = 4_096

_Request = TypeVar("_Request", bound=Message)


def check_size(encoded: bytes, maximum: int = MAX_DENSE_REQUEST_BYTES) -> None:
    """Raise InvalidRequestError if a request has more than ``maximum`` bytes."""
    if len(encoded) > maximum:
        raise InvalidRequestError(
            f"the request has {len(encoded)} bytes, at most {maximum} are allowed: use several requests"
        )


def check_fields(encoded: bytes | memoryview, above: int = MAX_DENSE_REQUEST_BYTES) -> None:
    """Check the number of fields of a request, or of a message in one, above this number of bytes.

    Raises:
        InvalidRequestError: It has too many.
        WireFormatError: It is malformed.
    """
    if len(encoded) <= above:
        return
    if next(islice(protowire.fields(encoded), MAX_LARGE_REQUEST_FIELDS, None), None) is not None:
        raise InvalidRequestError(
            f"a request of more than {above} bytes has more than {MAX_LARGE_REQUEST_FIELDS} fields: use several "
            "requests"
        )


def parsed(request_class: type[_Request], encoded: bytes, method: str) -> _Request:
    """Return a request of a method. Raises MalformedRequestError."""
    try:
        return request_class.FromString(encoded)
    except DecodeError as error:
        raise MalformedRequestError(method) from error


async def parsed_in_steps(request_class: type[_Request], encoded: bytes, method: str) -> _Request:
    """As ``parsed``; a request above PARSE_STEP_BYTES is parsed by ``merge_in_steps``. Raises InvalidRequestError."""
    if len(encoded) <= PARSE_STEP_BYTES:
        return parsed(request_class, encoded, method)
    request = request_class()
    try:
        await merge_in_steps(encoded, request)
    except (DecodeError, protowire.WireFormatError) as error:
        raise MalformedRequestError(method) from error
    return request


async def merge_in_steps(encoded: bytes | memoryview, message: Message) -> None:
    """Parse a message above PARSE_STEP_BYTES into an empty one: other work on the event loop has turns between pieces.

    A field that is larger than a piece is divided too if it contains a message. On failure, ``message`` has a part of
    the content.

    Raises:
        InvalidRequestError: It, or a message within it, has too many fields.
        DecodeError, WireFormatError: It is malformed.
    """
    check_fields(encoded)
    for piece in protowire.pieces(encoded, PARSE_STEP_BYTES, PARSE_STEP_FIELDS):
        part = _part_of(message, piece.tag)
        if part is None:
            message.MergeFromString(bytes(piece.encoded))
        else:
            await merge_in_steps(piece.value, part)
        await asyncio.sleep(0)


def _part_of(message: Message, tag: int) -> Message | None:
    """Return what to merge the value of a field into, a new item of a repeated field; None if it is not a message."""
    field = message.DESCRIPTOR.fields_by_number.get(tag >> 3)
    if field is None or field.message_type is None or field.message_type.GetOptions().map_entry:
        return None
    part: Message
    if field.is_repeated:
        part = getattr(message, field.name).add()
    else:
        part = getattr(message, field.name)
        # Of a message in a oneof, this removes the one that was set before, as the parser does.
        part.SetInParent()
    return part
