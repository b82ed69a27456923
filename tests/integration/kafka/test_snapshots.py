"""Snapshots in a real Kafka: the topic is trimmed, and a process without a view starts from the newest one."""

from contextlib import closing
from pathlib import Path

from tidelog_server.recordlog.engine import Stored
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_server.recordlog.reads import reads
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.snapshot_plan import LIMITS
from tidelog_testing.parts.engine_stores import create_log, loads_snapshot, make_changes, open_on, state_of
from tidelog_testing.parts.entries import END, new_entry, run_of_entries
from tidelog_testing.servers.kafka import KafkaProcesses

_SMALL = LIMITS._replace(after_bytes=2_000_000, unit_bytes=4_000_000)


def test_a_topic_is_trimmed_and_another_process_starts_from_the_snapshot(kafka: KafkaProcesses, tmp_path: Path) -> None:
    topic = "trimmed"
    access = KafkaAccess(kafka.servers)
    access.create(topic)
    create_log(access.engine(topic))
    with closing(open_on(access.engine(topic), tmp_path / "view", limits=_SMALL)) as store:
        store.create_vchannels([1, 2, 3])
        # Idle: its columns are written again. The small ones are in snapshots of several parts.
        store.sync(store.write([new_entry(2, 100, size_bytes=5_000)]))
        store.sync(store.write(run_of_entries(3, 3_000, first_tick=100, size_bytes=500)))
        rewritten = 0
        begin = end = 0
        # 40 MB, and more if Kafka was too slow for a trim: the next snapshot then trims as much.
        for tick in range(100, 12_100, 20):
            store.sync(store.write([new_entry(1, tick, size_bytes=200_000)]))
            store.trim(1, tick)
            rewritten += make_changes(store.shorten())
            if tick >= 4_080:
                begin, end = access.engine(topic).bounds()
                if begin > end // 2:
                    break
        assert begin > end // 2
        assert store._snapshots.made > 1
        assert rewritten > 0
        stored = sum(len(each.value) for each in _all(access, topic, begin, end))
        live_bytes = 5_000 + 200_000 + 3_000 * 800
        # What grows until the next snapshot is due, is more than all else.
        until_next_bytes = _SMALL.ratio * store._snapshots.newest.size_bytes
        assert stored < live_bytes + _SMALL.unit_bytes + until_next_bytes < 25_000_000
        state = state_of(store)
        assert store.columns(store.headers(2, 0, END, 1)) == [new_entry(2, 100, size_bytes=5_000).columns]
    opened, is_loaded = loads_snapshot(lambda: open_on(access.engine(topic), tmp_path / "other"))
    with closing(opened):
        assert is_loaded
        assert state_of(opened) == state


def _all(access: KafkaAccess, topic: str, begin: int, end: int) -> list[Stored]:
    engine = access.engine(topic)
    found = [each for read in reads(engine, SystemClock(), begin, end, 4 << 20) for each in read.records]
    engine.close()
    return found
