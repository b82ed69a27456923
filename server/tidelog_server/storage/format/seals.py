"""The seal of a row: a version in front and a CRC-32C over key and value at the end.

The CRC covers the key, so that a row written to or read from the wrong place is detected like a flipped bit. Rows have
this form since format 1 (see docs/reference/format.md).
"""

from typing import Final

from crc32c import crc32c

from tidelog_server.core.errors import DataLossError

ROW_VERSION: Final = 1
CRC_BYTES: Final = 4


class UnknownVersionError(Exception):
    """A row has a version that this server does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def check_version(version: int, *known: int) -> None:
    """Raise UnknownVersionError unless ``version`` is one of ``known``."""
    if version not in known:
        raise UnknownVersionError(version)


def sealed(key: bytes, body: bytes) -> bytes:
    """Return the value of a row: ``body``, which begins with the version, and the CRC."""
    return body + crc32c(key + body).to_bytes(CRC_BYTES, "big")


def unsealed(key: bytes, value: bytes) -> bytes | None:
    """Return the body of a row; None if the row is damaged or misplaced."""
    body = value[:-CRC_BYTES]
    return body if body and crc32c(key + body) == int.from_bytes(value[-CRC_BYTES:], "big") else None


def unknown_version(what: str, version: int) -> DataLossError:
    """Return the error for a row of a version that this server does not know."""
    return DataLossError(
        f"a row of {what} has version {version}, which this server does not know: use the server that wrote it",
        row=what, version=version,
    )  # fmt: skip
