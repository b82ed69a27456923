"""JSON with 64-bit numbers as strings, so that other programs read them without loss.

jq 1.6, browsers and Node store a number as a 64-bit float, which is exact up to 2^53. Ticks, and ids derived from
ticks, exceed that. They are written as strings, as in protobuf's JSON mapping.
"""

import json
from collections.abc import Mapping
from typing import Final

_WIDE: Final = ("tick", "ticks", "watermark", "txn_id", "broadcast_id", "fencing_token")


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON with ticks, ids of transactions and broadcasts, and fencing tokens as strings."""
    return json.dumps(with_wide_as_text(value), indent=indent, ensure_ascii=False)


def with_wide_as_text(value: object) -> object:
    """Return ``value`` with the integers under each wide name, such as ``last_tick``, as strings."""
    if isinstance(value, Mapping):
        return {name: _wide_as_text(part) if is_wide(name) else with_wide_as_text(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [with_wide_as_text(part) for part in value]
    return value


def is_wide(name: object) -> bool:
    """Return whether a field with this name holds 64-bit ticks, ids or tokens."""
    return isinstance(name, str) and (name in _WIDE or name.endswith(tuple(f"_{wide}" for wide in _WIDE)))


def _wide_as_text(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    if isinstance(value, list | tuple):
        return [_wide_as_text(part) for part in value]
    return with_wide_as_text(value)
