"""Errors of the client: the class states what the caller can do, ``effect`` whether anything may have changed.

The tree::

    TidelogError
    ├── InvalidRequestError          correct the call
    ├── ChannelNotFoundError         create the channel, or correct the name
    ├── ChannelAlreadyExistsError    use it, or choose another name
    ├── ChannelsPartlyDoneError      check its cause, then repeat the call for the channels in ``not_done``
    ├── PositionTrimmedError         start at first_available_tick if the messages before it are not needed
    ├── PositionBeyondEndError       the position belongs to another cluster
    ├── LastTickMismatchError        read what was appended since, then decide again
    ├── FencedError                  stop writing: a newer writer has fenced this one
    ├── ProducerFencedError          stop appending: a newer process has opened the producer
    ├── SequenceError
    │   ├── SequenceGapError         append the batches before it first
    │   ├── SequenceReusedError      repeat the batch unchanged, or use the next sequence
    │   ├── ProducerForgottenError   read back, then open it with accept_forgotten
    │   └── SequenceForgottenError   treat the batch as appended
    ├── TransactionError
    │   ├── TransactionStateError    correct the program; if the outcome is unknown, read back
    │   ├── TransactionExpiredError  begin a new one: nothing of this one is in the log
    │   ├── TransactionNotFoundError correct the id
    │   ├── TransactionForeignError  use the client that began it, or its client_id
    │   ├── TransactionTooLargeError use several transactions, or raise the server's limit
    │   ├── ApplicationForgottenError read back, then commit with is_first
    │   ├── AppVersionPassedError    use greater versions, or another app_id
    │   └── AppCommitMismatchError   use another app_id, or a greater version
    ├── ResourceAcquiredError        wait until the broadcast that holds the key is acknowledged, or set ``wait_s``
    ├── BroadcastError
    │   ├── BroadcastNotFoundError   correct the id, or treat the broadcast as finished
    │   ├── BroadcastVchannelError   acknowledge on the vchannels that delivered it
    │   ├── BroadcastReusedError     repeat the broadcast unchanged, or use another id
    │   ├── BroadcastForgottenError  read back
    │   └── BroadcastAbortedError    check its abort_reason
    ├── GroupError
    │   ├── GroupNotFoundError       create the group, or correct the name
    │   ├── GroupAlreadyExistsError  use it, or choose another name
    │   ├── GroupInUseError          stop its members, or join them
    │   ├── GroupNotSubscribedError  subscribe the group to the channel first
    │   ├── GroupFencedError         stop processing: another member processes these messages
    │   ├── ConsumeForgottenError    find out what is missing, and seek there
    │   └── GroupPositionMovedError  resume at the group's position
    ├── JournalRevisionError         list the journals, then decide again
    ├── MailboxError
    │   ├── MailboxNotFoundError     create the mailbox, or correct the name
    │   ├── MailboxAlreadyExistsError use it, or choose another name
    │   ├── MailboxInUseError        change ``dead_letter`` of the other mailbox
    │   ├── MailboxFullError         wait for workers, or raise ``max_messages``
    │   ├── DeadLetterCycleError     choose another mailbox for dead letters
    │   ├── UnsettledDeliveriesError confirm a delivery with ``ack()``, then ask for the next one
    │   ├── DeliveriesRefusedError   check its ``failures``: the other deliveries were accepted
    │   └── LockError                stop processing: another worker may process the message
    │       ├── LockExpiredError     extend leases while a message is processed
    │       └── AlreadyAcknowledgedError  nothing: the delivery was acknowledged before
    ├── BlobNotFoundError            store the blob again
    ├── BarrierNotReachedError       take barrier ticks from allocate_ticks, or wait longer
    ├── UnauthenticatedError         present a valid token or certificate
    ├── PermissionDeniedError        request the permission, or correct the name
    ├── TokenNotFoundError           list the tokens
    ├── UnavailableError             retry later
    │   ├── OwnershipLostError       or find the channel's new owner
    │   ├── OverloadedError          wait ``retry_after_s``
    │   ├── CredentialsExpiredError  nothing: the client reopens the stream
    │   ├── AuditFailedError         an operator must act
    │   ├── DiskFullError
    │   ├── StorageUnreadableError   an operator must check the server's disk and limits
    │   └── ShutdownError
    ├── NotOwnerError                call the node at its address, or use AsyncCluster, which does
    ├── DeadlineError                wait longer (it is a TimeoutError too)
    ├── AppendUnknownError           read back, or accept that the messages may be there
    ├── CheckpointError              an operator must act
    │   ├── CheckpointUnsupportedError store the log on disk
    │   └── CheckpointNotFoundError  make a new one
    ├── StorageFailedError           an operator must act
    ├── DataLossError                an operator must act
    ├── ServerError                  report it
    ├── BufferFullError              wait for room with ``await producer.send``
    ├── ProducerStoppedError         check its cause, then create a new producer
    ├── ClosedError                  correct the program
    └── ForkError                    open the client after the fork, or use the start method "spawn"

The text of an error is not an interface; ``values`` and the attributes are.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Generic, Literal, Self, TypeVar, overload

from tidelog.tick import Tick

Effect = Literal["none", "unknown"]
_Converted = TypeVar("_Converted")
_CLASS_OF_REASON: Final[dict[str, type["TidelogError"]]] = {}


class TidelogError(Exception):
    """Base class of all errors of Tidelog. The gRPC error, if there was one, is the ``__cause__``.

    Attributes:
        effect: ``none`` if nothing changed, so repeating the call is safe; ``unknown`` if something may have changed.
        values: Details of the error, such as ``first_available_tick``; integers in decimal.
        reasons: The reasons on the wire for which this class is raised.
    """

    reasons: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, reasons: tuple[str, ...] = ()) -> None:
        super().__init_subclass__()
        assert not _CLASS_OF_REASON.keys() & set(reasons), "two classes have one reason"
        cls.reasons = reasons
        _CLASS_OF_REASON.update(dict.fromkeys(reasons, cls))

    def __init__(self, message: str, *, effect: Effect = "none", values: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.effect: Effect = effect
        self.values: dict[str, str] = dict(values or {})


class Value(Generic[_Converted]):
    """An attribute of an error: the one of its ``values`` with the attribute's name, converted."""

    def __init__(self, doc: str, convert: Callable[[str], _Converted]) -> None:
        """Make an attribute with the docstring ``doc``; ``convert`` gets an empty text for an absent value."""
        self.__doc__, self._convert = doc, convert

    def __set_name__(self, owner: type[TidelogError], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, error: None, owner: type[TidelogError]) -> Self: ...
    @overload
    def __get__(self, error: TidelogError, owner: type[TidelogError]) -> _Converted: ...
    def __get__(self, error: TidelogError | None, owner: type[TidelogError]) -> Self | _Converted:
        return self if error is None else self._convert(error.values.get(self._name, ""))

    def __set__(self, error: TidelogError, value: object) -> None:
        raise AttributeError(f"{self._name} cannot be set")


def text_value(doc: str) -> Value[str]:
    """Return an attribute with a text, empty if it is absent."""
    return Value(doc, str)


def number_value(doc: str) -> Value[int]:
    """Return an attribute with a number, 0 if it is absent."""
    return Value(doc, lambda text: int(text or "0"))


def tick_value(doc: str) -> Value[Tick]:
    """Return an attribute with a tick, 0 if it is absent."""
    return Value(doc, lambda text: Tick(int(text or "0")))


def copy_of(error: TidelogError, effect: Effect | None = None) -> TidelogError:
    """Return a copy of ``error``, with ``effect`` instead of its own if it is set."""
    own = type(error)(str(error), effect=effect or error.effect, values=error.values)
    own.__cause__ = error.__cause__
    return own


def class_of_reason(reason: str) -> type[TidelogError]:
    """Return the class for a wire reason; ServerError for an unknown one, such as a newer server's."""
    return _CLASS_OF_REASON.get(reason, ServerError)


class InvalidRequestError(
    TidelogError,
    reasons=(
        "REASON_INVALID_ARGUMENT", "REASON_INVALID_NAME", "REASON_EMPTY_BATCH", "REASON_MESSAGE_TOO_LARGE",
        "REASON_BATCH_TOO_LARGE", "REASON_MALFORMED_COLUMNS", "REASON_CHECKSUM_MISMATCH", "REASON_RESERVED_PROPERTY",
        "REASON_VCHANNEL_NOT_IN_TRANSACTION", "REASON_WAL_NAME_MISMATCH", "REASON_MALFORMED_REQUEST",
        "REASON_LEASE_TOO_LONG", "REASON_BODY_TOO_LARGE", "REASON_INVALID_DELAY", "REASON_BLOB_TOO_LARGE",
    ),
):  # fmt: skip
    """The request is invalid: a field, name, size or batch is not allowed. ``values`` states which."""


class ChannelNotFoundError(TidelogError, reasons=("REASON_CHANNEL_NOT_EXIST",)):
    """At least one of the requested channels or vchannels does not exist on this server."""

    name = text_value("The name that does not exist; of several, the first.")

    @property
    def names(self) -> tuple[str, ...]:
        """All names that do not exist."""
        return _names(self.values)


class ChannelAlreadyExistsError(TidelogError, reasons=("REASON_CHANNEL_ALREADY_EXISTS",)):
    """At least one of the channels exists already, possibly with another number of vchannels."""

    name = text_value("The name that is taken; of several, the first.")

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are taken."""
        return _names(self.values)


class ChannelsPartlyDoneError(TidelogError):
    """A change of more channels than fit into one request failed partway; the ``__cause__`` is the reason.

    Attributes:
        done: Names of the channels that were changed, in the requested order.
        not_done: Names of the channels that were not changed: those of the failed request, and all after it, which
            were not tried.
        unknown: Names of the channels whose request has an unknown outcome; ``effect`` is then ``unknown``.
    """

    done: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class PositionTrimmedError(TidelogError, reasons=("REASON_POSITION_TRIMMED",)):
    """A scan's position was trimmed. Scans never skip the gap by themselves."""

    vchannel = text_value("The vchannel that was trimmed.")
    requested_tick = tick_value("The requested start of the scan.")
    first_available_tick = tick_value("The smallest position that is still available.")


class PositionBeyondEndError(TidelogError, reasons=("REASON_POSITION_BEYOND_END",)):
    """A position lies beyond every tick that was allocated."""

    requested_tick = tick_value("The requested start of the scan.")
    latest_tick = tick_value("The greatest tick that was allocated.")


class GroupError(TidelogError):
    """A call about a consumer group failed. Nothing changed."""


class GroupNotFoundError(GroupError, reasons=("REASON_GROUP_NOT_EXIST",)):
    """The consumer group does not exist."""


class GroupAlreadyExistsError(GroupError, reasons=("REASON_GROUP_ALREADY_EXISTS",)):
    """The consumer group exists already."""


class GroupInUseError(GroupError, reasons=("REASON_GROUP_IN_USE",)):
    """Members of the group consume the vchannels that are to be changed."""


class GroupNotSubscribedError(GroupError, reasons=("REASON_GROUP_NOT_SUBSCRIBED",)):
    """The group is not subscribed to the channel."""


class GroupFencedError(GroupError, reasons=("REASON_GROUP_MEMBER_FENCED",)):
    """The member has left the group or lost the vchannel: another member processes its messages from now on."""


class ConsumeForgottenError(GroupError, reasons=("REASON_CONSUME_FORGOTTEN",)):
    """The server has forgotten a repeated call of ``consume``: whether the first one consumed messages is unknown.

    Read what is missing, and ``seek_group`` there.
    """


class GroupPositionMovedError(GroupError, reasons=("REASON_GROUP_POSITION_MOVED",)):
    """The group's position is not what the commit expects: another member committed, or messages were left out."""

    vchannel = text_value("The vchannel.")
    next_tick = tick_value("The group's position.")


class JournalRevisionError(TidelogError, reasons=("REASON_JOURNAL_REVISION_MISMATCH",)):
    """A journal does not have the expected revision: it was changed, created or deleted. Nothing was applied."""

    name = text_value("The journal.")
    expected_revision = number_value("The revision that the caller expected; 0 for no journal.")
    revision = number_value("The revision of the journal; 0 if it does not exist.")


class MailboxError(TidelogError):
    """A mailbox refused the request."""

    name = text_value("The mailbox.")


class MailboxNotFoundError(MailboxError, reasons=("REASON_MAILBOX_NOT_EXIST",)):
    """No mailbox has this name."""


class MailboxAlreadyExistsError(MailboxError, reasons=("REASON_MAILBOX_ALREADY_EXISTS",)):
    """A mailbox with this name exists already."""


class MailboxInUseError(MailboxError, reasons=("REASON_MAILBOX_IN_USE",)):
    """Another mailbox sends its dead letters to this one, so it was not deleted."""

    mailbox = text_value("The other mailbox.")


class MailboxFullError(MailboxError, reasons=("REASON_MAILBOX_FULL",)):
    """The mailbox holds as many messages as its settings allow. Nothing was sent."""

    max_messages = number_value("The limit.")


class DeadLetterCycleError(MailboxError, reasons=("REASON_DEAD_LETTER_CYCLE",)):
    """The dead letters of mailboxes would form a cycle. Nothing was changed."""

    dead_letter = text_value("The mailbox that cannot receive the dead letters.")


class LockError(MailboxError, reasons=("REASON_LOCK_UNKNOWN",)):
    """The mailbox does not know the lock: it is invalid, of another mailbox, or ended too long ago."""

    lock_id = text_value("The lock, 40 hexadecimal digits.")


class LockExpiredError(LockError, reasons=("REASON_LOCK_EXPIRED",)):
    """The lease of the lock has ended, and the message may have been delivered to another worker."""


class AlreadyAcknowledgedError(LockError, reasons=("REASON_ALREADY_ACKNOWLEDGED",)):
    """The delivery of the lock was confirmed or rejected before."""


class BarrierNotReachedError(TidelogError, TimeoutError, reasons=("REASON_BARRIER_NOT_REACHED",)):
    """The server's clock did not reach the barrier tick before the deadline. Nothing was appended."""

    barrier_tick = tick_value("The requested barrier.")
    latest_tick = tick_value("The server's latest tick at that time.")


class LastTickMismatchError(TidelogError, reasons=("REASON_LAST_TICK_MISMATCH",)):
    """The vchannel's last tick is not ``expected_last_tick``: another append came first. This call appended nothing."""

    expected_last_tick = tick_value("The last tick that the caller expected.")
    last_tick = tick_value("The last tick of the vchannel; its message may not be durable yet.")


class FencedError(TidelogError, reasons=("REASON_FENCING_TOKEN_MISMATCH",)):
    """The vchannel has another fencing token: a newer writer has taken over, or the token was never set.

    Nothing was appended, and no token was changed.
    """

    fencing_token = number_value("The token of the request.")
    actual_fencing_token = number_value("The token of the vchannel; 0 if it is not set.")


class ProducerFencedError(TidelogError, reasons=("REASON_PRODUCER_FENCED",)):
    """The epoch is out of date: a newer process has opened the producer, or the server has forgotten the producer.

    Nothing was appended, unless ``effect`` is ``unknown``: then an earlier attempt of the same call may have succeeded.
    """

    epoch = number_value("The epoch of the request.")
    actual_epoch = number_value("The producer's epoch.")


class SequenceError(TidelogError):
    """The sequence of a batch is not the next one of its producer, and the server does not know its result.

    Nothing was appended, unless ``effect`` is ``unknown``: then an earlier attempt of the same call may have succeeded.
    """

    sequence = number_value("The sequence of the request.")


class SequenceGapError(SequenceError, reasons=("REASON_SEQUENCE_GAP", "REASON_TRANSACTION_SEQUENCE_GAP")):
    """A batch before this one is missing, or the server does not know the producer."""

    expected_sequence = number_value("The next sequence of the producer.")


class SequenceReusedError(SequenceError, reasons=("REASON_SEQUENCE_REUSED", "REASON_TRANSACTION_SEQUENCE_REUSED")):
    """The sequence was used before, with other messages."""


class SequenceForgottenError(SequenceError, reasons=("REASON_SEQUENCE_FORGOTTEN",)):
    """The batch is in the log already, but the server no longer remembers its position."""

    oldest_sequence = number_value("The oldest sequence whose position is known.")


class ProducerForgottenError(SequenceError, reasons=("REASON_PRODUCER_FORGOTTEN",)):
    """The server does not know the producer and may have evicted it, so its batches may be in the log.

    Read back what is there. Then number from 1 with ``open_producer(..., accept_forgotten=True)``, or use another name.
    """


class TransactionError(TidelogError):
    """A call failed because of the transaction's state, id or size."""

    txn_id = number_value("The transaction's id; 0 if the server has not assigned one yet.")


class TransactionExpiredError(TransactionError, reasons=("REASON_TRANSACTION_EXPIRED",)):
    """The transaction is over, and nothing of it is in the log.

    ``values["cause"]`` is ``keepalive``, ``aborted``, ``channel_destroyed``, or ``forgotten`` after a restart of the
    server.
    """


class TransactionNotFoundError(TransactionError, reasons=("REASON_TRANSACTION_NOT_EXIST",)):
    """No transaction was ever begun under this id."""


class TransactionForeignError(TransactionError, reasons=("REASON_TRANSACTION_FOREIGN",)):
    """The transaction belongs to another client."""


class TransactionTooLargeError(TransactionError, reasons=("REASON_TRANSACTION_TOO_LARGE",)):
    """The transaction would have more bytes, batches or vchannels than the server allows. ``values`` states which."""


class ResourceAcquiredError(TidelogError, reasons=("REASON_RESOURCE_ACQUIRED",)):
    """Another broadcast holds a resource key or waits for it ahead of this one. Nothing was appended."""

    domain = text_value("Domain of the key.")
    key = text_value("The key.")
    broadcast_id = number_value(
        "The broadcast that holds the key; 0 if another principal's, on vchannels that the client may not read."
    )


class BroadcastError(TidelogError):
    """A call about a broadcast failed."""

    broadcast_id = number_value("The id of the request.")


class BroadcastNotFoundError(BroadcastError, reasons=("REASON_BROADCAST_NOT_EXIST",)):
    """No broadcast has this id, or it finished long ago and the server has forgotten it."""


class BroadcastVchannelError(BroadcastError, InvalidRequestError, reasons=("REASON_BROADCAST_VCHANNEL_UNKNOWN",)):
    """An acknowledgement names a vchannel that is not one of the broadcast's. Nothing was acknowledged."""

    vchannel = text_value("The vchannel.")


class BroadcastReusedError(BroadcastError, reasons=("REASON_BROADCAST_REUSED",)):
    """The broadcast id was used before, with another message, other vchannels or other keys."""


class BroadcastForgottenError(BroadcastError, reasons=("REASON_BROADCAST_FORGOTTEN",)):
    """The broadcast id is so old that the server no longer knows whether it was accepted."""


class BroadcastAbortedError(BroadcastError, reasons=("REASON_BROADCAST_ABORTED",)):
    """The broadcast was aborted, so not all vchannels will acknowledge it."""

    abort_reason = text_value("The reason that was passed to the abort.")


class TransactionStateError(
    TransactionError,
    reasons=("REASON_INVALID_TRANSACTION_STATE", "REASON_TRANSACTION_INCOMPLETE"),
):  # fmt: skip
    """The transaction's state does not allow this call: it is over, or its outcome is unknown. Nothing changed."""


class ApplicationForgottenError(TransactionError, reasons=("REASON_APPLICATION_FORGOTTEN",)):
    """The server does not know the application and may have evicted its last commit, so the version may be in the log.

    Read back what is there; then ``commit_prepared(..., is_first=True)``.
    """


class AppVersionPassedError(TransactionError, reasons=("REASON_APP_VERSION_PASSED",)):
    """The application has committed a later version; whether this one was committed is unknown. Nothing changed.

    ``values`` has ``last_version``.
    """


class AppCommitMismatchError(TransactionError, reasons=("REASON_APP_COMMIT_MISMATCH",)):
    """The application has committed something else under this name, so this is not a repetition. Nothing changed.

    ``values["mismatch"]`` is ``query`` if the versions are those of another query; ``messages``, ``vchannels`` or
    ``channels`` if this version was committed with other content.
    """


class UnavailableError(TidelogError, reasons=("REASON_METADATA_UNAVAILABLE", "REASON_NOT_LEADER")):
    """The server cannot be reached, or cannot accept the request now."""


class OwnershipLostError(UnavailableError, reasons=("REASON_OWNERSHIP_LOST",)):
    """The node's lease expired: it refuses all calls until it has a new one."""


class NotOwnerError(TidelogError, reasons=("REASON_NOT_OWNER",)):
    """The channel belongs to another node. Nothing changed."""

    node_id = text_value("The node that owns it.")
    address = text_value("``host:port`` of that node; empty while it is not running.")


class OverloadedError(UnavailableError, reasons=("REASON_RATE_LIMIT_REJECTED",)):
    """The server has too much in flight, or the caller's quota is exhausted."""

    @property
    def retry_after_s(self) -> float:
        """The delay that the server requests; 0 if it requests none. The client's retries respect it."""
        return int(self.values.get("retry_after_ms", "0")) / 1_000


class DiskFullError(UnavailableError, reasons=("REASON_DISK_FULL",)):
    """The server's disk is nearly full: it refuses appends; reads and trims still work."""


class CredentialsExpiredError(UnavailableError, reasons=("REASON_CREDENTIALS_EXPIRED",)):
    """The credentials of an open stream expired or were revoked. The client reopens it with its current ones."""


class AuditFailedError(UnavailableError, reasons=("REASON_AUDIT_FAILED",)):
    """The server cannot write its audit log, so it refuses administrative calls."""


class StorageUnreadableError(UnavailableError, reasons=("REASON_STORAGE_UNREADABLE",)):
    """The operating system refused the server a read of its store. No message is known to be lost: read again."""


class ShutdownError(UnavailableError, reasons=("REASON_ON_SHUTDOWN",)):
    """The server is shutting down."""


class UnauthenticatedError(TidelogError, reasons=("REASON_UNAUTHENTICATED",)):
    """The server accepts neither the client's token nor its certificate. Nothing changed."""


class PermissionDeniedError(TidelogError, reasons=("REASON_PERMISSION_DENIED",)):
    """The client may not do this, or the name does not exist; the server does not reveal which. Nothing changed."""

    verb = text_value("The missing permission; if any of several would suffice, all of them, separated by spaces.")
    name = text_value("The name on which it is missing; empty if the permission is not about a name.")


class TokenNotFoundError(TidelogError, reasons=("REASON_TOKEN_NOT_EXIST",)):
    """No token has this id."""


class DeadlineError(TidelogError, TimeoutError):
    """No response arrived in time."""


class AppendUnknownError(TidelogError, reasons=("REASON_TRANSACTION_OUTCOME_FORGOTTEN",)):
    """The messages may or may not be in the log: the connection or the server was lost before the response.

    The client does not send such messages again, because that could write them twice. It does retry numbered messages,
    those of a producer and of ``append(producer=...)``: for them this error means that the retries timed out.
    """


class CheckpointError(TidelogError, reasons=("REASON_CHECKPOINT_FAILED",)):
    """A checkpoint for a backup could not be made, or no longer exists."""


class CheckpointUnsupportedError(CheckpointError, reasons=("REASON_CHECKPOINT_UNSUPPORTED",)):
    """The server cannot make checkpoints, because its log is in memory."""


class CheckpointNotFoundError(CheckpointError, reasons=("REASON_CHECKPOINT_NOT_EXIST",)):
    """The checkpoint does not exist: its lease ended, it was released, or the server restarted."""


class StorageFailedError(TidelogError, reasons=("REASON_STORAGE_FAILED",)):
    """The server stopped accepting appends after a storage failure."""


class DataLossError(TidelogError, reasons=("REASON_DATA_LOSS",)):
    """Stored messages are damaged or missing, or were damaged in transit."""


class ServerError(TidelogError, reasons=("REASON_INNER",)):
    """A defect of the server, or a response that no Tidelog server sends."""


class BufferFullError(TidelogError):
    """The producer's buffer has no room for another message now. The message was not accepted."""


class ProducerStoppedError(TidelogError):
    """An earlier append of this producer failed; that error is the ``__cause__``. This message was not sent.

    A producer stops rather than leave a gap in its messages.
    """


class ClosedError(TidelogError):
    """The client, producer or scan is closed."""


class ForkError(TidelogError):
    """This process was forked while its parent had streams open or used gRPC otherwise, so gRPC cannot work here."""


def _names(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in an error's values; older servers send only one."""
    return tuple(values.get("names", values.get("name", "")).split(","))
