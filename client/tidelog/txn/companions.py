"""What commits with the messages of a transaction: positions of groups, and messages and deliveries of mailboxes."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol, runtime_checkable

from tidelog.append.stream import AppendStream
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.transport.deadline import Deadline
from tidelog.transport.node.located import located
from tidelog.txn.options import HasCommits
from tidelog.types import PositionCommit, TransactionResult
from tidelog.v1 import group_service_pb2, mailbox_service_pb2, wal_service_pb2
from tidelog.wire import protocol as _wire

MAX_MAILBOX_WORK: Final = 1_000
"""Maximum number of messages and deliveries of mailboxes in a transaction."""


class Sendable(Protocol):
    """A message for a mailbox, such as ``OutgoingMessage``."""

    def to_wire(self) -> mailbox_service_pb2.OutgoingMessage:
        """Return the message in protobuf. Raises ValueError, TypeError."""


@runtime_checkable
class Acknowledgeable(Protocol):
    """A delivery of a mailbox, such as ``Delivery``."""

    @property
    def mailbox(self) -> str:
        """Name of its mailbox."""

    @property
    def lock(self) -> bytes:
        """Id of its lock."""

    is_settled: bool
    """Whether this client has acknowledged it."""


class Companions:
    """What commits with a transaction, or not at all.

    Attributes:
        positions: Positions by group and vchannel.
    """

    def __init__(self) -> None:
        self.positions: dict[tuple[str, str], PositionCommit] = {}
        # The consumers with positions among them.
        self._consumers: list[HasCommits] = []
        self._sends: dict[str, list[mailbox_service_pb2.OutgoingMessage]] = {}
        self._deliveries: list[Acknowledgeable] = []

    @property
    def has_mailboxes(self) -> bool:
        """True if messages or deliveries of mailboxes are among them."""
        return bool(self._sends or self._deliveries)

    @property
    def vchannels(self) -> list[str]:
        """The vchannels of the positions."""
        return [vchannel for _, vchannel in self.positions]

    @property
    def mailboxes(self) -> list[str]:
        """The mailboxes of the messages and deliveries."""
        return [*self._sends, *(delivery.mailbox for delivery in self._deliveries)]

    def add_positions(self, source: HasCommits | Iterable[PositionCommit]) -> None:
        """See ``AsyncTransaction.commit_positions``."""
        if isinstance(source, HasCommits):
            self._consumers.append(source)
            commits: Iterable[PositionCommit] = source.commits()
        else:
            commits = source
        self.positions.update({(commit.group, commit.vchannel): commit for commit in commits})

    def add_message(self, mailbox: str, message: bytes | Sendable) -> None:
        """See ``AsyncTransaction.send``."""
        new = mailbox_service_pb2.OutgoingMessage
        if not isinstance(message, bytes) and not hasattr(message, "to_wire"):
            raise TypeError(f"the message is {type(message).__name__}, expected bytes or an OutgoingMessage")
        wire = new(body=message) if isinstance(message, bytes) else message.to_wire()
        self._check_room()
        self._sends.setdefault(mailbox, []).append(wire)

    def add_delivery(self, delivery: Acknowledgeable) -> None:
        """See ``AsyncTransaction.ack``."""
        if not isinstance(delivery, Acknowledgeable):
            raise TypeError(f"the delivery is of type {type(delivery).__name__}, expected one of a mailbox")
        if any(delivery.lock == each.lock for each in self._deliveries):
            raise InvalidRequestError("the transaction acknowledges a delivery twice: acknowledge it once")
        self._check_room()
        self._deliveries.append(delivery)

    def serialized(self) -> bytes:
        """Return them as a serialized transaction without parts: empty for most."""
        return self.to_wire().SerializeToString() if self.positions or self.has_mailboxes else b""

    def to_wire(self) -> wal_service_pb2.Transaction:
        """Return them as a transaction without parts."""
        acks: dict[str, list[bytes]] = {}
        for delivery in self._deliveries:
            acks.setdefault(delivery.mailbox, []).append(delivery.lock)
        return wal_service_pb2.Transaction(
            positions=map(_wire.position_commit, self.positions.values()),
            sends=[
                mailbox_service_pb2.SendRequest(mailbox=mailbox, messages=messages)
                for mailbox, messages in self._sends.items()
            ],
            acks=[
                mailbox_service_pb2.AckDeliveriesRequest(mailbox=mailbox, confirmed=locks)
                for mailbox, locks in acks.items()
            ],
        )

    def sent(self, result: TransactionResult) -> dict[str, tuple[int, ...]]:
        """Return the ids of the sent messages by mailbox, from the result of the commit."""
        return dict(zip(self._sends, result.sent_ids, strict=False))

    def note_committed(self) -> None:
        """Tell the consumers and the deliveries that they are committed."""
        consumers, self._consumers = self._consumers, []
        for consumer in consumers:
            consumer.note_committed(self.positions.values())
        for delivery in self._deliveries:
            delivery.is_settled = True

    def rewind(self, cause: TidelogError | None) -> None:
        """Make the consumers deliver uncommitted messages again. Leases of mailboxes stay as they are."""
        consumers, self._consumers = self._consumers, []
        for consumer in consumers:
            consumer.rewind(cause)

    def _check_room(self) -> None:
        if sum(map(len, self._sends.values())) + len(self._deliveries) >= MAX_MAILBOX_WORK:
            raise InvalidRequestError(
                f"the transaction has {MAX_MAILBOX_WORK} messages and deliveries of mailboxes, the maximum: commit it"
            )

    async def commit_alone(self, appends: Callable[[], AppendStream], deadline: Deadline) -> None:
        """Commit the positions, if there are any, without messages. Raises TidelogError."""
        if positions := self.positions.values():
            await located(appends, self.vchannels)
            transport = appends().transport
            request = group_service_pb2.CommitPositionsRequest(positions=map(_wire.position_commit, positions))
            await transport.call(
                transport.services.groups.CommitPositions, request, timeout_s=deadline.left_s, is_read=False,
                is_idempotent=True,
            )  # fmt: skip
