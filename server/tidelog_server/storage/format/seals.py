"""The seal of a row: a CRC-32C over its key and its body, which begins with a version.

The CRC covers the key, so that a row written to or read from the wrong place is detected like a flipped bit. Rows have
this form since format 1 (see docs/reference/format.md).
"""

from typing import Final

from crc32c import crc32c

from tidelog_server.core.errors import DataLossError

ROW_VERSION: Final = 1
CRC_BYTES: Final = 4


def check_version(what: str, version: int, *known: int) -> None:
    """Raise DataLossError unless ``version`` is one of the ``known`` ones; ``what`` names the kind of row."""
    if version not in known:
        raise DataLossError(
            f"a row of {what} has version {version}, which this server does not know: use the server that wrote it",
            row=what, version=version,
        )  # fmt: skip


def sealed(key: bytes, body: bytes) -> bytes:
    """Return the value of a row: ``body`` and the CRC."""
    return body + crc32c(key + body).to_bytes(CRC_BYTES, "big")


def unsealed(key: bytes, value: bytes) -> bytes | None:
    """Return the body of a row; None if the row is damaged or misplaced."""
    body = value[:-CRC_BYTES]
    return body if body and crc32c(key + body) == int.from_bytes(value[-CRC_BYTES:], "big") else None
