"""What queueing a message did."""

from enum import StrEnum


class Outcome(StrEnum):
    """What queueing a message did; the values are fit for labels of metrics."""

    OUTSIDE_ALREADY_ACKED = "outside_already_acked"
    """A message outside a transaction is a duplicate, and dropped."""
    OUTSIDE_COMMIT = "outside_commit"
    """A message outside a transaction is committed; step delivers it."""
    CONTINUE_ALREADY_ACKED = "continue_already_acked"
    """A message of a transaction is a duplicate of an acknowledged one, and dropped."""
    CONTINUE_TXN_CLOCK_LARGER = "continue_txn_clock_larger"
    """A message of a transaction is a duplicate of one that is queued, and dropped."""
    CONTINUE_BEGIN_SPAN = "continue_begin_span"
    """A message opens a transaction and is held."""
    CONTINUE_EXTEND_SPAN = "continue_extend_span"
    """A message continues a transaction and is held."""
    ACK_ROLLBACK = "ack_rollback"
    """The held messages of the producer are discarded; with no held messages, a duplicate without effect."""
    ACK_EMPTY = "ack_empty"
    """An acknowledgement commits no messages; step delivers the acknowledgement itself."""
    ACK_COMMIT_RING = "ack_commit_ring"
    """The held messages are committed and all in the ring; step delivers them and the acknowledgement."""
    ACK_COMMIT_REPLAY = "ack_commit_replay"
    """The held messages are committed, and the first are no longer in the ring: start a replay, then step."""
