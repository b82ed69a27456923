"""What calls return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tidelog._tick import Tick

_MAX_PRODUCER_ID_BYTES: Final = 64
_MAX_SEQUENCE: Final = (1 << 63) - 2

Durability = Literal["sync", "os"]
"""When an append is acknowledged: on disk, or held by the operating system (survives the process, not the machine)."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where messages are in the log. They have the ticks first_tick, first_tick + 1, … last_tick.

    Attributes:
        first_tick: Tick of the first message.
        last_tick: Tick of the last message, inclusive.
        durability: What the acknowledgement promises.
        duplicate: Whether the batch was in the log before, see ``ProducerSequence``.
    """

    first_tick: Tick
    last_tick: Tick
    durability: Durability
    duplicate: bool = False

    @property
    def message_id(self) -> bytes:
        """Id of the last message: its tick, big-endian, as in all stores so far."""
        return self.last_tick.message_id

    def part(self, begin: int, end: int) -> "AppendResult":
        """Return the result of the messages [begin, end) of this batch."""
        assert 0 <= begin < end <= self.last_tick - self.first_tick + 1
        first_tick = self.first_tick
        return AppendResult(Tick(first_tick + begin), Tick(first_tick + end - 1), self.durability, self.duplicate)


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """Where a transaction is in the log.

    Attributes:
        txn_id: Names it: each batch that a scan delivers of it carries this.
        first_tick: First tick of what was committed together: this transaction, and maybe others of this client.
        last_tick: Last tick of it, inclusive: a scan or plan up to behind this tick has the transaction, one that ends
            earlier has nothing of it.
        results: Where its messages are on each vchannel, by the names that were given; with consecutive ticks there.
        durability: What the acknowledgement promises.
        duplicate: Whether an earlier try of the same commit had put it there.
    """

    txn_id: int
    first_tick: Tick
    last_tick: Tick
    results: Mapping[str, AppendResult]
    durability: Durability
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction that waits to be committed with others, by whoever has this. It can be pickled.

    Attributes:
        txn_id: Its id.
        client_id: Of the client that prepared it: whoever knows it may commit the transaction.
        messages: How many it has.
    """

    txn_id: int
    client_id: str = field(repr=False)
    messages: int


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """Where the messages of prepared transactions are.

    Attributes:
        first_tick: Tick of the first message; 0 without messages. Nothing else has a tick from here to the last one.
        last_tick: Tick of the last message, inclusive; 0 without messages.
        messages: How many there are.
        durability: What the acknowledgement promises.
        duplicate: Whether the application had committed this version before: then all of this tells of that commit.
    """

    first_tick: Tick
    last_tick: Tick
    messages: int
    durability: Durability
    duplicate: bool


TransactionState = Literal["open", "committing", "committed", "prepared"]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What the server tells of a transaction that has staged batches, or was committed.

    Attributes:
        txn_id: Its id: a tick, which says when it was begun.
        state: How far it is.
        client_id: The client that began it; empty once it is committed.
        vchannels: Where it appends.
        batches: How many it has staged; 0 once it is committed.
        messages: How many it has.
        bytes: Size of the columns that it has staged; 0 once it is committed.
        keepalive_s: How long it lives without a sign of its client; 0 once it is committed.
        expires_in_s: How long it still does; 0 once it is being committed.
        principal: The principal of that client; empty with authentication off, and once the transaction is committed.
    """

    txn_id: int
    state: TransactionState
    client_id: str
    vchannels: tuple[str, ...]
    batches: int
    messages: int
    bytes: int
    keepalive_s: float
    expires_in_s: float
    principal: str = ""


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """Says which batch of whom an append is, so that it is in the log once however often it is repeated.

    Attributes:
        producer_id: Any name of 1 to 64 bytes.
        sequence: 1 for the producer's first batch on the vchannel, one more for each after it. The server remembers the
            results of the last 64.
        epoch: From ``open_producer``, which fences off whoever had the name before; 0 without it.
    """

    producer_id: str
    sequence: int
    epoch: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.producer_id.encode()) <= _MAX_PRODUCER_ID_BYTES:
            raise ValueError(f"the producer id {self.producer_id!r} has not 1 to {_MAX_PRODUCER_ID_BYTES} bytes")
        if not 1 <= self.sequence <= _MAX_SEQUENCE:
            raise ValueError(f"the producer's sequence is {self.sequence}, expected 1 to {_MAX_SEQUENCE}")
        if not 0 <= self.epoch < 1 << 64:
            raise ValueError(f"the producer's epoch is {self.epoch}, expected 0 or greater")


@dataclass(frozen=True, slots=True)
class ProducerPosition:
    """How far a producer got on a vchannel, and with which epoch it goes on.

    Attributes:
        producer_id: Its name.
        epoch: To append with.
        last_sequence: Of its last batch, which is durable; 0 when there was none.
        last_tick: Of the last message of that batch; 0 when there was none.
    """

    producer_id: str
    epoch: int
    last_sequence: int
    last_tick: Tick

    def sequence(self, number: int) -> ProducerSequence:
        """Return what to append batch ``number`` with; the next one is ``last_sequence + 1``."""
        return ProducerSequence(self.producer_id, number, self.epoch)


@dataclass(frozen=True, slots=True)
class Split:
    """The messages of one vchannel with begin_tick <= tick < end_tick, and about how much they are.

    Scan it with ``start=split.begin_tick, until=At.inside(split.end_tick)``: it may begin or end within a transaction.
    With ``created_ticks={split.vchannel: split.created_tick}`` the scan fails if the channel was destroyed meanwhile,
    also where another one has its name.
    """

    vchannel: str
    begin_tick: Tick
    end_tick: Tick
    estimated_messages: int
    estimated_bytes: int
    created_tick: Tick


@dataclass(frozen=True, slots=True)
class Plan:
    """A consistent cut over vchannels, divided.

    Attributes:
        end_tick: The cut: the splits hold exactly the messages asked for with a smaller tick. Where the end that was
            asked for lies within a transaction of these vchannels, it is the transaction's first tick.
        splits: In order of vchannel as asked, then of tick. An empty vchannel has none.
    """

    end_tick: Tick
    splits: Sequence[Split]


class PositionCommit(NamedTuple):
    """How far a group got on a vchannel.

    Attributes:
        group: The group, which is subscribed to the vchannel.
        vchannel: ``orders/0``.
        next_tick: The first tick that was not consumed: one behind the last message that was.
        member_id: The member of the group whose vchannel it is; empty if it is nobody's. See ``AsyncConsumer.commits``.
        epoch: Under which the member holds it.
        expected_tick: Where the position must stand for it to move; None for anywhere.
    """

    group: str
    vchannel: str
    next_tick: int
    member_id: str = ""
    epoch: int = 0
    expected_tick: int | None = None
