"""HEAD survives a torn write, and its thread keeps it close behind the store.

Method: real files; every byte of a slot is damaged in turn.
"""

import os
from pathlib import Path
from threading import Event

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.head_file import SLOT_BYTES, Head, HeadFile, pack_slot, read_head, unpack_slot
from tidelog_server.storage.format.head_writer import HeadWriter

HEAD = Head(1, b"i" * 16, 1, 5, b"h" * 16, 500, 3, 490, 77, False)


def test_a_slot_comes_back_as_it_was_packed() -> None:
    assert unpack_slot(pack_slot(HEAD)) == HEAD


def test_no_single_bit_of_a_slot_can_flip_unseen() -> None:
    slot = bytearray(pack_slot(HEAD))
    for position in range(len(slot) * 8):
        slot[position // 8] ^= 1 << position % 8
        assert unpack_slot(bytes(slot)) is None
        slot[position // 8] ^= 1 << position % 8


def test_a_slot_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.storage.format.head_file._SLOT_VERSION", 2)
    slot = pack_slot(HEAD)
    monkeypatch.undo()
    with pytest.raises(DataLossError, match="version 2"):
        unpack_slot(slot)


def test_writes_alternate_and_the_newest_sound_slot_counts(tmp_path: Path) -> None:
    path = tmp_path / "HEAD"
    assert read_head(path) is None
    file = HeadFile.open(path)
    assert read_head(path) is None
    for generation in range(1, 6):
        file.write(HEAD._replace(generation=generation))
        assert read_head(path) == HEAD._replace(generation=generation)
    file.close()
    file.close()
    content = bytearray(path.read_bytes())
    assert len(content) == 2 * SLOT_BYTES
    content[5 % 2 * SLOT_BYTES + 30] ^= 1
    path.write_bytes(content)
    assert read_head(path) == HEAD._replace(generation=4)
    path.write_bytes(bytes(2 * SLOT_BYTES))
    assert read_head(path) is None
    path.write_bytes(bytes(content[:SLOT_BYTES]))
    assert read_head(path) == HEAD._replace(generation=4)


def test_what_is_noted_is_written_soon_and_the_last_at_close(tmp_path: Path) -> None:
    path = tmp_path / "HEAD"
    failures: list[str] = []
    writer = HeadWriter(HeadFile.open(path), HEAD, on_failure=failures.append)
    for engine_sequence in range(78, 100):
        writer.note(HEAD, engine_sequence)
    while (head := read_head(path)) is None or head.engine_sequence < 99:
        pass
    assert not head.is_clean
    writer.note(HEAD, 100)
    writer.note(HEAD, 90)
    writer.close(is_clean=True)
    writer.close(is_clean=True)
    last = read_head(path)
    assert last is not None
    assert (last.engine_sequence, last.is_clean) == (100, True)
    assert failures == []


def test_a_failed_write_is_reported_once_and_ends_the_writing(tmp_path: Path) -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    has_failed = Event()
    failures: list[str] = []

    def fail(cause: str) -> None:
        failures.append(cause)
        has_failed.set()

    # A pipe cannot be written at an offset, whatever user the tests run as.
    writer = HeadWriter(HeadFile(pipe), HEAD, on_failure=fail)
    writer.note(HEAD, 100)
    assert has_failed.wait(10)
    writer.note(HEAD, 101)
    writer.close(is_clean=True)
    assert len(failures) == 1
    assert "HEAD" in failures[0]
