"""The embedded metadata store survives a restart, and detects every row that is lost, outdated or damaged.

Method: a table in memory whose rows are damaged one by one, and a real RocksDB table across a restart.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.metadata.embedded import SUMMARY_KEY, EmbeddedMetadataStore
from tidelog_server.metadata.store import Delete, Put
from tidelog_server.storage.recovery.open import open_rocksdb_log_store


@dataclass
class DictTable:
    """A table with its rows in a dict."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    syncs: list[bool] = field(default_factory=list)

    def scan(self) -> list[tuple[bytes, bytes]]:
        return sorted(self.rows.items())

    def apply(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], *, syncs: bool = True) -> None:
        self.syncs.append(syncs)
        self.rows |= dict(puts)
        for key in deletes:
            self.rows.pop(key, None)


async def at_once(call: Callable[[], int]) -> int:
    return call()


async def filled(executor: ThreadPoolExecutor) -> DictTable:
    table = DictTable()
    store = await EmbeddedMetadataStore.open(table, executor, at_once)
    for i in range(5):
        await store.commit([Put(f"channel/{i}", b"described", 0), Put("bound", str(i).encode(), None)])
    await store.commit([Delete("channel/3", None)])
    return table


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    log_store = open_rocksdb_log_store(tmp_path / "store")
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedMetadataStore.open(log_store.metadata_rows(), executor, at_once)
        await store.commit([Put("a", b"1", 0), Put("b", b"2", 0)])
        revision = await store.commit([Delete("b", None), Put("a", b"3", None)])
        before = await store.list("")
        log_store.close()
        log_store = open_rocksdb_log_store(tmp_path / "store")
        store = await EmbeddedMetadataStore.open(log_store.metadata_rows(), executor, at_once)
        assert await store.list("") == before
        assert await store.commit([Put("c", b"", 0)]) == revision + 1
    log_store.close()


async def test_no_row_can_vanish_or_be_an_old_one() -> None:
    with ThreadPoolExecutor(1) as executor:
        table = await filled(executor)
        old_rows = dict(table.rows)
        store = await EmbeddedMetadataStore.open(table, executor, at_once)
        await store.commit([Put(key.decode()[1:], b"new", None) for key in table.rows if key != SUMMARY_KEY])
        whole = dict(table.rows)
        for key, row in whole.items():
            for rows in (
                {other: whole[other] for other in whole if other != key},
                {**whole, key: old_rows[key]},
                {**whole, key + b"2": row},
            ):
                with pytest.raises(DataLossError):
                    await EmbeddedMetadataStore.open(DictTable(rows), executor, at_once)


async def test_no_bit_of_a_row_can_flip_unseen() -> None:
    with ThreadPoolExecutor(1) as executor:
        whole = (await filled(executor)).rows
        for key, row in whole.items():
            for position in range(len(row) * 8):
                flipped = bytearray(row)
                flipped[position // 8] ^= 1 << position % 8
                with pytest.raises(DataLossError):
                    await EmbeddedMetadataStore.open(DictTable({**whole, key: bytes(flipped)}), executor, at_once)


async def test_a_lost_summary_is_noticed() -> None:
    with ThreadPoolExecutor(1) as executor:
        table = await filled(executor)
        del table.rows[SUMMARY_KEY]
        with pytest.raises(DataLossError):
            await EmbeddedMetadataStore.open(table, executor, at_once)


async def test_a_commit_before_a_write_of_the_log_needs_no_sync_of_its_own() -> None:
    table = DictTable()
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedMetadataStore.open(table, executor, at_once)
        table.syncs.clear()
        await store.commit([Put("a", b"1", 0)], is_before_log=True)
        await store.commit([Put("b", b"1", 0)])
    assert table.syncs == [False, True]
