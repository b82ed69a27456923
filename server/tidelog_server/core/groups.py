"""State of a consumer group on a vchannel."""

import struct
from typing import Final, NamedTuple

from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES, Tenant
from tidelog_server.core.shares import Shares

# Callers of Consume whose last call is remembered for a retry, per group and vchannel.
MAX_REMEMBERED_CONSUMES: Final = 16

# consume_id, begin_tick, end_tick, and the tenant of the principal, or zeros; on disk in rows of version 2.
_TAKEN: Final = struct.Struct(f">QQQ{TENANT_BYTES}s")
TAKEN_BYTES: Final = _TAKEN.size
_NO_TENANT: Final = bytes(TENANT_BYTES)
# The upper bits of a consume_id identify the caller, the lower bits count its calls.
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
    """The messages that a ``Consume`` call took: those with ticks in [begin_tick, end_tick)."""

    consume_id: int
    begin_tick: int
    end_tick: int
    tenant: bytes = _NO_TENANT


class GroupPosition(NamedTuple):
    """Position of a group on a vchannel. Immutable: each commit makes a new one.

    Attributes:
        vchannel_id: Id of the vchannel; a later channel of the same name has other ids.
        next_tick: First tick that was not consumed; everything below it was.
        committed_ms: Time of the commit, in milliseconds since the epoch.
        taken: Range taken by the last ``Consume`` call of each identified caller, so that a retry receives the same
            messages: at most MAX_REMEMBERED_CONSUMES callers, oldest call first, packed.
        is_pinning: True if retention does not remove what the group has not consumed.
    """

    vchannel_id: int
    next_tick: int
    committed_ms: int
    taken: bytes = b""
    is_pinning: bool = True

    def taken_by(self, consume_id: int) -> Taken | None:
        """Return what a ``Consume`` call took; None if it is not remembered."""
        found = (Taken._make(fields) for fields in _TAKEN.iter_unpack(self.taken))
        return next((taken for taken in found if taken.consume_id == consume_id), None)

    def is_overtaken(self, consume_id: int) -> bool:
        """Return whether a later ``Consume`` of the caller is remembered: then this call is no longer waited for."""
        return any(
            fields[0] > consume_id and fields[0] >> _CALL_BITS == consume_id >> _CALL_BITS
            for fields in _TAKEN.iter_unpack(self.taken)
        )

    def has_called(self, consume_id: int) -> bool:
        """Return whether a ``Consume`` call of the same caller is remembered."""
        return any(fields[0] >> _CALL_BITS == consume_id >> _CALL_BITS for fields in _TAKEN.iter_unpack(self.taken))

    def may_be_forgotten(self, consume_id: int) -> bool:
        """Return whether a ``Consume`` call that is not remembered may have been evicted.

        True if the table is full and lacks the caller. The last call of a caller in the table is known, so a later
        call is new.
        """
        is_full = len(self.taken) >= MAX_REMEMBERED_CONSUMES * TAKEN_BYTES
        return is_full and not self.has_called(consume_id)

    def after(self, end_tick: int, committed_ms: int, consume_id: int, tenant: Tenant = NO_TENANT) -> "GroupPosition":
        """Return the position after a ``Consume`` call; ``consume_id`` 0 means an unidentified caller.

        A call proves that the caller has received the previous answer, so it replaces the caller's previous call and
        evicts no other caller. Above MAX_REMEMBERED_CONSUMES callers, the principal with the most callers loses its
        oldest one: see ``Shares``.
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
