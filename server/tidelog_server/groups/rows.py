"""The table of groups' positions."""

import struct
from typing import Final

from tidelog_server.core.callers import TENANT_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.groups import TAKEN_BYTES, GroupKey, GroupPosition
from tidelog_server.storage.format.seals import ROW_VERSION, check_version
from tidelog_server.storage.rows import Facts, Table

# version, vchannel id, next tick, commit time; then the taken ranges, without tenants.
_POSITION: Final = struct.Struct(">BIQQ")
_TAKEN_WITHOUT_TENANT_BYTES: Final = TAKEN_BYTES - TENANT_BYTES
# Version 2 adds flags after that, and tenants.
_FLAGS_VERSION: Final = 2
_POSITION_FLAGS: Final = struct.Struct(">BIQQB")
_NOT_PINNING: Final = 1
# Suffix of the key of a position in RocksMQ, of Milvus.
_SUFFIX: Final = "/current_id"


class _Positions(Table[GroupKey, GroupPosition]):
    number = 2
    name = "groups"
    family = "groups"
    prefix = b""
    since_format = 1

    def encode_key(self, key: GroupKey) -> bytes:
        return f"{key.group}/{key.vchannel}{_SUFFIX}".encode()

    def encode(self, key: GroupKey, value: GroupPosition) -> bytes:
        vchannel_id, next_tick, committed_ms, taken, is_pinning = value
        without_tenants = _without_tenants(taken)
        if is_pinning and without_tenants is not None:
            return _POSITION.pack(ROW_VERSION, vchannel_id, next_tick, committed_ms) + without_tenants
        flags = 0 if is_pinning else _NOT_PINNING
        return _POSITION_FLAGS.pack(_FLAGS_VERSION, vchannel_id, next_tick, committed_ms, flags) + taken

    def decode(self, key: bytes, body: bytes) -> tuple[GroupKey, GroupPosition]:
        group, slash, rest = key.decode().partition("/")
        if not (slash and rest.endswith(_SUFFIX)):
            raise ValueError("the key is not that of a position")
        check_version(self.name, body[0], ROW_VERSION, _FLAGS_VERSION)
        has_flags = body[0] == _FLAGS_VERSION
        fixed, item_bytes = (_POSITION_FLAGS, TAKEN_BYTES) if has_flags else (_POSITION, _TAKEN_WITHOUT_TENANT_BYTES)
        _, vchannel_id, next_tick, committed_ms, *flags = fixed.unpack_from(body)
        taken = body[fixed.size :]
        if len(taken) % item_bytes:
            raise ValueError(f"the ranges have {len(taken)} bytes, expected a multiple of {item_bytes}")
        if not has_flags:
            taken = _with_no_tenants(taken)
        elif flags[0] & ~_NOT_PINNING:
            raise DataLossError(
                f"a row of {self.name} has unknown flags {flags[0]:#x}: use the server that wrote it", flags=flags[0]
            )
        position = GroupPosition(vchannel_id, next_tick, committed_ms, taken, not any(flags))
        return GroupKey(group, rest.removesuffix(_SUFFIX)), position

    def check(self, key: GroupKey, value: GroupPosition, facts: Facts) -> None:
        if value.vchannel_id not in facts.last_ticks:
            raise DataLossError(
                f"group '{key.group}' has a position on {key.vchannel}, vchannel id {value.vchannel_id}, which does "
                "not exist: restore the data folder",
                group=key.group, vchannel_id=value.vchannel_id,
            )  # fmt: skip

    def until(self, value: GroupPosition, tick: int) -> GroupPosition:
        if value.next_tick <= tick + 1:
            return value
        # Messages consumed beyond the tick no longer exist, so a retried consume call cannot get them again.
        return value._replace(next_tick=tick + 1, taken=b"")


POSITIONS: Final = _Positions()


def _without_tenants(taken: bytes) -> bytes | None:
    """Return the taken ranges in the form of version 1; None if one belongs to a tenant."""
    parts = [taken[at : at + TAKEN_BYTES] for at in range(0, len(taken), TAKEN_BYTES)]
    if any(part[_TAKEN_WITHOUT_TENANT_BYTES:].strip(b"\0") for part in parts):
        return None
    return b"".join(part[:_TAKEN_WITHOUT_TENANT_BYTES] for part in parts)


def _with_no_tenants(taken: bytes) -> bytes:
    """Return the taken ranges of a row of version 1 in the form of GroupPosition."""
    size = _TAKEN_WITHOUT_TENANT_BYTES
    return b"".join(taken[at : at + size] + bytes(TENANT_BYTES) for at in range(0, len(taken), size))
