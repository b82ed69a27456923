"""Message types: the numbers, and their names in the two generations of Milvus's protocol."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class MsgType(IntEnum):
    """Type of a message. It travels as ``Message.type``, so a scan can filter by it without decoding anything.

    The names are those of the newer protocol. The older one numbers two of them differently: see
    ``LEGACY_SEARCH_RESULT`` and ``LEGACY_SEG_STATISTICS``. It also calls 1201 TimeSync, which in the newer one is the
    statistics of a query node: ``TIME_SYNC`` is therefore an alias of ``QUERY_NODE_STATS``.
    """

    UNDEFINED = 0

    CREATE_COLLECTION = 100
    DROP_COLLECTION = 101
    HAS_COLLECTION = 102
    DESCRIBE_COLLECTION = 103
    SHOW_COLLECTIONS = 104
    GET_SYSTEM_CONFIGS = 105
    LOAD_COLLECTION = 106
    RELEASE_COLLECTION = 107
    CREATE_ALIAS = 108
    DROP_ALIAS = 109
    ALTER_ALIAS = 110

    CREATE_PARTITION = 200
    DROP_PARTITION = 201
    HAS_PARTITION = 202
    DESCRIBE_PARTITION = 203
    SHOW_PARTITIONS = 204
    LOAD_PARTITIONS = 205
    RELEASE_PARTITIONS = 206

    SHOW_SEGMENTS = 250
    DESCRIBE_SEGMENT = 251
    LOAD_SEGMENTS = 252
    RELEASE_SEGMENTS = 253
    HANDOFF_SEGMENTS = 254
    LOAD_BALANCE_SEGMENTS = 255

    CREATE_INDEX = 300
    DESCRIBE_INDEX = 301
    DROP_INDEX = 302

    INSERT = 400
    DELETE = 401
    FLUSH = 402

    SEARCH = 500
    SEARCH_RESULT = 501
    GET_INDEX_STATE = 502
    GET_INDEX_BUILD_PROGRESS = 503
    GET_COLLECTION_STATISTICS = 504
    GET_PARTITION_STATISTICS = 505
    RETRIEVE = 506
    RETRIEVE_RESULT = 507
    WATCH_DM_CHANNELS = 508
    REMOVE_DM_CHANNELS = 509
    WATCH_QUERY_CHANNELS = 510
    REMOVE_QUERY_CHANNELS = 511

    SEGMENT_INFO = 600

    LEGACY_SEARCH_RESULT = 1000
    LEGACY_SEG_STATISTICS = 1100

    TIME_TICK = 1200
    QUERY_NODE_STATS = 1201
    TIME_SYNC = 1201
    LOAD_INDEX = 1202
    REQUEST_ID = 1203
    REQUEST_TSO = 1204
    ALLOCATE_SEGMENT = 1205
    SEGMENT_STATISTICS = 1206
    SEGMENT_FLUSH_DONE = 1207
    DATA_NODE_TT = 1208


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
