"""Ticks and positions. Method: examples, with a round trip for each form."""

import pickle
from datetime import UTC, datetime

import pytest

from tidelog import At, Tick
from tidelog.read.positions import position
from tidelog.read.protocol import deliver_policy, scan_end
from tidelog.read.scan_plan import floor_tick, scan_arguments

NOON = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)


def test_a_tick_knows_its_time_and_its_counter() -> None:
    tick = Tick.at(NOON, 7)

    assert tick.time == NOON
    assert tick.logical == 7
    assert tick.message_id == int(tick).to_bytes(8, "big")


def test_a_tick_is_read_back_from_both_of_its_forms() -> None:
    tick = Tick.at(NOON, 7)

    assert tick.describe() == "2026-01-31T12:00:00.250Z+7"
    assert Tick.parse(tick.describe()) == tick == Tick.parse(str(tick))


def test_a_tick_orders_formats_and_travels_as_a_number() -> None:
    assert Tick(5) < Tick(6)
    assert f"{Tick(5)}" == "5"
    assert pickle.loads(pickle.dumps(Tick(5))) == Tick(5)


@pytest.mark.parametrize("text", ["", "-1", "yesterday", str(1 << 63), "2026-01-31T12:00:00", "²"])
def test_anything_else_is_no_tick(text: str) -> None:
    with pytest.raises(ValueError, match=r"tick|Invalid"):
        Tick.parse(text)


def test_a_time_without_zone_names_no_instant() -> None:
    with pytest.raises(ValueError, match="time zone"):
        At.time(NOON.replace(tzinfo=None))


def test_a_plain_number_is_no_position() -> None:
    with pytest.raises(TypeError, match="Tick"):
        position(5)  # type: ignore[arg-type]  # the point of the test


def test_ticks_and_datetimes_are_positions() -> None:
    assert position(Tick(5)) == At.tick(5)
    assert position(NOON) == At.time(NOON)


def test_ago_counts_back_from_now() -> None:
    hour_ms = 3_600_000
    earliest_ms = datetime.now(UTC).timestamp() * 1000 - hour_ms
    ago = At.ago(hours=1)
    latest_ms = datetime.now(UTC).timestamp() * 1000 - hour_ms

    assert isinstance(ago.value, int)
    assert earliest_ms - 1 <= ago.value <= latest_ms


def test_starts_reach_the_wire_as_they_are_meant() -> None:
    assert deliver_policy(At.earliest()).HasField("all")
    assert deliver_policy(At.latest()).HasField("latest")
    assert deliver_policy(At.tick(5)).from_tick == 5
    assert deliver_policy(At.after(5)).after_tick == 5
    assert deliver_policy(At.message_id(b"i")).from_message_id == b"i"
    assert deliver_policy(At.after_message_id(b"i")).after_message_id == b"i"
    assert deliver_policy(At.time(1000)).from_time_ms == 1000


def test_ends_reach_the_wire_as_they_are_meant() -> None:
    assert scan_end(At.watermark()).HasField("watermark")
    assert scan_end(At.follow()).HasField("follow")
    assert scan_end(At.tick(5)).before_tick == 5
    assert scan_end(At.time(1)).before_tick == 1 << 18


@pytest.mark.parametrize(("start", "until"), [(At.follow(), At.watermark()), (At.earliest(), At.latest())])
def test_a_start_is_no_end_and_an_end_no_start(start: At, until: At) -> None:
    with pytest.raises(ValueError, match=r"is an end|is not an end"):
        scan_arguments(start, until)


def test_a_scan_of_no_types_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="types is empty"):
        scan_arguments(At.earliest(), At.watermark(), types=[])


@pytest.mark.parametrize(
    ("start", "left_out"),
    [
        (At.earliest(), 0),
        (At.latest(), 0),
        (At.tick(9), 8),
        (At.after(9), 9),
        (At.time(1), (1 << 18) - 1),
        (At.message_id((9).to_bytes(8, "big")), 8),
        (At.after_message_id((9).to_bytes(8, "big")), 9),
    ],
)
def test_the_floor_is_the_last_tick_that_a_start_leaves_out(start: At, left_out: int) -> None:
    assert floor_tick(start) == left_out
