"""What is remembered of a consumer group on a vchannel."""

import struct
from typing import Final, NamedTuple

from tidelog_server.core.limits import MAX_REMEMBERED_CONSUMES

# consume_id, begin_tick, end_tick; on disk since format 1.
_TAKEN: Final = struct.Struct(">QQQ")
TAKEN_BYTES: Final = _TAKEN.size
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


class GroupPosition(NamedTuple):
    """How far a group has consumed a vchannel. Never changed: each commit makes a new one.

    Attributes:
        vchannel_id: Of the vchannel; a channel of the same name that is created later has others.
        next_tick: The first tick that was not consumed; everything below it was.
        committed_ms: When that was committed, in milliseconds since the epoch.
        taken: What the last call of ``Consume`` of each caller took that named itself, so that a repeated one gets the
            same messages: of at most MAX_REMEMBERED_CONSUMES callers, oldest call first, packed.
    """

    vchannel_id: int
    next_tick: int
    committed_ms: int
    taken: bytes = b""

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

    def after(self, end_tick: int, committed_ms: int, consume_id: int) -> "GroupPosition":
        """Return the position behind what a ``Consume`` takes; 0 is one that does not name itself.

        A caller that comes again has its answer to the call before. So its calls take no room from those of others,
        and one that was cut off for long is still known.
        """
        taken = self.taken
        if consume_id:
            caller = consume_id >> _CALL_BITS
            others = [fields for fields in _TAKEN.iter_unpack(taken) if fields[0] >> _CALL_BITS != caller]
            taken = b"".join(_TAKEN.pack(*fields) for fields in (*others, (consume_id, self.next_tick, end_tick)))
        return GroupPosition(self.vchannel_id, end_tick, committed_ms, taken[-MAX_REMEMBERED_CONSUMES * TAKEN_BYTES :])
