"""A dispatcher decodes every message to its original. Method: all types, with generated fields."""

from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.msgstream import (
    InsertMsg,
    MalformedMessageError,
    MemUDFactory,
    MsgType,
    ProtoUDFactory,
    TsMsg,
    class_of_type,
    compute_produce_channel_indexes,
)
from tidelog.msgstream._repack import default_repack

TEXT = st.text(max_size=5)
KEYS = st.lists(st.integers(0, (1 << 32) - 1), max_size=4)
BY_ANNOTATION: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(0, (1 << 63) - 1),
    "str": TEXT,
    "bytes": st.binary(max_size=5),
    "list[int]": st.lists(st.integers(0, (1 << 63) - 1), max_size=4),
    "list[str]": st.lists(TEXT, max_size=3),
    "list[bytes]": st.lists(st.binary(max_size=5), max_size=3),
    "dict[str, str]": st.dictionaries(TEXT, TEXT, max_size=3),
    "dict[str, float]": st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
}


def messages(kind: MsgType) -> st.SearchStrategy[TsMsg]:
    """Any message of this type, each of its fields with any value."""
    body = class_of_type(kind)
    values = {
        each.name: KEYS if each.name == "hash_keys" else BY_ANNOTATION[_name(each.type)]
        for each in fields(body)
        if each.name not in ("type", "position")
    }
    return st.builds(body, type=st.just(kind), **values)


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


@pytest.mark.parametrize("kind", list(MsgType))
@settings(max_examples=10)
@given(data=st.data())
def test_every_type_round_trips(kind: MsgType, data: st.DataObject) -> None:
    message = data.draw(messages(kind))

    assert ProtoUDFactory().new_unmarshal_dispatcher().unmarshal(message.marshal(), kind) == message
    assert MemUDFactory().new_unmarshal_dispatcher().unmarshal(message, kind) == message


@given(garbage=st.binary(max_size=40), kind=st.sampled_from(MsgType))
def test_garbage_is_a_message_or_is_told(garbage: bytes, kind: MsgType) -> None:
    try:
        message = ProtoUDFactory().new_unmarshal_dispatcher().unmarshal(garbage, kind)
    except MalformedMessageError:
        return
    assert message.type == kind


def test_a_message_has_no_required_field_but_its_type() -> None:
    required = {
        each.name
        for kind in MsgType
        for each in fields(class_of_type(kind))
        if each.default is MISSING and each.default_factory is MISSING
    }

    assert required <= {"type"}


@given(keys=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=30), channels=st.integers(2, 5))
def test_each_row_goes_to_the_channel_of_its_key_and_rows_keep_their_order(keys: list[int], channels: int) -> None:
    rows = list(range(len(keys)))
    insert = InsertMsg(id=5, hash_keys=keys, row_ids=rows, row_data=[bytes([row]) for row in rows])

    packs = default_repack([insert], compute_produce_channel_indexes([insert], channels), channels)

    for index, pack in packs.items():
        [part] = pack.msgs
        assert isinstance(part, InsertMsg)
        assert part.row_ids == [row for row in rows if keys[row] % channels == index]
        assert part.row_data == [bytes([row]) for row in part.row_ids]
        assert part.hash_keys == [keys[row] for row in part.row_ids]
    assert sorted(packs) == sorted({key % channels for key in keys})
