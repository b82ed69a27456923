"""Batches from entries. Method: entries made by the codec, and damaged ones."""

import copy
import pickle
from dataclasses import replace

import pytest

from tidelog import Columns, DataLossError, Message, Tick
from tidelog.read.scan import batches_of
from tidelog.wire.batch import Batch
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.column_parts import with_txn_ends
from tidelog.wire.columns import checksum, encode_messages, encode_payloads
from tidelog.wire.protowire import WireFormatError
from tidelog.wire.scan_response import ScanEntry


def an_entry(columns: Columns) -> ScanEntry:
    return ScanEntry(base_tick=100, columns=columns_to_wire(columns).SerializeToString())


def one_batch(vchannel: str, entry: ScanEntry) -> Batch:
    [batch] = batches_of(vchannel, entry)
    return batch


def test_a_batch_that_transactions_share_comes_apart() -> None:
    columns = with_txn_ends(encode_payloads([b"a", b"b", b"c", b"d"]), [1, 1, 3, 4])
    entry = replace(an_entry(columns), txn_id=70)

    found = list(batches_of("a/0", entry))

    # The second one has no message here.
    assert [(batch.txn_id, batch.payloads, list(batch.ticks)) for batch in found] == [
        (70, [b"a"], [100]), (72, [b"b", b"c"], [101, 102]), (73, [b"d"], [103]),
    ]  # fmt: skip
    assert all(batch.columns.crc32c == checksum(batch.columns) for batch in found)


@pytest.mark.parametrize("ends", [[1], [3, 2], [1, 3]])
def test_transactions_that_do_not_divide_their_batch_are_refused(ends: list[int]) -> None:
    entry = an_entry(with_txn_ends(encode_payloads([b"a", b"b"]), ends))

    with pytest.raises(WireFormatError, match="txn_ends"):
        list(batches_of("a/0", entry))


def test_ticks_are_consecutive_from_the_base_tick() -> None:
    batch = one_batch("a/0", an_entry(encode_payloads([b"x", b"y"])))

    assert batch.ticks == range(100, 102)
    assert (batch.first_tick, batch.last_tick) == (Tick(100), Tick(101))


def test_a_damaged_batch_is_data_loss_that_names_the_place() -> None:
    columns = encode_payloads([b"x", b"y"])
    damaged = replace(columns, payloads=b"xz")

    with pytest.raises(DataLossError) as caught:
        one_batch("a/0", an_entry(damaged))

    assert caught.value.values == {"vchannel": "a/0", "tick": "100"}


@pytest.mark.parametrize("deltas", [bytes(3), bytes(4), bytes(12)])
def test_an_entry_with_more_or_fewer_ticks_than_messages_is_refused(deltas: bytes) -> None:
    entry = an_entry(encode_payloads([b"x", b"y"]))
    entry.tick_deltas = deltas

    with pytest.raises(WireFormatError, match="2 messages"):
        one_batch("a/0", entry)


def test_a_batch_survives_pickling_and_copying_though_its_columns_are_views() -> None:
    message = Message(b"payload", key=b"key", properties={"name": "value"})
    batch = one_batch("a/0", an_entry(encode_messages([message, message])))
    assert isinstance(batch.columns.payloads, memoryview)

    for twin in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert isinstance(twin.columns.payloads, bytes)
        assert list(twin) == list(batch)
        assert twin.ticks == batch.ticks


def test_nothing_is_taken_apart_before_it_is_asked_for() -> None:
    batch = Batch("a/0", encode_payloads([b"x"]), range(1))

    assert set(vars(batch)) == {"vchannel", "columns", "ticks", "txn_id", "broadcast_id"}
    assert batch.payloads is batch.payloads
