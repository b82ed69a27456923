"""The floor of a log in Kafka: the bare client, in a process of its own, with the settings of a server's log."""

import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tidelog_server.commands.bench.floors.floor_requests import RecordFloor, answer_requests
from tidelog_server.recordlog.kafka import CONSUMER_OPTIONS, PRODUCER_OPTIONS
from tidelog_server.recordlog.options import read_options

_POLL_S: Final = 0.1
# Records at once that the consumer takes, as a plain program would.
_RECORDS: Final = 500
_ANSWER_WITHIN_S: Final = 60.0


class KafkaFloor(RecordFloor):
    """The bare client of Kafka."""

    def __init__(self, servers: str, options_file: str, topic: str) -> None:
        super().__init__()
        options = read_options(Path(options_file)) if options_file else {}
        connection: dict[str, Any] = {**options, "bootstrap.servers": servers, "log_level": 0}
        self._topic = topic
        self._producer = Producer({**connection, **PRODUCER_OPTIONS})
        self._connection = connection

    def consume(self, topic: str) -> list[float]:
        """See RecordFloor."""
        options: dict[str, Any] = {"group.id": CONSUMER_OPTIONS["group.id"], "enable.auto.commit": False}
        consumer = Consumer({**self._connection, **options})
        place = TopicPartition(topic, 0)
        begin, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_WITHIN_S)
        start = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, begin)])
        size_bytes = 0
        while begin < end:
            for message in consumer.consume(_RECORDS, _POLL_S):
                size_bytes += len(message.value() or b"")
                begin = (message.offset() or 0) + 1
        seconds = time.perf_counter() - start
        consumer.close()
        return [seconds, float(size_bytes)]

    def _produce(self, value: bytes) -> None:
        self._waiting += 1
        self._producer.produce(self._topic, value, partition=0, on_delivery=self._confirmed)

    def _confirm(self, most: int) -> None:
        # Also if none is to be waited for: what the client has to report must not pile up.
        self._producer.poll(0)
        while self._waiting > most:
            self._producer.poll(_POLL_S)

    def _confirmed(self, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        self._waiting -= 1


if __name__ == "__main__":
    answer_requests(KafkaFloor)
