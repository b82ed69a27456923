"""Types of the calls about consumer groups, and the conversion to protocol messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.message import StoredMessage
from tidelog.read import protocol as _requests
from tidelog.read.positions import Start, position
from tidelog.tick import Tick
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import wal_service_pb2
from tidelog.wire.batch import Batch
from tidelog.wire.html import html_table


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Position of a group on a vchannel, as stored by the server.

    Attributes:
        vchannel: Name of the vchannel, such as ``orders/0``.
        next_tick: First tick that the group has not consumed.
        committed_time_ms: Time of that commit, in milliseconds since the epoch.
        member_id: The member that holds the vchannel; None if no member does.
        lag_messages: Number of stored messages that the group has not consumed.
        lag_bytes: Size of their columns.
        lag_s: Age of the oldest of them in seconds; 0 if there are no such messages.
        is_trimmed: Whether unconsumed messages were trimmed: consuming resumes only after a seek.
        holds_retention: Whether retention preserves what the group has not consumed here.
    """

    vchannel: str
    next_tick: Tick
    committed_time_ms: int
    member_id: str | None
    lag_messages: int
    lag_bytes: int
    lag_s: float
    is_trimmed: bool
    holds_retention: bool = True


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that joined a group.

    Attributes:
        member_id: Id of the member.
        description: Its own description of itself.
        channels: The channels that it consumes.
        vchannels: The vchannels that it holds.
        expires_in_s: Remaining lease in seconds if no heartbeat arrives.
    """

    member_id: str
    description: str
    channels: tuple[str, ...]
    vchannels: tuple[str, ...]
    expires_in_s: float


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group.

    Attributes:
        name: Name of the group.
        created_tick: Tick at which it was created.
        positions: Positions by vchannel, in order of name; lags are 0 if the call does not compute them.
        members: Its members, in the order in which they joined.
    """

    name: str
    created_tick: Tick
    positions: Mapping[str, GroupPosition]
    members: tuple[GroupMember, ...]

    @property
    def lag_messages(self) -> int:
        """Number of unconsumed messages on all vchannels."""
        return sum(position.lag_messages for position in self.positions.values())

    @property
    def lag_bytes(self) -> int:
        """Size of their columns in bytes."""
        return sum(position.lag_bytes for position in self.positions.values())

    @property
    def lag_s(self) -> float:
        """Age of the oldest of them in seconds; 0 if there are no such messages."""
        return max((position.lag_s for position in self.positions.values()), default=0.0)

    def _repr_html_(self) -> str:
        rows = (
            (name, each.next_tick, each.member_id, each.lag_messages, each.lag_bytes, each.lag_s)
            for name, each in self.positions.items()
        )
        names = ("vchannel", "next_tick", "member_id", "lag_messages", "lag_bytes", "lag_s")
        return html_table(f"group {self.name}, {len(self.members)} members", names, rows, len(self.positions))


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A consumer group in a listing.

    Attributes:
        name: Name of the group.
        created_tick: Tick at which it was created.
        vchannels: Number of vchannels to which it is subscribed.
        members: Number of its members.
        committed_time_ms: Time of its last commit, in milliseconds since the epoch.
    """

    name: str
    created_tick: Tick
    vchannels: int
    members: int
    committed_time_ms: int


@dataclass(frozen=True, slots=True)
class Consumed:
    """The next messages of a group on a vchannel.

    Attributes:
        batches: The batches, in tick order; empty if nothing was available.
        next_tick: The tick after them, to commit once they are processed.
    """

    batches: Sequence[Batch]
    next_tick: Tick

    @property
    def messages(self) -> list[StoredMessage]:
        """All messages."""
        return [message for batch in self.batches for message in batch]

    def __len__(self) -> int:
        return sum(map(len, self.batches))


def start_policy(start: Start) -> wal_service_pb2.DeliverPolicy:
    """Return the start of a group as the protocol message. Raises ValueError: an end. TypeError: not a position."""
    return _requests.deliver_policy(position(start))


def group_position(wire: pb.GroupPosition) -> GroupPosition:
    """Return the position in a protocol message."""
    return GroupPosition(
        vchannel=wire.vchannel,
        next_tick=Tick(wire.next_tick),
        committed_time_ms=wire.committed_time_ms,
        member_id=wire.member_id or None,
        lag_messages=wire.lag_messages,
        lag_bytes=wire.lag_bytes,
        lag_s=wire.lag_ms / 1_000,
        is_trimmed=wire.is_trimmed,
        holds_retention=wire.holds_retention,
    )


def description(wire: pb.GroupDescription) -> GroupDescription:
    """Return the description in a protocol message."""
    return GroupDescription(
        name=wire.name,
        created_tick=Tick(wire.created_tick),
        positions={each.vchannel: group_position(each) for each in wire.positions},
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                description=member.description,
                channels=tuple(member.channels),
                vchannels=tuple(member.vchannels),
                expires_in_s=member.expires_in_ms / 1_000,
            )
            for member in wire.members
        ),
    )
