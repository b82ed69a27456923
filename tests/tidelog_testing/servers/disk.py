"""Disk usage of a running server's database."""

from pathlib import Path


def disk_bytes(folder: Path, *suffixes: str) -> int:
    """Return the size of the files below ``folder`` with ``suffixes``, by default those of tables and blobs.

    Files that RocksDB removes meanwhile count as removed. The WAL has its own bound.
    """
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.suffix in (suffixes or (".sst", ".blob")) else 0
        except FileNotFoundError:
            continue
    return total
