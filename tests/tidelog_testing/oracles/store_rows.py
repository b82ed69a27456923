"""The rows of a stored log as plain data, table by table: what a comparison of whole states needs to know of storage.

Only ``rows_of`` knows how the tables are stored and decoded; what it returns names no class of the server.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidelog_server.broadcast.rows import LOGGED
from tidelog_server.core.ticks import MAX_TICK
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.rows import WINDOWS
from tidelog_server.metadata.embedded import EmbeddedMetadataStore
from tidelog_server.storage.format.keys import parse_log_key
from tidelog_server.storage.recovery.view import make_recovery_view
from tidelog_server.storage.rocksdb.engine import Engine, close_engine, open_engine, scan
from tidelog_server.storage.rocksdb.index import load_index
from tidelog_server.storage.rocksdb.metadata_rows import RocksdbMetadataRows
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.rows import load_rows
from tidelog_server.txn.rows import APP_COMMITS, FLOORS, OUTCOMES

Rows = dict[str, dict[tuple[Any, ...], Any]]
"""The rows of each table by key. The key of a row of a vchannel begins with the vchannel's id."""

OF_VCHANNELS: Final = frozenset(
    {
        "broadcasts", "chunks", "columns", "entries", "fences", "folds", "positions", "staged", "staged_txns", "tails",
        "windows",
    }
)  # fmt: skip
"""Tables whose keys begin with the id of a vchannel."""
OF_THE_STORE: Final = frozenset({"app_commits", "floors", "outcomes", "store"})
OF_METADATA: Final = frozenset(
    {
        "metadata/broadcast/message", "metadata/broadcast/progress", "metadata/broadcast/task",
        "metadata/broadcast/tombstone", "metadata/broadcast_floor", "metadata/channel", "metadata/group",
        "metadata/journal", "metadata/mailbox", "metadata/next_vchannel_id", "metadata/timestamp", "metadata/token",
    }
)  # fmt: skip
"""Tables of the metadata store."""
TABLES: Final = OF_VCHANNELS | OF_THE_STORE | OF_METADATA
_HEADERS_PER_PAGE: Final = 256


def rows_of(folder: Path) -> Rows:
    """Return the rows of the data folder of a stopped or killed server, or of a checkpoint; it is not modified.

    Every value is made of numbers, texts, bytes, tuples, lists and dictionaries. Tables are those of ``TABLES``, and
    any other kind of record that the metadata has.

    Raises:
        DataLossError: A row is damaged.
    """
    with TemporaryDirectory(prefix="tidelog-rows-") as view:
        make_recovery_view(folder / "db", Path(view))
        engine = open_engine(Path(view), read_only=True)
        try:
            rows = _rows_of_log(engine) | _rows_of_index(engine) | _rows_of_features(engine)
            return rows | _rows_of_metadata(engine)
        finally:
            close_engine(engine)


def _rows_of_log(engine: Engine) -> Rows:
    tails = load_index(engine).tails
    reader = EntryReader(engine, tails)
    entries: dict[tuple[Any, ...], Any] = {}
    for vchannel_id in tails:
        next_tick = 0
        while page := reader.page_of_headers(vchannel_id, next_tick, MAX_TICK, _HEADERS_PER_PAGE):
            for header, columns in zip(page, reader.columns(page), strict=True):
                span = None if header.txn is None else plain(header.txn)
                kept = (header.count, header.message_type, header.columns_crc32c, header.broadcast_id, span, columns)
                entries[vchannel_id, header.base_tick] = kept
            next_tick = page[-1].last_tick + 1
    columns_rows = {parse_log_key(key): len(value) for key, value in scan(engine.columns, b"", None)}
    staged = {
        (int.from_bytes(key[:4], "big"), int.from_bytes(key[4:12], "big"), int.from_bytes(key[12:], "big")): len(value)
        for key, value in scan(engine.staged, b"", None)
    }
    return {"entries": entries, "columns": dict(columns_rows), "staged": dict(staged)}


def _rows_of_index(engine: Engine) -> Rows:
    index = load_index(engine)
    return {
        # The stored tails may be older: these include the entries behind them.
        "tails": {(vchannel_id,): tail._asdict() for vchannel_id, tail in index.tails.items()},
        "chunks": {(owner, row.first_tick): row._asdict() for owner, rows in index.chunks.items() for row in rows},
        "fences": {(vchannel_id,): token for vchannel_id, token in index.fencing_tokens.items()},
        "staged_txns": dict(index.txns),
        "store": {(): plain(index.store)},
    }


def _rows_of_features(engine: Engine) -> Rows:
    windows: dict[tuple[Any, ...], Any] = {}
    for (vchannel_id, name), window in load_rows(engine, WINDOWS).items():
        sequences = range(window.oldest_sequence, window.last_sequence + 1)
        results = [plain(window.result(sequence)) for sequence in sequences]
        found = {"epoch": window.epoch, "last_sequence": window.last_sequence, "tenant": window.tenant}
        windows[vchannel_id, name] = found | {"results": results}
    positions: dict[tuple[Any, ...], Any] = {}
    for key, position in load_rows(engine, POSITIONS).items():
        found = position._asdict()
        positions[found.pop("vchannel_id"), key.group] = found
    commits, floors = load_rows(engine, APP_COMMITS), load_rows(engine, FLOORS)
    return {
        "windows": windows,
        "positions": positions,
        "broadcasts": {tuple(key): tick for key, tick in load_rows(engine, LOGGED).items()},
        "folds": {(vchannel_id,): tick for vchannel_id, tick in load_rows(engine, SNAPSHOTS).items()},
        "outcomes": {(txn_id,): plain(outcome) for txn_id, outcome in load_rows(engine, OUTCOMES).items()},
        "app_commits": {tuple(app): commit._asdict() for app, commit in commits.items()},
        "floors": {(key.table.name, key.tenant): floor for key, floor in floors.items()},
    }


def _rows_of_metadata(engine: Engine) -> Rows:
    async def records() -> Mapping[str, bytes]:
        with ThreadPoolExecutor(1) as executor:

            async def write(call: Callable[[], int]) -> int:
                return await asyncio.get_running_loop().run_in_executor(executor, call)

            table = RocksdbMetadataRows(engine)
            store = await EmbeddedMetadataStore.open(table, executor, write)
            return {key: found.value for key, found in (await store.list("")).items()}

    rows: Rows = {table: {} for table in OF_METADATA}
    for key, value in asyncio.run(records()).items():
        rows.setdefault(_table_of(key), {})[(key,)] = value
    return rows


def _table_of(key: str) -> str:
    _, kind, *rest = key.split("/")
    return f"metadata/{kind}/{rest[-1]}" if kind == "broadcast" else f"metadata/{kind}"


def plain(value: Any) -> Any:
    """Return a value with all named tuples in it as plain ones."""
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    return value
