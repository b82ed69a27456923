"""Goal: offsets survive the checkpoint unchanged, invalid ones are refused, and every loss is reported.

Method: offsets and descriptions of channels made by hand; hypothesis for the round trip through JSON.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import ChannelDescription, OwnerDescription, Tick, VchannelDescription
from tidelog.spark.errors import OffsetError
from tidelog.spark.names import channel_of
from tidelog.spark.stream.offsets import BEGINNING, Offset, cut_at, destroyed, offset_of, starts_of

TICKS = st.integers(0, (1 << 63) - 1)
NAMES = st.builds("{}/{}".format, st.from_regex(r"[a-z][a-z.]{0,5}", fullmatch=True), st.integers(0, 20))
POSITIONS = st.dictionaries(NAMES, TICKS, max_size=8)
OFFSETS = st.builds(
    lambda tick, positions, created: Offset(
        tick, positions, {channel_of(name): created for name in positions if created}
    ),
    TICKS, POSITIONS, TICKS,
)  # fmt: skip


def vchannel(name: str, *, trim: int = 0, last: int = 0) -> VchannelDescription:
    return VchannelDescription(name, Tick(trim), Tick(last), messages=1, bytes=1)


def channel(name: str, created: int) -> ChannelDescription:
    return ChannelDescription(name, OwnerDescription(), Tick(created), Tick(0), "", (vchannel(f"{name}/0"),))


@given(OFFSETS)
def test_an_offset_survives_json_and_equal_ones_have_equal_text(offset: Offset) -> None:
    text = json.dumps(offset.to_json())
    assert offset_of(json.loads(text)) == offset
    turned = Offset(offset.tick, dict(reversed(list(offset.positions.items()))), offset.created)
    assert json.dumps(turned.to_json()) == text
    assert json.dumps(json.loads(text)) == text
    first = offset.begun_at(turned)
    assert offset_of(json.loads(json.dumps(first.to_json()))) == first


def test_an_offset_looks_as_documented() -> None:
    assert cut_at(471, ["orders/10", "orders/2"], {"orders": 470}).to_json() == {
        "v": 2,
        "tick": 471,
        "channels": {"orders": {"2": 471, "10": 471}},
        "created": {"orders": 470},
    }
    assert BEGINNING.is_beginning
    assert not Offset(0, {"orders/0": 0}).is_beginning


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"v": 3, "tick": 1, "channels": {}}, "offsets of version 3, expected 1 to 2"),
        ({"orders": {"0": 5}}, "belongs to another source, because its offset is {'orders': {'0': 5}}"),
        ({"v": 2, "tick": 1, "channels": {}, "begin": {"tick": 1}}, "has an invalid offset"),
        ({"v": 1, "tick": 1}, "has an invalid offset"),
        ({"v": 1, "tick": "x", "channels": {}}, "has an invalid offset"),
        ({"v": 1, "tick": 1, "channels": {"orders": 5}}, "has an invalid offset"),
        ({"v": 2, "tick": 1, "channels": {}, "created": 5}, "has an invalid offset"),
    ],
)
def test_a_foreign_offset_is_refused(raw: dict[str, object], message: str) -> None:
    with pytest.raises(OffsetError, match=message):
        offset_of(raw)


@pytest.mark.parametrize(
    ("described", "begin", "lost"),
    [
        (vchannel("a/0", last=60), 50, False),
        (vchannel("a/0", trim=40, last=60), 50, False),
        (vchannel("a/0", trim=50, last=60), 0, False),
        (vchannel("a/0", trim=55, last=60), 0, True),
        # Everything was trimmed, but everything had been read.
        (vchannel("a/0", trim=55, last=49), 0, False),
        # New vchannels start at their first message.
        (vchannel("a/1", last=60), 0, False),
        (vchannel("a/1", trim=40, last=60), 0, False),
        (vchannel("a/1", trim=55, last=60), 0, True),
    ],
)
def test_a_vchannel_goes_on_where_it_was_and_what_was_trimmed_there_is_lost(
    described: VchannelDescription, begin: int, *, lost: bool
) -> None:
    starts, losses = starts_of(cut_at(50, ["a/0"], {}), [described], {"a": 1}, 0)

    assert starts == {described.name: begin}
    assert [(loss.wanted_tick, loss.available_tick) for loss in losses] == ([(50, 55)] if lost else [])


def test_a_start_holds_for_vchannels_that_come_later_as_well() -> None:
    starts, losses = starts_of(cut_at(50, [], {}), [vchannel("a/0", trim=60, last=99)], {"a": 1}, 70)
    assert (starts, losses) == ({"a/0": 70}, [])


def test_channels_that_are_gone_or_others_by_now_are_losses_unless_nobody_wants_them() -> None:
    start = cut_at(50, ["a/0", "b/0", "c/0", "d/0"], {})
    there = [channel("b", 51), channel("c", 3)]

    losses = destroyed(start, there, {"a": True, "b": True, "c": True, "d": False})

    assert [(loss.name, loss.available_tick) for loss in losses] == [("a", None), ("b", 51)]
    assert "was destroyed while it was read, and re-created at tick 51" in losses[1].text
    assert starts_of(start, [vchannel("b/0", last=60)], {"b": 51}, 0) == ({"b/0": 0}, [])


def test_a_channel_that_was_made_behind_a_cut_is_none_that_was_made_again() -> None:
    start = cut_at(50, ["a/0", "b/0"], {"a": 3, "b": 70})

    assert start.positions == {"a/0": 50, "b/0": 70}
    assert destroyed(start, [channel("a", 3), channel("b", 70)], {"a": True, "b": True}) == []
    assert starts_of(start, [vchannel("b/0", last=90)], {"b": 70}, 0) == ({"b/0": 70}, [])
    [lost] = destroyed(start, [channel("a", 3), channel("b", 71)], {"a": True, "b": True})
    assert (lost.name, lost.available_tick) == ("b", 71)


def test_a_channel_is_another_one_if_it_was_made_at_another_tick() -> None:
    start = cut_at(100, ["a/0"], {"a": 50})
    assert starts_of(start, [vchannel("a/0", last=200)], {"a": 50}, 0) == ({"a/0": 100}, [])
    assert destroyed(start, [channel("a", 50)], {"a": True}) == []

    starts, losses = starts_of(start, [vchannel("a/0", last=200)], {"a": 150}, 0)
    assert (starts, losses) == ({"a/0": 0}, [])
    [loss] = destroyed(start, [channel("a", 150)], {"a": True})
    assert (loss.wanted_tick, loss.available_tick) == (100, 150)


def test_an_offset_of_version_1_is_read_and_knows_another_channel_by_its_position() -> None:
    old = offset_of({"v": 1, "tick": 100, "channels": {"a": {"0": 100}}})

    assert destroyed(old, [channel("a", 50)], {"a": True}) == []
    assert [loss.available_tick for loss in destroyed(old, [channel("a", 150)], {"a": True})] == [150]
    # The next offset has version 2.
    assert cut_at(200, ["a/0"], {"a": 50}).to_json()["created"] == {"a": 50}
