"""Files and folders that a caller names: the one place that refuses what is no path of this machine, or cannot be read.

Each option for a path has one of these functions as its parser.
"""

import os
import re
from pathlib import Path
from typing import Final

from tidelog_cli.exit_codes import CommandError, ExitCode

STANDARD_INPUT: Final = "-"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def local_path(text: str | Path) -> Path:
    """Return a path of this machine.

    Raises:
        CommandError: ``text`` is empty, has a NUL character, or begins with a scheme, such as the URL of an object
            store, which as a path would be a folder ``s3:``.
    """
    given = str(text)
    if not given or "\0" in given:
        raise CommandError(f"{given!r} is not a path: expected that of a file or folder", ExitCode.USAGE)
    if (found := _SCHEME.match(given)) is not None:
        raise CommandError(
            f"'{given}' is not a path of this machine: object stores and other URLs ({found[1]}:) are not supported. "
            "Pass a path, with ./ before a name with a colon",
            ExitCode.USAGE,
        )
    return Path(given)


def local_input(text: str) -> str:
    """Return the path of an input, as ``local_path``; ``-`` is standard input."""
    return text if text == STANDARD_INPUT else str(local_path(text))


def readable_file(text: str | Path, *, missing: ExitCode = ExitCode.NOT_FOUND) -> Path:
    """Return the path of a file, or of a pipe, that this process can read to its end.

    Args:
        text: The path.
        missing: Code of the error for a file that does not exist.

    Raises:
        CommandError: There is no such file, it is a folder or a device, or it cannot be read.
    """
    path = local_path(text)
    try:
        # Why not open it: that of a pipe waits for its writer.
        path.stat()
    except FileNotFoundError as error:
        raise unreadable(path, error, missing) from error
    except OSError as error:
        raise unreadable(path, error) from error
    # The content of a device such as /dev/zero has no end.
    if not (path.is_file() or path.is_fifo()):
        raise not_a_file(path, "folder" if path.is_dir() else "device")
    if not os.access(path, os.R_OK):
        raise CommandError(f"cannot read {path}: no permission", ExitCode.USAGE)
    return path


def read_text(path: Path) -> str:
    """Return the content of a file in UTF-8.

    Raises:
        CommandError: It cannot be read, or a line is not UTF-8; the error names the line.
    """
    try:
        content = readable_file(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    return decoded(content, str(path))


def decoded(content: bytes, source: str) -> str:
    """Return bytes as text. Raises CommandError with the number of the first line that is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CommandError(f"line {line} of {source} is not UTF-8 text", ExitCode.USAGE) from error


def unreadable(path: Path, error: OSError, code: ExitCode = ExitCode.USAGE) -> CommandError:
    """Return the CommandError for a file that could not be read."""
    return CommandError(f"cannot read {path}: {error.strerror or error}", code)


def not_a_file(path: Path, what: str) -> CommandError:
    """Return the CommandError for a path that is a ``what`` instead of a file."""
    return CommandError(f"cannot read {path}: it is a {what}, expected a file", ExitCode.USAGE)


def refused_by_system(error: OSError) -> str:
    """Return which file or stream the system refused, and why, in one line."""
    if error.filename is not None:
        return f"cannot read or write {error.filename}: {error.strerror}"
    return f"cannot read the input or write the output: {error.strerror or error}"
