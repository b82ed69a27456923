"""Packs depend on the log alone, and a reader resumes from any pack.

Method: generated logs, delivered in many ways, against packs that are computed by a simple model.
"""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.msgstream._log.assembler import RawPack
from tidelog_testing.oracles.packs import CHANNELS, GRID, FakeBatch, Found, Unit, assembled, expected_packs, found, logs

EARLIEST = dict.fromkeys(CHANNELS, 0)


@st.composite
def deliveries(draw: st.DrawFn, units: list[Unit]) -> list[FakeBatch | int]:
    """The batches of a log, some split in two, with watermarks where a log may send them."""
    events: list[FakeBatch | int] = []
    for number, unit in enumerate(units):
        for each in unit.batches:
            middle = draw(st.integers(0, len(each.ticks) - 1))
            events += [each.part(0, middle), each.part(middle, len(each.ticks))] if middle else [each]
        if draw(st.booleans()):
            last = units[number + 1].first_tick - 1 if number + 1 < len(units) else unit.last_tick
            events.append(draw(st.integers(unit.last_tick, max(unit.last_tick, last))))
    return [*events, GRID.end_of(units[-1].last_tick)] if units else [GRID.end_of(0)]


@settings(max_examples=60)
@given(data=st.data())
def test_packs_are_those_of_the_log_however_it_is_delivered(data: st.DataObject) -> None:
    units = data.draw(logs())

    packs = assembled(data.draw(deliveries(units)), EARLIEST)

    assert found(packs) == expected_packs(units)


@settings(max_examples=60)
@given(data=st.data())
def test_packs_follow_one_another_without_gap_or_overlap(data: st.DataObject) -> None:
    units = data.draw(logs())
    packs = assembled(data.draw(deliveries(units)), EARLIEST)

    assert [pack.begin_tick for pack in packs] == [0, *(pack.end_tick for pack in packs[:-1])][: len(packs)]
    for pack in packs:
        ticks = [tick for piece in pack.pieces for tick in piece.batch.ticks[piece.begin : piece.end]]
        assert ticks == sorted(ticks)
        assert all(pack.begin_tick < tick <= pack.end_tick for tick in ticks)
        # A channel's next tick is the first one after the pack.
        assert all(tick > pack.end_tick for tick in pack.next_ticks.values())


@settings(max_examples=40)
@given(units=logs())
def test_empty_intervals_that_are_known_at_once_are_one_pack(units: list[Unit]) -> None:
    packs = assembled([*(each for unit in units for each in unit.batches), 5_000 << 18], EARLIEST)

    assert not any(not one.pieces and not two.pieces for one, two in pairwise(packs))


@settings(max_examples=60)
@given(data=st.data())
def test_any_pack_leads_exactly_to_the_rest(data: st.DataObject) -> None:
    units = data.draw(logs())
    packs = assembled(data.draw(deliveries(units)), EARLIEST)
    if not packs:
        return
    at = data.draw(st.integers(0, len(packs) - 1))
    last = packs[at]

    # Each channel is read from the id of its end position on.
    rest = assembled(_from_positions(data.draw(deliveries(units)), last), dict.fromkeys(CHANNELS, last.end_tick))

    assert found(rest) == found(packs[at + 1 :])


@settings(max_examples=60)
@given(data=st.data(), begin=st.integers(0, 2_000 << 18))
def test_whoever_begins_later_gets_the_same_packs_from_the_next_interval_on(data: st.DataObject, begin: int) -> None:
    units = [unit for unit in data.draw(logs()) if not unit.first_tick <= begin < unit.last_tick]
    packs = assembled(data.draw(deliveries(units)), dict.fromkeys(CHANNELS, begin))

    expected = [pack for pack in expected_packs(units) if _is_comparable(pack, begin)]
    assert [pack for pack in found(packs) if _is_comparable(pack, begin)] == expected


def _is_comparable(pack: Found, begin: int) -> bool:
    """Return True if a pack begins with an interval after the one in which the reader started."""
    return pack.begin_tick >= GRID.end_of(begin) and pack.begin_tick == GRID.end_of(pack.begin_tick)


def _from_positions(events: Iterable[FakeBatch | int], last: RawPack) -> Iterable[FakeBatch | int]:
    for event in events:
        if isinstance(event, int):
            # A log sends no watermark beyond the messages that it has sent.
            yield event
            continue
        start = last.next_ticks.get(event.vchannel, last.end_tick)
        begin = sum(tick < start for tick in event.ticks)
        if begin < len(event.ticks):
            yield event.part(begin, len(event.ticks))
