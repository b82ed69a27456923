"""How batches are numbered, so that one sent twice is there once. Pure."""

import secrets
from enum import Enum, auto
from typing import Final, NamedTuple

from tidelog._errors import OwnershipLostError, SequenceGapError, TidelogError
from tidelog._retry import may_repeat
from tidelog._types import ProducerSequence
from tidelog.v1 import wal_service_pb2

MAX_NUMBERED_IN_FLIGHT: Final = 64
"""Numbered batches that may be unanswered at once: the server remembers the results of so many."""
_ID_BYTES: Final = 16
_PREFIX: Final = "~"
"""Begins names that no other process uses; see ProducerSequence of the protocol."""


class StagedSequence(NamedTuple):
    """Says which batch of a begun transaction one is, among those on its vchannel."""

    txn_id: int
    sequence: int


class Numbering:
    """The numbers of one producer on one vchannel.

    Source: the idempotent producer of Kafka (KIP-98, KIP-360).

    Attributes:
        is_independent: Whether what is numbered depends on nothing before it: when one is refused, those behind it get
            new numbers instead of failing with it.
        can_renew: Whether it may begin anew under another name.
        repeated_mark: What is added to a request that is sent again, where an earlier try may have arrived.
    """

    __slots__ = ("_last_sequence", "_producer_id", "is_independent")
    can_renew = True
    # Added to a serialised AppendStreamRequest, it sets options.producer.is_repeated: parts of a message are merged.
    repeated_mark = wal_service_pb2.AppendStreamRequest(
        options=wal_service_pb2.AppendOptions(producer=wal_service_pb2.ProducerSequence(is_repeated=True))
    ).SerializeToString()

    def __init__(self, *, is_independent: bool = False) -> None:
        self.is_independent = is_independent
        self.renew()

    def next(self) -> ProducerSequence | StagedSequence:
        """Return the number of the next batch."""
        self._last_sequence += 1
        return ProducerSequence(self._producer_id, self._last_sequence)

    def rewind(self, sequence: int) -> None:
        """Let ``sequence`` be the next one again: it was refused, and so was everything behind it."""
        self._last_sequence = sequence - 1

    def renew(self) -> None:
        """Begin anew under a name that nobody has used, for the server has forgotten the old one."""
        self._producer_id = _PREFIX + secrets.token_hex(_ID_BYTES)
        self._last_sequence = 0


class StagedNumbering(Numbering):
    """The numbers of a begun transaction on one vchannel."""

    __slots__ = ("_txn_id",)
    can_renew = False
    # A staged batch is known by its transaction.
    repeated_mark = b""

    def __init__(self, txn_id: int) -> None:
        super().__init__()
        self._txn_id = txn_id

    def next(self) -> StagedSequence:
        """Return the number of the next batch."""
        self._last_sequence += 1
        return StagedSequence(self._txn_id, self._last_sequence)


class Verdict(Enum):
    """What to do with a numbered batch that was refused."""

    SEND_AGAIN = auto()
    RENUMBER = auto()
    GIVE_UP = auto()


def verdict(
    error: TidelogError, *, was_lost: bool, is_behind: bool, renumbers: bool, can_renew: bool = True
) -> Verdict:
    """Tell what to do with a batch that was refused with ``error``.

    Args:
        error: Why.
        was_lost: Whether an earlier answer to this batch was lost, so that it may be in the log.
        is_behind: Whether a batch before it is to be sent again.
        renumbers: Whether all that is on its way gets new numbers.
        can_renew: As in Numbering.
    """
    # The node is back in a moment, and knows then which batches it has.
    if may_repeat(error) or isinstance(error, OwnershipLostError):
        return Verdict.SEND_AGAIN
    if isinstance(error, SequenceGapError):
        # A batch that may be there must not get another number.
        if renumbers:
            return Verdict.GIVE_UP if was_lost else Verdict.SEND_AGAIN
        if is_behind:
            return Verdict.SEND_AGAIN
        # The server forgets producers that were idle for long; all that was acknowledged is in the log.
        if error.expected_sequence == 1 and not was_lost and can_renew:
            return Verdict.RENUMBER
    return Verdict.GIVE_UP
