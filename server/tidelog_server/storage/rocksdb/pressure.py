"""RocksDB's write pressure: when to delay writes, and gauges for operators."""

from typing import Final

from rocksdict import Rdict

from tidelog_server.runtime.engine_figures import Figure
from tidelog_server.storage.rocksdb.engine import BLOB_FAMILIES, COLUMNS_BUFFERS, FAMILIES, SMALL_BUFFERS, Engine

_DATABASE_GAUGES: Final = {
    "block-cache-usage": "block_cache_bytes",
    "num-running-flushes": "running_flushes",
    "num-running-compactions": "running_compactions",
    "background-errors": "background_errors",
}
_FAMILY_GAUGES: Final = {
    "cur-size-all-mem-tables": "memtable_bytes",
    "num-immutable-mem-table": "immutable_memtables",
    "live-sst-files-size": "sst_bytes",
}
_BLOB_GAUGES: Final = {
    "num-blob-files": "blob_files",
    "live-blob-file-size": "blob_bytes",
    "live-blob-file-garbage-size": "blob_garbage_bytes",
}


def stall_reason(engine: Engine) -> str | None:
    """Return why a write would wait for RocksDB now; None if it would not. Takes a few microseconds."""
    # One buffer is being filled; once all others wait to be flushed, the next switch would stop the writer. Any family
    # may be affected: small columns fill that of the headers, and messages of broadcasts the metadata.
    for name in FAMILIES:
        waiting = integer_property(engine.family(name), "num-immutable-mem-table")
        if (COLUMNS_BUFFERS if name in BLOB_FAMILIES else SMALL_BUFFERS) - 1 <= waiting:
            return f"{waiting} buffers of {name} wait to be flushed"
    if integer_property(engine.columns, "is-write-stopped"):
        return "RocksDB has stopped writes until a flush or compaction ends"
    return None


def engine_metrics(engine: Engine) -> dict[Figure, float]:
    """Return RocksDB's gauges."""
    gauges = {Figure(name): float(integer_property(engine.db, key)) for key, name in _DATABASE_GAUGES.items()}
    for family_name in FAMILIES:
        family = engine.family(family_name)
        names = _FAMILY_GAUGES | _BLOB_GAUGES if family_name in BLOB_FAMILIES else _FAMILY_GAUGES
        for key, name in names.items():
            gauges[Figure(name, family_name)] = float(integer_property(family, key))
    return gauges


def integer_property(family: Rdict, name: str) -> int:
    """Return RocksDB's property ``rocksdb.<name>``; 0 if it is not available."""
    return family.property_int_value(f"rocksdb.{name}") or 0
