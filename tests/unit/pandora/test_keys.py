"""Keys are printed and read as pandora does. Method: literal vectors, and every kind of wrong input."""

import re

import pytest

from tidelog.pandora import (
    InputTooShortError,
    Key,
    KeyPrinter,
    KeyTooShortError,
    KeyWriter,
    SHA1Key,
    SHA1KeyWriter,
    print_key_string,
)

PRINTED = "2aae6c35c94fcfb415dbe95f408b9ce91ee846ed"
PRINTER = KeyPrinter()


class ShortKey:
    """A key of another size and type, whose content cannot be written."""

    def bytes(self) -> bytes:
        return b"\x01\xff"


def hello_world() -> SHA1Key:
    writer = SHA1KeyWriter()
    assert writer.write(b"hello ") == 6
    assert writer.write(memoryview(b"world")) == 5
    return writer.key()


def test_a_key_is_the_hash_of_what_was_written() -> None:
    assert print_key_string(hello_world()) == PRINTED
    assert str(hello_world()) == PRINTED


def test_a_printed_key_is_read_back() -> None:
    key = SHA1Key()
    PRINTER.read_string(key, PRINTED)
    assert key == hello_world()
    assert bytes(key) == bytes.fromhex(PRINTED)
    upper = SHA1Key()
    PRINTER.read(upper, PRINTED.upper().encode())
    assert upper == key


def test_a_writer_without_a_write_has_a_key_of_zeros_and_one_with_an_empty_write_has_not() -> None:
    writer: KeyWriter = SHA1KeyWriter()
    assert bytes(writer.key().bytes()) == bytes(20)
    assert writer.write(b"") == 0
    assert print_key_string(writer.key()) == "da39a3ee5e6b4b0d3255bfef95601890afd80709"


def test_later_writes_do_not_change_a_key_that_was_returned() -> None:
    writer = SHA1KeyWriter()
    writer.write(b"hello world")
    key = writer.key()
    writer.write(b"!")
    assert key == hello_world()
    assert writer.key() != key


def test_printing_uses_the_array_that_is_given() -> None:
    key, out = hello_world(), bytearray(b"longer than the printed key, which is 40 bytes long")
    assert PRINTER.encoded_size(key) == 40
    assert PRINTER.print(key) == PRINTED.encode()
    assert PRINTER.print(key, out) is out
    assert out == PRINTED.encode()
    short = bytearray(b"ab")
    assert PRINTER.grow(key, short) is short
    assert short == b"ab" + bytes(38)
    assert PRINTER.grow(key, short) is short
    assert len(short) == 40
    assert PRINTER.grow(key) == bytes(40)


def test_any_type_with_bytes_is_a_key() -> None:
    key: Key = ShortKey()
    assert PRINTER.print_string(key) == "01ff"
    with pytest.raises(TypeError, match="ShortKey: its bytes\\(\\) is read-only"):
        PRINTER.read_string(key, "01fe")


def test_a_missing_key_is_printed_as_empty_text() -> None:
    assert print_key_string(None) == PRINTER.print_string(None) == ""


@pytest.mark.parametrize(
    ("printed", "error", "text"),
    [
        (PRINTED + "0", KeyTooShortError, "key is too short"),
        (PRINTED + "00", KeyTooShortError, "key is too short"),
        (PRINTED[:-1], InputTooShortError, "input is to short to process"),
        ("", InputTooShortError, "input is to short to process"),
        ("g" + PRINTED[1:], ValueError, "expected 40 hexadecimal digits"),
        (PRINTED[:-2] + " \n", ValueError, "expected 40 hexadecimal digits"),
        (PRINTED[:-2] + "é", ValueError, "expected 40 hexadecimal digits"),
    ],
)
def test_wrong_input_is_refused_and_leaves_the_key_as_it_was(printed: str, error: type[Exception], text: str) -> None:
    key = hello_world()
    with pytest.raises(error, match=re.escape(text)):
        PRINTER.read_string(key, printed)
    assert key == hello_world()


def test_the_bytes_of_a_key_are_a_view_of_it() -> None:
    key = SHA1Key()
    key.bytes()[0] = 255
    assert bytes(key) == b"\xff" + bytes(19)
    assert key != SHA1Key()
    assert key != "ff"
    with pytest.raises(TypeError, match="unhashable"):
        hash(key)


@pytest.mark.parametrize("size", [0, 19, 21])
def test_a_sha1_key_has_twenty_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"a SHA-1 key has 20 bytes, got {size}"):
        SHA1Key(bytes(size))
