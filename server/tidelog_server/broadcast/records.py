"""Records of broadcasts in the metadata store, as bytes. Pure.

Keys under the root (see docs/reference/format.md)::

    <root>/broadcast/<id>/task        TaskRecord: while the broadcast is open
    <root>/broadcast/<id>/message     the message's columns: while the broadcast is pending
    <root>/broadcast/<id>/progress    Progress: while the broadcast is open
    <root>/broadcast/<id>/tombstone   Tombstone: from the end of the broadcast until it is forgotten
    <root>/broadcast_floor            the greatest forgotten id of all principals, decimal
    <root>/broadcast_floor/<tenant>   the greatest forgotten id of one tenant's principal, decimal
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

from tidelog_server.core.broadcasts import BroadcastState, KeyName, ResourceKey
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.metadata.json_records import decode_record, encode_record

# In the metadata since format 1.
_VERSION: Final = 1
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The request of an accepted broadcast. Never changed.

    Attributes:
        broadcast_id: Id of the broadcast.
        vchannels: Full names, in the order requested; the bits of acknowledgements follow this order.
        vchannel_ids: Ids of the vchannels in the log store.
        resource_keys: Resource keys, sorted by name, without duplicates.
        digest: Digest of the request; see ``digest_of``.
        message_type, columns_crc32c: As in NewEntry, for the message.
        created_ms: Wall clock at acceptance, in milliseconds since the epoch.
        tenant: Tenant of the sending principal, hexadecimal; empty for NO_TENANT.
    """

    broadcast_id: int
    vchannels: tuple[str, ...]
    vchannel_ids: tuple[int, ...]
    resource_keys: tuple[ResourceKey, ...]
    digest: str
    message_type: int
    columns_crc32c: int
    created_ms: int
    tenant: str = ""

    @property
    def all_acks(self) -> int:
        """The bitmap with the bits of all vchannels set."""
        return (1 << len(self.vchannels)) - 1

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["resource_keys"] = [[*key.name, key.is_shared] for key in self.resource_keys]
        return encode_record(_VERSION, _without_empty_tenant(fields))

    @classmethod
    def decode(cls, key: str, value: bytes) -> "TaskRecord":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> TaskRecord:
            fields["resource_keys"] = tuple(
                ResourceKey(KeyName(domain, name), is_shared) for domain, name, is_shared in fields["resource_keys"]
            )
            fields["vchannels"] = tuple(fields["vchannels"])
            fields["vchannel_ids"] = tuple(fields["vchannel_ids"])
            record = cls(**fields)
            if not 0 < len(record.vchannels) == len(record.vchannel_ids):
                raise ValueError("the number of names differs from the number of ids, or is 0")
            return record

        return decode_record(value, _VERSION, parse, key, key=key)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an open broadcast.

    Attributes:
        tick: Tick of the message on every vchannel; NO_TICK while pending.
        acks: Bitmap: bit i is set once ``vchannels[i]`` has acknowledged.
    """

    tick: int = NO_TICK
    acks: int = 0

    @property
    def state(self) -> BroadcastState:
        """PENDING or WAIT_ACK."""
        return BroadcastState.WAIT_ACK if self.tick else BroadcastState.PENDING

    @property
    def acked(self) -> int:
        """Number of vchannels that have acknowledged."""
        return self.acks.bit_count()

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        return encode_record(_VERSION, {"state": self.state, "tick": self.tick, "acks": f"{self.acks:x}"})

    @classmethod
    def decode(cls, key: str, value: bytes) -> "Progress":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> Progress:
            state = fields.pop("state")
            progress = cls(tick=int(fields.pop("tick")), acks=int(fields.pop("acks"), 16))
            if fields or state != progress.state:
                raise ValueError(f"the state '{state}' contradicts the other fields")
            return progress

        return decode_record(value, _VERSION, parse, key, key=key)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Remains of a finished broadcast, by which late retries are recognised.

    Attributes:
        broadcast_id, digest, created_ms, tenant: As in TaskRecord.
        state: DONE or ABORTED.
        tick: Tick of the message.
        vchannels: Number of vchannels of the broadcast.
        acked: Number of vchannels that had acknowledged.
        finished_ms: Wall clock at the end, in milliseconds since the epoch.
        abort_reason: Reason of an abort; empty if the broadcast was not aborted.
    """

    broadcast_id: int
    state: BroadcastState
    tick: int
    vchannels: int
    acked: int
    digest: str
    created_ms: int
    finished_ms: int
    abort_reason: str = ""
    tenant: str = ""

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        return encode_record(_VERSION, _without_empty_tenant(asdict(self)))

    @classmethod
    def decode(cls, key: str, value: bytes) -> "Tombstone":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> Tombstone:
            fields["state"] = BroadcastState(fields["state"])
            tombstone = cls(**fields)
            if tombstone.state not in (BroadcastState.DONE, BroadcastState.ABORTED):
                raise ValueError(f"'{tombstone.state}' is not a final state")
            return tombstone

        return decode_record(value, _VERSION, parse, key, key=key)


def decode_floor(key: str, value: bytes) -> int:
    """Return the greatest forgotten id. Raises DataLossError if ``value`` is not a decimal number."""
    if not value.isdigit():
        raise DataLossError(
            f"the metadata record {key} cannot be read (it is not a number): restore the metadata from a backup",
            key=key,
        )
    return int(value)


def digest_of(vchannels: Sequence[str], resource_keys: Sequence[ResourceKey], columns: bytes) -> str:
    """Return a digest of a request: requests with equal digests are equal.

    Args:
        vchannels: Names as requested.
        resource_keys: Resource keys, sorted by name.
        columns: The message.
    """
    # NUL cannot occur in names of vchannels; it may in resource keys, so those are prefixed with their lengths.
    names = "\0".join(vchannels)
    keys = "".join(
        f"{len(domain)},{len(key)},{is_shared:d};{domain}{key}" for (domain, key), is_shared in resource_keys
    )
    head = f"{len(vchannels)},{len(names)},{len(keys)};{names}{keys}".encode()
    return blake2b(len(head).to_bytes(8, "big") + head + columns, digest_size=_DIGEST_BYTES).hexdigest()


def _without_empty_tenant(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove an empty tenant: records written before the field existed lack it, and stay byte-identical."""
    if not fields["tenant"]:
        del fields["tenant"]
    return fields
