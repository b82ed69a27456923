"""What is remembered of a consumer group on a vchannel."""

import struct
from typing import Final, NamedTuple

from tidelog_server.core.limits import MAX_REMEMBERED_CONSUMES
from tidelog_server.core.shares import Shares
from tidelog_server.core.tenants import NO_TENANT, TENANT_BYTES, Tenant

# consume_id, begin_tick, end_tick, and the tenant of the principal, or zeros; on disk in rows of version 2.
_TAKEN: Final = struct.Struct(f">QQQ{TENANT_BYTES}s")
TAKEN_BYTES: Final = _TAKEN.size
_NO_TENANT: Final = bytes(TENANT_BYTES)
# The upper bits of a consume_id name the caller, the others count its calls.
_CALL_BITS: Final = 24


class GroupKey(NamedTuple):
    """A consumer group on a vchannel.

    Attributes:
        group: Name of the group.
        vchannel: Full name, ``orders/0``.
    """

    group: str
    vchannel: str


class Taken(NamedTuple):
    """What a ``Consume`` took: the messages with ticks in [begin_tick, end_tick)."""

    consume_id: int
    begin_tick: int
    end_tick: int
    tenant: bytes = _NO_TENANT


class GroupPosition(NamedTuple):
    """How far a group has consumed a vchannel. Never changed: each commit makes a new one.

    Attributes:
        vchannel_id: Of the vchannel; a channel of the same name that is created later has others.
        next_tick: The first tick that was not consumed; everything below it was.
        committed_ms: When that was committed, in milliseconds since the epoch.
        taken: What the last call of ``Consume`` of each caller took that named itself, so that a repeated one gets the
            same messages: of at most MAX_REMEMBERED_CONSUMES callers, oldest call first, packed.
        is_holding: Whether retention keeps what the group has not consumed.
    """

    vchannel_id: int
    next_tick: int
    committed_ms: int
    taken: bytes = b""
    is_holding: bool = True

    def taken_by(self, consume_id: int) -> Taken | None:
        """Return what a ``Consume`` took, if it is remembered."""
        found = (Taken._make(fields) for fields in _TAKEN.iter_unpack(self.taken))
        return next((taken for taken in found if taken.consume_id == consume_id), None)

    def is_overtaken(self, consume_id: int) -> bool:
        """Tell whether a later ``Consume`` of the same caller came before: then nobody waits for this one any more."""
        return any(
            fields[0] > consume_id and fields[0] >> _CALL_BITS == consume_id >> _CALL_BITS
            for fields in _TAKEN.iter_unpack(self.taken)
        )

    def has_called(self, consume_id: int) -> bool:
        """Return whether a ``Consume`` of the same caller is remembered."""
        return any(fields[0] >> _CALL_BITS == consume_id >> _CALL_BITS for fields in _TAKEN.iter_unpack(self.taken))

    def may_be_forgotten(self, consume_id: int) -> bool:
        """Return whether a ``Consume`` that is not remembered may have been evicted.

        That takes a full table, without the caller: of one that is there the last call is known, so a later one is new.
        """
        is_full = len(self.taken) >= MAX_REMEMBERED_CONSUMES * TAKEN_BYTES
        return is_full and not self.has_called(consume_id)

    def after(self, end_tick: int, committed_ms: int, consume_id: int, tenant: Tenant = NO_TENANT) -> "GroupPosition":
        """Return the position behind what a ``Consume`` takes; 0 is one that does not name itself.

        A caller that comes again has its answer to the call before. So its calls take no room from those of others,
        and one that was cut off for long is still known. Past MAX_REMEMBERED_CONSUMES callers, the principal with the
        most loses its oldest: see ``Shares``.
        """
        if not consume_id:
            return self._replace(next_tick=end_tick, committed_ms=committed_ms)
        calls: Shares[int, tuple[int, int, int, bytes]] = Shares()
        for fields in _TAKEN.iter_unpack(self.taken):
            calls.put(fields[0] >> _CALL_BITS, fields, fields[3])
        mine, caller = tenant or _NO_TENANT, consume_id >> _CALL_BITS
        calls.pop(caller)
        calls.make_room(mine, MAX_REMEMBERED_CONSUMES)
        calls.put(caller, (consume_id, self.next_tick, end_tick, mine), mine)
        taken = b"".join(_TAKEN.pack(*fields) for _, fields in calls.items())
        return self._replace(next_tick=end_tick, committed_ms=committed_ms, taken=taken)
