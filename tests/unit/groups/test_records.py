"""The records and tables of consumer groups. Method: literal bytes of format 1, and small tables by hand."""

import json
from pathlib import Path

import pytest

from tidelog_server.core.callers import tenant_of
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.groups import MAX_REMEMBERED_CONSUMES, GroupKey, GroupPosition, Taken
from tidelog_server.core.ticks import Tick
from tidelog_server.groups.catalog import GroupRecord
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.scan.positions import Start, StartAll, StartAtTime, StartFrom, StartLatest

FORMAT_PAGE = Path(__file__).parents[3] / "docs/reference/format.md"
GOLDEN = '{"version":1,"created_tick":7,"start":["from_tick",9]}'


def test_a_record_has_the_bytes_of_format_1() -> None:
    assert GroupRecord("billing", Tick(7), StartFrom(9)).encode().decode() == GOLDEN
    assert GOLDEN in FORMAT_PAGE.read_text()


@pytest.mark.parametrize("start", [StartAll(), StartLatest(), StartFrom(0), StartFrom(1 << 62), StartAtTime(5)])
def test_a_record_comes_back_as_it_was(start: Start) -> None:
    record = GroupRecord("billing", Tick(1 << 62), start)
    assert GroupRecord.decode("billing", record.encode()) == record


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"{}", b"\xff", b"1",
        *(
            json.dumps({**json.loads(GOLDEN), name: wrong}).encode()
            for name, wrong in (
                ("version", 2), ("created_tick", "x"), ("start", []), ("start", ["never"]), ("start", ["from_tick"]),
                ("start", ["all", 1]), ("start", None),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_record_is_data_loss(value: bytes) -> None:
    with pytest.raises(DataLossError, match="group 'billing'"):
        GroupRecord.decode("billing", value)


def test_a_table_finds_positions_by_group_and_by_vchannel() -> None:
    first, second, third = GroupKey("a", "orders/0"), GroupKey("b", "orders/0"), GroupKey("a", "orders/1")
    table = GroupPositions({first: GroupPosition(1, 30, 0), second: GroupPosition(1, 20, 0)})
    assert table.pinned_tick("orders/0") == (20, "b")
    assert table.pinned_tick("orders/1") is None
    assert table.put(third, GroupPosition(2, 5, 0)) == POSITIONS.row(third, GroupPosition(2, 5, 0))
    assert (len(table), list(table.of_group("a")), list(table.of_vchannel("orders/0"))) == (
        3, ["orders/0", "orders/1"], ["a", "b"]
    )  # fmt: skip
    table.put(second, GroupPosition(1, 40, 0))
    assert (len(table), table.pinned_tick("orders/0")) == (3, (30, "a"))
    assert table.remove(first) == POSITIONS.gone(first)
    table.apply(POSITIONS.changes({first: None, third: None, second: GroupPosition(1, 41, 0)}))
    assert (len(table), table.get(first), table.get(second)) == (1, None, GroupPosition(1, 41, 0))
    assert (list(table.of_group("a")), table.pinned_tick("orders/1")) == ([], None)


def test_a_table_counts_the_positions_of_each_tenant() -> None:
    mine, theirs = tenant_of("mine"), tenant_of("theirs")
    owners = {"a": mine, "b": theirs}
    keys = [GroupKey(group, f"orders/{number}") for number in range(3) for group in owners]
    table = GroupPositions(dict.fromkeys(keys[:1], GroupPosition(1, 30, 0)), owners.__getitem__)
    for key in [*keys, *keys]:
        table.put(key, GroupPosition(1, 40, 0))
    assert (table.usage.of(mine), table.usage.of(theirs), len(table)) == (3, 3, 6)
    table.remove(keys[0])
    table.apply(POSITIONS.changes({keys[0]: None, keys[1]: None, keys[2]: GroupPosition(1, 41, 0)}))
    assert (table.usage.of(mine), table.usage.of(theirs), len(table)) == (2, 2, 4)


def test_a_position_remembers_what_the_last_callers_took() -> None:
    position = GroupPosition(1, 10, 0)
    for number in range(1, 31):
        position = position.after(10 + number, number, number % 29 << 24)
    assert (position.next_tick, position.committed_ms) == (40, 30)
    assert position.taken_by(28 << 24) == Taken(28 << 24, 37, 38)
    # A consumer without a name is not remembered, and only the last 16 callers are.
    assert position.taken_by(0) is None
    assert [number for number in range(1, 31) if position.taken_by(number << 24)] == [1, *range(14, 29)]
    assert position._replace(next_tick=50).taken_by(28 << 24) == Taken(28 << 24, 37, 38)


def test_only_a_caller_that_a_full_table_does_not_know_may_be_forgotten() -> None:
    position = GroupPosition(1, 10, 0)
    for number in range(1, MAX_REMEMBERED_CONSUMES):
        position = position.after(10 + number, 0, number << 24)
        assert not position.may_be_forgotten(100 << 24)
    position = position.after(50, 0, MAX_REMEMBERED_CONSUMES << 24)
    assert position.may_be_forgotten(100 << 24)
    # The previous call is remembered, so the next one has taken nothing yet.
    assert not position.may_be_forgotten((1 << 24) + 1)


def test_a_caller_is_remembered_however_often_others_come() -> None:
    slow, fast = 1 << 24, 2 << 24
    position = GroupPosition(1, 10, 0).after(11, 0, slow + 1).after(12, 0, slow + 2)
    for number in range(1, 100):
        position = position.after(12 + number, 0, fast + number)

    assert position.taken_by(slow + 2) == Taken(slow + 2, 11, 12)
    # A caller that makes another call has received the response to its previous one.
    assert position.taken_by(slow + 1) is None
    assert position.taken_by(fast + 98) is None
    assert [position.is_overtaken(slow + number) for number in (1, 2, 3)] == [True, False, False]
    assert not position.is_overtaken(3 << 24)
