"""The bytes on disk are those of the formats, and docs/reference/format.md shows the same.

Method: each row is packed from fixed values and compared with fixed bytes, which the document must contain.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from tidelog_server.broadcast.rows import LOGGED, LoggedKey
from tidelog_server.core.callers import tenant_of
from tidelog_server.core.entries import NewEntry, StagedColumns, TxnSpan
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.producers import ProducerWindow, Result
from tidelog_server.core.shares import FloorKey, FloorTable
from tidelog_server.core.ticks import Tick
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome, TxnRun, content_of
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.rows import WINDOWS
from tidelog_server.metadata import embedded
from tidelog_server.metadata.store import Versioned
from tidelog_server.storage.format import keys
from tidelog_server.storage.format.codec import (
    MAX_INLINE_BYTES,
    NO_HASH,
    ChunkRow,
    StoreRow,
    TailRow,
    first_hash,
    pack_chunk,
    pack_fence,
    pack_header,
    pack_store,
    pack_tail,
    pack_txn,
    roll_hash,
)
from tidelog_server.storage.format.data_folder import FORMAT, format_stamp
from tidelog_server.storage.format.head_file import SLOT_BYTES, Head, pack_slot
from tidelog_server.storage.rocksdb.engine import FAMILIES
from tidelog_server.txn.rows import APP_COMMITS, FLOORS, OUTCOMES

FORMAT_PAGE = Path(__file__).parents[4] / "docs/reference/format.md"
INCARNATION = bytes(range(16))
ENTRY = NewEntry(7, Tick(0x0102030405060708), 3, -1, 0xAABBCCDD, b"columns")
HEADER_KEY, HEADER, CHAIN_HASH, _ = pack_header(
    ENTRY, previous_tick=0x0102030405060600, sequence=9, previous_hash=first_hash(INCARNATION)
)
LARGE_HEADER = pack_header(
    replace(ENTRY, columns=bytes(MAX_INLINE_BYTES + 1)),
    previous_tick=0x0102030405060600, sequence=9, previous_hash=first_hash(INCARNATION),
)[1]  # fmt: skip
TXN_HEADER = pack_header(
    replace(ENTRY, txn=TxnSpan(0x0102030405060708, 0x0102030405060708, 0x010203040506070B)),
    previous_tick=0x0102030405060600, sequence=9, previous_hash=first_hash(INCARNATION),
)[1]  # fmt: skip
STAGED_HEADER = pack_header(
    replace(
        ENTRY, columns=b"", txn=TxnSpan(0x0102030405060000, 0x0102030405060708, 0x010203040506070B),
        staged=StagedColumns(2, 7, crc32c(ENTRY.columns)),
    ),
    previous_tick=0x0102030405060600, sequence=9, previous_hash=first_hash(INCARNATION),
)[1]  # fmt: skip
OUTCOME = TxnOutcome(0x0102030405060708, True, (TxnRun(7, 3), TxnRun(9, 1)))
BROADCAST_HEADER = pack_header(
    replace(ENTRY, count=1, message_type=5, broadcast_id=0x0102030405060500),
    previous_tick=0x0102030405060600, sequence=9, previous_hash=first_hash(INCARNATION),
)[1]  # fmt: skip
TENANT = tenant_of("jwt:etl")
GROUP = GroupKey("billing", "orders/0")
WINDOW = (
    ProducerWindow(2, 8)
    .extended(Result(0x0102030405060708, 3, 0xAABBCCDD, is_synced=True))
    .extended(Result(0x0102030405060800, 1, 0x11223344, is_synced=False))
)
VALUE_KEY = embedded.value_key("cluster/orders")
VALUE = embedded.pack_value(VALUE_KEY, Versioned(b"three", 2))

GOLDEN = {
    "first hash": (first_hash(INCARNATION), "f9477b91722fe719f946834577e0e8a2"),
    "header key": (HEADER_KEY, "000000070102030405060708"),
    "header": (
        HEADER,
        "0101000100000003ffffffffffffffffaabbccdd0000000720535afd01020304050606000000000000000009"
        "9495a391f96175b3e16885986c93b449" "701975ce" "636f6c756d6e73",
    ),
    "header of large columns": (
        LARGE_HEADER,
        "0101000000000003ffffffffffffffffaabbccdd0000020191c0897801020304050606000000000000000009"
        "2b999c962f73e51cb28efe0b1cc76f06" "a0caad8d",
    ),
    "header of a transaction": (
        TXN_HEADER,
        "0102000100000003ffffffffffffffffaabbccdd0000000720535afd01020304050606000000000000000009"
        "01020304050607080102030405060708010203040506070b"
        "d45e530043c8f657c83b2edbc9dcb86e" "8bc391a2" "636f6c756d6e73",
    ),
    "header of a staged transaction": (
        STAGED_HEADER,
        "0104000000000003ffffffffffffffffaabbccdd0000000720535afd01020304050606000000000000000009"
        "01020304050600000102030405060708010203040506070b00000002" "7a2fba9c0a09fc44cb64ce0a28dafb26" "1bae62f7",
    ),
    "staged key": (keys.staged_key(7, 0x0102030405060000, 2), "00000007010203040506000000000002"),
    "transaction key": (keys.txn_key(7, 0x0102030405060000), "00000007780102030405060000"),
    "transaction": (pack_txn(7, 0x0102030405060000, 0x010203040506070B), "01010203040506070b98872677"),
    "outcome key": (OUTCOMES.key_of(0x0102030405060000), "6f0102030405060000"),
    "outcome": (
        OUTCOMES.pack(0x0102030405060000, OUTCOME)[1],
        "01010203040506070801" "0000000700000003" "0000000900000001" "2a24196c",
    ),
    "outcome of a tenant": (
        OUTCOMES.pack(0x0102030405060000, OUTCOME._replace(tenant=TENANT))[1],
        "02010203040506070801" "3f17d463cbf9e415ff231749fd459210" "0000000700000003" "0000000900000001" "d622f178",
    ),
    "floor key": (FLOORS.key_of(FloorKey(FloorTable.OUTCOMES, TENANT)), "676f3f17d463cbf9e415ff231749fd459210"),
    "floor": (FLOORS.pack(FloorKey(FloorTable.OUTCOMES, TENANT), 0x0102030405060000)[1], "010102030405060000666c9412"),
    "app key": (APP_COMMITS.key_of(AppKey("", "etl")), "6199900e77c2c1e4bff1a43458fd99f6d8"),
    "application": (
        APP_COMMITS.pack(AppKey("", "etl"), AppCommit(5, 0x0102030405060708, 4, True))[1],
        "01000000000000000501020304050607080000000000000004" "01" "65746c" "f32a6346",
    ),
    "app key of a principal": (APP_COMMITS.key_of(AppKey("jwt:billing", "etl")), "61a29a817d3c3780aaf7a31d8a994b8cc7"),
    "application of a principal": (
        APP_COMMITS.pack(AppKey("jwt:billing", "etl"), AppCommit(5, 0x0102030405060708, 4, True))[1],
        "01000000000000000501020304050607080000000000000004" "01" "6a77743a62696c6c696e67" "0a" "65746c" "1f866b96",
    ),
    "application that makes no other commit": (
        APP_COMMITS.pack(AppKey("", "etl"), AppCommit(5, 0x0102030405060708, 4, is_synced=False, is_last=True))[1],
        "01000000000000000501020304050607080000000000000004" "02" "65746c" "9108ea7f",
    ),
    "application of a query": (
        APP_COMMITS.pack(
            AppKey("", "etl"),
            AppCommit(5, 0x0102030405060708, 4, True, content=content_of(7, 7, 4).by_vchannel, query_id="q-1"),
        )[1],
        "02000000000000000501020304050607080000000000000004" "01" "e0910b55eb9d44a5487fd466e34a45c4" "03" "712d31"
        "65746c" "e90245e9",
    ),
    "application that may repeat on other vchannels": (
        APP_COMMITS.pack(
            AppKey("", "etl"),
            AppCommit(5, 0x0102030405060708, 4, True, any_vchannel=True, content=content_of(8, 7, 4).by_channel),
        )[1],
        "02000000000000000501020304050607080000000000000004" "05" "e0910b55eb9d44a5487fd466e34a45c4" "00"
        "65746c" "3ff306b1",
    ),
    "header of a broadcast": (
        BROADCAST_HEADER,
        "0103000100000001" "0000000000000005" "aabbccdd0000000720535afd01020304050606000000000000000009"
        "0102030405060500" "abe9453623c3d757881c26571d1d8c57" "1d7d4836" "636f6c756d6e73",
    ),
    "tail key": (keys.tail_key(7), "0000000774"),
    "tail": (
        pack_tail(7, TailRow._make([*range(1, 11), b"L" * 16, *range(11, 16), b"O" * 16, 16])),
        "01" + "".join(f"{i:016x}" for i in range(1, 11)) + "4c" * 16
        + "".join(f"{i:016x}" for i in range(11, 16)) + "4f" * 16 + f"{16:016x}" + "f503af40",
    ),
    "chunk key": (keys.chunk_key(7, 1), "00000007630000000000000001"),
    "chunk": (
        pack_chunk(7, ChunkRow._make([*range(1, 12), b"C" * 16])),
        "01" + "".join(f"{i:016x}" for i in range(1, 12)) + "43" * 16 + "6d811d44",
    ),
    "fence key": (keys.fence_key(7), "0000000766"),
    "fence": (pack_fence(7, 5), "010000000000000005" + "ce603296"),
    "window key": (WINDOWS.key_of((7, "p-1")), "00000007702d31"),
    "window": (WINDOWS.pack((7, "p-1"), WINDOW)[1], "010000000000000002000000000000000a"
        "010203040506070800000003aabbccdd01"
        "0102030405060800000000011122334400"
        "049f96ea"),
    "window of a tenant": (WINDOWS.pack((7, "p-1"), WINDOW._replace(tenant=TENANT))[1],
        "020000000000000002000000000000000a"
        "3f17d463cbf9e415ff231749fd459210"
        "010203040506070800000003aabbccdd01"
        "0102030405060800000000011122334400"
        "7032f1d9"),
    "window of a channel": (WINDOWS.pack((7, "p-1"), WINDOW._replace(vchannels=4, last_call=12))[1],
        "030000000000000002000000000000000a"
        "00000000000000000000000000000000"
        "0004000000000000000c"
        "010203040506070800000003aabbccdd01"
        "0102030405060800000000011122334400"
        "24624da1"),
    "position key": (POSITIONS.key_of(GROUP), "62696c6c696e672f6f72646572732f302f63757272656e745f6964"),
    "position": (
        POSITIONS.pack(GROUP, GroupPosition(7, 0x0102030405060500, 1).after(0x0102030405060708, 5, 9))[1],
        "01000000070102030405060708" "00000000000000050000000000000009" "01020304050605000102030405060708" "02da7ca4",
    ),
    "position of a tenant": (
        POSITIONS.pack(
            GROUP, GroupPosition(7, 0x0102030405060500, 1, is_pinning=False).after(0x0102030405060708, 5, 9, TENANT)
        )[1],
        "02000000070102030405060708" "0000000000000005" "01" "000000000000000901020304050605000102030405060708"
        "3f17d463cbf9e415ff231749fd459210" "08d7fe4c",
    ),
    "snapshot key": (SNAPSHOTS.key_of(7), "720600000007"),
    "snapshot": (SNAPSHOTS.pack(7, 0x0102030405060708)[1], "0101020304050607081e7497de"),
    "broadcast key": (LOGGED.key_of(LoggedKey(7, 0x0102030405060000)), "7207000000070102030405060000"),
    "broadcast": (LOGGED.pack(LoggedKey(7, 0x0102030405060000), 0x0102030405060708)[1], "010102030405060708e2a6d947"),
    "store key": (keys.STORE_KEY, "73"),
    "store": (
        pack_store(StoreRow(INCARNATION, 1, 2, b"H" * 16, 3)),
        "01000102030405060708090a0b0c0d0e0f00000000000000010000000000000002" + "48" * 16 + "000000000000000335018138",
    ),
    "head": (
        pack_slot(Head(5, INCARNATION, 2, 9, b"H" * 16, 100, 7, 98, 1234, True)).rstrip(b"\0"),
        "5449444548454144000000010000000000000005000102030405060708090a0b0c0d0e0f00000000000000020000000000000009"
        + "48" * 16 + "000000000000006400000007000000000000006200000000000004d201adf4c51f",
    ),
    "value key": (VALUE_KEY, "76636c75737465722f6f7264657273"),
    "value": (VALUE, "0100000000000000027468726565795d6d2b"),
    "summary": (
        embedded.pack_summary(embedded.Summary(2, 1, embedded.row_hash(VALUE_KEY, VALUE))),
        "0100000000000000020000000000000001f3cb0df9f6588af25b8f4bea1af8c4b5aa417afd",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("packed", "golden"), GOLDEN.values(), ids=GOLDEN.keys())
def test_a_row_has_the_bytes_of_its_format(packed: bytes, golden: str) -> None:
    assert packed.hex() == golden


@pytest.mark.parametrize("golden", [golden for _, golden in GOLDEN.values()], ids=GOLDEN.keys())
def test_the_page_shows_the_same_bytes(golden: str) -> None:
    assert golden in re.sub(r"\s|key|value", "", FORMAT_PAGE.read_text())


def test_a_chunk_hash_rolls_over_the_chain_hashes() -> None:
    assert CHAIN_HASH.hex() == "9495a391f96175b3e16885986c93b449"
    assert roll_hash(NO_HASH, CHAIN_HASH).hex() == "f02ce3a330f4ac3f07a3d624bb041d4b"


def test_a_slot_fills_its_4_kib() -> None:
    assert len(pack_slot(Head(1, INCARNATION, 0, 0, NO_HASH, 0, 0, 0, 0, False))) == SLOT_BYTES == 4_096


def test_the_names_of_the_formats_stay() -> None:
    assert [format_stamp(number) for number in range(1, FORMAT + 1)] == [
        b"tidelog data format 1\n", b"tidelog data format 2\n",
    ]  # fmt: skip
    assert FAMILIES == ("log", "columns", "staged", "producers", "groups", "index", "metadata")
    assert all(f"`{name}`" in FORMAT_PAGE.read_text() for name in FAMILIES)
