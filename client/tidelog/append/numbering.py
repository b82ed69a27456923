"""Numbering of batches, so that a batch that is sent twice is stored once. Pure."""

import secrets
from enum import Enum, auto
from typing import Final

from tidelog.errors import OwnershipLostError, SequenceGapError, TidelogError
from tidelog.transport.retry import may_repeat
from tidelog.types import ProducerSequence, StagedSequence
from tidelog.v1 import wal_service_pb2

MAX_NUMBERED_IN_FLIGHT: Final = 64
"""Maximum number of unanswered numbered batches: the server remembers as many results."""
_ID_BYTES: Final = 16
_PREFIX: Final = "~"
"""Prefix of names that no other process uses; see ProducerSequence of the protocol."""


class Numbering:
    """The numbers of one producer on one vchannel.

    Source: the idempotent producer of Kafka (KIP-98, KIP-360).

    Attributes:
        is_independent: Whether batches are independent of one another: when one is refused, those after it are
            renumbered instead of failing with it.
        can_renew: Whether the numbers may restart under another name.
        repeated_mark: Bytes to append to a request that is sent again if an earlier attempt may have arrived.
    """

    __slots__ = ("_last_sequence", "_producer_id", "is_independent")
    can_renew = True
    # Appended to a serialised AppendStreamRequest, it sets options.producer.is_repeated: protobuf merges the parts.
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
        """Reuse ``sequence`` as the next one: it was refused, and so was everything after it."""
        self._last_sequence = sequence - 1

    def renew(self) -> None:
        """Restart under a new unique name, because the server has forgotten the old one."""
        self._producer_id = _PREFIX + secrets.token_hex(_ID_BYTES)
        self._last_sequence = 0


class StagedNumbering(Numbering):
    """The numbers of a staged transaction on one vchannel."""

    __slots__ = ("_txn_id",)
    can_renew = False
    # A staged batch is identified by its transaction.
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
    """Return what to do with a batch that was refused.

    Args:
        error: The refusal.
        was_lost: Whether an earlier response to this batch was lost, so that it may be in the log.
        is_behind: Whether a batch before it will be sent again.
        renumbers: Whether all batches in flight are renumbered.
        can_renew: As in Numbering.
    """
    # The node usually regains its lease soon, and then knows which batches it has.
    if may_repeat(error) or isinstance(error, OwnershipLostError):
        return Verdict.SEND_AGAIN
    if isinstance(error, SequenceGapError):
        # A batch that may be in the log must keep its number.
        if renumbers:
            return Verdict.GIVE_UP if was_lost else Verdict.SEND_AGAIN
        if is_behind:
            return Verdict.SEND_AGAIN
        # The server forgets producers that were idle for long; everything acknowledged is in the log.
        if error.expected_sequence == 1 and not was_lost and can_renew:
            return Verdict.RENUMBER
    return Verdict.GIVE_UP
