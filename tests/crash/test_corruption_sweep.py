"""A flipped bit anywhere in a data folder is refused, reported by a read, or harmless; never a shorter answer.

Method: a crashed folder with entries in tables, blob files and the WAL; one bit of one file is flipped, the gate's
check runs, and if it passes everything is read. The counts of each kind of file are printed. A judge does this in its
own process, as the gate does: a flipped bit in a MANIFEST can make RocksDB spin, holding the GIL. A sample of each kind
goes through the whole of ``open_rocksdb_log_store``.

Then the same with real servers, on a folder that has rows in every column family: each of its files is deleted,
emptied, halved, exchanged or flipped at some place. Either the server refuses and the folder is unchanged byte for
byte, or it starts and returns everything that it returned before, or DATA_LOSS.

Promises of docs/reference/guarantees.md: G1, G2, G10, G15.
"""

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import grpc.aio
import pytest

import tidelog
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.data_folder import wal_files
from tidelog_server.storage.format.folder_errors import DataFolderError
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.recovery.wal_scan import end_of_records
from tidelog_testing.faults.damage import (
    Content,
    content_of,
    crashed_copy,
    cut,
    cut_padding,
    damaged,
    digests,
    filled_store,
    flip_bit,
)
from tidelog_testing.oracles.judge import CHANGED, HARMLESS, REFUSED, Judge
from tidelog_testing.oracles.whole_store import Facts, facts_of, is_complete, whole_store
from tidelog_testing.parts.entries import run_of_entries
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

PATTERNS = ("*.log", "*.sst", "*.blob", "../HEAD", "MANIFEST-*", "CURRENT", "OPTIONS-*")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """Return a crashed folder and its content."""
    folder = tmp_path_factory.mktemp("sweep")
    store = filled_store(folder / "live", flushed=40, unflushed=40)
    copy = crashed_copy(store, folder / "crashed")
    content = content_of(store)
    store.close()
    return copy, content


@pytest.fixture(scope="module")
def judge(live: tuple[Path, Content]) -> Iterator[Judge]:
    """Return a judge with the content of ``live``."""
    with Judge(live[1]) as judge:
        yield judge


def flips(folder: Path, pattern: str, count: int) -> Iterator[tuple[Path, int, int]]:
    """Yield about ``count`` places spread evenly over the bits of all files of a kind."""
    paths = [path for path in sorted((folder / "db").glob(pattern)) if path.stat().st_size]
    if pattern.startswith("../"):
        paths = [folder / pattern.removeprefix("../")]
    total_bits = 8 * sum(path.stat().st_size for path in paths)
    # Odd, so that all eight bits of a byte are covered.
    stride = max(1, total_bits // count) | 1
    start = 0
    for path in paths:
        size_bits = 8 * path.stat().st_size
        for position in range(-start % stride, size_bits, stride):
            yield path, position // 8, position % 8
        start += size_bits


def sweep(crashed: Path, scratch: Path, judge: Judge, pattern: str, count: int) -> Counter[str]:
    """Flip about ``count`` bits of a kind of file, one at a time; count the outcomes."""
    outcomes: Counter[str] = Counter()
    with damaged(crashed, scratch) as folder:
        before = digests(folder)
        for path, offset, bit in flips(folder, pattern, count):
            flip_bit(path, offset, bit)
            outcomes[judge.ask(folder)] += 1
            flip_bit(path, offset, bit)
        assert digests(folder) == before, "a check modified the folder"
    sys.stdout.write(f"{pattern}: {sum(outcomes.values())} flips: {dict(outcomes)}\n")
    return outcomes


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_flip_makes_an_answer_shorter(
    live: tuple[Path, Content], judge: Judge, tmp_path: Path, pattern: str
) -> None:
    outcomes = sweep(live[0], tmp_path / "scratch", judge, pattern, 120)
    assert sum(outcomes.values()) >= 100
    assert outcomes[CHANGED] == 0
    if pattern == "*.log":
        # Every byte of the WAL is covered by a CRC and is below the head.
        assert outcomes[REFUSED] == sum(outcomes.values())


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_flip_anywhere_makes_an_answer_shorter(
    live: tuple[Path, Content], judge: Judge, tmp_path: Path, pattern: str
) -> None:
    assert sweep(live[0], tmp_path / "scratch", judge, pattern, 4_000)[CHANGED] == 0


@pytest.mark.parametrize("pattern", [*PATTERNS, "../FORMAT"])
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


def test_a_wal_cut_anywhere_below_the_head_is_refused(live: tuple[Path, Content], judge: Judge, tmp_path: Path) -> None:
    crashed = live[0]
    wal = max(wal_files(crashed / "db"), key=lambda path: path.stat().st_size)
    whole = wal.read_bytes()
    outcomes: Counter[str] = Counter()
    with damaged(crashed, tmp_path / "scratch") as folder:
        path = folder / wal.relative_to(crashed)
        for size_bytes in range(0, len(whole), len(whole) // 60):
            cut(path, size_bytes)
            outcomes[judge.ask(folder)] += 1
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
    whole = whole[: end_of_records(whole)]
    store.close()
    assert synced_bytes < len(whole)
    with Judge(content) as judge:
        for size_bytes in range(synced_bytes, len(whole), 97):
            wal.write_bytes(whole[:size_bytes])
            assert judge.ask(folder) == HARMLESS


def test_whatever_follows_the_wal_is_no_harm(live: tuple[Path, Content], judge: Judge, tmp_path: Path) -> None:
    # RocksDB itself spins on one in fifteen of these (facebook/rocksdb#13333).
    random = Random(13_333)
    with damaged(live[0], tmp_path / "scratch") as folder:
        wal = max(wal_files(folder / "db"), key=lambda path: path.stat().st_size)
        sound = wal.read_bytes()
        for size_bytes in (1, 7, 100, 3_000, 33_000, 70_000, 200_000):
            tails = [bytes(size_bytes), b"\xff" * size_bytes, *(random.randbytes(size_bytes) for _ in range(12))]
            for tail in tails:
                wal.write_bytes(sound + tail)
                assert judge.ask(folder) == HARMLESS


Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    """Return the folder of a killed server, with rows in every family, and what it returned."""
    folder = tmp_path_factory.mktemp("whole") / "log"
    facts = asyncio.run(whole_store(folder))
    cut_padding(folder)
    return folder, facts


def damages(folder: Path) -> Iterator[tuple[str, Damage]]:
    """Yield ways to damage a folder, each with its name: every file, in all ways that apply."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in paths:
        name, size = path.relative_to(folder), path.stat().st_size
        # These have no influence on answers.
        if path.name.startswith(("LOG", "LOCK")):
            continue
        yield f"{name} deleted", at(name, Path.unlink)
        if not size:
            continue
        yield f"{name} emptied", at(name, partial(cut, size_bytes=0))
        yield f"{name} halved", at(name, partial(cut, size_bytes=size // 2))
        alike = [other for other in paths if other.suffix == path.suffix != "" and other != path]
        if alike:
            yield f"{name} exchanged", partial(exchange, name, alike[0].relative_to(folder))
        places = {0, 10, size // 4, size // 2, 3 * size // 4, size - 900, size - 400, size - 60, size - 8}
        for offset in sorted(place for place in places if 0 <= place < size):
            yield f"{name} flipped at {offset}", at(name, partial(flip_bit, offset=offset, bit=offset % 8))


def at(name: Path, change: Callable[[Path], None]) -> Damage:
    """Return a damage from a change of one file."""
    return lambda folder: change(folder / name)


def exchange(name: Path, other: Path, folder: Path) -> None:
    """Exchange the content of two files."""
    content = (folder / name).read_bytes()
    shutil.copyfile(folder / other, folder / name)
    (folder / other).write_bytes(content)


def started(folder: Path) -> ServerProcess | ServerDiedError:
    """Return a server on a folder, or how its start ended."""
    try:
        return ServerProcess(folder)
    except ServerDiedError as died:
        return died


async def outcome_of(folder: Path, expected: Facts) -> str:
    """Start a server on a damaged folder and read everything; return the outcome, or fail."""
    before = digests(folder)
    server = started(folder)
    if isinstance(server, ServerDiedError):
        assert digests(folder) == before, f"a refused folder was modified: {server}"
        assert server.code == (ExitCode.DATA_DIR_UNUSABLE if "FORMAT" in server.errors else ExitCode.DATA_LOSS), server
        return f"refused with {server.code}"
    with server:
        try:
            found = await facts_of(server.grpc, expected.txn_ids)
        except (tidelog.TidelogError, grpc.aio.AioRpcError):
            # A compaction found it, but no read did: the server stops, and reports why.
            assert await asyncio.to_thread(server.wait) == ExitCode.DATA_LOSS, server.errors
            assert "stored data is damaged" in server.errors
            return "stopped when a compaction met it"
    assert is_complete(found, expected), found
    return "complete" if found == expected else "DATA_LOSS of reads"


def sweep_servers(
    whole: tuple[Path, Facts], scratch: Path, wanted: list[tuple[str, Damage]], record: Recorder
) -> Counter[str]:
    """Start a server for each damage; count the outcomes."""
    outcomes: Counter[str] = Counter()
    for name, damage in wanted:
        with damaged(whole[0], scratch) as folder:
            damage(folder)
            try:
                outcomes[asyncio.run(outcome_of(folder, whole[1]))] += 1
            except AssertionError as error:
                error.add_note(name)
                raise
    record("measured", f"{sum(outcomes.values())} damages: {dict(outcomes)}")
    return outcomes


@pytest.mark.crash
def test_a_server_refuses_a_damaged_folder_untouched_or_answers_completely(
    whole: tuple[Path, Facts], tmp_path: Path, record_property: Recorder
) -> None:
    every = list(damages(whole[0]))
    # A block of rows of each table, and so of each family; and a sample of everything.
    blocks = [each for each in every if each[0].endswith(".sst flipped at 10")]
    assert len(blocks) >= 7
    outcomes = sweep_servers(whole, tmp_path / "copy", [*blocks, *islice(every, 5, None, 23)], record_property)
    assert outcomes["refused with 65"] >= 8


@pytest.mark.crash
@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_a_server_refuses_any_damaged_folder_untouched_or_answers_completely(
    whole: tuple[Path, Facts], tmp_path: Path, record_property: Recorder
) -> None:
    every = list(damages(whole[0]))
    assert len(every) >= 200
    sweep_servers(whole, tmp_path / "copy", every, record_property)
