"""What the metadata store knows about broadcasts, as bytes. Pure.

Keys under the root (see FORMAT.md)::

    <root>/broadcast/<id>/task        TaskRecord: while it is open
    <root>/broadcast/<id>/message     the columns of the message: while it is pending
    <root>/broadcast/<id>/progress    Progress: while it is open
    <root>/broadcast/<id>/tombstone   Tombstone: once it is finished, until it is forgotten
    <root>/broadcast_floor            the greatest id that was forgotten, for all principals, decimal
    <root>/broadcast_floor/<tenant>   the same for the principal of one tenant
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

from tidelog_server.core.broadcasts import BroadcastState, KeyName, ResourceKey
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import NO_TICK

# In the metadata since format 1.
_VERSION: Final = 1
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """What was asked for. Never changed.

    Attributes:
        broadcast_id: Its number.
        vchannels: Full names, in the order asked for; acknowledgements are counted in this order.
        vchannel_ids: Their numbers in the log store.
        resource_keys: In order of the names, none twice.
        digest: Over everything that makes it the broadcast that it is, see ``digest_of``.
        message_type, columns_crc32c: Of the message, as in NewEntry.
        created_ms: Wall clock at its acceptance.
        tenant: The tenant of the principal that sent it, hexadecimal; empty for NO_TENANT.
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
        """The bitmap in which every vchannel has acknowledged."""
        return (1 << len(self.vchannels)) - 1

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["resource_keys"] = [[*key.name, key.is_shared] for key in self.resource_keys]
        return _encoded(_without_empty_tenant(fields))

    @classmethod
    def decode(cls, key: str, value: bytes) -> "TaskRecord":
        """Return the record that ``encode`` made. Raises DataLossError if it is none."""
        try:
            fields = _decoded(value)
            fields["resource_keys"] = tuple(
                ResourceKey(KeyName(domain, name), is_shared) for domain, name, is_shared in fields["resource_keys"]
            )
            fields["vchannels"] = tuple(fields["vchannels"])
            fields["vchannel_ids"] = tuple(fields["vchannel_ids"])
            record = cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(key, error) from error
        if not 0 < len(record.vchannels) == len(record.vchannel_ids):
            raise _unreadable(key, "it has not as many names as ids")
        return record


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an open broadcast is.

    Attributes:
        tick: Of its message, on every vchannel; NO_TICK while it is pending.
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
        """How many vchannels have acknowledged."""
        return self.acks.bit_count()

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        return _encoded({"state": self.state, "tick": self.tick, "acks": f"{self.acks:x}"})

    @classmethod
    def decode(cls, key: str, value: bytes) -> "Progress":
        """Return the record that ``encode`` made. Raises DataLossError if it is none."""
        try:
            fields = _decoded(value)
            state = fields.pop("state")
            progress = cls(tick=int(fields.pop("tick")), acks=int(fields.pop("acks"), 16))
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(key, error) from error
        if fields or state != progress.state:
            raise _unreadable(key, f"the state '{state}' does not go with its other fields")
        return progress


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a finished broadcast, so that late repetitions are known.

    Attributes:
        broadcast_id, digest, created_ms, tenant: As in TaskRecord.
        state: DONE or ABORTED.
        tick: Of its message.
        vchannels: How many it was for.
        acked: How many of them had acknowledged.
        finished_ms: Wall clock at its end.
        abort_reason: Why it was aborted; empty if it was not.
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
        return _encoded(_without_empty_tenant(asdict(self)))

    @classmethod
    def decode(cls, key: str, value: bytes) -> "Tombstone":
        """Return the record that ``encode`` made. Raises DataLossError if it is none."""
        try:
            fields = _decoded(value)
            fields["state"] = BroadcastState(fields["state"])
            tombstone = cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(key, error) from error
        if tombstone.state not in (BroadcastState.DONE, BroadcastState.ABORTED):
            raise _unreadable(key, f"'{tombstone.state}' is no end")
        return tombstone


def decode_floor(key: str, value: bytes) -> int:
    """Return the greatest id that was forgotten. Raises DataLossError if it is none."""
    if not value.isdigit():
        raise _unreadable(key, "it is no number")
    return int(value)


def digest_of(vchannels: Sequence[str], resource_keys: Sequence[ResourceKey], columns: bytes) -> str:
    """Return a digest over a broadcast: two requests with the same one ask for the same.

    Args:
        vchannels: Names as they were given.
        resource_keys: In order of the names.
        columns: The message.
    """
    # No name of a vchannel has a NUL; those of resource keys may.
    names = "\0".join(vchannels)
    keys = "".join(
        f"{len(domain)},{len(key)},{is_shared:d};{domain}{key}" for (domain, key), is_shared in resource_keys
    )
    head = f"{len(vchannels)},{len(names)},{len(keys)};{names}{keys}".encode()
    return blake2b(len(head).to_bytes(8, "big") + head + columns, digest_size=_DIGEST_BYTES).hexdigest()


def _without_empty_tenant(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as they are stored; a record without a tenant is one that has had no such field."""
    if not fields["tenant"]:
        del fields["tenant"]
    return fields


def _encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": _VERSION, **fields}, separators=(",", ":")).encode()


def _decoded(value: bytes) -> dict[str, Any]:
    fields = json.loads(value)
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    version = fields.pop("version")
    if version != _VERSION:
        raise ValueError(f"unknown version {version}")
    return fields


def _unreadable(key: str, problem: object) -> DataLossError:
    return DataLossError(f"the metadata record {key} cannot be read ({problem})", key=key)
