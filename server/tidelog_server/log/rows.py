"""The table of producers' windows."""

import struct
from typing import Final

from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES, Tenant
from tidelog_server.core.producers import RESULT_BYTES, ProducerKey, ProducerWindow
from tidelog_server.storage.format.seals import ROW_VERSION, check_version
from tidelog_server.storage.rows import Table

TENANT_VERSION: Final = 2
"""Version of rows that have a tenant, which follows the fixed fields."""

CHANNEL_VERSION: Final = 3
"""Version of windows of producers that were opened on a channel. A tenant is always there, zeros for none."""

# version, epoch, last sequence; then the tenant from version 2 on; in version 3 those of _CHANNEL; and the results.
_WINDOW: Final = struct.Struct(">BQQ")
# vchannels, last call.
_CHANNEL: Final = struct.Struct(">HQ")
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
        tenant, of_channel = value.tenant, b""
        version = TENANT_VERSION if tenant else ROW_VERSION
        if value.vchannels:
            version, tenant = CHANNEL_VERSION, tenant or bytes(TENANT_BYTES)
            of_channel = _CHANNEL.pack(value.vchannels, value.last_call)
        return _WINDOW.pack(version, value.epoch, value.last_sequence) + tenant + of_channel + value.results

    def decode(self, key: bytes, body: bytes) -> tuple[ProducerKey, ProducerWindow]:
        (version, epoch, last_sequence), tenant, results = split_tenant(self.name, body, _WINDOW, CHANNEL_VERSION)
        vchannels, last_call = 0, 0
        if version == CHANNEL_VERSION:
            vchannels, last_call = _CHANNEL.unpack_from(results)
            tenant, results = (tenant if any(tenant) else NO_TENANT), results[_CHANNEL.size :]
        if len(results) % RESULT_BYTES:
            raise ValueError(f"results have {len(results)} bytes, expected a multiple of {RESULT_BYTES}")
        producer = int.from_bytes(key[:_VCHANNEL_BYTES]), key[_VCHANNEL_BYTES:].decode()
        return producer, ProducerWindow(epoch, last_sequence, results, tenant, vchannels, last_call)

    def last_tick_of(self, value: ProducerWindow) -> int:
        return value.last_tick

    def until(self, value: ProducerWindow, tick: int) -> ProducerWindow | None:
        # The epoch stays, so fenced producers stay fenced.
        kept = value
        while kept.results and kept.last_tick > tick:
            kept = kept._replace(last_sequence=kept.last_sequence - 1, results=kept.results[:-RESULT_BYTES])
        # All remembered batches came after the tick: how many older batches did as well is unknown.
        is_unknown = kept.results == b"" != value.results and kept.last_sequence > 0
        # Only the last call is remembered.
        is_unknown = is_unknown or (kept.vchannels > 0 and kept.last_sequence not in (0, value.last_sequence))
        if kept.vchannels and not kept.last_sequence:
            kept = kept._replace(last_call=0)
        return None if is_unknown else kept


WINDOWS: Final = _Windows()


def split_tenant(
    what: str, body: bytes, fixed: struct.Struct, newest: int = TENANT_VERSION
) -> tuple[tuple[int, ...], Tenant, bytes]:
    """Return the fixed fields, the tenant and the rest of a row of ``what``, which has a tenant from version 2 on.

    ``newest`` is the newest version of such rows.

    Raises:
        DataLossError, struct.error, ValueError: See ``Table.decode``.
    """
    fields = fixed.unpack_from(body)
    check_version(what, fields[0], *range(ROW_VERSION, newest + 1))
    end = fixed.size + (TENANT_BYTES if fields[0] >= TENANT_VERSION else 0)
    if len(body) < end:
        raise ValueError("the tenant is cut")
    return fields, body[fixed.size : end] or NO_TENANT, body[end:]
