"""The files that the manifest of an archive names: where they may lie, and how they are opened.

An archive may come from elsewhere, and nothing in it has a key. So a name decides nothing but which file below the root
is read: it has the form that a run gives it, and it is opened level by level, without following links.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

MAX_COMMIT_BYTES: Final = 256 << 20
"""Of a commit of a manifest, which has some 350 bytes for each file."""

_MAX_NUMBER: Final = (1 << 63) - 1
_VCHANNEL: Final = re.compile(r"([a-z0-9_][a-z0-9._-]{0,126})/([0-9]{1,4})")
_FILE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}\.parquet")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_TEXT: Final = re.compile(r"[ -~]{0,200}")
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def check_path(path: object, vchannel: object, folder: str) -> None:
    """Raise ValueError unless ``path`` is one that a run gives to a file of ``vchannel``, below ``folder``."""
    found = _VCHANNEL.fullmatch(vchannel) if isinstance(vchannel, str) else None
    if found is None:
        raise ValueError(f"{vchannel!r:.80} is no vchannel")
    begin = f"{folder}/channel={found[1]}/vchannel={found[2]}/"
    if not isinstance(path, str) or not path.startswith(begin) or not _FILE.fullmatch(path[len(begin) :]):
        raise ValueError(f"{path!r:.200} is no file of {vchannel}, whose files are {begin}*.parquet")


def check_digests(**values: object) -> None:
    """Raise ValueError unless all are digests."""
    for name, value in values.items():
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            raise ValueError(f"{name} is {value!r:.80}, expected 32 hexadecimal digits")


def check_texts(**values: object) -> None:
    """Raise ValueError unless all are short texts of one line."""
    for name, value in values.items():
        if not isinstance(value, str) or not _TEXT.fullmatch(value):
            raise ValueError(f"{name} is {value!r:.80}, expected a short text")


def check_numbers(**values: object) -> None:
    """Raise ValueError unless all are numbers of 63 bits."""
    for name, value in values.items():
        # In Python true is a number.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
            raise ValueError(f"{name} is {value!r:.80}, expected a number from 0 to {_MAX_NUMBER}")


def open_inside(root: str | Path, name: str) -> int:
    """Open the regular file ``name``, with slashes between levels, below ``root``, and return its descriptor.

    Raises:
        OSError: It is missing, it is or lies behind a link, it is no regular file, or the system refused.
    """
    *folders, last = name.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for level in folders:
            inner = os.open(level, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Looked at first: opening a pipe may block, and opening a device may have an effect.
        if not stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EINVAL, "is a link, or no regular file", name)
        return os.open(last, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)


def read_inside(root: str | Path, name: str, max_bytes: int) -> bytes:
    """Return the content of a file below ``root``. Raises OSError as ``open_inside``, and if it is larger."""
    with os.fdopen(open_inside(root, name), "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"has more than {max_bytes} bytes", name)
    return content
