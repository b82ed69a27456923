"""A reader of bytes that can look ahead, for frames of a byte stream."""

from io import BytesIO
from typing import Final, Protocol

BUFFER_BYTES: Final = 65_536


class ByteSource(Protocol):
    """Where bytes come from, such as an open binary file."""

    def read(self, size: int, /) -> bytes:
        """Return 1 to ``size`` bytes, or nothing at the end."""
        ...


class ByteReader:
    """Reads a source through a buffer.

    Args:
        source: Bytes, or a source of them.
        buffer_bytes: Bytes that one read of the source asks for.
    """

    __slots__ = ("_at", "_buffer_bytes", "_data", "_source")

    def __init__(self, source: ByteSource | bytes, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        if buffer_bytes < 1:
            raise ValueError(f"buffer_bytes is {buffer_bytes}, expected 1 or more")
        self._source = BytesIO(source) if isinstance(source, bytes) else source
        self._buffer_bytes = buffer_bytes
        self._data = b""
        self._at = 0

    @property
    def buffered(self) -> bytes:
        """The bytes that were read from the source and not from this reader."""
        return self._data[self._at :]

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end, without reading them."""
        while len(self._data) - self._at < size and self._fill():
            pass
        return self._data[self._at : self._at + size]

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""
        parts = [self._take(size)]
        missing = size - len(parts[0])
        while missing and self._fill():
            parts.append(self._take(missing))
            missing -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_through(self, delimiter: bytes, max_bytes: int) -> bytes:
        """Return the bytes through the next ``delimiter`` of one byte.

        Without a delimiter, the result is the rest of the data, or at least ``max_bytes`` bytes.
        """
        parts = []
        size = 0
        while size < max_bytes:
            end = self._data.find(delimiter, self._at)
            parts.append(self._take(len(self._data) if end < 0 else end + 1 - self._at))
            size += len(parts[-1])
            if end >= 0 or not self._fill():
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def _fill(self) -> bool:
        """Read the source once; return whether there was more."""
        more = self._source.read(self._buffer_bytes)
        self._data = self._data[self._at :] + more
        self._at = 0
        return bool(more)
