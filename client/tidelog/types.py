"""Results and arguments of calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tidelog.tick import Tick

_MAX_PRODUCER_ID_BYTES: Final = 64
_MAX_SEQUENCE: Final = (1 << 63) - 2

Durability = Literal["sync", "os"]
"""When an append is acknowledged: ``sync``, once it is on disk; ``os``, once the operating system has it, so that it
survives a crash of the process but not of the machine."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Position of appended messages in the log. They have the ticks first_tick, first_tick + 1, … last_tick.

    Attributes:
        first_tick: Tick of the first message.
        last_tick: Tick of the last message, inclusive.
        durability: Durability that the acknowledgement guarantees.
        duplicate: Whether the batch was already in the log, see ``ProducerSequence``.
        parts: The part on each vchannel, in order of their indices, of an append to a channel with several vchannels;
            else empty. The ticks are then the first and the last one of all parts, and other messages may lie between
            them; ``durability`` is the weakest, and ``duplicate`` is whether all parts were in the log.
    """

    first_tick: Tick
    last_tick: Tick
    durability: Durability
    duplicate: bool = False
    parts: "tuple[AppendPart, ...]" = ()

    @classmethod
    def of_parts(cls, parts: "Sequence[AppendPart]") -> "AppendResult":
        """Return the result of an append of these parts, at least one."""
        results = [part.result for part in parts]
        return cls(
            min(result.first_tick for result in results),
            max(result.last_tick for result in results),
            "os" if any(result.durability == "os" for result in results) else "sync",
            all(result.duplicate for result in results),
            tuple(parts),
        )

    @property
    def message_id(self) -> bytes:
        """Id of the last message: its tick, 8 bytes, big-endian."""
        return self.last_tick.message_id

    def part(self, begin: int, end: int) -> "AppendResult":
        """Return the result of the messages [begin, end) of this batch, which is on one vchannel."""
        assert not self.parts
        assert 0 <= begin < end <= self.last_tick - self.first_tick + 1
        first_tick = self.first_tick
        return AppendResult(Tick(first_tick + begin), Tick(first_tick + end - 1), self.durability, self.duplicate)


@dataclass(frozen=True, slots=True)
class AppendPart:
    """The messages of an append that are on one vchannel.

    Attributes:
        vchannel: Name of the vchannel, such as ``orders/3``.
        result: Their position: they have consecutive ticks.
        indices: Their places among the messages of the append, in order, from 0.
    """

    vchannel: str
    result: AppendResult
    indices: Sequence[int] = field(repr=False)


class VchannelTotal(NamedTuple):
    """Messages of a producer on one vchannel that are acknowledged.

    Attributes:
        messages: Number of messages.
        first_tick: Tick of the first one.
        last_tick: Tick of the last one.
    """

    messages: int
    first_tick: Tick
    last_tick: Tick


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """Position of a committed transaction in the log.

    Attributes:
        txn_id: Id of the transaction; each of its batches that a scan delivers has it.
        first_tick: First tick of the commit: of this transaction, and possibly others of this client.
        last_tick: Last tick of the commit, inclusive. A read that ends after this tick contains the whole transaction;
            one that ends earlier contains none of it.
        results: Position of its messages on each vchannel, by the names passed to ``append``; consecutive ticks. Those
            of a channel with several vchannels have the names of the vchannels, such as ``orders/3``.
        durability: Durability that the acknowledgement guarantees.
        duplicate: Whether an earlier attempt of the same commit had committed it.
        sent: Ids of the messages that it sent to each mailbox, in order; empty if an earlier attempt had committed it.
        sent_ids: The same for each mailbox, in the order of the first messages; ``sent`` has the names.
        indices: For each channel with several vchannels, by the name of the vchannel, the places of its messages among
            those appended to the channel.
    """

    txn_id: int
    first_tick: Tick
    last_tick: Tick
    results: Mapping[str, AppendResult]
    durability: Durability
    duplicate: bool = False
    sent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sent_ids: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    indices: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, name: str) -> AppendResult:
        """Return the position of the messages appended to ``name``; of a channel with several vchannels, with parts.

        Raises:
            KeyError: No messages were appended to ``name``.
        """
        if name in self.results or name not in self.indices:
            return self.results[name]
        divided = self.indices[name].items()
        return AppendResult.of_parts([AppendPart(each, self.results[each], places) for each, places in divided])


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction that waits to be committed with others, by any process that has this object. It can be pickled.

    Attributes:
        txn_id: Id of the transaction.
        client_id: Id of the client that prepared it. It is a secret: any client that knows it may commit the
            transaction.
        messages: Number of its messages.
    """

    txn_id: int
    client_id: str = field(repr=False)
    messages: int


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """Position of the messages of committed prepared transactions in the log.

    Attributes:
        first_tick: Tick of the first message; 0 without messages. No other message has a tick from here to the last.
        last_tick: Tick of the last message, inclusive; 0 without messages.
        messages: Number of messages.
        durability: Durability that the acknowledgement guarantees.
        duplicate: Whether the application had committed this version before; all values are then of that commit.
    """

    first_tick: Tick
    last_tick: Tick
    messages: int
    durability: Durability
    duplicate: bool


TransactionState = Literal["open", "committing", "committed", "prepared"]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """Description of a transaction that is staged on the server, or was committed.

    Attributes:
        txn_id: Id of the transaction: the tick at which it was begun.
        state: Its state.
        client_id: Id of the client that began it; empty once it is committed.
        vchannels: The vchannels to which it appends.
        batches: Number of staged batches; 0 once it is committed.
        messages: Number of its messages.
        bytes: Size of its staged columns; 0 once it is committed.
        keepalive_s: Time without a keepalive after which it expires; 0 once it is committed.
        expires_in_s: Remaining time until then; 0 once its commit has begun.
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
    """Producer and number of a batch, so that an append is stored once however often it is retried.

    Attributes:
        producer_id: Name of the producer, 1 to 64 bytes.
        sequence: 1 for the producer's first batch on the vchannel, then counting up; on a channel with several
            vchannels, 1 for its first append. The server remembers the results of the last 64 batches of a vchannel.
        epoch: Epoch from ``open_producer``, which fences earlier processes with this name; 0 without it.
    """

    producer_id: str
    sequence: int
    epoch: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.producer_id.encode()) <= _MAX_PRODUCER_ID_BYTES:
            raise ValueError(f"the producer id is {self.producer_id!r}, expected 1 to {_MAX_PRODUCER_ID_BYTES} bytes")
        if not 1 <= self.sequence <= _MAX_SEQUENCE:
            raise ValueError(f"the producer's sequence is {self.sequence}, expected 1 to {_MAX_SEQUENCE}")
        if not 0 <= self.epoch < 1 << 64:
            raise ValueError(f"the producer's epoch is {self.epoch}, expected 0 to 2^64 - 1")


@dataclass(frozen=True, slots=True)
class ProducerPosition:
    """Last batch of a producer on a vchannel or a channel, and its new epoch.

    Attributes:
        producer_id: Name of the producer.
        epoch: Epoch for its next appends.
        last_sequence: Sequence of its last batch, which is durable; 0 if it has appended nothing. On a channel with
            several vchannels, the last append that is complete on all of them for certain: the next one may be there in
            part, or whole.
        last_tick: Tick of the last message of that batch, or of its last message on any of the vchannels; 0 if it has
            appended nothing.
        vchannels: Number of vchannels on which its keys are distributed: that of its first opening.
    """

    producer_id: str
    epoch: int
    last_sequence: int
    last_tick: Tick
    vchannels: int = 1

    def sequence(self, number: int) -> ProducerSequence:
        """Return the ProducerSequence of batch ``number``; the next batch is ``last_sequence + 1``."""
        return ProducerSequence(self.producer_id, number, self.epoch)


@dataclass(frozen=True, slots=True)
class Split:
    """The messages of one vchannel with begin_tick <= tick < end_tick, and their estimated number and size.

    Scan it with ``start=split.begin_tick, until=At.inside(split.end_tick)``: it may begin or end within a transaction.
    With ``created_ticks={split.vchannel: split.created_tick}`` the scan fails if the channel was destroyed meanwhile,
    even if another one now has its name.
    """

    vchannel: str
    begin_tick: Tick
    end_tick: Tick
    estimated_messages: int
    estimated_bytes: int
    created_tick: Tick


@dataclass(frozen=True, slots=True)
class Plan:
    """A consistent cut (snapshot) over vchannels, divided into splits.

    Attributes:
        end_tick: The cut: the splits contain exactly the requested messages with a smaller tick. If the requested end
            lies within a transaction of these vchannels, the cut is the transaction's first tick.
        splits: The splits, in the requested order of vchannels, then by tick. An empty vchannel has no splits.
        grown: Number of vchannels of the ``whole_channels`` that have more: describe them, and plan again.
    """

    end_tick: Tick
    splits: Sequence[Split]
    grown: Mapping[str, int] = field(default_factory=dict)


class PositionCommit(NamedTuple):
    """Position of a group on a vchannel, to commit.

    Attributes:
        group: The group, which is subscribed to the vchannel.
        vchannel: Name of the vchannel, such as ``orders/0``.
        next_tick: First tick that was not consumed: the tick after the last consumed message.
        member_id: The member that holds the vchannel; empty if no member does. See ``AsyncConsumer.commits``.
        epoch: Epoch under which the member holds it.
        expected_tick: Commit only if this is the group's current position; None to commit from any position.
    """

    group: str
    vchannel: str
    next_tick: int
    member_id: str = ""
    epoch: int = 0
    expected_tick: int | None = None


class ChannelSequence(NamedTuple):
    """Number of a batch of a named producer on one vchannel of a channel, and of the append that it is part of."""

    producer_id: str
    epoch: int
    sequence: int
    call: int


class StagedSequence(NamedTuple):
    """Number of a batch among those of a staged transaction on one vchannel."""

    txn_id: int
    sequence: int
