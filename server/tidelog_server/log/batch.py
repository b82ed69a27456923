"""What an append consists of: a batch, its options, and conditions that the vchannel must meet. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog_server.core.errors import FencingTokenMismatchError, LastTickMismatchError
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import NO_TICK

NO_FENCING_TOKEN: Final = 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of one append.

    They are checked in the step that allocates its ticks, so no other append comes in between. They apply to the state
    after all earlier appends, durable or not, because those precede this append in the log in any case.

    Source: compare-and-append of shared logs, and the fencing tokens of lease-based locks (Kleppmann, "How to do
    distributed locking", 2016).

    Attributes:
        expected_last_tick: Required last tick of the vchannel, 0 if nothing was ever appended; None for any.
        fencing_token: Required token of the vchannel; NO_FENCING_TOKEN for any.
    """

    expected_last_tick: int | None = None
    fencing_token: int = NO_FENCING_TOKEN

    def check(self, vchannel: str, *, last_tick: int, fencing_token: int) -> None:
        """Raise unless a vchannel with this last tick and this token meets the conditions.

        Raises:
            FencingTokenMismatchError, LastTickMismatchError: A condition does not hold; the error has the actual value.
        """
        # The token first: a fenced writer must not be advised to read and retry.
        if self.fencing_token not in (NO_FENCING_TOKEN, fencing_token):
            raise FencingTokenMismatchError(
                vchannel=vchannel, fencing_token=self.fencing_token, actual_fencing_token=fencing_token
            )
        if self.expected_last_tick not in (None, last_tick):
            assert self.expected_last_tick is not None
            raise LastTickMismatchError(
                vchannel=vchannel, expected_last_tick=self.expected_last_tick, last_tick=last_tick
            )


UNCONDITIONAL: Final = Conditions()


class AppendOptions(NamedTuple):
    """Options of one append.

    Attributes:
        needs_sync: True if the acknowledgement waits for a sync.
        barrier_tick: Exclusive lower bound of every tick; NO_TICK if not set.
        conditions: Conditions that the vchannel must meet.
        producer: Producer and sequence of the batch; None if no producer is named.
    """

    needs_sync: bool = True
    barrier_tick: int = NO_TICK
    conditions: Conditions = UNCONDITIONAL
    producer: ProducerSequence | None = None


@dataclass(slots=True)
class Batch:
    """A batch without ticks yet. Its columns are opaque here. Immutable, see NewEntry.

    Attributes:
        count: Number of messages, at least 1.
        message_type: Type of all messages, or entries.MIXED_TYPES.
        columns_crc32c: CRC-32C that the client sent with the columns.
        columns: The columns as they will be stored.
        txns: Number of transactions that its messages are divided into.
    """

    count: int
    message_type: int
    columns_crc32c: int
    columns: bytes
    txns: int = 1
