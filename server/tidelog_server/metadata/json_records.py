"""Records as they are stored in the metadata: JSON objects that begin with their version. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tidelog_server.core.errors import DataLossError, InvalidRequestError

_Record = TypeVar("_Record")
_to_json: Final = json.JSONEncoder(separators=(",", ":")).encode


def encode_record(version: int, fields: Mapping[str, object]) -> bytes:
    """Return the stored form of a record."""
    return _to_json({"version": version, **fields}).encode()


def decode_record(
    value: bytes, version: int, parse: Callable[[dict[str, Any]], _Record], what: str, **values: object
) -> _Record:
    """Return a record from its stored form.

    Args:
        value: What ``encode_record`` returned.
        version: The only known version.
        parse: Returns the record from its fields, without the version. Raises ValueError, TypeError, KeyError or
            InvalidRequestError.
        what: What the record is about, for the error.
        values: Values of the error.

    Raises:
        DataLossError: ``value`` has another version, or is not such a record.
    """
    try:
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise TypeError("it is not a JSON object")
        found = fields.pop("version")
        if found == version:
            return parse(fields)
    except (ValueError, TypeError, KeyError, InvalidRequestError) as error:
        raise DataLossError(
            f"the metadata record {what} cannot be read ({error}): restore the metadata from a backup", **values
        ) from error
    raise DataLossError(
        f"the metadata record {what} has unknown version {found}: use the server version that wrote it", **values
    )
