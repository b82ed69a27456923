"""Validation and opening of the files that an archive's manifest names.

An archive may come from an untrusted source, and is not signed. So a name may only select a file below the root: it
must have the format that a run writes, and it is opened level by level, without following links.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

MAX_COMMIT_BYTES: Final = 256 << 20
"""Maximum size of a commit of a manifest, which has about 350 bytes per file."""

_MAX_NUMBER: Final = (1 << 63) - 1
_VCHANNEL: Final = re.compile(r"([a-z0-9_][a-z0-9._-]{0,126})/([0-9]{1,4})")
_FILE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}\.parquet")
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def check_path(path: object, vchannel: object, folder: str) -> None:
    """Raise ValueError unless ``path`` has the format of a file of ``vchannel``, below ``folder``."""
    found = _VCHANNEL.fullmatch(vchannel) if isinstance(vchannel, str) else None
    if found is None:
        raise ValueError(f"{vchannel!r:.80} is not a vchannel name")
    begin = f"{folder}/channel={found[1]}/vchannel={found[2]}/"
    if not isinstance(path, str) or not path.startswith(begin) or not _FILE.fullmatch(path[len(begin) :]):
        raise ValueError(f"{path!r:.200} is not a file of {vchannel}, expected {begin}*.parquet")


def check_texts(pattern: re.Pattern[str], expected: str, **values: object) -> None:
    """Raise ValueError, which names what is ``expected``, unless all values are texts that match ``pattern``."""
    for name, value in values.items():
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"{name} is {value!r:.80}, expected {expected}")


def check_numbers(**values: object) -> None:
    """Raise ValueError unless all values are whole numbers from 0 to 2**63 - 1."""
    for name, value in values.items():
        # In Python a bool is an int.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
            raise ValueError(f"{name} is {value!r:.80}, expected a number from 0 to {_MAX_NUMBER}")


def open_inside(root: str | Path, name: str) -> int:
    """Open the regular file ``name``, a relative path below ``root``, and return its descriptor.

    Raises:
        OSError: The file is missing, its path contains a link, it is not a regular file, or the system refused.
    """
    *folders, last = name.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for level in folders:
            inner = os.open(level, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Ordering: checked before it is opened. Opening a pipe may block, and opening a device may have an effect.
        if not stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EINVAL, "is a link, or not a regular file", name)
        return os.open(last, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)


def read_inside(root: str | Path, name: str, max_bytes: int) -> bytes:
    """Return the content of a file below ``root``. Raises OSError as ``open_inside``, or above ``max_bytes``."""
    with os.fdopen(open_inside(root, name), "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"has more than {max_bytes} bytes", name)
    return content
