"""Bodies of messages: fields with several values each, and their URL-encoded form, whose SHA-1 is the message's id.

Bytes that are not valid UTF-8 are kept: each is the character that ``surrogateescape`` makes of it.
"""

from collections.abc import Mapping, Sequence

from tidelog.pandora.errors import InvalidHeaderEncodingError
from tidelog.pandora_formats import url_values
from tidelog.pandora_formats.url_values import Values, parse_values

__all__ = ["Values", "encode_values", "parse_values", "values_of"]


def values_of(body: Mapping[str, str | Sequence[str]]) -> Values:
    """Return a copy of a body as ``Values``; a text is a field with one value."""
    return {name: [value] if isinstance(value, str) else list(value) for name, value in body.items()}


def encode_values(values: Mapping[str, Sequence[str]]) -> bytes:
    """Return the URL-encoded form of a body.

    Names are in the order of their bytes; values of a name keep their order, and a name without values is left out.
    A space is ``+``. Letters, digits and ``-_.~`` are not escaped; other bytes are ``%`` and two upper-case digits.

    Raises:
        InvalidHeaderEncodingError: UTF-8 cannot encode a name or a value.
    """
    try:
        return url_values.encode_values(values)
    except UnicodeEncodeError as error:
        raise InvalidHeaderEncodingError from error
