"""What the database of a running server takes of the disk."""

from pathlib import Path


def disk_bytes(folder: Path, *suffixes: str) -> int:
    """Return the bytes of the files below ``folder`` with ``suffixes``; of tables and blobs, if none are given.

    RocksDB removes files while one looks: those count as removed. The WAL is bounded by itself.
    """
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.suffix in (suffixes or (".sst", ".blob")) else 0
        except FileNotFoundError:
            continue
    return total
