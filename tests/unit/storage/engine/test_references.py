"""Columns that only the log has: over parts, among records that do not exist, and when they are gone."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.recordlog.engine import EngineUnavailableError, PositionGoneError
from tidelog_server.recordlog.records import EMPTY, Kind, Position, Record
from tidelog_server.storage.engine.references import MAX_RUNS, RecordCache, References, Runs
from tidelog_server.storage.engine.values import Reference, pack_local, pack_reference, unpack_value

_INCARNATION = bytes(16)


class Log:
    """Records by position.

    Attributes:
        reads: Position and bytes of each read.
    """

    def __init__(self, records: dict[Position, Record | None], begin: Position = 0) -> None:
        self.records = records
        self.begin = begin
        self.reads: list[tuple[Position, int]] = []
        self.max_records = len(records)
        self.is_silent = False

    def read(self, begin: Position, max_bytes: int) -> Sequence[tuple[Position, Record | None]]:
        self.reads.append((begin, max_bytes))
        if self.is_silent:
            raise EngineUnavailableError("no answer")
        if begin < self.begin:
            raise PositionGoneError(begin, self.begin)
        found: list[tuple[Position, Record | None]] = []
        for position in sorted(each for each in self.records if begin <= each):
            found.append((position, self.records[position]))
            max_bytes -= 100
            if max_bytes <= 0 or len(found) == self.max_records:
                break
        return found


def record(payload: bytes, *, term: int = 1, number: int = 1, part: int = 0, parts: int = 1) -> Record:
    return Record(Kind.GROUP, _INCARNATION, term, number, part, parts, EMPTY, EMPTY, None, payload)


def references(log: Log, cache_bytes: int = 1 << 20) -> References:
    return References(log.read, RecordCache(cache_bytes))


def test_values_come_back() -> None:
    assert unpack_value(pack_local(b"")) == b""
    assert unpack_value(pack_local(b"columns")) == b"columns"
    reference = Reference((1 << 127) + 5, 899_999, 1 << 31)
    assert unpack_value(pack_reference(reference)) == reference
    assert len(pack_reference(reference)) == 25
    for damaged in (b"", b"\2abc", pack_reference(reference)[:-1]):
        assert unpack_value(damaged) is None


def test_columns_come_in_the_order_asked_for_and_each_record_is_read_once() -> None:
    log = Log({position: record(b"%d-columns" % position, number=position) for position in range(1, 4)})
    values: list[bytes | None] = [
        pack_reference(Reference(3, 0, 9)), None, pack_local(b"local"), pack_reference(Reference(1, 2, 7)),
        pack_reference(Reference(3, 2, 3)),
    ]  # fmt: skip
    assert references(log).columns_of(values) == [b"3-columns", None, b"local", b"columns", b"col"]
    assert [begin for begin, _ in log.reads] == [1, 2]


def test_columns_go_on_in_the_next_parts_and_what_lies_between_does_not_exist() -> None:
    first, second, third = (
        record(payload, term=3, number=7 + part, part=part, parts=3)
        for part, payload in enumerate((b"..abc", b"defgh", b"ij..."))
    )
    log = Log({
        10: first,
        # Foreign; of a former owner; a repetition; of another number.
        11: None, 12: record(b"?????", term=2, number=8), 13: first, 14: record(b"?????", term=3, number=9),
        15: second, 16: second, 20: third,
    })  # fmt: skip
    value = pack_reference(Reference(10, 2, 10))
    assert references(log).columns_of([value]) == [b"abcdefghij"]
    del log.records[20]
    assert references(log).columns_of([value]) == [None]


def test_columns_beyond_their_record_are_missing() -> None:
    log = Log({1: record(b"short"), 2: record(b"of the next group", number=2)})
    assert references(log).columns_of([pack_reference(Reference(1, 3, 10))]) == [None]
    assert references(log).columns_of([pack_reference(Reference(9, 0, 1))]) == [None]
    assert references(log).columns_of([b"\7damaged"]) == [None]


def test_trimmed_columns_are_missing_and_a_silent_engine_is_no_loss() -> None:
    log = Log({5: record(b"columns")}, begin=5)
    gone, there = pack_reference(Reference(1, 0, 5)), pack_reference(Reference(5, 0, 7))
    assert references(log).columns_of([gone, there]) == [None, b"columns"]
    log.is_silent = True
    with pytest.raises(StorageUnreadableError, match="the engine of the log: no answer"):
        references(log).columns_of([there])


def test_ascending_reads_read_ahead_and_others_do_not() -> None:
    log = Log({position: record(bytes(100), number=position) for position in range(1, 201)})
    found = references(log)
    for position in range(1, 101):
        assert found.columns_of([pack_reference(Reference(position, 0, 100))]) == [bytes(100)]
    assert len(log.reads) == 2
    assert log.reads[0] == (1, 1)
    log.reads.clear()
    found = references(log)
    for position in (150, 20, 90):
        found.columns_of([pack_reference(Reference(position, 0, 100))])
    assert [max_bytes for _, max_bytes in log.reads] == [1, 1, 1]


def test_a_scan_reads_no_further_ahead_than_the_cache_holds() -> None:
    log = Log({position: record(bytes(100), number=position) for position in range(1, 1_001)})
    found = references(log, 100_000)
    for position in range(1, 1_001):
        assert found.columns_of([pack_reference(Reference(position, 0, 100))]) == [bytes(100)]
    # One record, and then 125 at a time, which take 76,500 bytes of the cache.
    assert len(log.reads) == 1 + 8


def test_scans_in_turns_and_by_any_thread_read_ahead_each() -> None:
    log = Log({position: record(bytes(100), number=position) for position in range(1, 1_001)})
    found = references(log, 100 << 20)

    def scan(position: int) -> None:
        assert found.columns_of([pack_reference(Reference(position, 0, 100))]) == [bytes(100)]

    log.max_records = 50
    for step in range(1, 200):
        for begin in (0, 300, 600):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(scan, begin + step).result()
    # Of each, one record, and then 50 at a time.
    assert len(log.reads) == 3 * (1 + 4)


def test_a_bounded_number_of_runs_is_followed() -> None:
    runs = Runs()
    for end in range(0, 100 * MAX_RUNS, 100):
        runs.add(end)
    assert runs.continued(15) == 0
    runs.add(100 * MAX_RUNS)
    runs.add(100 * MAX_RUNS + 100)
    assert runs.continued(116) is None
    # The oldest one is forgotten.
    assert (runs.continued(105), runs.continued(205)) == (None, 200)
    assert runs.continued(205) is None


def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    cache = RecordCache(5_000)
    cache.add([(position, record(bytes(1_000), number=position)) for position in (1, 2, 3)])
    assert cache.size_bytes <= 5_000
    assert cache.find(1)[0]
    cache.add([(4, record(bytes(1_000), number=4))])
    assert [cache.find(position)[0] for position in (1, 2, 3, 4)] == [True, False, True, True]
    cache.add([(5, record(bytes(10_000)))])
    assert cache.size_bytes == 0
