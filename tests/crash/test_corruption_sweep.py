"""A flipped bit anywhere in a data folder is refused, reported by a read, or harmless; never a shorter answer.

Method: a crashed folder with entries in tables, blob files and the WAL; one bit of one file is flipped, the gate's
check runs, and if it passes everything is read. The counts of each kind of file are printed. Files that RocksDB
writes with a CRC are judged in this process, MANIFEST, CURRENT and OPTIONS in the real child, for a damaged MANIFEST
can make RocksDB spin. A sample of each kind goes through the whole of ``open_rocksdb_log_store``.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from crash.damage import Content, content_of, crashed_copy, cut, damaged, digests, filled_store, flip_bit
from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.data_folder import DataFolderError, lock_data_folder
from tidelog_server.storage.head_file import read_head
from tidelog_server.storage.rocksdb_check import check_store
from tidelog_server.storage.rocksdb_engine import close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb_open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb_reader import EntryReader
from tidelog_server.storage.start_gate import pass_gate
from tidelog_server.storage.wal_scan import wal_files
from unit.storage.entries import END, place_and_columns, run_of_entries

REFUSED, READ_FAILED, HARMLESS = "refused", "reported by a read", "harmless"
DEADLINE_S = 5.0
IN_PROCESS = ("*.log", "*.sst", "*.blob", "../HEAD")
IN_CHILD = ("MANIFEST-*", "CURRENT", "OPTIONS-*", "../FORMAT")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """Return a crashed folder and what it holds."""
    folder = tmp_path_factory.mktemp("sweep")
    store = filled_store(folder / "live", flushed=40, unflushed=40)
    copy = crashed_copy(store, folder / "crashed")
    content = content_of(store)
    store.close()
    return copy, content


def flips(folder: Path, pattern: str, count: int) -> Iterator[tuple[Path, int, int]]:
    """Yield about ``count`` places spread evenly over the bits of all files of a kind."""
    paths = [path for path in sorted((folder / "db").glob(pattern)) if path.stat().st_size]
    if pattern.startswith("../"):
        paths = [folder / pattern.removeprefix("../")]
    total_bits = 8 * sum(path.stat().st_size for path in paths)
    # Odd, so that all eight bits of a byte are met.
    stride = max(1, total_bits // count) | 1
    start = 0
    for path in paths:
        size_bits = 8 * path.stat().st_size
        for position in range(-start % stride, size_bits, stride):
            yield path, position // 8, position % 8
        start += size_bits


def judge_in_process(folder: Path, content: Content) -> str:
    """Do what the gate's child does, then read everything, without modifying a file."""
    try:
        with engine_errors("opening the database"):
            engine = open_engine(folder / "db", read_only=True)
    except DataLossError:
        return REFUSED
    try:
        head = read_head(folder / "HEAD")
        if head is None:
            return REFUSED
        index = check_store(engine, folder / "db", head)
    except DataLossError:
        close_engine(engine)
        return REFUSED
    try:
        reader = EntryReader(engine, index.tails)
        found = {v: list(map(place_and_columns, reader.read(v, 0, END, 1 << 40))) for v in sorted(index.tails)}
    except DataLossError:
        return READ_FAILED
    finally:
        close_engine(engine)
    assert found == content, "a damaged store answered with something else and no error"
    return HARMLESS


def judge_in_child(path: Path, content: Content) -> str:
    """Ask the real gate; what it lets through is read in this process."""
    try:
        folder = lock_data_folder(path)
        try:
            if not folder.is_finished():
                raise AssertionError("a damaged FORMAT was taken for an unfinished one")
            pass_gate(folder, accept_head_loss=False, deadline_s=DEADLINE_S)
        finally:
            folder.close()
    except (DataLossError, DataFolderError):
        return REFUSED
    return judge_in_process(path, content)


def sweep(crashed: Path, scratch: Path, content: Content, pattern: str, count: int) -> Counter[str]:
    """Flip about ``count`` bits of a kind of file, one at a time; return how many ended how."""
    judge = judge_in_process if pattern in IN_PROCESS else judge_in_child
    outcomes: Counter[str] = Counter()
    with damaged(crashed, scratch) as folder:
        before = digests(folder)
        for path, offset, bit in flips(folder, pattern, count):
            flip_bit(path, offset, bit)
            outcomes[judge(folder, content)] += 1
            flip_bit(path, offset, bit)
        assert digests(folder) == before, "a check modified the folder"
    sys.stdout.write(f"{pattern}: {sum(outcomes.values())} flips: {dict(outcomes)}\n")
    return outcomes


@pytest.mark.parametrize("pattern", IN_PROCESS)
def test_no_flip_in_the_data_makes_an_answer_shorter(live: tuple[Path, Content], tmp_path: Path, pattern: str) -> None:
    outcomes = sweep(live[0], tmp_path / "scratch", live[1], pattern, 120)
    assert sum(outcomes.values()) >= 100
    if pattern == "*.log":
        # Every byte of the WAL is covered by a CRC and lies below the head.
        assert outcomes[REFUSED] == sum(outcomes.values())


@pytest.mark.parametrize("pattern", IN_CHILD)
def test_no_flip_in_the_descriptions_makes_an_answer_shorter(
    live: tuple[Path, Content], tmp_path: Path, pattern: str
) -> None:
    outcomes = sweep(live[0], tmp_path / "scratch", live[1], pattern, 12)
    assert outcomes[READ_FAILED] == 0


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("pattern", "count"), [*((p, 8_000) for p in IN_PROCESS), *((p, 2_000) for p in IN_CHILD)])
def test_no_flip_anywhere_makes_an_answer_shorter(
    live: tuple[Path, Content], tmp_path: Path, pattern: str, count: int
) -> None:
    sweep(live[0], tmp_path / "scratch", live[1], pattern, count)


@pytest.mark.parametrize("pattern", [*IN_PROCESS, *IN_CHILD])
def test_a_sample_of_flips_through_the_whole_start(live: tuple[Path, Content], tmp_path: Path, pattern: str) -> None:
    for path, offset, bit in flips(live[0], pattern, 2):
        with damaged(live[0], tmp_path / "scratch") as folder:
            flip_bit(folder / path.relative_to(live[0]), offset, bit)
            before = digests(folder)
            try:
                store = open_rocksdb_log_store(folder)
            except (DataLossError, DataFolderError):
                assert digests(folder) == before
                continue
            with suppress(DataLossError):
                assert content_of(store) == live[1]
            store.close()


def test_a_wal_cut_anywhere_below_the_head_is_refused(live: tuple[Path, Content], tmp_path: Path) -> None:
    crashed, content = live
    wal = max(wal_files(crashed / "db"), key=lambda path: path.stat().st_size)
    whole = wal.read_bytes()
    outcomes: Counter[str] = Counter()
    with damaged(crashed, tmp_path / "scratch") as folder:
        path = folder / wal.relative_to(crashed)
        for size_bytes in range(0, len(whole), len(whole) // 60):
            cut(path, size_bytes)
            outcomes[judge_in_process(folder, content)] += 1
            path.write_bytes(whole)
    assert outcomes == {REFUSED: sum(outcomes.values())}


def test_a_wal_torn_above_the_head_opens_with_everything_synced(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "live", flushed=0, unflushed=20)
    folder = crashed_copy(store, tmp_path / "synced")
    content = content_of(store)
    (wal,) = wal_files(folder / "db")
    synced_bytes = wal.stat().st_size
    store.write(run_of_entries(1, 5, first_tick=100_000, size_bytes=900))
    whole = (store.folder / "db" / wal.name).read_bytes()
    store.close()
    assert synced_bytes < len(whole)
    for size_bytes in range(synced_bytes, len(whole), 97):
        wal.write_bytes(whole[:size_bytes])
        assert judge_in_process(folder, content) == HARMLESS
