"""The floor of a log in Pulsar: the bare client, in a process of its own, with the settings of a server's log."""

import time
from queue import SimpleQueue
from typing import Any, Final

import pulsar

from tidelog_server.commands.bench.floors.floor_requests import RecordFloor, answer_requests
from tidelog_server.recordlog.pulsar import PRODUCER_OPTIONS, Topic, position_of
from tidelog_server.recordlog.pulsar_access import topic_name
from tidelog_server.recordlog.pulsar_connection import PulsarConnection

# Records ahead of the reader: the default of the client.
_RECORDS: Final = 1_000
_ANSWER_WITHIN_MS: Final = 60_000


class PulsarFloor(RecordFloor):
    """The bare client of Pulsar."""

    def __init__(self, service_url: str, admin_url: str, namespace: str, options_file: str, topic: str) -> None:
        super().__init__()
        self._connection = PulsarConnection.load(service_url, admin_url, options_file)
        self._namespace = namespace
        self._client = self._connection.client()
        self._producer = self._client.create_producer(topic_name(topic, namespace), **PRODUCER_OPTIONS)
        self._answers: SimpleQueue[Any] = SimpleQueue()

    def consume(self, topic: str) -> list[float]:
        """See RecordFloor."""
        name = topic_name(topic, self._namespace)
        end = Topic(self._connection, name).state().bounds().end
        start = time.perf_counter()
        reader = self._client.create_reader(name, pulsar.MessageId.earliest, receiver_queue_size=_RECORDS)
        size_bytes, behind = 0, 0
        while behind < end:
            message = reader.read_next(_ANSWER_WITHIN_MS)
            size_bytes += len(message.data())
            behind = position_of(message.message_id().ledger_id(), message.message_id().entry_id()) + 1
        seconds = time.perf_counter() - start
        reader.close()
        return [seconds, float(size_bytes)]

    def _produce(self, value: bytes) -> None:
        self._waiting += 1
        self._producer.send_async(value, lambda result, _: self._answers.put(result))

    def _confirm(self, most: int) -> None:
        while self._waiting > most:
            result = self._answers.get()
            assert result == pulsar.Result.Ok, result
            self._waiting -= 1


if __name__ == "__main__":
    answer_requests(PulsarFloor)
