"""Changes of rows survive their encoding, and damaged payloads are noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS, OperationKind, RowBatch, operations

_FAMILIES = st.sampled_from(sorted(FAMILY_NUMBERS.values()))
_CHANGES = st.lists(
    st.tuples(st.sampled_from(OperationKind), _FAMILIES, st.binary(max_size=40), st.binary(max_size=2_000)), max_size=20
)


def batch_of(changes: list[tuple[OperationKind, int, bytes, bytes]]) -> RowBatch:
    batch = RowBatch()
    for kind, family, key, value in changes:
        if kind is OperationKind.PUT:
            batch.put(key, value, family)
        elif kind is OperationKind.DELETE:
            batch.delete(key, family)
        else:
            batch.delete_range(key, value, family)
    return batch


@given(_CHANGES)
def test_operations_come_back_in_order(changes: list[tuple[OperationKind, int, bytes, bytes]]) -> None:
    payload = batch_of(changes).payload()
    found = [(each.kind, each.family, each.key, payload[each.begin : each.end]) for each in operations(payload)]
    assert found == [
        (kind, family, key, b"" if kind is OperationKind.DELETE else value) for kind, family, key, value in changes
    ]


def test_nothing_is_an_empty_payload() -> None:
    assert RowBatch().payload() == b""
    assert list(operations(b"")) == []


@pytest.mark.parametrize("cut", range(1, 15))
def test_a_payload_that_ends_early_is_data_loss(cut: int) -> None:
    batch = RowBatch()
    batch.put(b"key", b"value", 0)
    payload = batch.payload()
    assert len(payload) == 16
    with pytest.raises(DataLossError, match="at byte"):
        list(operations(payload[:cut]))


@pytest.mark.parametrize(("at", "number"), [(0, 0), (0, 4), (1, 7)])
def test_an_unknown_kind_or_family_is_data_loss(at: int, number: int) -> None:
    batch = RowBatch()
    batch.put(b"key", b"value", 0)
    payload = bytearray(batch.payload())
    payload[at] = number
    with pytest.raises(DataLossError, match="does not know"):
        list(operations(bytes(payload)))


def test_the_layout_of_an_operation() -> None:
    batch = RowBatch()
    batch.put(b"k", b"vv", 1)
    batch.delete(b"k", 5)
    batch.delete_range(b"a", b"b", 0)
    assert batch.payload().hex(" ") == (
        "01 01 00 01 00 00 00 02 6b 76 76 02 05 00 01 00 00 00 00 6b 03 00 00 01 00 00 00 01 61 62"
    )
