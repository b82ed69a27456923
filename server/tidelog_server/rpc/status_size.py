"""Bounds of a status, so that it reaches every client with its details. Pure.

A client bounds the trailing metadata that it accepts, mostly at 8 KiB: this one, and those of gRPC for C++ and Java. A
longer status arrives as RESOURCE_EXHAUSTED without details. In metadata a text takes up to three bytes for each of its
own, and the details a third more than their bytes.
"""

from collections.abc import Mapping
from typing import Final

MAX_METADATA_BYTES: Final = 8_192
MAX_TEXT_BYTES: Final = 512
MAX_DETAIL_VALUES_BYTES: Final = 2_560
MAX_INFO_VALUES_BYTES: Final = 1_024
# What the messages around the values take, and the other headers of an answer.
_MESSAGES_BYTES: Final = 256
_HEADERS_BYTES: Final = 512
assert (
    3 * MAX_TEXT_BYTES
    + (MAX_TEXT_BYTES + MAX_DETAIL_VALUES_BYTES + MAX_INFO_VALUES_BYTES + _MESSAGES_BYTES) * 4 // 3
    + _HEADERS_BYTES
    <= MAX_METADATA_BYTES
)

INCOMPLETE: Final = "incomplete"
"""Key of the value with the names of the values that were cut, separated by commas."""
_LIST: Final = "names"
# Tags and lengths of an entry.
_ENTRY_BYTES: Final = 10


def cut_text(text: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the beginning of ``text`` of at most ``max_bytes`` bytes."""
    return text.encode()[:max_bytes].decode(errors="ignore")


def fitting(values: Mapping[str, str], max_bytes: int) -> dict[str, str]:
    """Return ``values`` in at most ``max_bytes`` of a message: the longest are cut, and named by INCOMPLETE."""
    sizes = {name: _size(name, value) for name, value in values.items()}
    if sum(sizes.values()) <= max_bytes:
        return dict(values)
    left = max_bytes - _size(INCOMPLETE, ",".join(values))
    kept: dict[str, str] = {}
    cut = []
    for name in sorted(values, key=lambda name: sizes[name]):
        kept[name] = values[name]
        if sizes[name] > left:
            kept[name] = _cut(name, values[name], max(0, left - _size(name, "")))
            cut.append(name)
        left -= _size(name, kept[name])
    return {**kept, INCOMPLETE: ",".join(cut)}


def _cut(name: str, value: str, max_bytes: int) -> str:
    kept = cut_text(value, max_bytes)
    return kept[: max(0, kept.rfind(","))] if name == _LIST else kept


def _size(name: str, value: str) -> int:
    return len(name.encode()) + len(value.encode()) + _ENTRY_BYTES
