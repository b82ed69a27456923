"""A log in a topic of Apache Kafka, with one partition. A position is an offset.

The rules of the log are not Kafka's: its transactions take longer than ten appends, and its idempotent producer repeats
records when a leader moves (librdkafka issue 4953).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog_server.core.limits import MAX_BATCH_BYTES_CEILING
from tidelog_server.recordlog.engine import (
    Bounds,
    EngineUnavailableError,
    LogDeniedError,
    LogEngine,
    PositionGoneError,
    Read,
    ReadableLog,
    Report,
    Stored,
)
from tidelog_server.recordlog.readers import ReaderPool
from tidelog_server.recordlog.records import Position
from tidelog_server.runtime.clock import SystemClock

ANSWER_WITHIN_S: Final = 10.0
"""Seconds that a call waits for an answer of Kafka."""
_RECORDS_AT_ONCE: Final = 16
_UNUSED_S: Final = 1.0
_CONNECTED_S: Final = 1.0
# Its client waits for whole milliseconds.
_LEAST_WAIT_S: Final = 0.001
_CLOCK: Final = SystemClock()
# The client looks for its group, of which it is no member; without permission it reports that, once a second at most.
_REPORTS_OF_GROUPS: Final = 20
_PARTITION: Final = 0
# A store has at most five groups on their way, the largest of which are one batch each, and what is added to it.
_QUEUE_KIB: Final = 8 * MAX_BATCH_BYTES_CEILING >> 10
# A broker that is frozen, and not dead, does not end its connections: its client waits as long before it looks for the
# leader again, 60 s by default. A user may change it.
_DEFAULTS: Final[Mapping[str, Any]] = {"socket.timeout.ms": round(ANSWER_WITHIN_S * 1_000)}
# What the rules need, and what keeps memory bounded. No option of a user may change these.
PRODUCER_OPTIONS: Final[Mapping[str, Any]] = {
    "acks": "all",
    # Keeps records in order when several are in flight; a repetition or a gap is harmless, but ends the tenure.
    "enable.idempotence": True,
    # A slow broker is a wait, not an unknown outcome.
    "message.timeout.ms": 0,
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "queue.buffering.max.kbytes": _QUEUE_KIB,
}
CONSUMER_OPTIONS: Final[Mapping[str, Any]] = {
    # No member of a group: the name is needed by the library only.
    "group.id": "tidelog",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    # A read that reaches the end waits as long before it reports the end.
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 16 << 10,
}
# A consumer that waits at the end asks a broker as often; the broker answers earlier when there is a record.
FOLLOWER_OPTIONS: Final[Mapping[str, Any]] = {**CONSUMER_OPTIONS, "fetch.wait.max.ms": 500}
OWN_OPTIONS: Final = frozenset({*PRODUCER_OPTIONS, *CONSUMER_OPTIONS, "log_level"})
"""Options that no user may set."""
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001 - its public name
_DENIED: Final = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip


class KafkaEngine(LogEngine):
    """A log in a topic that exists. Offsets are dense: some are marks of transactions.

    There are as many connected consumers as threads have ever read at a time; see ``ReaderPool``. Reads that wait have
    another one, which asks rarely; the first record that is sent ends it, because an owner follows no more.
    """

    def __init__(self, servers: str, topic: str, options: Mapping[str, Any] | None = None) -> None:
        """Connect in the background.

        Args:
            servers: Addresses of some brokers, ``host:port``, separated by commas.
            topic: Name of the topic.
            options: Further options of librdkafka, such as those of TLS.
        """
        self._servers = servers
        self._topic = topic
        self._writing = f"write to the topic '{topic}'"
        self._options = {**_DEFAULTS, **(options or {}), "bootstrap.servers": servers, "log_level": 0}
        self._producer = Producer({**self._options, **PRODUCER_OPTIONS})
        self._admin = AdminClient(self._options)
        # Why the client sends nothing more; None while it does.
        self._refused: EngineUnavailableError | None = None
        self._readers = ReaderPool(lambda: KafkaReader(servers, topic, self._options))
        self._follower: KafkaReader | None = None
        self._is_closed = False

    def send(self, value: bytes, report: Report) -> None:
        if (follower := self._follower) is not None:
            self._follower = None
            follower.rest()
        try:
            self._producer.produce(self._topic, value, partition=_PARTITION, on_delivery=self._delivered(report))
        except BufferError as error:
            raise EngineUnavailableError(f"more than {_QUEUE_KIB} KiB wait to be sent to Kafka") from error
        except KafkaException as error:
            # It says only that the client sends nothing more.
            with suppress(EngineUnavailableError):
                self.poll(0)
            raise self._refused or unavailable(error, self._writing) from error

    def poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s and max(timeout_s, _LEAST_WAIT_S))
        except KafkaException as error:
            # It says why once. Later calls report what was not sent.
            self._refused = unavailable(error, self._writing)
            raise self._refused from error

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        if wait_s:
            if self._follower is None:
                reader = KafkaReader(self._servers, self._topic, self._options, FOLLOWER_OPTIONS)
                self._follower = self._readers.adopted(reader)
            return self._follower.read(begin, max_bytes, wait_s)
        with self._readers.lent(begin) as reader:
            return reader.read(begin, max_bytes)

    def bounds(self) -> Bounds:
        with self._readers.lent(None) as reader:
            return reader.bounds()

    def trim(self, before: Position) -> None:
        with _reported(f"delete records of the topic '{self._topic}'"):
            place = TopicPartition(self._topic, _PARTITION, before)
            for future in self._admin.delete_records([place], request_timeout=ANSWER_WITHIN_S).values():
                future.result(ANSWER_WITHIN_S)

    # Only passes on: a method of the contract, which other engines implement in another way.
    def rest(self) -> None:
        self._readers.rest()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._producer.purge()
        # Its caller does not ask for an error any more.
        with suppress(EngineUnavailableError):
            self.poll(0)
        self._readers.close()

    def _delivered(self, report: Report) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None:
                report(self._refused or unavailable(KafkaException(error), self._writing))
            elif offset is None or offset < 0:
                report(EngineUnavailableError("Kafka has stored the record before, and does not remember where"))
            else:
                report(offset)

        return delivered


class KafkaReader(ReadableLog):
    """One consumer, which stays where its last read ended: the next one often begins there. One thread at a time.

    Attributes:
        next: Where its last read ended, if it reads on there; else None.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        options: Mapping[str, Any] | None = None,
        own: Mapping[str, Any] = CONSUMER_OPTIONS,
    ) -> None:
        """Connect in the background. The arguments are those of ``KafkaEngine``; ``own`` are options of ours."""
        self.next: Position | None = None
        # When it was last assigned, or had an answer.
        self._answered_s = 0.0
        self._options = {**(options or {}), **own, "bootstrap.servers": servers, "log_level": 0}
        self._consumer = Consumer(self._options)
        self._connected_s = _CLOCK.monotonic_s()
        self._is_closed = False
        self._topic = topic
        self._reading = f"read the topic '{topic}'"
        self._is_at_end = False

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        """See ``LogEngine.read``. If it waits, or is not at the end, it continues to fetch."""
        with self._asked():
            if begin != self.next:
                self.next, self._is_at_end = begin, False
                self._consumer.assign([TopicPartition(self._topic, _PARTITION, begin)])
                self._answered_s = _CLOCK.monotonic_s()
            messages = self._consume(1, wait_s or ANSWER_WITHIN_S)
            if messages:
                self._answered_s = _CLOCK.monotonic_s()
            elif not self._is_at_end and (not wait_s or _CLOCK.monotonic_s() - self._answered_s >= ANSWER_WITHIN_S):
                # Kafka's client says once that it is at the end, and not again while no record comes.
                raise EngineUnavailableError(f"Kafka has not answered for {ANSWER_WITHIN_S:.0f} s")
            found: list[Stored] = []
            size_bytes = 0
            while messages:
                for each in messages:
                    self._pass(each, begin, found)
                size_bytes += sum(len(each.value() or b"") for each in messages if each.error() is None)
                if self._is_at_end or size_bytes >= max_bytes:
                    break
                # It waits until it has as many, so only for those that are here.
                messages = self._consume(_RECORDS_AT_ONCE, 0)
            assert self.next is not None
            read = Read(found, self.next)
            if self._is_at_end and not wait_s:
                self.rest()
            return read

    @property
    def is_unused(self) -> bool:
        """Whether it reads on somewhere, where no read has been for a second."""
        return self.next is not None and _CLOCK.monotonic_s() - self._answered_s > _UNUSED_S

    def rest(self) -> None:
        """Fetch nothing until the next read. Else it asks again and again, at the end or for room of its own."""
        self.next = None
        self._consumer.unassign()

    def bounds(self) -> Bounds:
        """See ``LogEngine.bounds``."""
        with self._asked():
            place = TopicPartition(self._topic, _PARTITION, OFFSET_BEGINNING)
            return Bounds(*self._consumer.get_watermark_offsets(place, timeout=ANSWER_WITHIN_S))

    def close(self) -> None:
        """Disconnect."""
        self._is_closed = True
        self._consumer.close()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """As ``_reported``, and connect again after an error, once a second at most.

        A client whose leader is frozen takes 20 s to find the next leader, and a new client none.
        """
        try:
            with _reported(self._reading):
                yield
        except LogDeniedError:
            raise
        except EngineUnavailableError:
            now_s = _CLOCK.monotonic_s()
            if not self._is_closed and now_s - self._connected_s >= _CONNECTED_S:
                self.next, self._connected_s = None, now_s
                # A file of its options may be missing while it is replaced: the client stays then.
                with suppress(KafkaException):
                    former, self._consumer = self._consumer, Consumer(self._options)
                    former.close()
            raise

    def _consume(self, count: int, timeout_s: float) -> list[Message]:
        """Return at most ``count`` records and reports about the topic; wait for one, ``timeout_s`` seconds."""
        for _ in range(_REPORTS_OF_GROUPS):
            messages = self._consumer.consume(count, timeout_s)
            found = [each for each in messages if _error_code(each) != KafkaError.GROUP_AUTHORIZATION_FAILED]
            if found or not messages:
                return found
        return []

    def _pass(self, message: Message, begin: Position, found: list[Stored]) -> None:
        """Add a record to ``found``, or note that the log ended there; raise another report."""
        error = message.error()
        if error is None:
            found.append(Stored(_offset(message), message.value() or b""))
            self.next, self._is_at_end = found[-1].position + 1, False
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # Behind marks of transactions, too, which are no records.
            self.next, self._is_at_end = _offset(message), True
        else:
            self.next = None
            if error.code() in _GONE:
                raise PositionGoneError(begin, self.bounds().begin)
            raise KafkaException(error)


def _error_code(message: Message) -> int | None:
    error = message.error()
    return None if error is None else error.code()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


@contextmanager
def _reported(doing: str) -> Iterator[None]:
    """Raise errors of Kafka, and that it has not answered, as ``EngineUnavailableError``.

    Args:
        doing: Completes 'does not permit to'.
    """
    try:
        yield
    except KafkaException as error:
        raise unavailable(error, doing) from error
    except TimeoutError as error:
        raise EngineUnavailableError(f"Kafka has not answered for {ANSWER_WITHIN_S:.0f} s") from error


def unavailable(error: KafkaException, doing: str) -> EngineUnavailableError:
    """Return what an error of Kafka means to a caller; ``doing`` completes 'does not permit to'."""
    if error.args[0].code() in _DENIED:
        return LogDeniedError(f"Kafka does not permit to {doing}: grant it to the user of this server")
    return EngineUnavailableError(f"Kafka: {error.args[0].str()}")
