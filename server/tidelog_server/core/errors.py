"""Domain errors: what the caller can do (the class) and what may have happened (the effect).

``rpc.status`` gives each class one gRPC code and one wire reason; a test proves that none is missing::

    TidelogServerError
    ├── InvalidRequestError
    │   ├── InvalidNameError, EmptyBatchError, MessageTooLargeError, BatchTooLargeError
    │   ├── MalformedColumnsError, ChecksumMismatchError, ReservedPropertyError
    │   ├── MalformedRequestError, WalNameMismatchError
    │   └── BroadcastVchannelUnknownError
    ├── ChannelNotExistError, ChannelAlreadyExistsError
    ├── BarrierNotReachedError
    ├── LastTickMismatchError, FencingTokenMismatchError
    ├── ProducerFencedError, SequenceGapError, SequenceReusedError, SequenceForgottenError, ProducerForgottenError
    ├── TxnSequenceGapError, TxnSequenceReusedError, TransactionIncompleteError
    ├── TransactionNotExistError, TransactionExpiredError, TransactionForeignError, InvalidTransactionStateError
    ├── VchannelNotInTransactionError, TransactionTooLargeError, TransactionOutcomeForgottenError
    ├── AppVersionPassedError, AppCommitMismatchError, ApplicationForgottenError
    ├── ResourceAcquiredError
    ├── BroadcastNotExistError, BroadcastReusedError, BroadcastForgottenError, BroadcastAbortedError
    ├── GroupNotExistError, GroupAlreadyExistsError, GroupInUseError, GroupNotSubscribedError, GroupMemberFencedError
    ├── GroupPositionMovedError, ConsumeForgottenError
    ├── PositionTrimmedError, PositionBeyondEndError
    ├── UnauthenticatedError, CredentialsExpiredError, PermissionDeniedError, TokenNotExistError, AuditFailedError
    ├── RateLimitRejectedError, DiskFullError
    ├── CheckpointUnsupportedError, CheckpointNotExistError, CheckpointFailedError
    ├── ShutdownError
    ├── StorageFailedError, StorageUnreadableError
    ├── DataLossError
    └── InnerError
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

# A text names so many channels; the values name all.
_NAMES_IN_TEXT: Final = 5


class Effect(Enum):
    """Whether a failed request may have changed the log."""

    NONE = "none"
    UNKNOWN = "unknown"


class TidelogServerError(Exception):
    """An answer, not a bug: it reaches the caller as a gRPC status with its values.

    Attributes:
        effect: Whether the request may have changed the log.
        values: What the error speaks of; decimal integers or short texts.
    """

    effect: Effect = Effect.NONE

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(message)
        self.message = message
        self.values = {key: str(value) for key, value in values.items()}


class InvalidRequestError(TidelogServerError):
    """A field is missing, contradictory or unknown."""


class InvalidNameError(InvalidRequestError):
    """A name is not allowed."""

    def __init__(self, name: str, *, expected: str) -> None:
        super().__init__(f"the name '{name}' is not allowed: {expected}", name=name, expected=expected)


class EmptyBatchError(InvalidRequestError):
    """A batch has no messages."""

    def __init__(self) -> None:
        super().__init__("the batch has no messages: append at least one")


class MessageTooLargeError(InvalidRequestError):
    """One message is over the limit."""

    def __init__(self, *, size_bytes: int, max_bytes: int, index: int, part: str = "payload") -> None:
        super().__init__(
            f"the {part} of message {index} has {size_bytes} bytes, at most {max_bytes} are allowed: "
            "split the message or raise the server's limit",
            bytes=size_bytes, max_bytes=max_bytes, index=index, part=part,
        )  # fmt: skip


class BatchTooLargeError(InvalidRequestError):
    """A batch is over the limit in bytes or messages."""

    def __init__(self, *, actual: int, maximum: int, unit: str) -> None:
        super().__init__(
            f"the batch has {actual} {unit}, at most {maximum} are allowed: send smaller batches",
            **{unit: actual, f"max_{unit}": maximum},
        )


class MalformedColumnsError(InvalidRequestError):
    """The columns of a batch contradict each other."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column}: {problem}", column=column)


class ChecksumMismatchError(InvalidRequestError):
    """The CRC-32C that came with a batch is not that of its columns."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(
            f"the batch says CRC-32C {expected:#010x} but its columns have {actual:#010x}: it was damaged on the "
            "way, or the client computes the CRC differently (see Columns.crc32c)",
            expected=expected, actual=actual,
        )  # fmt: skip


class ReservedPropertyError(InvalidRequestError):
    """A property key begins with an underscore."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the property key '{key}' is reserved: choose one that does not begin with '_'", key=key)


class MalformedRequestError(InvalidRequestError):
    """The bytes of a request are not the message that its method takes."""

    def __init__(self, method: str) -> None:
        super().__init__(
            f"the request is no valid message for {method}: build it from the service's .proto files", method=method
        )


class WalNameMismatchError(InvalidRequestError):
    """A message id was made by another kind of log store."""

    def __init__(self, message_id: bytes, *, wal_name: str) -> None:
        super().__init__(
            f"the message id {message_id[:16].hex()} is none of this server's: its '{wal_name}' log store "
            "makes ids of 8 bytes",
            message_id=message_id[:16].hex(), wal_name=wal_name,
        )  # fmt: skip


class ChannelNotExistError(TidelogServerError):
    """A channel or vchannel does not exist here, or several do not."""

    def __init__(
        self, name: str, problem: str = "does not exist: create the channel, or correct the name", *more: str
    ) -> None:
        super().__init__(f"'{name}'{_and(more)} {problem}", name=name, names=",".join((name, *more)))

    @classmethod
    def of(cls, names: Sequence[str]) -> "ChannelNotExistError":
        """Return the error that names all of them."""
        if len(names) == 1:
            return cls(names[0])
        return cls(names[0], "do not exist: create the channels, or correct the names", *names[1:])


class ChannelAlreadyExistsError(TidelogServerError):
    """A channel exists already, or exists with another shape, or several do."""

    def __init__(self, name: str, problem: str = "exists already: use it, or choose another name", *more: str) -> None:
        channels = "channels" if more else "channel"
        super().__init__(f"{channels} '{name}'{_and(more)} {problem}", name=name, names=",".join((name, *more)))

    @classmethod
    def of(cls, names: Sequence[str]) -> "ChannelAlreadyExistsError":
        """Return the error that names all of them."""
        if len(names) == 1:
            return cls(names[0])
        return cls(names[0], "exist already: use them, or choose other names", *names[1:])


class BarrierNotReachedError(TidelogServerError):
    """The deadline ended before the oracle reached the barrier tick."""

    def __init__(self, *, barrier_tick: int, latest_tick: int) -> None:
        super().__init__(
            f"the barrier tick {barrier_tick} lies {(barrier_tick - latest_tick) >> 18} ms ahead of the oracle "
            f"({latest_tick}) and was not reached in time: take barrier ticks from AllocateTicks, or wait longer",
            barrier_tick=barrier_tick, latest_tick=latest_tick,
        )  # fmt: skip


class LastTickMismatchError(TidelogServerError):
    """Something was appended since the caller looked."""

    def __init__(self, *, vchannel: str, expected_last_tick: int, last_tick: int) -> None:
        super().__init__(
            f"the last tick of {vchannel} is {last_tick}, expected {expected_last_tick}: read what came since, decide "
            "anew, and append with the new last tick",
            vchannel=vchannel, expected_last_tick=expected_last_tick, last_tick=last_tick,
        )  # fmt: skip


class FencingTokenMismatchError(TidelogServerError):
    """A fencing token is not the one that the vchannel has, or would lower it."""

    def __init__(self, *, vchannel: str, fencing_token: int, actual_fencing_token: int) -> None:
        advice = (
            "a newer writer has taken over, stop writing"
            if fencing_token < actual_fencing_token
            else "set it first with SetFencingToken"
        )
        super().__init__(
            f"the fencing token of {vchannel} is {actual_fencing_token}, not {fencing_token}: {advice}",
            vchannel=vchannel, fencing_token=fencing_token, actual_fencing_token=actual_fencing_token,
        )  # fmt: skip


class ProducerFencedError(TidelogServerError):
    """The epoch of a batch is not that of its producer."""

    def __init__(self, *, vchannel: str, producer_id: str, epoch: int, actual_epoch: int) -> None:
        advice = (
            "a newer process has taken it over, stop appending"
            if epoch < actual_epoch
            else "epochs come from OpenProducer; if this one did, the server has forgotten the producer since"
        )
        super().__init__(
            f"producer '{producer_id}' has epoch {actual_epoch} on {vchannel}, not {epoch}: {advice}",
            vchannel=vchannel, producer_id=producer_id, epoch=epoch, actual_epoch=actual_epoch,
        )  # fmt: skip


class SequenceGapError(TidelogServerError):
    """A batch before this one is missing."""

    def __init__(self, *, vchannel: str, producer_id: str, sequence: int, expected_sequence: int) -> None:
        advice = (
            "append the batches before it first"
            if expected_sequence > 1
            else "the server does not know this producer, or forgot it: begin with 1, under a new producer id unless "
            "nothing was appended under this one"
        )
        super().__init__(
            f"batch {sequence} of producer '{producer_id}' came to {vchannel}, expected {expected_sequence}: {advice}",
            vchannel=vchannel, producer_id=producer_id, sequence=sequence, expected_sequence=expected_sequence,
        )  # fmt: skip


class SequenceReusedError(TidelogServerError):
    """A sequence came again with other content."""

    def __init__(self, *, vchannel: str, producer_id: str, sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of producer '{producer_id}' is in {vchannel} with other content: repeat a batch exactly "
            "as it was, or take the next sequence",
            vchannel=vchannel, producer_id=producer_id, sequence=sequence,
        )  # fmt: skip


class TxnSequenceGapError(TidelogServerError):
    """A batch of a transaction before this one is missing on its vchannel."""

    def __init__(self, txn_id: int, *, sequence: int, expected_sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of transaction {txn_id} came, expected {expected_sequence} on this vchannel: append the "
            "batches before it first",
            txn_id=txn_id, sequence=sequence, expected_sequence=expected_sequence,
        )  # fmt: skip


class TransactionIncompleteError(TidelogServerError):
    """A transaction has another number of batches than its client has appended."""

    def __init__(self, txn_id: int, *, expected_batches: int, batches: int) -> None:
        super().__init__(
            f"transaction {txn_id} has {batches} batches, expected {expected_batches}: append those that are missing, "
            "or roll back",
            txn_id=txn_id, expected_batches=expected_batches, batches=batches,
        )  # fmt: skip


class TxnSequenceReusedError(TidelogServerError):
    """A batch of a transaction came again with other content."""

    def __init__(self, txn_id: int, *, sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of transaction {txn_id} came before with other content: repeat a batch exactly as it "
            "was, or take the next sequence",
            txn_id=txn_id, sequence=sequence,
        )  # fmt: skip


class SequenceForgottenError(TidelogServerError):
    """A batch is in the log already, so long that its position is forgotten."""

    def __init__(self, *, vchannel: str, producer_id: str, sequence: int, oldest_sequence: int) -> None:
        super().__init__(
            f"batch {sequence} of producer '{producer_id}' is in {vchannel} already, but only those from "
            f"{oldest_sequence} on are remembered with their positions: take it as appended",
            vchannel=vchannel, producer_id=producer_id, sequence=sequence, oldest_sequence=oldest_sequence,
        )  # fmt: skip


class TransactionNotExistError(TidelogServerError):
    """No transaction was ever begun under an id."""

    def __init__(self, txn_id: int) -> None:
        super().__init__(
            f"transaction {txn_id} was not begun on this server: correct the id; one that was committed in a single "
            "request, as small ones are, is known from its messages only",
            txn_id=txn_id,
        )


class TransactionExpiredError(TidelogServerError):
    """A transaction ended without a commit, and not because its owner rolled it back.

    Attributes of ``values``: ``cause`` is ``keepalive``, ``aborted``, ``channel_destroyed`` or ``forgotten``.
    """

    def __init__(self, txn_id: int, *, cause: str, detail: str) -> None:
        super().__init__(
            f"transaction {txn_id} is over, and none of it is in the log: {detail}; begin a new one",
            txn_id=txn_id, cause=cause,
        )  # fmt: skip


class TransactionForeignError(TidelogServerError):
    """A transaction belongs to another client."""

    def __init__(self, txn_id: int) -> None:
        super().__init__(
            f"transaction {txn_id} was begun by another client: use the one that began it, or its client id",
            txn_id=txn_id,
        )


class InvalidTransactionStateError(TidelogServerError):
    """A transaction is in a state that does not allow what is asked."""

    def __init__(self, txn_id: int, *, state: str, advice: str = "begin a new one") -> None:
        super().__init__(f"transaction {txn_id} is {state}: {advice}", txn_id=txn_id, state=state)


class VchannelNotInTransactionError(InvalidRequestError):
    """A vchannel is not among those that a transaction was begun for."""

    def __init__(self, txn_id: int, vchannel: str) -> None:
        super().__init__(
            f"transaction {txn_id} was begun without {vchannel}: name all vchannels when it begins, or none",
            txn_id=txn_id, vchannel=vchannel,
        )  # fmt: skip


class TransactionTooLargeError(TidelogServerError):
    """A transaction would have more bytes, batches or vchannels than one may have."""

    def __init__(self, txn_id: int, *, actual: int, maximum: int, unit: str) -> None:
        super().__init__(
            f"transaction {txn_id} would have {actual} {unit}, at most {maximum} are allowed: commit what it has, or "
            "roll back and use several",
            **{"txn_id": txn_id, unit: actual, f"max_{unit}": maximum},
        )


class TransactionOutcomeForgottenError(TidelogServerError):
    """A transaction ended so long ago that nobody knows whether it was committed."""

    effect = Effect.UNKNOWN

    def __init__(self, txn_id: int, *, oldest_tick: int) -> None:
        super().__init__(
            f"transaction {txn_id} is over, and of this principal only those from id {oldest_tick} on are remembered: "
            "read back whether it is there",
            txn_id=txn_id, oldest_tick=oldest_tick,
        )  # fmt: skip


class ResourceAcquiredError(TidelogServerError):
    """A resource key is held by another broadcast, or another one waits for it before. None hides which."""

    def __init__(self, *, domain: str, key: str, mode: str, broadcast_id: int | None) -> None:
        whose = "a broadcast of another principal" if broadcast_id is None else f"broadcast {broadcast_id}"
        super().__init__(
            f"the resource key '{key}' of domain '{domain}', wanted {mode}, belongs to {whose}: acknowledge or abort "
            "it, or set a longer wait_timeout_ms to wait until it is free",
            domain=domain, key=key, mode=mode, broadcast_id=broadcast_id or 0,
        )  # fmt: skip


class BroadcastVchannelUnknownError(InvalidRequestError):
    """An acknowledgement names a vchannel that its broadcast is not for."""

    def __init__(self, *, broadcast_id: int, vchannel: str) -> None:
        super().__init__(
            f"broadcast {broadcast_id} is not for {vchannel}: acknowledge it on the vchannels that delivered it",
            broadcast_id=broadcast_id, vchannel=vchannel,
        )  # fmt: skip


class BroadcastNotExistError(TidelogServerError):
    """No broadcast has this id, or it was finished so long ago that it is forgotten."""

    def __init__(self, broadcast_id: int) -> None:
        super().__init__(
            f"broadcast {broadcast_id} is not known: correct the id, or take it as finished if it was accepted",
            broadcast_id=broadcast_id,
        )


class BroadcastReusedError(TidelogServerError):
    """A broadcast id came again with other content."""

    def __init__(self, broadcast_id: int) -> None:
        super().__init__(
            f"broadcast {broadcast_id} was accepted with other vchannels, keys or another message: repeat it exactly "
            "as it was, or take a new id from AllocateTicks",
            broadcast_id=broadcast_id,
        )


class BroadcastForgottenError(TidelogServerError):
    """A broadcast id is so old that the node does not know whether it was accepted."""

    effect = Effect.UNKNOWN

    def __init__(self, *, broadcast_id: int, floor: int) -> None:
        super().__init__(
            f"broadcast {broadcast_id} may have been accepted and finished: ids up to {floor} are forgotten. Read "
            "back, or take a new id from AllocateTicks if this one was never sent before",
            broadcast_id=broadcast_id, floor=floor,
        )  # fmt: skip


class BroadcastAbortedError(TidelogServerError):
    """A broadcast was aborted, so it will not be acknowledged by all."""

    def __init__(self, *, broadcast_id: int, abort_reason: str) -> None:
        super().__init__(
            f"broadcast {broadcast_id} was aborted ({abort_reason}): its message is in the log, but nobody waits for "
            "the acknowledgements that are missing",
            broadcast_id=broadcast_id, abort_reason=abort_reason,
        )  # fmt: skip


class GroupNotExistError(TidelogServerError):
    """The consumer group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(f"group '{group}' does not exist: create it, or correct the name", group=group)


class GroupAlreadyExistsError(TidelogServerError):
    """The consumer group exists already."""

    def __init__(self, group: str) -> None:
        super().__init__(f"group '{group}' exists already: use it, or choose another name", group=group)


class GroupInUseError(TidelogServerError):
    """Members of a group consume what is to be changed."""

    def __init__(self, group: str, members: int, problem: str) -> None:
        super().__init__(f"group '{group}' has {members} members that {problem}", group=group, members=members)


class GroupNotSubscribedError(TidelogServerError):
    """The group is not subscribed to the channel."""

    def __init__(self, group: str, vchannel: str) -> None:
        super().__init__(
            f"group '{group}' is not subscribed to {vchannel}: subscribe it to the channel first, with AlterGroup",
            group=group, vchannel=vchannel,
        )  # fmt: skip


class GroupMemberFencedError(TidelogServerError):
    """The vchannel is not the member's, or not any more; with an empty name, the member is none any more."""

    def __init__(self, *, group: str, vchannel: str, member_id: str, epoch: int) -> None:
        problem = (
            f"{vchannel} is not held by member '{member_id}' of group '{group}' under epoch {epoch}: somebody else "
            "processes what comes, so leave it to them"
            if vchannel
            else f"'{member_id}' is no member of group '{group}' any more: its lease ran out, the group was destroyed, "
            "or another call speaks for it; join again"
        )
        super().__init__(
            problem,
            group=group, vchannel=vchannel, member_id=member_id, epoch=epoch,
        )  # fmt: skip


class GroupPositionMovedError(TidelogServerError):
    """The position is not where a commit expects it."""

    def __init__(self, *, group: str, vchannel: str, expected_tick: int, next_tick: int) -> None:
        super().__init__(
            f"group '{group}' is at tick {next_tick} of {vchannel}, not at {expected_tick}: what lies between was left "
            "out, or was processed by somebody else; go on from where the group is",
            group=group, vchannel=vchannel, expected_tick=expected_tick, next_tick=next_tick,
        )  # fmt: skip


class PositionTrimmedError(TidelogServerError):
    """A position lies below the first available one."""

    def __init__(self, *, vchannel: str, requested_tick: int, first_available_tick: int, text: str = "") -> None:
        super().__init__(
            text
            or f"tick {requested_tick} of {vchannel} was trimmed; the first available tick is {first_available_tick}: "
            "start there if the messages between are not needed",
            vchannel=vchannel, requested_tick=requested_tick, first_available_tick=first_available_tick,
        )  # fmt: skip

    @classmethod
    def before_creation(
        cls, *, vchannel: str, requested_tick: int, first_available_tick: int
    ) -> "PositionTrimmedError":
        """Return the error for a position that only an earlier channel of the same name can have had."""
        text = (
            f"tick {requested_tick} of {vchannel} lies before the creation of its channel, so the position is that of "
            f"another channel of this name, which was destroyed; the first available tick is {first_available_tick}: "
            "start there to read this one from its beginning"
        )
        return cls(
            vchannel=vchannel, requested_tick=requested_tick, first_available_tick=first_available_tick, text=text
        )


class PositionBeyondEndError(TidelogServerError):
    """A position lies beyond every tick that was handed out."""

    def __init__(self, *, requested_tick: int, latest_tick: int) -> None:
        super().__init__(
            f"tick {requested_tick} lies beyond the latest tick {latest_tick}: it belongs to another cluster, or "
            "was made up",
            requested_tick=requested_tick, latest_tick=latest_tick,
        )  # fmt: skip


class RateLimitRejectedError(TidelogServerError):
    """The node has too much in flight."""


class DiskFullError(TidelogServerError):
    """The disk is nearly full: appends are refused, reads and trims go on."""

    def __init__(self, *, free_bytes: int, needed_bytes: int) -> None:
        super().__init__(
            f"the disk has {free_bytes >> 20} MiB free and appends stop below {needed_bytes >> 20} MiB: "
            "trim channels or enlarge the disk; appends resume by themselves",
            free_bytes=free_bytes, needed_bytes=needed_bytes,
        )  # fmt: skip


class ShutdownError(TidelogServerError):
    """The node is shutting down and takes no new work."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down and takes no new work: try again later")


class StorageFailedError(TidelogServerError):
    """The log stopped after a storage failure.

    An append that was in flight when storage failed has an unknown effect: after a restart it may be there. With
    ``is_damage`` the cause is that stored data was found damaged.
    """

    def __init__(self, cause: str, *, effect: Effect = Effect.NONE, is_damage: bool = False) -> None:
        super().__init__(
            f"the log stopped after a storage failure ({cause}): look at the disk and the server's log, then "
            "restart the server",
            cause=cause,
        )
        self.effect = effect
        self.is_damage = is_damage

    def with_effect(self, effect: Effect) -> "StorageFailedError":
        """Return the same failure for a request that it had this effect on."""
        return StorageFailedError(self.values["cause"], effect=effect, is_damage=self.is_damage)


class DataLossError(TidelogServerError):
    """Stored data is damaged or missing. Nothing was modified."""


class InnerError(TidelogServerError):
    """A defect of the server. The log holds more; the caller learns nothing about the inside."""

    effect = Effect.UNKNOWN

    def __init__(self) -> None:
        super().__init__("the server met a defect of its own; its log has the details: please report it")


def _and(more: Sequence[str]) -> str:
    """Return further names as they follow the first one in a text."""
    shown = "".join(f", '{name}'" for name in more[:_NAMES_IN_TEXT])
    hidden = len(more) - _NAMES_IN_TEXT
    return f"{shown} and {hidden} more" if hidden > 0 else shown
