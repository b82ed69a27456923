"""A log in a topic of Apache Pulsar, without partitions. A position is a ledger and an entry of it.

A process appends by an exclusive producer: opening it ends that of another process, whose records Pulsar refuses from
then on. It does not know terms: a late process with a smaller term ends the producer of the owner. So the rules of the
log decide, as in every engine, and a producer that was ended without reason is opened again.
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pulsar

from tidelog_server.core.limits import MAX_BATCH_BYTES_CEILING
from tidelog_server.recordlog.engine import (
    AppendsRefusedError,
    Bounds,
    EngineUnavailableError,
    LogSetupError,
    PositionGoneError,
    Read,
    Report,
    Stored,
)
from tidelog_server.recordlog.pulsar_connection import ANSWER_WITHIN_S, PulsarConnection, unavailable
from tidelog_server.recordlog.readers import ReaderPool
from tidelog_server.recordlog.records import Position
from tidelog_server.runtime.clock import SystemClock

SUBSCRIPTION: Final = "tidelog"
"""The durable subscription of a log, up to whose position Pulsar may delete it."""
PRODUCER_OPTIONS: Final[Mapping[str, Any]] = {
    "access_mode": pulsar.ProducerAccessMode.ExclusiveWithFencing,
    # A record has a position of its own, and is stored or not whatever happens to others.
    "batching_enabled": False,
    # A slow broker is a wait, not an unknown outcome.
    "send_timeout_millis": 0,
    # The engine bounds what waits, in bytes.
    "max_pending_messages": 0,
    "max_pending_messages_across_partitions": 0,
}
_ENTRY_BITS: Final = 64
# Pulsar numbers entries with 63 bits, and the position before the first one of a ledger has more.
_MAX_ENTRY: Final = (1 << 63) - 1
# A store has at most five groups on their way, the largest of which are one batch each, and what is added to it.
_QUEUE_BYTES: Final = 8 * MAX_BATCH_BYTES_CEILING
# Records that a reader has ahead: at most 15 MB.
_RECORDS_AHEAD: Final = 16
# Places at which readers stay: a new reader takes 17 ms, and `seek` takes longer.
_PLACES: Final = 4
_UNUSED_S: Final = 1.0
_CLOCK: Final = SystemClock()
_REFUSED: Final = frozenset({pulsar.Result.ProducerFenced, pulsar.Result.AlreadyClosed})


def position_of(ledger: int, entry: int) -> Position:
    """Return the position of an entry; -1 stands for the one before the first of its ledger."""
    return (ledger << _ENTRY_BITS) + entry


def place_of(position: Position) -> tuple[int, int]:
    """Return ledger and entry of the first entry that may be at or after a position."""
    ledger, entry = divmod(position, 1 << _ENTRY_BITS)
    return (ledger, entry) if entry <= _MAX_ENTRY else (ledger + 1, 0)


def topic_path(topic: str) -> str:
    """Return the path of a topic in the administration API, from ``persistent://TENANT/NAMESPACE/NAME``."""
    kind, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return "/" + "/".join((kind, tenant, namespace, quote(name, safe="")))


class _Ledger(NamedTuple):
    number: int
    entries: int


class TopicState(NamedTuple):
    """What Pulsar has of a topic.

    Attributes:
        ledgers: Ledgers that have entries, in order.
        trimmed: Position behind what may be deleted; None if the topic has no subscription for a log.
        end: Position behind the last entry.
    """

    ledgers: Sequence[_Ledger]
    trimmed: Position | None
    end: Position

    @classmethod
    def of(cls, stats: Any) -> "TopicState":
        """Return what ``internalStats`` tells."""
        last, entry = _pair(stats["lastConfirmedEntry"])
        # The last one is open, and its number of entries is not there yet.
        sizes = {int(each["ledgerId"]): int(each["entries"]) for each in stats["ledgers"]} | {last: entry + 1}
        ledgers = [_Ledger(number, entries) for number, entries in sorted(sizes.items()) if entries > 0]
        # After a restart of the broker the last ledger is empty.
        end = position_of(ledgers[-1].number, ledgers[-1].entries) if ledgers else position_of(last, 0)
        cursor = stats["cursors"].get(SUBSCRIPTION)
        trimmed = None
        if cursor is not None:
            ledger, entry = _pair(cursor["markDeletePosition"])
            trimmed = position_of(ledger, entry + 1)
        return cls(ledgers, trimmed, end)

    def bounds(self) -> Bounds:
        """Return the part of the log that is there and may not be deleted."""
        begin = max(position_of(self.ledgers[0].number, 0) if self.ledgers else self.end, self.trimmed or 0)
        return Bounds(min(begin, self.end), self.end)

    def length(self, begin: Position, end: Position) -> int:
        """See ``LogEngine.length``."""
        sizes = {ledger.number: ledger.entries for ledger in self.ledgers}
        number, entries = place_of(end)
        # It has grown since.
        sizes[number] = max(entries, sizes.get(number, 0))
        places = ((position_of(ledger, 0), position_of(ledger, size)) for ledger, size in sizes.items())
        return sum(max(0, min(end, behind) - max(begin, first)) for first, behind in places)

    def before(self, position: Position, count: int) -> Position:
        """See ``LogEngine.before``."""
        for ledger in reversed(self.ledgers):
            first = position_of(ledger.number, 0)
            behind = min(position, first + ledger.entries)
            if first < behind:
                if count <= behind - first:
                    return behind - count
                count -= behind - first
        return self.bounds().begin


def _pair(text: str) -> tuple[int, int]:
    ledger, _, entry = text.partition(":")
    return int(ledger), int(entry)


class Topic(NamedTuple):
    """A topic.

    Attributes:
        connection: The Pulsar.
        name: Its name, ``persistent://TENANT/NAMESPACE/NAME``.
    """

    connection: PulsarConnection
    name: str

    def state(self) -> TopicState:
        """Return what Pulsar has of it.

        Raises:
            LogMissingError, LogSetupError, EngineUnavailableError: See ``PulsarConnection.call``.
        """
        doing = f"read the state of the topic '{self.name}'"
        return TopicState.of(self.connection.call("GET", f"{topic_path(self.name)}/internalStats", doing))

    def running(self) -> TopicState:
        """As ``state``, for a log that was checked: whatever is wrong with it now may pass, as while a topic moves.

        Raises:
            EngineUnavailableError: Pulsar does not tell it.
        """
        try:
            return self.state()
        except LogSetupError as error:
            if isinstance(error, EngineUnavailableError):
                raise
            raise EngineUnavailableError(str(error)) from error


@dataclass(slots=True, eq=False)
class _Sent:
    value: bytes
    report: Report


class PulsarEngine:
    """Implements ``LogEngine`` on a topic that exists, with the subscription of a log.

    Its producer is opened for the first record, by ``poll``: a process that follows a log must not end the owner's.
    """

    def __init__(self, connection: PulsarConnection, topic: str) -> None:
        """Connect in the background. Raises LogSetupError: an address or an option is not allowed."""
        self._topic = Topic(connection, topic)
        self._writing = f"write to the topic '{topic}'"
        self._client = connection.client()
        self._readers = ReaderPool(lambda: PulsarReader(self._topic, self._client), _PLACES)
        self.rest = self._readers.rest
        # Guards what follows; never held by a thread of the library.
        self._lock = threading.Lock()
        self._producer: Any = None
        self._is_refused = False
        # Sent and not reported, in order.
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0
        # What the library has answered, on a thread of its own.
        self._answers: SimpleQueue[tuple[Any, _Sent, Any, Any]] = SimpleQueue()
        # What the last call of `bounds` told.
        self._state: TopicState | None = None
        self._is_closed = False

    def send(self, value: bytes, report: Report) -> None:
        with self._lock:
            if self._sent_bytes and _QUEUE_BYTES < self._sent_bytes + len(value):
                raise EngineUnavailableError(f"more than {_QUEUE_BYTES >> 10} KiB wait to be sent to Pulsar")
            sent = _Sent(value, report)
            self._sent.append(sent)
            self._sent_bytes += len(value)
            if self._producer is not None and not self._is_refused:
                self._pass_on(sent)

    def poll(self, timeout_s: float) -> None:
        if self._producer is None and self._sent:
            self.resume()
        try:
            answer = self._answers.get(timeout=timeout_s)
            while True:
                self._take(*answer)
                answer = self._answers.get_nowait()
        except Empty:
            pass
        if self._is_refused:
            raise AppendsRefusedError("another process has opened a producer of the topic")

    def resume(self) -> None:
        try:
            producer = self._client.create_producer(self._topic.name, **PRODUCER_OPTIONS)
        except (pulsar.ProducerFenced, pulsar.ProducerBusy):
            # Another process was faster.
            self._is_refused = True
            return
        except pulsar.PulsarException as error:
            raise unavailable(type(error).__name__, self._writing) from error
        with self._lock:
            # Ordering: before what another thread sends from now on.
            self._producer, self._is_refused = producer, False
            for sent in self._sent:
                self._pass_on(sent)

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        with self._readers.lent(begin) as reader:
            return reader.read(begin, max_bytes, wait_s)

    def bounds(self) -> Bounds:
        self._state = self._topic.running()
        return self._state.bounds()

    def before(self, position: Position, count: int) -> Position:
        return self._topic.running().before(position, count)

    def length(self, begin: Position, end: Position) -> int:
        return 0 if self._state is None else self._state.length(begin, end)

    def trim(self, before: Position) -> None:
        state = self._topic.running()
        last = state.before(before, 1)
        if before <= state.bounds().begin or before <= last:
            return
        with _reported(f"acknowledge messages of the topic '{self._topic.name}'"):
            # A former owner may do the same: then both are admitted, and the position never moves back.
            consumer = self._client.subscribe(
                self._topic.name, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Failover, receiver_queue_size=0
            )
            try:
                ledger, entry = place_of(last)
                consumer.acknowledge_cumulative(pulsar.MessageId(ledger_id=ledger, entry_id=entry))
            finally:
                consumer.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # It drops what was not stored, and ends its readers and the producer.
        self._client.shutdown()

    def _pass_on(self, sent: _Sent) -> None:
        producer, answers = self._producer, self._answers
        producer.send_async(sent.value, lambda result, found: answers.put((producer, sent, result, found)))

    def _take(self, producer: Any, sent: _Sent, result: Any, found: Any) -> None:
        """Report what the library answers of a record; once, although it may have been sent by several producers."""
        if result in _REFUSED:
            if producer is self._producer:
                self._is_refused = True
            return
        with self._lock:
            if sent not in self._sent:
                return
            self._sent.remove(sent)
            self._sent_bytes -= len(sent.value)
        if result == pulsar.Result.Ok:
            sent.report(position_of(found.ledger_id(), found.entry_id()))
        else:
            sent.report(unavailable(result.name, self._writing))


class PulsarReader:
    """One open reader, which stays where its last read ended. One thread at a time.

    Attributes:
        next: Where its last read ended, if it is open there; else None.
    """

    def __init__(self, topic: Topic, client: pulsar.Client) -> None:
        """Do no I/O. The client stays the caller's."""
        self.next: Position | None = None
        self._topic = topic
        self._client = client
        self._reading = f"read the topic '{topic.name}'"
        self._reader: Any = None
        # When it was last used, and when it was last connected.
        self._used_s = self._connected_s = 0.0
        # Received behind a jump, which the next read checks.
        self._held: Stored | None = None
        self._is_at_end = False

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        """See ``LogEngine.read``."""
        try:
            with _reported(self._reading):
                if begin != self.next:
                    self._open(begin)
                read = self._received(begin, max_bytes, wait_s)
        except BaseException:
            self.next = None
            raise
        self.next, self._used_s = read.next, _CLOCK.monotonic_s()
        return read

    @property
    def is_unused(self) -> bool:
        """Whether it is open somewhere, where no read has been for a second."""
        return self._reader is not None and _CLOCK.monotonic_s() - self._used_s > _UNUSED_S

    def close(self) -> None:
        """Disconnect, until the next read if there is one."""
        self.next = None
        if self._reader is not None:
            reader, self._reader = self._reader, None
            with _reported(self._reading):
                reader.close()

    # The broker and the client have the next records ready.
    rest = close

    def _open(self, begin: Position) -> None:
        self.close()
        self._held, self._is_at_end = None, False
        self._check_begin(begin)
        ledger, entry = place_of(begin)
        self._reader = self._client.create_reader(
            self._topic.name, pulsar.MessageId(ledger_id=ledger, entry_id=entry), start_message_id_inclusive=True,
            receiver_queue_size=_RECORDS_AHEAD,
            # The library gives readers of processes that were forked the same random names, and the second is refused.
            subscription_role_prefix=f"{SUBSCRIPTION}-{token_hex(8)}",
            # A record that another program has encrypted is no record of the log.
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
        )  # fmt: skip
        self._connected_s = _CLOCK.monotonic_s()

    def _check_begin(self, begin: Position) -> None:
        """Raise PositionGoneError if records at or after ``begin`` may be deleted."""
        first = self._topic.running().bounds().begin
        if begin < first:
            raise PositionGoneError(begin, first)

    def _received(self, begin: Position, max_bytes: int, wait_s: float) -> Read:
        found: list[Stored] = []
        size_bytes = 0
        behind = begin
        while size_bytes < max_bytes and (stored := self._following(behind, wait_s)) is not None:
            if stored.position != behind:
                if found:
                    # It may be that of the next ledger; or records between were deleted meanwhile.
                    self._held = stored
                    break
                self._check_begin(begin)
            found.append(stored)
            size_bytes += len(stored.value)
            behind, wait_s = stored.position + 1, 0.0
        return Read(found, behind)

    def _following(self, begin: Position, wait_s: float) -> Stored | None:
        """Return the next record at or after ``begin``; None if the log ends there, for ``wait_s`` seconds."""
        if self._held is not None:
            held, self._held = self._held, None
            return held
        while (message := self._awaited(wait_s) if wait_s else self._shown(begin)) is not None:
            found = message.message_id()
            position = position_of(found.ledger_id(), found.entry_id())
            if position < begin:
                # A further message of a batch, which another program has sent.
                continue
            return Stored(position, message.data() if found.batch_index() < 0 else b"")
        return None

    def _awaited(self, wait_s: float) -> Any:
        """Return the next message; None if none comes for ``wait_s`` seconds."""
        try:
            message = self._reader.read_next(max(1, round(wait_s * 1_000)))
        except pulsar.Timeout:
            message = None
        now_s = _CLOCK.monotonic_s()
        if message is not None or self._reader.is_connected():
            self._connected_s = now_s
        elif now_s - self._connected_s >= ANSWER_WITHIN_S:
            raise EngineUnavailableError(f"Pulsar has not answered for {ANSWER_WITHIN_S} s")
        return message

    def _shown(self, begin: Position) -> Any:
        """Return the next message; None at the end of the log."""
        if self._reader.has_message_available():
            self._is_at_end = False
        elif not self._is_at_end:
            # For some milliseconds after the topic has moved, Pulsar says that nothing follows.
            self._is_at_end = self._topic.running().bounds().end <= begin
        return None if self._is_at_end else self._reader.read_next(ANSWER_WITHIN_S * 1_000)


@contextmanager
def _reported(doing: str) -> Iterator[None]:
    """Raise errors of Pulsar; ``doing`` completes 'cannot'."""
    try:
        yield
    except pulsar.PulsarException as error:
        raise unavailable(type(error).__name__, doing) from error
