"""A small disk to be filled: a tmpfs, which needs root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """Make ``folder`` a file system of this size, and take it away again."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tidelog-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
