"""What calls about consumer groups take and return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog._batch import Batch
from tidelog._message import StoredMessage
from tidelog._tick import Tick


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """How far a group got on a vchannel, as the server knows it.

    Attributes:
        vchannel: ``orders/0``.
        next_tick: The first tick that was not consumed.
        committed_time_ms: When that was committed, in milliseconds since the epoch.
        member_id: The member whose vchannel it is; None for none.
        lag_messages: Messages that were not consumed, and are there.
        lag_bytes: Bytes of their columns.
        lag_s: How old the oldest of them is; 0 if there is none.
        is_trimmed: Whether messages that were not consumed are gone: consuming goes on only after a seek.
        holds_retention: Whether retention keeps what the group has not consumed here.
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
        member_id: Its id.
        description: What it says of itself.
        channels: Those that it wants vchannels of.
        vchannels: Those that are its own.
        expires_in_s: How long it still lives without a sign.
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
        name: Its name.
        created_tick: The tick at which it was made.
        positions: By vchannel, in order of name; lags are 0 where the call does not look at them.
        members: In the order in which they joined.
    """

    name: str
    created_tick: Tick
    positions: Mapping[str, GroupPosition]
    members: tuple[GroupMember, ...]

    @property
    def lag_messages(self) -> int:
        """Messages on all vchannels that were not consumed."""
        return sum(position.lag_messages for position in self.positions.values())

    @property
    def lag_bytes(self) -> int:
        """Bytes of their columns."""
        return sum(position.lag_bytes for position in self.positions.values())

    @property
    def lag_s(self) -> float:
        """How old the oldest of them is; 0 if there is none."""
        return max((position.lag_s for position in self.positions.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A consumer group, as it is listed.

    Attributes:
        name: Its name.
        created_tick: The tick at which it was made.
        vchannels: How many it is subscribed to.
        members: How many it has.
        committed_time_ms: When it last committed anything, in milliseconds since the epoch.
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
        batches: They, in tick order; none if there are none.
        next_tick: The tick behind them: what to commit once they are processed.
    """

    batches: Sequence[Batch]
    next_tick: Tick

    @property
    def messages(self) -> list[StoredMessage]:
        """All messages."""
        return [message for batch in self.batches for message in batch]

    def __len__(self) -> int:
        return sum(map(len, self.batches))
