"""The messages that a filter of keys selects are those whose keys match, as they were.

Method: hypothesis draws messages and filters; what the filter selects from the encoded batch is compared with the
messages themselves, and its checksum with its content.
"""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import Batch, Message
from tidelog.wire.column_parts import selected
from tidelog.wire.columns import checksum, encode_messages
from tidelog.wire.key_filter import KeyFilter

# Few letters, so that keys contain the filter in their middle and across their bounds.
KEYS = st.text("ab", max_size=4).map(str.encode)
TEXTS = st.text(max_size=2)
MESSAGES = st.lists(
    st.builds(
        Message,
        payload=st.binary(max_size=3),
        key=st.none() | KEYS,
        type=st.sampled_from([0, 1, 1 << 31]),
        properties=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=2),
        event_time=st.none() | st.sampled_from([datetime(1960, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)]),
    ),
    min_size=1,
    max_size=12,
)


def matches(message: Message, wanted: bytes, *, is_prefix: bool) -> bool:
    if message.key is None:
        return False
    return message.key.startswith(wanted) if is_prefix else message.key == wanted


@given(MESSAGES, KEYS, st.booleans(), st.booleans())
def test_what_is_selected_is_what_matches(
    messages: list[Message], wanted: bytes, is_prefix: bool, has_gaps: bool
) -> None:
    ticks = [5 + 3 * i for i in range(len(messages))] if has_gaps else range(5, 5 + len(messages))
    expected = [i for i, message in enumerate(messages) if matches(message, wanted, is_prefix=is_prefix)]

    found = KeyFilter(wanted, is_prefix).select(encode_messages(messages), ticks)

    assert (found is not None) is bool(expected)
    if found is None:
        return
    columns, found_ticks = found
    assert list(found_ticks) == [ticks[i] for i in expected]
    assert columns.crc32c == checksum(columns)
    batch = Batch("orders/0", columns, found_ticks)
    assert [(each.payload, each.key, each.type, each.properties, each.event_time) for each in batch] == [
        (each.payload, each.key, each.type, each.properties, each.event_time)
        for each in map(messages.__getitem__, expected)
    ]


@given(MESSAGES, st.data())
def test_runs_of_a_batch_are_the_messages_at_their_places(messages: list[Message], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(messages)), max_size=6)))
    runs = list(zip(cuts[::2], cuts[1::2], strict=False))
    expected = [message for begin, end in runs for message in messages[begin:end]]
    if not expected:
        return

    columns = selected(encode_messages(messages), runs)

    batch = Batch("orders/0", columns, range(columns.count))
    assert [(each.payload, each.key, each.properties) for each in batch] == [
        (each.payload, each.key, each.properties) for each in expected
    ]


def test_a_batch_without_keys_has_none_that_match() -> None:
    columns = encode_messages([Message(b"a"), Message(b"b")])
    assert KeyFilter(b"", is_prefix=True).runs(columns) == []
    assert KeyFilter(b"", is_prefix=False).runs(columns) == []


def test_options_become_one_filter_or_are_refused() -> None:
    assert KeyFilter.of(None, None) is None
    assert KeyFilter.of(b"", None) == KeyFilter(b"", is_prefix=False)
    assert KeyFilter.of(None, b"a") == KeyFilter(b"a", is_prefix=True)
    with pytest.raises(ValueError, match=r"^key and key_prefix are both set"):
        KeyFilter.of(b"a", b"a")
    with pytest.raises(TypeError, match=r"key_prefix is of type str, expected bytes: encode it"):
        KeyFilter.of(None, "a")  # type: ignore[arg-type]  # The error is tested.
    with pytest.raises(TypeError, match=r"^key is of type int, expected bytes$"):
        KeyFilter.of(1, None)  # type: ignore[arg-type]  # The error is tested.
