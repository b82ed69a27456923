"""The bytes of a log in an engine, and of its view, are those of docs/reference/format.md."""

import re
from pathlib import Path

import pytest

from tidelog_server.recordlog.records import EMPTY, Kind, Mark, Record, pack_record, unpack_record
from tidelog_server.recordlog.rules import ReaderState
from tidelog_server.storage.engine.imports import IMPORT_MARK
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS, RowBatch
from tidelog_server.storage.engine.place import Place, pack_origin, pack_place, unpack_origin, unpack_place
from tidelog_server.storage.engine.snapshot_format import SnapshotEnd, pack_end, parts_of, unpack_end
from tidelog_server.storage.engine.snapshot_plan import LogMark
from tidelog_server.storage.engine.values import Reference, pack_local, pack_reference
from tidelog_server.storage.format.keys import IMPORT_KEY, ORIGIN_KEY, VIEW_KEY, log_key, txn_key

FORMAT_PAGE = Path(__file__).parents[3] / "docs/reference/format.md"
INCARNATION = bytes(range(16))
TICK, TXN_ID = 0x0102030405060708, 0x0102030405060000
ORIGIN = b"T" * 16
FENCE = Record(Kind.FENCE, INCARNATION, 0, 0, 0, 1, EMPTY, EMPTY, None, b"C" * 16)
STATE = ReaderState(INCARNATION, 3, 10, Mark(9, b"I" * 16), None)
PLACE = Place(1_235, STATE, 4_096)
SNAPSHOT_END = SnapshotEnd(1_236, 28, [LogMark(0, 0), LogMark(1_235, 4_096)], PLACE)


def payload() -> bytes:
    batch = RowBatch()
    batch.put(log_key(7, TICK), b"columns", FAMILY_NUMBERS["columns"])
    batch.delete(txn_key(7, TXN_ID), FAMILY_NUMBERS["index"])
    batch.delete_range((7).to_bytes(4), (8).to_bytes(4), FAMILY_NUMBERS["log"])
    return batch.payload()


GROUP = Record(Kind.GROUP, INCARNATION, 3, 9, 0, 1, Mark(8, b"H" * 16), Mark(9, b"I" * 16), None, payload())
GOLDEN = {
    "first record": (
        pack_record(FENCE),
        "544c6f670101000102030405060708090a0b0c0d0e0f000000000000000000000000000000000000000000000001"
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "ffffffffffffffffffffffffffffffff43434343434343434343434343434343fe8c425c",
    ),
    "first record with an origin": (
        pack_record(FENCE._replace(payload=b"C" * 16 + ORIGIN)),
        "544c6f670101000102030405060708090a0b0c0d0e0f000000000000000000000000000000000000000000000001"
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "ffffffffffffffffffffffffffffffff4343434343434343434343434343434354545454545454545454545454545454d087a2b8",
    ),
    "operations": (
        payload(),
        "0101000c00000007000000070102030405060708636f6c756d6e73"
        "0205000d000000000000000778010203040506000003000004000000040000000700000008",
    ),
    "group": (
        pack_record(GROUP),
        "544c6f670102000102030405060708090a0b0c0d0e0f000000000000000300000000000000090000000000000001"
        "000000000000000848484848484848484848484848484848000000000000000949494949494949494949494949494949"
        "ffffffffffffffffffffffffffffffff0101000c00000007000000070102030405060708636f6c756d6e73"
        "0205000d0000000000000007780102030405060000030000040000000400000007000000088e3ae8e2",
    ),
    "columns in the view": (pack_local(b"columns"), "00636f6c756d6e73"),
    "columns in the log": (
        pack_reference(Reference(1_234, 120, 7_000)), "01000000000000000000000000000004d20000007800001b58",
    ),
    "unfinished import": (IMPORT_KEY + IMPORT_MARK, "69010d208a18"),
    "origin of a log": (
        ORIGIN_KEY + pack_origin(ORIGIN), "6f015454545454545454545454545454545462acd661",
    ),
    "place of a view": (
        VIEW_KEY + pack_place(PLACE),
        "7001000102030405060708090a0b0c0d0e0f000000000000000000000000000004d30000000000000003000000000000000a"
        "000000000000000949494949494949494949494949494949ffffffffffffffffffffffffffffffff0000000000001000bf6a7bb2",
    ),
    "rows of a snapshot": (
        b"".join(parts_of([(FAMILY_NUMBERS["columns"], log_key(7, TICK), pack_local(b"columns"))])),
        "0101000c0000000800000007010203040506070800636f6c756d6e73",
    ),
    "end of a snapshot": (
        pack_end(SNAPSHOT_END),
        "01000000000000000000000000000004d4000000000000001c000000020000000000000000000000000000000000000000"
        "00000000000000000000000000000000000004d3000000000000100001000102030405060708090a0b0c0d0e0f0000000000"
        "00000000000000000004d30000000000000003000000000000000a00000000000000094949494949494949494949494949"
        "4949ffffffffffffffffffffffffffffffff0000000000001000bf6a7bb2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("packed", "golden"), GOLDEN.values(), ids=GOLDEN.keys())
def test_the_bytes_are_those_of_the_format(packed: bytes, golden: str) -> None:
    assert packed.hex() == golden


@pytest.mark.parametrize("golden", [golden for _, golden in GOLDEN.values()], ids=GOLDEN.keys())
def test_the_page_shows_the_same_bytes(golden: str) -> None:
    assert golden in re.sub(r"\s|key|value", "", FORMAT_PAGE.read_text())


def test_they_are_read_as_they_were_written() -> None:
    assert unpack_record(0, pack_record(FENCE)) == FENCE
    assert unpack_record(0, pack_record(GROUP._replace(snapshot=1 << 100))) == GROUP._replace(snapshot=1 << 100)
    assert unpack_origin(pack_origin(ORIGIN)) == ORIGIN
    named = PLACE._replace(state=STATE._replace(snapshot=7))
    assert unpack_place(pack_place(named)) == named
    assert unpack_end(0, pack_end(SNAPSHOT_END)) == SNAPSHOT_END
