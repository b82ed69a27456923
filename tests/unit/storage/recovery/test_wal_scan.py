"""The WAL scan finds the end of the sound part of a WAL, whatever bytes follow it.

Method: a WAL that RocksDB wrote, with records within a block and over many blocks.
"""

from pathlib import Path

import pytest
from crc32c import crc32c
from rocksdict import WriteBatch

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.data_folder import wal_files
from tidelog_server.storage.recovery.wal_scan import TornWal, sound_bytes, torn_wals
from tidelog_server.storage.rocksdb.engine import close_engine, open_engine


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a WAL of three records: 10 bytes, 100 kB, 10 bytes."""
    folder = tmp_path_factory.mktemp("wal")
    engine = open_engine(folder, read_only=False, create=True)
    for value in (b"x" * 10, b"y" * 100_000, b"z" * 10):
        batch = WriteBatch(raw_mode=True)
        batch.put(b"key", value, engine.handles["log"])
        engine.db.write(batch)
    engine.db.flush_wal(True)
    (wal,) = wal_files(folder)
    whole = wal.read_bytes()
    close_engine(engine)
    return whole


def test_a_whole_wal_is_sound(content: bytes) -> None:
    assert sound_bytes(content) is None
    assert sound_bytes(b"") is None


def test_padding_is_no_damage(content: bytes) -> None:
    assert sound_bytes(content + bytes(5_000)) is None


def test_what_follows_the_last_record_is_torn(content: bytes) -> None:
    assert sound_bytes(content + b"torn") == len(content)


def test_a_cut_leaves_the_records_before_it(content: bytes) -> None:
    ends = sorted({sound_bytes(content[:size]) or size for size in range(0, len(content), 7)} & set(range(100)))
    first_end = ends[-1] if ends else 0
    assert 0 < first_end < 100
    assert sound_bytes(content[: len(content) // 2]) in range(100)
    assert sound_bytes(content[:-1]) in range(100_000, len(content))


def test_a_flip_ends_the_sound_part_before_its_record(content: bytes) -> None:
    for position in range(0, len(content), 997):
        flipped = bytearray(content)
        flipped[position] ^= 1
        end = sound_bytes(bytes(flipped))
        assert end is not None
        assert end <= position


def test_files_after_a_torn_one_are_torn_as_a_whole(content: bytes, tmp_path: Path) -> None:
    for name, bytes_of_file in (("000009.log", content), ("000010.log", content[:-1]), ("000011.log", content)):
        (tmp_path / name).write_bytes(bytes_of_file)
    torn = torn_wals(tmp_path)
    assert [file.name for file in torn] == ["000010.log", "000011.log"]
    assert torn[1] == TornWal("000011.log", 0)


def test_a_sound_record_of_an_unknown_type_is_not_taken_for_torn(content: bytes, tmp_path: Path) -> None:
    body = bytes([9]) + b"zstd"
    crc = crc32c(body)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    (tmp_path / "000009.log").write_bytes(content + masked.to_bytes(4, "little") + b"\x04\x00" + body)
    with pytest.raises(DataLossError, match=f"unknown type 9 at byte {len(content)}"):
        torn_wals(tmp_path)
