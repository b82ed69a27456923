"""Threads that read a topic: a scan continues with the consumer that has read before, whichever thread reads for it."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tidelog_server.recordlog.kafka import KafkaEngine
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_testing.servers.kafka import KafkaProcesses

_RECORDS = 200


def test_threads_in_turn_share_consumers_and_threads_at_once_have_their_own(kafka: KafkaProcesses) -> None:
    topic = "reads"
    kafka.create_topic(topic)
    engine = KafkaAccess(kafka.servers).engine(topic)
    stored: list[object] = []
    for number in range(_RECORDS):
        engine.send(b"%06d" % number * 1_000, stored.append)
    while len(stored) < _RECORDS:
        engine.poll(0.1)

    def read(begin: int) -> int:
        found, behind = engine.read(begin, 20_000)
        assert [each.value[:6] for each in found] == [b"%06d" % each.position for each in found]
        assert behind == found[-1].position + 1
        return behind

    # Two scans, each of which is read by another thread each time.
    ends = [0, 100]
    while min(ends) < _RECORDS:
        for scan in range(2):
            if ends[scan] < _RECORDS:
                with ThreadPoolExecutor(1) as thread:
                    ends[scan] = thread.submit(read, ends[scan]).result()
    assert len(engine._readers._all) == 1

    barrier = threading.Barrier(3)

    def read_at_once(begin: int) -> int:
        with engine._readers.lent(begin) as consumer:
            barrier.wait()
            return consumer.read(begin, 1).records[0].position

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(read_at_once, (5, 50, 150))) == [5, 50, 150]
    assert len(engine._readers._all) == 3
    # Each continues where it was.
    for begin in (151, 6, 51):
        with engine._readers.lent(begin) as consumer:
            assert consumer.next == begin
    engine.close()


def test_a_consumer_that_no_read_uses_asks_brokers_for_nothing(kafka: KafkaProcesses) -> None:
    topic = "unused-consumers"
    kafka.create_topic(topic)
    told: list[tuple[float, int]] = []

    def note(statistics: str) -> None:
        found = json.loads(statistics)
        told.append((found["ts"] / 1e6, sum(each["tx"] for each in found["brokers"].values())))

    # Told with the next read: of each tenth of a second, how many requests there were until then.
    engine = KafkaEngine(kafka.servers, topic, {"statistics.interval.ms": 100, "stats_cb": note})
    stored: list[object] = []
    for _ in range(3):
        engine.send(bytes(1_000), stored.append)
    while len(stored) < 3:
        engine.poll(0.1)

    def requests_per_s(read: Callable[[], object]) -> float:
        """Return how many requests there are in an idle second, which the read behind it tells."""
        idle_s = time.monotonic() + 0.3
        time.sleep(1.5)
        read()
        (begin_s, begin), *_, (end_s, end) = (each for each in told if each[0] >= idle_s)
        assert end_s - begin_s > 0.5
        return (end - begin) / (end_s - begin_s)

    # One that has reached the end; one with records that were not read; one that waits at the end.
    engine.read(3, 1)
    assert requests_per_s(lambda: engine.read(3, 1)) < 10
    assert engine.read(0, 1).next == 1
    assert [each.next for each in engine._readers._all] == [1]
    time.sleep(1.1)
    engine.rest()
    assert [each.next for each in engine._readers._all] == [None]
    assert engine.read(1, 1).next == 2
    begun_s = time.monotonic()
    while time.monotonic() < begun_s + 1.0:
        assert not engine.read(3, 1, 0.1).records
    assert requests_per_s(lambda: engine.read(3, 1, 0.1)) < 10
    # The first record that is sent ends it.
    engine.send(b"owned", stored.append)
    assert engine._follower is None
    engine.close()
