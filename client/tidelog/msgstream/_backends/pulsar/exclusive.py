"""A topic whose last message is a value, with one writer at a time. Its calls block."""

import threading
from contextlib import suppress
from typing import Any, Final

from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.library import error_of, pulsar
from tidelog.sync.one_at_a_time import one_at_a_time

_RETAINING: Final = "tidelog"
_READ_MS: Final = 30_000
# Of a message that is no value, to tell it from the empty value of ``delete``.
_MARK: Final = {"tidelog-mark": "1"}


class ExclusiveTopic:
    """A value in a topic of its own. Opening it fences an earlier writer: its next write raises StreamFencedError."""

    def __init__(self, broker: PulsarBroker, topic: str) -> None:
        self.topic = topic
        self._broker = broker
        self._producer: Any = None
        self._retaining: Any = None
        self._last_id: Any = None
        self._is_fenced = False
        # A call whose caller was cancelled continues on its thread.
        self._lock = threading.RLock()

    @one_at_a_time
    def read(self) -> bytes | None:
        """Return the value; None without one."""
        library = pulsar()
        try:
            reader = self._broker.client().create_reader(
                self.topic, library.MessageId.latest, start_message_id_inclusive=True
            )
        except library.exceptions.TopicNotFound:
            return None
        try:
            found: bytes | None = None
            if reader.has_message_available():
                found = reader.read_next(timeout_millis=_READ_MS).data()
            return found or None
        finally:
            reader.close()

    @one_at_a_time
    def open(self) -> None:
        """Become the writer; create the topic if necessary. Idempotent.

        Raises:
            StreamStateError: The broker does not create topics, and no ``admin_url`` was given.
        """
        if self._producer is not None:
            return
        library, client = pulsar(), self._broker.client()
        # An earlier attempt may have ended between the two.
        self._retaining = self._retaining or self._subscribe(client)
        self._producer = client.create_producer(
            self.topic, access_mode=library.ProducerAccessMode.ExclusiveWithFencing, batching_enabled=False
        )

    def _subscribe(self, client: Any) -> Any:
        try:
            return subscribed(client, self.topic, _RETAINING)
        except pulsar().exceptions.TopicNotFound:
            what = f"creating the topic {self.topic}, which the broker does not create by itself,"
            self._broker.admin(what).create_topic(self.topic)
            return subscribed(client, self.topic, _RETAINING)

    @one_at_a_time
    def take_over(self) -> bytes | None:
        """Become the writer, and return the value that the earlier writer left; None without one."""
        self.open()
        return self.read() or self._value_before_mark()

    def _value_before_mark(self) -> bytes | None:
        """Return the value of a topic in which none was found.

        For some milliseconds after a broker has loaded a topic, Pulsar answers that it has no message. A message that
        is sent and received again shows what is before it. An earlier version takes it for a topic without a value.
        """
        library = pulsar()
        mark = self._producer.send(b"", properties=_MARK)
        reader = self._broker.client().create_reader(self.topic, library.MessageId.earliest)
        found = b""
        try:
            while (message := reader.read_next(timeout_millis=_READ_MS)).message_id() < mark:
                if message.properties() != _MARK:
                    found = message.data()
        finally:
            reader.close()
        if found:
            self.write(found)
        return found or None

    @one_at_a_time
    def write(self, content: bytes) -> None:
        """Replace the value; return once the broker has it. Raises StreamFencedError, then for good."""
        if self._is_fenced:
            raise error_of("ProducerFenced", "the write", self.topic)
        self.open()
        try:
            message_id = self._producer.send(content)
        except pulsar().exceptions.ProducerFenced:
            self._is_fenced = True
            raise
        except pulsar().exceptions.AlreadyClosed:
            # The topic was deleted, and may have been created again: the next write opens it.
            self.close()
            raise
        # Only the last message is needed.
        if self._last_id is not None:
            self._retaining.acknowledge_cumulative(self._last_id)
        self._last_id = message_id

    @one_at_a_time
    def close(self) -> None:
        """Let another writer in."""
        for each in (self._producer, self._retaining):
            if each is not None:
                # A producer that was fenced is closed.
                with suppress(pulsar().exceptions.AlreadyClosed):
                    each.close()
        self._producer = self._retaining = None

    @one_at_a_time
    def delete(self) -> None:
        """Delete the value, and the topic with ``admin_url``."""
        self.close()
        if self._broker.has_admin:
            self._broker.admin("deleting a topic").delete_topic(self.topic)
        elif self.read() is not None:
            self.write(b"")
            self.close()


def subscribed(client: Any, topic: str, name: str) -> Any:
    """Return a consumer that retains messages and receives none."""
    library = pulsar()
    return client.subscribe(
        topic, name, consumer_type=library.ConsumerType.Failover, receiver_queue_size=0,
        initial_position=library.InitialPosition.Earliest,
    )  # fmt: skip
