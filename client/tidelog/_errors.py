"""Errors of the client: the class says what the caller can do, ``effect`` what may have happened.

The tree::

    TidelogError
    ├── InvalidRequestError          correct the call
    ├── ChannelNotFoundError         create the channel, or correct the name
    ├── ChannelAlreadyExistsError    use it, or choose another name
    ├── ChannelsPartlyDoneError      look at its cause, then go on with what was not done
    ├── PositionTrimmedError         start at first_available_tick if the messages before it are not needed
    ├── PositionBeyondEndError       the position belongs to another cluster
    ├── LastTickMismatchError        read what came since, and decide anew
    ├── FencedError                  stop writing: a newer writer has taken over
    ├── ProducerFencedError          stop appending: a newer process has taken the producer over
    ├── SequenceError
    │   ├── SequenceGapError         append the batches before it first
    │   ├── SequenceReusedError      repeat a batch as it was, or take the next sequence
    │   ├── ProducerForgottenError   read back, then open it with accept_forgotten
    │   └── SequenceForgottenError   take the batch as appended
    ├── TransactionError
    │   ├── TransactionStateError    correct the program; if the outcome is unknown, read back
    │   ├── TransactionExpiredError  begin a new one: nothing of this is in the log
    │   ├── TransactionNotFoundError correct the id
    │   ├── TransactionForeignError  use the client that began it, or its client_id
    │   ├── TransactionTooLargeError use several transactions, or raise the server's limit
    │   ├── ApplicationForgottenError read back, then commit with is_first
    │   ├── AppVersionPassedError    use greater versions, or take another app_id
    │   └── AppCommitMismatchError   take another app_id, or a greater version
    ├── ResourceAcquiredError        wait until the broadcast that has the key is acknowledged, or give ``wait_s``
    ├── BroadcastError
    │   ├── BroadcastNotFoundError   correct the id, or take it as finished
    │   ├── BroadcastVchannelError   acknowledge on the vchannels that delivered it
    │   ├── BroadcastReusedError     repeat the broadcast as it was, or take another id
    │   ├── BroadcastForgottenError  read back
    │   └── BroadcastAbortedError    look at its abort_reason
    ├── GroupError
    │   ├── GroupNotFoundError       create the group, or correct the name
    │   ├── GroupAlreadyExistsError  use it, or choose another name
    │   ├── GroupInUseError          stop its members, or join them
    │   ├── GroupNotSubscribedError  subscribe the group to the channel first
    │   ├── GroupFencedError         leave it: somebody else processes these messages
    │   ├── ConsumeForgottenError    see what is missing, and seek there
    │   └── GroupPositionMovedError  go on from where the group is
    ├── BarrierNotReachedError       take barrier ticks from allocate_ticks, or wait longer
    ├── UnauthenticatedError         show a valid token or certificate
    ├── PermissionDeniedError        have the permission granted, or correct the name
    ├── TokenNotFoundError           list the tokens
    ├── UnavailableError             try again later
    │   ├── OwnershipLostError       or ask where the channel is now
    │   ├── OverloadedError          wait ``retry_after_s``
    │   ├── CredentialsExpiredError  the stream is opened again by itself
    │   ├── AuditFailedError         an operator acts
    │   ├── DiskFullError
    │   ├── StorageUnreadableError   an operator looks at the disk and the limits of the server
    │   └── ShutdownError
    ├── NotOwnerError                ask the node at its address, or use AsyncCluster, which does
    ├── DeadlineError                wait longer (it is a TimeoutError too)
    ├── AppendUnknownError           read back, or accept that the messages may be there
    ├── CheckpointError              an operator acts
    ├── StorageFailedError           an operator acts
    ├── DataLossError                an operator acts
    ├── ServerError                  report it
    ├── BufferFullError              wait for room with ``await producer.send``
    ├── ProducerStoppedError         look at its cause, then make a new producer
    ├── ClosedError                  correct the program
    └── ForkError                    open the client after the fork, or use the start method "spawn"

The text of an error is for people and is no interface; ``values`` and the attributes are.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from tidelog._tick import Tick

Effect = Literal["none", "unknown"]


class TidelogError(Exception):
    """Something that Tidelog could not do. The gRPC error, if there was one, is the ``__cause__``.

    Attributes:
        effect: ``none`` when nothing changed, so that repeating the call is safe; ``unknown`` when it may have.
        values: What the error speaks of, such as ``first_available_tick``; integers in decimal.
    """

    def __init__(self, message: str, *, effect: Effect = "none", values: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.effect: Effect = effect
        self.values: dict[str, str] = dict(values or {})

    def _tick(self, name: str) -> Tick:
        return Tick(self._number(name))

    def _number(self, name: str) -> int:
        return int(self.values.get(name, "0"))


def copy_of(error: TidelogError, effect: Effect | None = None) -> TidelogError:
    """Return a copy of ``error``, with another effect if one is given."""
    own = type(error)(str(error), effect=effect or error.effect, values=error.values)
    own.__cause__ = error.__cause__
    return own


class InvalidRequestError(TidelogError):
    """The request cannot be right: a field, a name, a size or a batch is not allowed. ``values`` says which."""


class ChannelNotFoundError(TidelogError):
    """The channel or vchannel does not exist on this server; of several, some do not."""

    @property
    def name(self) -> str:
        """The name that was asked for; of several, the first."""
        return self.values.get("name", "")

    @property
    def names(self) -> tuple[str, ...]:
        """All names that do not exist."""
        return _names(self.values)


class ChannelAlreadyExistsError(TidelogError):
    """The channel exists already, or exists with another number of vchannels; of several, some do."""

    @property
    def name(self) -> str:
        """The name that is taken; of several, the first."""
        return self.values.get("name", "")

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are taken."""
        return _names(self.values)


class ChannelsPartlyDoneError(TidelogError):
    """A change of more channels than fit into one request stopped on the way; its ``__cause__`` says why.

    Attributes:
        done: Names of the channels that were changed, in the order asked for.
        not_done: Those that were not: of the request that failed, and all after it, which were not tried.
        unknown: Those of a request whose outcome is unknown; then ``effect`` is so.
    """

    done: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, cause: TidelogError, *, done: Sequence[str], not_done: Sequence[str], unknown: Sequence[str]
    ) -> "ChannelsPartlyDoneError":
        """Return the error for a request that failed with ``cause`` after others had succeeded."""
        outcome = f", {len(unknown)} unknown" if unknown else ""
        error = cls(
            f"{len(done)} channels done, {len(not_done)} not done{outcome}: {cause}",
            effect=cause.effect, values=cause.values,
        )  # fmt: skip
        error.done, error.not_done, error.unknown = tuple(done), tuple(not_done), tuple(unknown)
        return error


class PositionTrimmedError(TidelogError):
    """A scan's position was trimmed. Scans never pass over the gap by themselves."""

    @property
    def vchannel(self) -> str:
        """The vchannel that was trimmed."""
        return self.values.get("vchannel", "")

    @property
    def requested_tick(self) -> Tick:
        """Where the scan wanted to start."""
        return self._tick("requested_tick")

    @property
    def first_available_tick(self) -> Tick:
        """The smallest position that is still there."""
        return self._tick("first_available_tick")


class PositionBeyondEndError(TidelogError):
    """A position lies beyond every tick that was handed out."""

    @property
    def requested_tick(self) -> Tick:
        """Where the scan wanted to start."""
        return self._tick("requested_tick")

    @property
    def latest_tick(self) -> Tick:
        """The greatest tick that was handed out."""
        return self._tick("latest_tick")


class GroupError(TidelogError):
    """Something about a consumer group. Nothing happened."""


class GroupNotFoundError(GroupError):
    """The consumer group does not exist."""


class GroupAlreadyExistsError(GroupError):
    """The consumer group exists already."""


class GroupInUseError(GroupError):
    """Members of the group consume what is to be changed."""


class GroupNotSubscribedError(GroupError):
    """The group is not subscribed to the channel."""


class GroupFencedError(GroupError):
    """The vchannel is not the member's any more, or the member is none: somebody else processes what comes."""


class ConsumeForgottenError(GroupError):
    """A repeated call of ``consume`` is not remembered: whether the first one took messages is unknown.

    Read what is missing, and ``seek_group`` there.
    """


class GroupPositionMovedError(GroupError):
    """The group is not where the commit expects it: messages were left out, or somebody else processed them."""

    @property
    def vchannel(self) -> str:
        """The vchannel."""
        return self.values.get("vchannel", "")

    @property
    def next_tick(self) -> Tick:
        """Where the group is."""
        return self._tick("next_tick")


class BarrierNotReachedError(TidelogError, TimeoutError):
    """The deadline ended before the server's clock reached the barrier tick. Nothing was appended."""

    @property
    def barrier_tick(self) -> Tick:
        """The barrier that was asked for."""
        return self._tick("barrier_tick")

    @property
    def latest_tick(self) -> Tick:
        """How far the server's ticks were."""
        return self._tick("latest_tick")


class LastTickMismatchError(TidelogError):
    """Something was appended to the vchannel since the caller looked. Nothing was appended by this call."""

    @property
    def expected_last_tick(self) -> Tick:
        """The last tick that the caller knew."""
        return self._tick("expected_last_tick")

    @property
    def last_tick(self) -> Tick:
        """The last tick of the vchannel; what it stands for may still be on its way to the disk."""
        return self._tick("last_tick")


class FencedError(TidelogError):
    """The vchannel has another fencing token: a newer writer has taken over, or the token was never set.

    Nothing was appended, and no token was changed.
    """

    @property
    def fencing_token(self) -> int:
        """The token that was given."""
        return self._number("fencing_token")

    @property
    def actual_fencing_token(self) -> int:
        """The token of the vchannel; 0 for none."""
        return self._number("actual_fencing_token")


class ProducerFencedError(TidelogError):
    """The epoch is not the producer's: a newer process has taken it over, or the server has forgotten the producer.

    Nothing was appended, unless ``effect`` is unknown: then an earlier try of the same call may have been.
    """

    @property
    def epoch(self) -> int:
        """The epoch that was given."""
        return self._number("epoch")

    @property
    def actual_epoch(self) -> int:
        """The producer's epoch."""
        return self._number("actual_epoch")


class SequenceError(TidelogError):
    """The sequence of a batch is not the next one of its producer, nor can its result be told.

    Nothing was appended, unless ``effect`` is unknown: then an earlier try of the same call may have been.
    """

    @property
    def sequence(self) -> int:
        """The sequence that was given."""
        return self._number("sequence")


class SequenceGapError(SequenceError):
    """A batch before this one is missing, or the server does not know the producer."""

    @property
    def expected_sequence(self) -> int:
        """The sequence that comes next."""
        return self._number("expected_sequence")


class SequenceReusedError(SequenceError):
    """The sequence came before, with other messages."""


class SequenceForgottenError(SequenceError):
    """The batch is in the log already, so long that its position is forgotten."""

    @property
    def oldest_sequence(self) -> int:
        """The oldest sequence whose position is known."""
        return self._number("oldest_sequence")


class ProducerForgottenError(SequenceError):
    """The server does not know the producer and may have evicted it, so its batches may be in the log.

    Read back what is there; then ``open_producer(..., accept_forgotten=True)`` numbers from 1, or take another name.
    """


class TransactionError(TidelogError):
    """The transaction does not allow what was asked."""

    @property
    def txn_id(self) -> int:
        """The transaction; 0 for one that the server does not know yet."""
        return self._number("txn_id")


class TransactionExpiredError(TransactionError):
    """The transaction is over, and nothing of it is in the log.

    ``values["cause"]`` says why: ``keepalive``, ``aborted``, ``channel_destroyed``, or ``forgotten`` after a restart of
    the server.
    """


class TransactionNotFoundError(TransactionError):
    """No transaction was ever begun under this id."""


class TransactionForeignError(TransactionError):
    """The transaction belongs to another client."""


class TransactionTooLargeError(TransactionError):
    """The transaction would have more bytes, batches or vchannels than the server allows. ``values`` says which."""


class ResourceAcquiredError(TidelogError):
    """A resource key is held by another broadcast, or another one waits for it before. Nothing was appended."""

    @property
    def domain(self) -> str:
        """Domain of the key."""
        return self.values.get("domain", "")

    @property
    def key(self) -> str:
        """The key."""
        return self.values.get("key", "")

    @property
    def broadcast_id(self) -> int:
        """The broadcast that has it; 0 for one of another principal, whose vchannels you may not read."""
        return self._number("broadcast_id")


class BroadcastError(TidelogError):
    """Something is wrong with a broadcast, or with the id that was given."""

    @property
    def broadcast_id(self) -> int:
        """The id."""
        return self._number("broadcast_id")


class BroadcastNotFoundError(BroadcastError):
    """No broadcast has this id, or it was finished so long ago that it is forgotten."""


class BroadcastVchannelError(BroadcastError, InvalidRequestError):
    """An acknowledgement names a vchannel that its broadcast is not for. Nothing was acknowledged."""

    @property
    def vchannel(self) -> str:
        """The vchannel."""
        return self.values.get("vchannel", "")


class BroadcastReusedError(BroadcastError):
    """The broadcast id came before, with another message, other vchannels or other keys."""


class BroadcastForgottenError(BroadcastError):
    """The broadcast id is so old that the server does not know whether it was accepted."""


class BroadcastAbortedError(BroadcastError):
    """The broadcast was aborted, so it will not be acknowledged by all."""

    @property
    def abort_reason(self) -> str:
        """Why."""
        return self.values.get("abort_reason", "")


class TransactionStateError(TransactionError):
    """The transaction is not in a state for this call: it is over, or its outcome is unknown. Nothing changed."""


class ApplicationForgottenError(TransactionError):
    """The server does not know the application and may have evicted its last commit, so the version may be in the log.

    Read back what is there; then ``commit_prepared(..., is_first=True)``.
    """


class AppVersionPassedError(TransactionError):
    """The application has committed a later version, so nobody knows whether this one was committed. Nothing changed.

    ``values`` has ``last_version``.
    """


class AppCommitMismatchError(TransactionError):
    """The application has committed something else under this name, so this commit is no repetition. Nothing changed.

    ``values`` has ``mismatch``: ``query`` where the versions are those of another query, ``messages``, ``vchannels`` or
    ``channels`` where this version was committed with another content.
    """


class UnavailableError(TidelogError):
    """The server cannot be reached, or cannot take the work now."""


class OwnershipLostError(UnavailableError):
    """The node's lease ran out: it serves nobody until it has a new one."""


class NotOwnerError(TidelogError):
    """The channel belongs to another node. Nothing happened."""

    @property
    def node_id(self) -> str:
        """The node that owns it."""
        return self.values.get("node_id", "")

    @property
    def address(self) -> str:
        """``host:port`` where that node is; empty while it is not running."""
        return self.values.get("address", "")


class OverloadedError(UnavailableError):
    """The server has too much in flight, or the caller's quota is spent."""

    @property
    def retry_after_s(self) -> float:
        """How long the server asks to wait; 0 if it does not say. Calls are repeated accordingly."""
        return self._number("retry_after_ms") / 1_000


class DiskFullError(UnavailableError):
    """The server's disk is nearly full: appends are refused, reads and trims go on."""


class CredentialsExpiredError(UnavailableError):
    """The credentials of an open stream ran out or were revoked. It is opened again with those that there are then."""


class AuditFailedError(UnavailableError):
    """The server cannot write its audit log, and so makes no administrative call."""


class StorageUnreadableError(UnavailableError):
    """The system did not let the server read its store. No message is known to be lost: read again."""


class ShutdownError(UnavailableError):
    """The server is shutting down."""


class UnauthenticatedError(TidelogError):
    """The server takes none of the client's credentials: token or certificate. Nothing happened."""


class PermissionDeniedError(TidelogError):
    """The client may not do this, or there is nothing of this name: which of both is not told. Nothing happened."""

    @property
    def verb(self) -> str:
        """The permission that is missing; several with spaces between them where any of them would do."""
        return self.values.get("verb", "")

    @property
    def name(self) -> str:
        """Where it is missing; empty where it is about no name."""
        return self.values.get("name", "")


class TokenNotFoundError(TidelogError):
    """No token has this id."""


class DeadlineError(TidelogError, TimeoutError):
    """No answer came in time."""


class AppendUnknownError(TidelogError):
    """The messages may or may not be in the log: the connection, or the server, went away before it answered.

    The client never sends them again by itself, because that could write them twice, unless they are numbered: as those
    of a producer are, and of ``append(producer=...)``. Of those this is said when no answer came for too long.
    """


class CheckpointError(TidelogError):
    """A checkpoint for a backup could not be made, or is not there any more."""


class StorageFailedError(TidelogError):
    """The server stopped taking appends after a storage failure."""


class DataLossError(TidelogError):
    """Stored messages are damaged or missing, or were damaged on the way."""


class ServerError(TidelogError):
    """A defect of the server, or an answer that no Tidelog server gives."""


class BufferFullError(TidelogError):
    """The producer has no room for another message now. The message was not taken."""


class ProducerStoppedError(TidelogError):
    """An earlier append of this producer failed, which is the ``__cause__``; this message was not sent.

    A producer stops rather than leave a gap in what it sends.
    """


class ClosedError(TidelogError):
    """The client, producer or scan was closed before."""


class ForkError(TidelogError):
    """This process was forked while its parent had streams open or used gRPC otherwise, so gRPC cannot work here."""


def _names(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that an error speaks of; an older server gives one only."""
    return tuple(values.get("names", values.get("name", "")).split(","))
