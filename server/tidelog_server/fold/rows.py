"""The table of the last snapshots of folded logs: from where a start replays each."""

import struct
from typing import Final

from tidelog_server.storage.format.seals import ROW_VERSION, check_version
from tidelog_server.storage.rows import OldForm, Table

# version, tick of the first page of the last complete snapshot.
_SNAPSHOT: Final = struct.Struct(">BQ")
_VCHANNEL_BYTES: Final = 4
_NAME: Final = "snapshots"
# Up to format 1, such a tick is the position of a group with a name that no group has: version, vchannel id, tick,
# time of the write.
_OLD_PREFIX: Final = b"_fold/"
_OLD_SNAPSHOT: Final = struct.Struct(">BIQQ")


def _decode_old(_: bytes, body: bytes) -> tuple[int, int]:
    version, vchannel_id, tick, _ = _OLD_SNAPSHOT.unpack(body)
    check_version(_NAME, version, ROW_VERSION)
    return vchannel_id, tick


class _Snapshots(Table[int, int]):
    """By the id of the log's vchannel."""

    number = 6
    name = _NAME
    key_bytes = _VCHANNEL_BYTES
    is_of_vchannel = True
    old = OldForm("groups", _OLD_PREFIX, lambda key: key.startswith(_OLD_PREFIX), _decode_old)

    def encode_key(self, key: int) -> bytes:
        return key.to_bytes(_VCHANNEL_BYTES)

    def encode(self, key: int, value: int) -> bytes:
        return _SNAPSHOT.pack(ROW_VERSION, value)

    def decode(self, key: bytes, body: bytes) -> tuple[int, int]:
        version, tick = _SNAPSHOT.unpack(body)
        check_version(_NAME, version, ROW_VERSION)
        return int.from_bytes(key), tick

    def last_tick_of(self, value: int) -> int:
        return value

    def until(self, value: int, tick: int) -> int | None:
        # Without a snapshot, the log is replayed from its beginning.
        return value if value <= tick else None


SNAPSHOTS: Final = _Snapshots()
