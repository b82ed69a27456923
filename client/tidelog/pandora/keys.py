"""Keys of blobs, messages and locks: bytes with a printed form in hexadecimal digits.

Source: pandora's API, version of January 2020.
"""

import hashlib
from binascii import hexlify, unhexlify
from typing import Final, Protocol

from tidelog.pandora.errors import InputTooShortError, KeyTooShortError

SHA1_BYTES: Final = 20

# ``Key.bytes`` hides the type of this name within the classes.
_Buffer = bytes | bytearray | memoryview
_Bytes = bytes
_ZEROS: Final = bytes(SHA1_BYTES)


class Key(Protocol):
    """Identifies a blob, a message or a lock."""

    def bytes(self) -> _Buffer:
        """Return the content. ``KeyPrinter.read`` writes to it, for which it must be a view of the key."""
        ...


class KeyWriter(Protocol):
    """Calculates the key of the data that is written to it."""

    def write(self, data: _Buffer, /) -> int:
        """Add ``data`` and return its size in bytes."""
        ...

    def key(self) -> Key:
        """Return the key of the data so far."""
        ...


class SHA1Key:
    """A key of 20 bytes. Keys with equal content are equal; a key can be changed, so it cannot be hashed.

    Args:
        content: The 20 bytes; zeros by default.

    Raises:
        ValueError: ``content`` does not have 20 bytes.
    """

    __slots__ = ("_content",)
    __hash__ = None  # type: ignore[assignment]  # the content can change

    def __init__(self, content: _Buffer = _ZEROS) -> None:
        if len(content) != SHA1_BYTES:
            raise ValueError(f"a SHA-1 key has {SHA1_BYTES} bytes, got {len(content)}")
        self._content = bytearray(content)

    def bytes(self) -> memoryview:
        """Return a writable view of the 20 bytes."""
        return memoryview(self._content)

    def __bytes__(self) -> _Bytes:
        return _Bytes(self._content)

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if isinstance(other, SHA1Key) else NotImplemented

    def __str__(self) -> str:
        return self._content.hex()

    def __repr__(self) -> str:
        return f"SHA1Key({self._content.hex()})"


class SHA1KeyWriter:
    """Calculates the SHA-1 key of data. Before the first write the key is 20 zero bytes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha1(usedforsecurity=False)
        self._is_written = False

    def write(self, data: _Buffer, /) -> int:
        """Add ``data`` and return its size in bytes; a write of no bytes counts as a write."""
        self._hash.update(data)
        self._is_written = True
        return memoryview(data).nbytes

    def key(self) -> SHA1Key:
        """Return the key of the data so far, which later writes do not change."""
        return SHA1Key(self._hash.digest()) if self._is_written else SHA1Key()


class KeyPrinter:
    """Prints keys as lower-case hexadecimal digits, and reads them back."""

    def encoded_size(self, key: Key) -> int:
        """Return the size of the printed key in bytes."""
        return 2 * len(key.bytes())

    def grow(self, key: Key, old: bytearray | None = None) -> bytearray:
        """Return ``old``, extended if the printed key does not fit; a new array if there is no ``old``."""
        old = bytearray() if old is None else old
        old.extend(_Bytes(max(0, self.encoded_size(key) - len(old))))
        return old

    def print(self, key: Key, out: bytearray | None = None) -> bytearray:
        """Return the printed key, in ``out`` if it is given; its previous content is replaced."""
        out = bytearray() if out is None else out
        out[:] = hexlify(key.bytes())
        return out

    def print_string(self, key: Key | None) -> str:
        """Return the printed key as text; empty text for ``None``."""
        return "" if key is None else hexlify(key.bytes()).decode("ascii")

    def read(self, out: Key, printed: _Buffer) -> None:
        """Read a printed key into ``out``, which is not changed on an error. Upper-case digits are accepted.

        Raises:
            KeyTooShortError: ``printed`` is longer than ``encoded_size(out)``.
            InputTooShortError: ``printed`` is shorter than that.
            ValueError: ``printed`` has a character that is not a hexadecimal digit.
            TypeError: ``out.bytes()`` is read-only.
        """
        size = self.encoded_size(out)
        if len(printed) > size:
            raise KeyTooShortError
        if len(printed) < size:
            raise InputTooShortError
        try:
            content = unhexlify(printed)
        except ValueError as error:
            text = f"the printed key {_Bytes(printed)!r} is invalid, expected {size} hexadecimal digits"
            raise ValueError(text) from error
        view = memoryview(out.bytes())
        if view.readonly:
            raise TypeError(
                f"cannot read into a {type(out).__name__}: its bytes() is read-only, expected a writable view"
            )
        view[:] = content

    def read_string(self, out: Key, printed: str) -> None:
        """Read a printed key from text. See ``read``."""
        self.read(out, printed.encode("utf-8", "surrogatepass"))


def print_key_string(key: Key | None) -> str:
    """Return a printed key as text; empty text for ``None``."""
    return KeyPrinter().print_string(key)


def sha1_key(data: _Buffer) -> SHA1Key:
    """Return the SHA-1 key of data; that of no data is the hash of no bytes, not zeros."""
    return SHA1Key(hashlib.sha1(data, usedforsecurity=False).digest())
