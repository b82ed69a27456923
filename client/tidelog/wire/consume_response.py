"""The writer and the reader of Consume's response, whose page is a scan response and stays serialised, like one."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.v1 import group_service_pb2
from tidelog.wire.protowire import LENGTH, VARINT, fields, tag_of, varint, varint_field
from tidelog.wire.scan_response import ScanPage, scan_page

_MESSAGES: Final = tag_of(group_service_pb2.ConsumeResponse.MESSAGES_FIELD_NUMBER, LENGTH)
_NEXT_TICK: Final = tag_of(group_service_pb2.ConsumeResponse.NEXT_TICK_FIELD_NUMBER, VARINT)


class ConsumedPage(NamedTuple):
    """A ConsumeResponse in columns; the fields are those of the protocol."""

    messages: ScanPage
    next_tick: int


def consume_response(pages: Iterable[bytes], next_tick: int) -> bytes:
    """Return a ConsumeResponse with serialised scan responses as its page. Each is copied once."""
    parts = list(pages)
    # Concatenated serialised messages are one merged message.
    size_bytes = sum(map(len, parts))
    return b"".join([varint(_MESSAGES), varint(size_bytes), *parts, varint_field(_NEXT_TICK, next_tick)])


def consumed_page(response: bytes) -> ConsumedPage:
    """Parse a serialised ConsumeResponse. The entries' columns are views into ``response``.

    Raises:
        WireFormatError: ``response`` is malformed.
    """
    messages, next_tick = ScanPage(), 0
    for tag, value in fields(response):
        if tag == _MESSAGES:
            messages = scan_page(value)
        elif tag == _NEXT_TICK:
            next_tick = value
    return ConsumedPage(messages, next_tick)
