"""Fields with several values each, and their URL-encoded form, whose SHA-1 is the id of a message of pandora.

Bytes that are not valid UTF-8 are kept: each is the character that ``surrogateescape`` makes of it.
Source: pandora's API, version of January 2020, and the package net/url of Go.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

Values = dict[str, list[str]]
"""A body: the values of each field, in order."""

_INVALID = re.compile(rb";|%(?![0-9A-Fa-f]{2})")


def encode_values(values: Mapping[str, Sequence[str]]) -> bytes:
    """Return the URL-encoded form of a body.

    Names are in the order of their bytes; values of a name keep their order, and a name without values is left out.
    A space is ``+``. Letters, digits and ``-_.~`` are not escaped; other bytes are ``%`` and two upper-case digits.

    Raises:
        UnicodeEncodeError: UTF-8 cannot encode a name or a value.
    """
    fields = sorted((_bytes_of(name), each) for name, each in values.items())
    return "&".join(f"{_quoted(name)}={_quoted(_bytes_of(value))}" for name, each in fields for value in each).encode()


def parse_values(encoded: bytes) -> Values:
    """Return the body of a URL-encoded form; a name without ``=`` has the empty value.

    Raises:
        ValueError: A ``%`` is not followed by two hexadecimal digits, or there is a ``;``.
    """
    found = _INVALID.search(encoded)
    if found:
        text = f"the encoded body is invalid at byte {found.start()}, expected name=value pairs with & between them"
        raise ValueError(f"{text} and two hexadecimal digits behind each %")
    values: Values = {}
    for field in encoded.split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            values.setdefault(_unquoted(name), []).append(_unquoted(value))
    return values


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _quoted(content: bytes) -> str:
    return quote_from_bytes(content, safe=" ").replace(" ", "+")


def _unquoted(content: bytes) -> str:
    return unquote_to_bytes(content.replace(b"+", b" ")).decode("utf-8", "surrogateescape")


SERVER_FIELD: Final = ("p-server", "Pandora-Default-Server")
"""Field that a server adds to each body, behind values that the body has already."""

STATUS_TEXTS: Final = {1: "confirmed", 2: "rejected", 4: "timeout", 8: "notDelivered"}
"""What happened to a message, as text by its number."""


class MailHeader(NamedTuple):
    """The header of a message, as pandora's HTTP interface returns it beside the fields of the body.

    Attributes:
        mid, lid: Ids of the message and of its lock in hexadecimal digits; the second is empty without a lease.
        status: Number of ``STATUS_TEXTS``.
        leased_until, received_at, send_when: Times as RFC 3339 text.
        delivery_count: Number of earlier deliveries.
        is_valid: True if the body is that of the message.
    """

    mid: str
    lid: str
    status: int
    leased_until: str
    received_at: str
    delivery_count: int
    send_when: str
    is_valid: bool

    def values(self) -> Values:
        """Return the fields."""
        fields = {
            "mid": self.mid,
            "lid": self.lid,
            "statusCode": str(self.status),
            "status": STATUS_TEXTS[self.status],
            "leasedUntil": self.leased_until,
            "receivedAt": self.received_at,
            "deliveryCount": str(self.delivery_count),
            "sendWhen": self.send_when,
            "validBody": str(self.is_valid).lower(),
        }
        return {name: [value] for name, value in fields.items()}
