"""The table of the broadcasts that are in the log.

A row is written with the broadcast's message, so that a restart knows that the message is in the log even if it was
trimmed. Once the record of the broadcast has its tick, a later write deletes the row.
"""

import struct
from typing import Final, NamedTuple

from tidelog_server.storage.format.seals import ROW_VERSION, check_version
from tidelog_server.storage.rows import OldForm, Table


class LoggedKey(NamedTuple):
    """A broadcast in the log.

    Attributes:
        vchannel_id: Id of its first vchannel.
        broadcast_id: Its id.
    """

    vchannel_id: int
    broadcast_id: int


_KEY: Final = struct.Struct(">IQ")
# version, tick of the message.
_LOGGED: Final = struct.Struct(">BQ")
# Up to format 1, such a row is the window of a producer with a name that no producer has: version, epoch, last
# sequence; then the result: tick, number of messages, CRC-32C, whether synced. Without a result, the message is not
# in the log.
_OLD_PREFIX: Final = b"_broadcast-"
_OLD_WINDOW: Final = struct.Struct(">BQQ")
_OLD_RESULT: Final = struct.Struct(">QIIB")
_VCHANNEL_BYTES: Final = 4
_NAME: Final = "broadcasts in the log"


def _has_old(key: bytes) -> bool:
    return key.startswith(_OLD_PREFIX, _VCHANNEL_BYTES)


def _decode_old(key: bytes, body: bytes) -> tuple[LoggedKey, int | None]:
    version, _, _ = _OLD_WINDOW.unpack_from(body)
    check_version(_NAME, version, ROW_VERSION)
    broadcast_id = int(key[_VCHANNEL_BYTES + len(_OLD_PREFIX) :])
    result = body[_OLD_WINDOW.size :]
    tick = _OLD_RESULT.unpack(result)[0] if result else None
    return LoggedKey(int.from_bytes(key[:_VCHANNEL_BYTES]), broadcast_id), tick


class _Logged(Table[LoggedKey, int]):
    number = 7
    name = _NAME
    key_bytes = _KEY.size
    is_of_vchannel = True
    old = OldForm("producers", b"", _has_old, _decode_old)

    # Why this only passes on: each table encodes its keys in a way of its own.
    def encode_key(self, key: LoggedKey) -> bytes:
        return _KEY.pack(*key)

    def encode(self, key: LoggedKey, value: int) -> bytes:
        return _LOGGED.pack(ROW_VERSION, value)

    def decode(self, key: bytes, body: bytes) -> tuple[LoggedKey, int]:
        version, tick = _LOGGED.unpack(body)
        check_version(_NAME, version, ROW_VERSION)
        return LoggedKey._make(_KEY.unpack(key)), tick

    def last_tick_of(self, value: int) -> int:
        return value

    def until(self, value: int, tick: int) -> int | None:
        return value if value <= tick else None


LOGGED: Final = _Logged()
