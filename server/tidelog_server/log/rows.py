"""The table of producers' windows."""

import struct
from typing import Final

from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES, Tenant
from tidelog_server.core.producers import RESULT_BYTES, ProducerKey, ProducerWindow
from tidelog_server.storage.format.seals import ROW_VERSION, check_version
from tidelog_server.storage.rows import Table

TENANT_VERSION: Final = 2
"""Version of rows that have a tenant, which follows the fixed fields."""

# version, epoch, last sequence; then the tenant in version 2, and the results.
_WINDOW: Final = struct.Struct(">BQQ")
_VCHANNEL_BYTES: Final = 4


class _Windows(Table[ProducerKey, ProducerWindow]):
    number = 1
    name = "producers"
    family = "producers"
    prefix = b""
    is_of_vchannel = True
    since_format = 1

    def encode_key(self, key: ProducerKey) -> bytes:
        vchannel_id, producer_id = key
        return vchannel_id.to_bytes(_VCHANNEL_BYTES) + producer_id.encode()

    def encode(self, key: ProducerKey, value: ProducerWindow) -> bytes:
        version = TENANT_VERSION if value.tenant else ROW_VERSION
        return _WINDOW.pack(version, value.epoch, value.last_sequence) + value.tenant + value.results

    def decode(self, key: bytes, body: bytes) -> tuple[ProducerKey, ProducerWindow]:
        (_, epoch, last_sequence), tenant, results = split_tenant(self.name, body, _WINDOW)
        if len(results) % RESULT_BYTES:
            raise ValueError(f"results have {len(results)} bytes, expected a multiple of {RESULT_BYTES}")
        producer = int.from_bytes(key[:_VCHANNEL_BYTES]), key[_VCHANNEL_BYTES:].decode()
        return producer, ProducerWindow(epoch, last_sequence, results, tenant)

    def last_tick_of(self, value: ProducerWindow) -> int:
        return value.last_tick

    def until(self, value: ProducerWindow, tick: int) -> ProducerWindow | None:
        # The epoch stays, so fenced producers stay fenced.
        kept = value
        while kept.results and kept.last_tick > tick:
            kept = kept._replace(last_sequence=kept.last_sequence - 1, results=kept.results[:-RESULT_BYTES])
        # All remembered batches came after the tick: how many older batches did as well is unknown.
        is_unknown = kept.results == b"" != value.results and kept.last_sequence > 0
        return None if is_unknown else kept


WINDOWS: Final = _Windows()


def split_tenant(what: str, body: bytes, fixed: struct.Struct) -> tuple[tuple[int, ...], Tenant, bytes]:
    """Return the fixed fields, the tenant and the rest of a row of ``what``, which has a tenant in version 2.

    Raises:
        DataLossError, struct.error, ValueError: See ``Table.decode``.
    """
    fields = fixed.unpack_from(body)
    check_version(what, fields[0], ROW_VERSION, TENANT_VERSION)
    end = fixed.size + (TENANT_BYTES if fields[0] == TENANT_VERSION else 0)
    if len(body) < end:
        raise ValueError("the tenant is cut")
    return fields, body[fixed.size : end] or NO_TENANT, body[end:]
