"""Message types: their names in the two generations of Milvus's protocol."""

from collections.abc import Mapping
from typing import Final

from tidelog.msgstream._generated_types import MsgType

_NUMBERS: Final = frozenset(map(int, MsgType))
DML_TYPES: Final = frozenset({MsgType.INSERT, MsgType.DELETE})
"""Types that change rows. A time-tick stream delivers such a message once per pack, even if it was sent repeatedly."""

_OLDER: Final = {
    "kInsert": MsgType.INSERT,
    "kDelete": MsgType.DELETE,
    "kSearch": MsgType.SEARCH,
    "KSearchResult": MsgType.LEGACY_SEARCH_RESULT,
    "kSegStatistics": MsgType.LEGACY_SEG_STATISTICS,
    "kTimeTick": MsgType.TIME_TICK,
    "kTimeSync": MsgType.TIME_SYNC,
}
_ONLY_OLDER: Final = {"TIME_SYNC", "LEGACY_SEARCH_RESULT", "LEGACY_SEG_STATISTICS"}
# Words that are spelled in capitals.
_ABBREVIATIONS: Final = {"ID", "TSO"}


def _newer_name(name: str) -> str:
    words = (word if word in _ABBREVIATIONS else word.capitalize() for word in name.split("_"))
    return f"MsgType_{''.join(words)}"


SEED_NAMES: Final[Mapping[str, MsgType]] = {
    **{_newer_name(name): kind for name, kind in MsgType.__members__.items() if name not in _ONLY_OLDER},
    **_OLDER,
}
"""Each name of both protocols, such as ``MsgType_CreateCollection`` and ``kInsert``, with its type."""


def msg_type_of(name: str) -> MsgType:
    """Return the type with this name in either protocol or in this module.

    Raises:
        ValueError: The name is unknown.
    """
    found = {**MsgType.__members__, **SEED_NAMES}.get(name)
    if found is None:
        raise ValueError(f"unknown message type {name!r}: expected one of {', '.join(MsgType.__members__)}")
    return found


def known_type(number: int) -> MsgType | int:
    """Return ``number`` as a MsgType, or unchanged if it is a custom type."""
    return MsgType(number) if number in _NUMBERS else number
