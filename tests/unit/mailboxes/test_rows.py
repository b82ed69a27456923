"""Rows keep their values when others are removed. Method: random removals against a dictionary."""

from random import Random

import pytest

from tidelog_server.core.mailboxes import DeliveryStatus, MessageState
from tidelog_server.mailboxes.messages.rows import COLUMNS, ROW_BYTES, NewRow, Rows, consecutive, fill, pick

ROWS = 3_000


def filled() -> Rows:
    rows = Rows()
    for message_id in range(1, ROWS + 1):
        new = NewRow(
            message_id, message_id + 1, message_id + 2, message_id % 256, message_id + 4, message_id + 5, message_id + 6
        )
        rows.add(new, MessageState.AVAILABLE)
        rows.until[-1], rows.deliveries[-1] = message_id + 3, message_id
        rows.statuses[-1] = message_id % 9
    return rows


def values(rows: Rows) -> dict[int, tuple[int, ...]]:
    return {rows.ids[row]: tuple(getattr(rows, name)[row] for name in COLUMNS) for row in rows.live_rows()}


def test_a_row_has_the_size_of_its_columns() -> None:
    rows = filled()
    sizes = [
        1 if isinstance(column, bytearray) else column.itemsize for column in (getattr(rows, name) for name in COLUMNS)
    ]
    assert ROW_BYTES == sum(sizes)
    assert {len(getattr(rows, name)) for name in COLUMNS} == {ROWS}


@pytest.mark.parametrize(
    "gone", [range(1, 2_001), [*range(1, 1_500), 2_999], range(1, ROWS + 1, 2), range(1_001, ROWS + 1)]
)
def test_removed_rows_go_and_the_others_stay(gone: range | list[int]) -> None:
    rows = filled()
    before = values(rows)
    for message_id in gone:
        rows.remove(rows.locate(message_id))
    assert (rows.gone, rows.live) == (len(gone), ROWS - len(gone))
    rows.compact()
    assert (rows.gone, len(rows)) == (0, ROWS - len(gone))
    assert values(rows) == {key: value for key, value in before.items() if key not in gone}
    assert {len(getattr(rows, name)) for name in COLUMNS} == {len(rows)}
    rows.add(NewRow(ROWS + 1, 1, 1, 0, 0, 0, 1), MessageState.DELAYED)
    assert rows.locate(ROWS + 1) == len(rows) - 1


def test_rows_are_not_moved_for_a_few_removed_ones() -> None:
    rows = filled()
    for message_id in range(1, 1_024):
        rows.remove(rows.locate(message_id))
    rows.compact()
    assert (rows.gone, len(rows)) == (1_023, ROWS)
    rows.remove_gone()
    rows.remove_gone()
    assert (rows.gone, len(rows)) == (0, ROWS - 1_023)


def test_random_removals_and_additions() -> None:
    chance, rows = Random(1), filled()
    expected, next_id = values(rows), ROWS + 1
    for _ in range(20):
        for message_id in chance.sample(sorted(expected), min(len(expected), chance.choice([10, 500, 2_000]))):
            rows.remove(rows.locate(message_id))
            del expected[message_id]
        rows.compact()
        rows.add_plain(next_id, [chance.randrange(100) for _ in range(700)])
        added = values(rows)
        expected |= {each: added[each] for each in range(next_id, next_id + 700)}
        next_id += 700
        assert values(rows) == expected
        assert rows.live == len(expected)
        assert [rows.find(each) for each in expected] == list(rows.locate_all(list(expected))) == list(rows.live_rows())


def test_a_message_that_is_not_there_is_not_found() -> None:
    rows = filled()
    rows.remove(rows.locate(7))
    for message_id in (0, 7, ROWS + 1):
        assert rows.find(message_id) == -1
        with pytest.raises(KeyError, match=f"does not have message {message_id}"):
            rows.locate(message_id)
        with pytest.raises(KeyError, match=f"does not have message {message_id}"):
            rows.locate_all([6, message_id])
    assert rows.locate_all([3, 1, 2, 8]) == [2, 0, 1, 7]
    assert rows.locate_all([2, 3, 4]) == [1, 2, 3]
    assert rows.locate_all(range(10, 30)) == range(9, 29)
    assert rows.locate_all([*range(10, 30), 8]) == [*range(9, 29), 7]
    assert rows.locate_all([]) == []
    with pytest.raises(KeyError, match="does not have message 7"):
        rows.locate_all(range(1, 12))
    with pytest.raises(KeyError, match=f"does not have message {ROWS + 1}"):
        rows.locate_all(range(ROWS - 20, ROWS + 2))


@pytest.mark.parametrize("name", ["states", "due"])
@pytest.mark.parametrize("found", [[*range(3, 30)], [3], [3, 4, 5], [3, *range(5, 12), 4, 12], [5, 3], []])
def test_columns_are_read_and_written_by_row(name: str, found: list[int]) -> None:
    rows = filled()
    column, at = getattr(rows, name), consecutive(found)
    assert isinstance(at, range) == (len(found) == 27)
    assert list(at) == found
    assert list(pick(column, at)) == [column[row] for row in found]
    before = list(column)
    fill(column, at, 9)
    assert list(column) == [9 if row in found else value for row, value in enumerate(before)]


def test_plain_rows_are_those_of_bodies_alone() -> None:
    rows, same = Rows(), Rows()
    rows.add_plain(5, [1, 0])
    for message_id, size in ((5, 1), (6, 0)):
        same.add(NewRow(message_id, message_id, 0, 0, 0, size, message_id), MessageState.AVAILABLE)
    assert values(rows) == values(same)
    assert rows.statuses == bytes([DeliveryStatus.NOT_DELIVERED] * 2)
    assert rows.are_plain()
    for new in ((7, 8, 0, 0, 0, 0, 7), (7, 7, 9, 0, 0, 0, 7), (7, 7, 0, 1, 0, 0, 7), (7, 7, 0, 0, 1, 0, 7)):
        other = Rows()
        other.add(NewRow(*new), MessageState.AVAILABLE)
        assert not other.are_plain()
    rows.states[0] = MessageState.LEASED
    assert not rows.are_plain()


def test_rows_are_added_in_the_order_of_their_ids() -> None:
    rows = filled()
    with pytest.raises(AssertionError):
        rows.add_plain(ROWS, [1])
    with pytest.raises(AssertionError):
        rows.add(NewRow(ROWS, 1, 1, 1, 1, 1, 1), MessageState.AVAILABLE)


def test_ids_are_looked_at_in_parts() -> None:
    rows = Rows()
    rows.add_plain(1, [1] * 10)
    rows.states[3] = MessageState.LEASED
    rows.remove(4)
    found, last_id = rows.ids_after(0, (MessageState.LEASED,), 6)
    assert (list(found), last_id) == ([1, 2, 3, 6], 6)
    found, last_id = rows.ids_after(last_id, (MessageState.LEASED,), 6)
    assert (list(found), last_id) == ([7, 8, 9, 10], 10)
    assert rows.ids_after(last_id, (), 6)[1] == 0
