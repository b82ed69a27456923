"""Domain errors: the class states what the caller can do, the effect whether the log may have changed.

Each class names its reason in ``error.proto``, which declares the status code, and has the values and the text.
``docs/reference/errors.md`` lists the reasons.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

# Maximum channels named in a text after the first; the values name all.
_NAMES_IN_TEXT: Final = 5


class Effect(Enum):
    """Whether a failed request may have changed the log."""

    NONE = "none"
    UNKNOWN = "unknown"


class TidelogServerError(Exception):
    """An expected error, not a bug; the caller receives it as a gRPC status with its values.

    Attributes:
        effect: Effect of the request on the log.
        values: Details for programs: decimal integers or short texts.
        reason: Name of the reason in ``error.proto``, without its prefix; each class names its own.
    """

    effect: Effect = Effect.NONE
    reason: str

    def __init_subclass__(cls, *, reason: str) -> None:
        super().__init_subclass__()
        cls.reason = reason

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(message)
        self.message = message
        self.values = {key: str(value) for key, value in values.items()}


class InvalidRequestError(TidelogServerError, reason="INVALID_ARGUMENT"):
    """A field is missing, contradictory or unknown."""


class InvalidNameError(InvalidRequestError, reason="INVALID_NAME"):
    """A name is invalid."""

    def __init__(self, name: str, *, expected: str) -> None:
        super().__init__(f"the name '{name}' is not allowed: {expected}", name=name, expected=expected)


class EmptyBatchError(InvalidRequestError, reason="EMPTY_BATCH"):
    """A batch has no messages."""

    def __init__(self) -> None:
        super().__init__("the batch has no messages: append at least one")


class MessageTooLargeError(InvalidRequestError, reason="MESSAGE_TOO_LARGE"):
    """One message exceeds the limit."""

    def __init__(self, *, size_bytes: int, max_bytes: int, index: int, part: str = "payload") -> None:
        super().__init__(
            f"the {part} of message {index} has {size_bytes} bytes, at most {max_bytes} are allowed: "
            "split the message or raise the server's limit",
            bytes=size_bytes, max_bytes=max_bytes, index=index, part=part,
        )  # fmt: skip


class BatchTooLargeError(InvalidRequestError, reason="BATCH_TOO_LARGE"):
    """A batch exceeds the limit in bytes or messages."""

    def __init__(self, *, actual: int, maximum: int, unit: str) -> None:
        super().__init__(
            f"the batch has {actual} {unit}, at most {maximum} are allowed: send smaller batches",
            **{unit: actual, f"max_{unit}": maximum},
        )


class MalformedColumnsError(InvalidRequestError, reason="MALFORMED_COLUMNS"):
    """The columns of a batch contradict each other."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column}: {problem}", column=column)


class ChecksumMismatchError(InvalidRequestError, reason="CHECKSUM_MISMATCH"):
    """The CRC-32C sent with a batch does not match its columns."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(
            f"the batch was sent with CRC-32C {expected:#010x}, but its columns have {actual:#010x}: it was damaged in "
            "transit, or the client computes the CRC differently (see Columns.crc32c)",
            expected=expected, actual=actual,
        )  # fmt: skip


class ReservedPropertyError(InvalidRequestError, reason="RESERVED_PROPERTY"):
    """A property key begins with an underscore."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the property key '{key}' is reserved: choose one that does not begin with '_'", key=key)


class MalformedRequestError(InvalidRequestError, reason="MALFORMED_REQUEST"):
    """The request cannot be decoded as the message of its method."""

    def __init__(self, method: str) -> None:
        super().__init__(
            f"the request is not a valid message for {method}: build it from the service's .proto files", method=method
        )


class WalNameMismatchError(InvalidRequestError, reason="WAL_NAME_MISMATCH"):
    """A message id was made by another kind of log store."""

    def __init__(self, message_id: bytes, *, wal_name: str) -> None:
        super().__init__(
            f"the message id {message_id[:16].hex()} was not made by this server: its '{wal_name}' log store "
            "makes ids of 8 bytes",
            message_id=message_id[:16].hex(), wal_name=wal_name,
        )  # fmt: skip


class ChannelNotExistError(TidelogServerError, reason="CHANNEL_NOT_EXIST"):
    """One or more channels or vchannels do not exist on this server."""

    def __init__(self, name: str, problem: str = "", *more: str) -> None:
        """Make the error for ``name`` and ``more``; ``problem`` is empty if they simply do not exist."""
        subject = f"'{name}'{_and(more)}" if problem else f"channel '{name}'"
        super().__init__(f"{subject} {problem or _absent(name)}", name=name, names=",".join((name, *more)))

    @classmethod
    def of(cls, names: Sequence[str]) -> "ChannelNotExistError":
        """Return the error that names all of them."""
        if len(names) == 1:
            return cls(names[0])
        problem = "do not exist: create the channels with `tidelog channel create`, or correct the names"
        return cls(names[0], problem, *names[1:])


class ChannelAlreadyExistsError(TidelogServerError, reason="CHANNEL_ALREADY_EXISTS"):
    """One or more channels already exist, or exist with another shape."""

    def __init__(self, name: str, problem: str = "already exists: use it, or choose another name", *more: str) -> None:
        channels = "channels" if more else "channel"
        super().__init__(f"{channels} '{name}'{_and(more)} {problem}", name=name, names=",".join((name, *more)))

    @classmethod
    def of(cls, names: Sequence[str]) -> "ChannelAlreadyExistsError":
        """Return the error that names all of them."""
        if len(names) == 1:
            return cls(names[0])
        return cls(names[0], "already exist: use them, or choose other names", *names[1:])


class BarrierNotReachedError(TidelogServerError, reason="BARRIER_NOT_REACHED"):
    """The deadline passed before the oracle reached the barrier tick."""

    def __init__(self, *, barrier_tick: int, latest_tick: int) -> None:
        super().__init__(
            f"the barrier tick {barrier_tick} is {(barrier_tick - latest_tick) >> 18} ms ahead of the oracle "
            f"({latest_tick}) and was not reached in time: take barrier ticks from AllocateTicks, or wait longer",
            barrier_tick=barrier_tick, latest_tick=latest_tick,
        )  # fmt: skip


class LastTickMismatchError(TidelogServerError, reason="LAST_TICK_MISMATCH"):
    """The vchannel's last tick is not the expected one: another append came first."""

    def __init__(self, *, vchannel: str, expected_last_tick: int, last_tick: int) -> None:
        super().__init__(
            f"the last tick of {vchannel} is {last_tick}, expected {expected_last_tick}: read the messages in between, "
            "then retry with the new last tick if the append is still valid",
            vchannel=vchannel, expected_last_tick=expected_last_tick, last_tick=last_tick,
        )  # fmt: skip


class FencingTokenMismatchError(TidelogServerError, reason="FENCING_TOKEN_MISMATCH"):
    """A fencing token differs from the vchannel's, or is lower than it."""

    def __init__(self, *, vchannel: str, fencing_token: int, actual_fencing_token: int) -> None:
        advice = (
            "a newer writer has taken over; stop writing"
            if fencing_token < actual_fencing_token
            else f"set it first with `tidelog channel fence {vchannel} {fencing_token}`"
        )
        super().__init__(
            f"the fencing token of {vchannel} is {actual_fencing_token}, not {fencing_token}: {advice}",
            vchannel=vchannel, fencing_token=fencing_token, actual_fencing_token=actual_fencing_token,
        )  # fmt: skip


class ProducerFencedError(TidelogServerError, reason="PRODUCER_FENCED"):
    """The epoch of a batch is not its producer's current epoch."""

    def __init__(self, *, vchannel: str, producer_id: str, epoch: int, actual_epoch: int) -> None:
        advice = (
            "a newer process has taken it over; stop appending"
            if epoch < actual_epoch
            else "get epochs from OpenProducer; if this one came from it, the server has since forgotten the producer"
        )
        super().__init__(
            f"producer '{producer_id}' has epoch {actual_epoch} on {vchannel}, not {epoch}: {advice}",
            vchannel=vchannel, producer_id=producer_id, epoch=epoch, actual_epoch=actual_epoch,
        )  # fmt: skip


class SequenceGapError(TidelogServerError, reason="SEQUENCE_GAP"):
    """An earlier batch of the producer is missing."""

    def __init__(self, *, vchannel: str, producer_id: str, sequence: int, expected_sequence: int) -> None:
        advice = (
            "append the missing batches first"
            if expected_sequence > 1
            else "the producer is unknown or was forgotten; start at 1, with a new producer id unless nothing was "
            "appended with this one"
        )
        super().__init__(
            f"{vchannel} received batch {sequence} of producer '{producer_id}', expected {expected_sequence}: {advice}",
            vchannel=vchannel, producer_id=producer_id, sequence=sequence, expected_sequence=expected_sequence,
        )  # fmt: skip


class SequenceReusedError(TidelogServerError, reason="SEQUENCE_REUSED"):
    """A sequence was reused with different content."""

    def __init__(self, *, vchannel: str, producer_id: str, sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of producer '{producer_id}' is already in {vchannel} with different content: retry a "
            "batch unchanged, or use the next sequence",
            vchannel=vchannel, producer_id=producer_id, sequence=sequence,
        )  # fmt: skip


class TxnSequenceGapError(TidelogServerError, reason="TRANSACTION_SEQUENCE_GAP"):
    """An earlier batch of the transaction is missing on the vchannel."""

    def __init__(self, txn_id: int, *, sequence: int, expected_sequence: int) -> None:
        super().__init__(
            f"received batch {sequence} of transaction {txn_id}, expected {expected_sequence} on this vchannel: append "
            "the missing batches first",
            txn_id=txn_id, sequence=sequence, expected_sequence=expected_sequence,
        )  # fmt: skip


class TransactionIncompleteError(TidelogServerError, reason="TRANSACTION_INCOMPLETE"):
    """A transaction does not have the number of batches that its client appended."""

    def __init__(self, txn_id: int, *, expected_batches: int, batches: int) -> None:
        super().__init__(
            f"transaction {txn_id} has {batches} batches, expected {expected_batches}: append the missing ones, or "
            "roll back",
            txn_id=txn_id, expected_batches=expected_batches, batches=batches,
        )  # fmt: skip


class TxnSequenceReusedError(TidelogServerError, reason="TRANSACTION_SEQUENCE_REUSED"):
    """A sequence of a transaction was reused with different content."""

    def __init__(self, txn_id: int, *, sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of transaction {txn_id} was already staged with different content: retry a batch "
            "unchanged, or use the next sequence",
            txn_id=txn_id, sequence=sequence,
        )  # fmt: skip


class SequenceForgottenError(TidelogServerError, reason="SEQUENCE_FORGOTTEN"):
    """A batch is already in the log, but its position is no longer remembered."""

    def __init__(self, *, vchannel: str, producer_id: str, sequence: int, oldest_sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of producer '{producer_id}' is already in {vchannel}, but positions are remembered only "
            f"from batch {oldest_sequence} on: treat it as appended",
            vchannel=vchannel, producer_id=producer_id, sequence=sequence, oldest_sequence=oldest_sequence,
        )  # fmt: skip


class TransactionNotExistError(TidelogServerError, reason="TRANSACTION_NOT_EXIST"):
    """No transaction with this id was ever begun."""

    def __init__(self, txn_id: int) -> None:
        super().__init__(
            f"transaction {txn_id} was not begun on this server: correct the id; a transaction committed in a single "
            "request, as small ones are, can only be found by its messages",
            txn_id=txn_id,
        )


class TransactionExpiredError(TidelogServerError, reason="TRANSACTION_EXPIRED"):
    """A transaction was aborted for another reason than a rollback by its client.

    Attributes of ``values``: ``cause`` is ``keepalive``, ``aborted``, ``channel_destroyed`` or ``forgotten``.
    """

    def __init__(self, txn_id: int, *, cause: str, detail: str) -> None:
        super().__init__(
            f"transaction {txn_id} was aborted, and none of it is in the log: {detail}; begin a new one",
            txn_id=txn_id, cause=cause,
        )  # fmt: skip


class TransactionForeignError(TidelogServerError, reason="TRANSACTION_FOREIGN"):
    """A transaction belongs to another client."""

    def __init__(self, txn_id: int) -> None:
        super().__init__(
            f"transaction {txn_id} was begun by another client: use that client, or its client id",
            txn_id=txn_id,
        )


class InvalidTransactionStateError(TidelogServerError, reason="INVALID_TRANSACTION_STATE"):
    """The transaction's state does not allow the request."""

    def __init__(self, txn_id: int, *, state: str, advice: str = "begin a new one") -> None:
        super().__init__(f"transaction {txn_id} is {state}: {advice}", txn_id=txn_id, state=state)


class VchannelNotInTransactionError(InvalidRequestError, reason="VCHANNEL_NOT_IN_TRANSACTION"):
    """The transaction was begun for other vchannels."""

    def __init__(self, txn_id: int, vchannel: str) -> None:
        super().__init__(
            f"transaction {txn_id} was begun without {vchannel}: name all of its vchannels at the beginning, or none",
            txn_id=txn_id, vchannel=vchannel,
        )  # fmt: skip


class TransactionTooLargeError(TidelogServerError, reason="TRANSACTION_TOO_LARGE"):
    """A transaction would exceed its limit of bytes, batches or vchannels."""

    def __init__(self, txn_id: int, *, actual: int, maximum: int, unit: str) -> None:
        super().__init__(
            f"transaction {txn_id} would have {actual} {unit}, at most {maximum} are allowed: commit it now, or "
            "roll back and use several",
            **{"txn_id": txn_id, unit: actual, f"max_{unit}": maximum},
        )


class TransactionOutcomeForgottenError(TidelogServerError, reason="TRANSACTION_OUTCOME_FORGOTTEN"):
    """A transaction ended so long ago that its outcome is no longer remembered."""

    effect = Effect.UNKNOWN

    def __init__(self, txn_id: int, *, oldest_tick: int) -> None:
        super().__init__(
            f"transaction {txn_id} has ended, and of this principal only outcomes from id {oldest_tick} on are "
            "remembered: read the log to find out whether it was committed",
            txn_id=txn_id, oldest_tick=oldest_tick,
        )  # fmt: skip


class ResourceAcquiredError(TidelogServerError, reason="RESOURCE_ACQUIRED"):
    """Another broadcast holds the resource key, or waits for it. ``broadcast_id`` None hides which one."""

    def __init__(self, *, domain: str, key: str, mode: str, broadcast_id: int | None) -> None:
        whose = "a broadcast of another principal" if broadcast_id is None else f"broadcast {broadcast_id}"
        super().__init__(
            f"the resource key '{key}' of domain '{domain}' (requested as {mode}) is held by {whose}: acknowledge it "
            "with `tidelog broadcast ack`, abort it with `tidelog broadcast abort`, or wait for the key with a longer "
            "wait_timeout_ms",
            domain=domain, key=key, mode=mode, broadcast_id=broadcast_id or 0,
        )  # fmt: skip


class BroadcastVchannelUnknownError(InvalidRequestError, reason="BROADCAST_VCHANNEL_UNKNOWN"):
    """An acknowledgement names a vchannel that the broadcast was not sent to."""

    def __init__(self, *, broadcast_id: int, vchannel: str) -> None:
        super().__init__(
            f"broadcast {broadcast_id} was not sent to {vchannel}: acknowledge it on the vchannels that delivered it",
            broadcast_id=broadcast_id, vchannel=vchannel,
        )  # fmt: skip


class BroadcastNotExistError(TidelogServerError, reason="BROADCAST_NOT_EXIST"):
    """No broadcast has this id, or it finished so long ago that it is forgotten."""

    def __init__(self, broadcast_id: int) -> None:
        super().__init__(
            f"broadcast {broadcast_id} is unknown: correct the id; if it was accepted, it has finished",
            broadcast_id=broadcast_id,
        )


class BroadcastReusedError(TidelogServerError, reason="BROADCAST_REUSED"):
    """A broadcast id was reused with different content."""

    def __init__(self, broadcast_id: int) -> None:
        super().__init__(
            f"broadcast {broadcast_id} was accepted with different vchannels, keys or message: retry it unchanged, or "
            "get a new id from AllocateTicks",
            broadcast_id=broadcast_id,
        )


class BroadcastAbortedError(TidelogServerError, reason="BROADCAST_ABORTED"):
    """A broadcast was aborted, so its acknowledgement will not complete."""

    def __init__(self, *, broadcast_id: int, abort_reason: str) -> None:
        super().__init__(
            f"broadcast {broadcast_id} was aborted ({abort_reason}): its message is in the log, but the server no "
            "longer waits for the missing acknowledgements",
            broadcast_id=broadcast_id, abort_reason=abort_reason,
        )  # fmt: skip


class PositionTrimmedError(TidelogServerError, reason="POSITION_TRIMMED"):
    """A position is below the first available tick."""

    def __init__(self, *, vchannel: str, requested_tick: int, first_available_tick: int, text: str = "") -> None:
        super().__init__(
            text
            or f"tick {requested_tick} of {vchannel} was trimmed; the first available tick is {first_available_tick}: "
            "start there if the messages before it are not needed",
            vchannel=vchannel, requested_tick=requested_tick, first_available_tick=first_available_tick,
        )  # fmt: skip

    @classmethod
    def before_creation(
        cls, *, vchannel: str, requested_tick: int, first_available_tick: int
    ) -> "PositionTrimmedError":
        """Return the error for a position that belongs to an earlier channel of the same name."""
        text = (
            f"tick {requested_tick} of {vchannel} is before the creation of its channel, so the position belongs to an "
            f"earlier channel of this name, which was destroyed; the first available tick is {first_available_tick}: "
            "start there to read this one from its beginning"
        )
        return cls(
            vchannel=vchannel, requested_tick=requested_tick, first_available_tick=first_available_tick, text=text
        )


class PositionBeyondEndError(TidelogServerError, reason="POSITION_BEYOND_END"):
    """A position is above every allocated tick."""

    def __init__(self, *, requested_tick: int, latest_tick: int) -> None:
        super().__init__(
            f"tick {requested_tick} is above the latest tick {latest_tick}: it belongs to another cluster, or is "
            "invalid; use positions that this server returned",
            requested_tick=requested_tick, latest_tick=latest_tick,
        )  # fmt: skip


class RateLimitRejectedError(TidelogServerError, reason="RATE_LIMIT_REJECTED"):
    """A limit on work in flight, memory or rate is reached; the caller may retry later."""


class DiskFullError(TidelogServerError, reason="DISK_FULL"):
    """The disk is nearly full: the server refuses appends, but serves reads and trims."""

    def __init__(self, *, free_bytes: int, needed_bytes: int) -> None:
        super().__init__(
            f"the disk has {free_bytes >> 20} MiB free, and appends are refused below {needed_bytes >> 20} MiB: "
            "trim channels with `tidelog channel trim`, or enlarge the disk; appends then resume automatically",
            free_bytes=free_bytes, needed_bytes=needed_bytes,
        )  # fmt: skip


class ShutdownError(TidelogServerError, reason="ON_SHUTDOWN"):
    """The node is shutting down and accepts no new work."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down and accepts no new work: retry later")


class StorageFailedError(TidelogServerError, reason="STORAGE_FAILED"):
    """The log stopped after a storage failure.

    An append in flight at that moment has an unknown effect: it may be in the log after a restart. ``is_damage`` means
    that stored data was found damaged.
    """

    def __init__(self, cause: str, *, effect: Effect = Effect.NONE, is_damage: bool = False) -> None:
        super().__init__(
            f"the log stopped after a storage failure ({cause}): check the disk and the server's log, then "
            "restart the server",
            cause=cause,
        )
        self.effect = effect
        self.is_damage = is_damage

    def with_effect(self, effect: Effect) -> "StorageFailedError":
        """Return a copy with another effect."""
        return StorageFailedError(self.values["cause"], effect=effect, is_damage=self.is_damage)


class DataLossError(TidelogServerError, reason="DATA_LOSS"):
    """Stored data is damaged or missing. Nothing was modified."""


class InnerError(TidelogServerError, reason="INNER"):
    """A bug in the server. The server's log has the details; the caller receives none."""

    effect = Effect.UNKNOWN

    def __init__(self) -> None:
        super().__init__("internal error: this is a bug in the server; its log has the details, please report it")


def _absent(channel: str) -> str:
    # Only the server creates channels whose names begin with an underscore.
    create = "" if channel.startswith("_") else f"create it with `tidelog channel create {channel}`, or "
    return f"does not exist: {create}correct the name"


def _and(more: Sequence[str]) -> str:
    """Format the names after the first one: at most _NAMES_IN_TEXT, then how many more."""
    shown = "".join(f", '{name}'" for name in more[:_NAMES_IN_TEXT])
    hidden = len(more) - _NAMES_IN_TEXT
    return f"{shown} and {hidden} more" if hidden > 0 else shown
