"""UUIDs of messages have the layout of Gazette's. Method: literal vectors of that layout."""

import pickle
import threading
import time
import uuid
from datetime import UTC, datetime

import pytest

from tidelog.gazette import (
    CLOCK_UNITS_PER_SECOND,
    NIL_UUID,
    UUID,
    Clock,
    Flags,
    ProducerID,
    build_uuid,
    clock_at,
    get_clock,
    get_flags,
    get_producer_id,
    new_clock,
    new_producer_id,
    time_of_clock,
)
from tidelog.gazette.uuids import UUIDBuilder, uuid_text

PRODUCER = ProducerID(bytes.fromhex("0123456789ab"))
EPOCH_CLOCK = 1_955_086_848_000_000_000
VECTORS = [
    (0, 0, "00000000-0000-1000-8000-0123456789ab"),
    (15, 1, "00000000-0000-1000-bc01-0123456789ab"),
    (16, 2, "00000001-0000-1000-8002-0123456789ab"),
    (160, 0, "0000000a-0000-1000-8000-0123456789ab"),
    (EPOCH_CLOCK, 0, "13814000-1dd2-11b2-8000-0123456789ab"),
    (1_955_086_849_920_000_048, 0, "1aa84e03-1dd2-11b2-8000-0123456789ab"),
    (2_205_855_587_517_004_112, 682, "83fc2f95-cc5f-11e9-82aa-0123456789ab"),
    (18_446_744_073_709_551_615, 1023, "ffffffff-ffff-1fff-bfff-0123456789ab"),
]


@pytest.mark.parametrize(("clock", "flags", "text"), VECTORS)
def test_the_vectors_of_the_layout(clock: int, flags: int, text: str) -> None:
    built = build_uuid(PRODUCER, clock, flags)
    assert str(built) == text
    assert (get_clock(built), get_flags(built), get_producer_id(built)) == (clock, flags, PRODUCER)
    assert get_clock(uuid.UUID(text)) == clock


def test_a_uuid_of_another_version_has_a_clock_flags_and_a_producer() -> None:
    foreign = uuid.UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
    assert get_clock(foreign) == 0x37258CCF47AC10B9
    assert get_flags(foreign) == 0x167
    assert get_producer_id(foreign) == bytes.fromhex("0e02b2c3d479")


def test_a_built_uuid_is_interchangeable_with_a_parsed_one() -> None:
    built = build_uuid(PRODUCER, EPOCH_CLOCK, Flags.CONTINUE_TXN)
    parsed = uuid.UUID(str(built))
    assert UUID is uuid.UUID
    assert type(built) is uuid.UUID
    assert (built, hash(built), built.bytes, built.version) == (parsed, hash(parsed), parsed.bytes, 1)
    assert built.is_safe is parsed.is_safe
    assert pickle.loads(pickle.dumps(built)) == parsed


def test_the_nil_uuid_has_clock_zero() -> None:
    assert (get_clock(NIL_UUID), get_flags(NIL_UUID)) == (0, Flags.OUTSIDE_TXN)


@pytest.mark.parametrize(
    ("producer", "clock", "flags", "text"),
    [
        (PRODUCER, 0, 0x400, "only 10 bits may be used for flags, got 0x400: expected 0 to 0x3ff"),
        (PRODUCER, 0, -1, "only 10 bits may be used for flags"),
        (PRODUCER, 1 << 64, 0, "the clock value is 18446744073709551616, expected 0 to 18446744073709551615"),
        (PRODUCER, -1, 0, "the clock value is -1"),
        (b"12345", 0, 0, "a producer id has 6 bytes, got 5"),
    ],
)
def test_values_outside_the_layout_are_programming_errors(producer: bytes, clock: int, flags: int, text: str) -> None:
    with pytest.raises(RuntimeError, match=f"^{text}"):
        build_uuid(producer, clock, flags)


def test_producer_ids_are_random_and_have_the_multicast_bit() -> None:
    ids = {new_producer_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(each[0] & 1 for each in ids)
    assert any(each[0] & 0x80 for each in ids)
    assert repr(PRODUCER) == "ProducerID(0123456789ab)"
    with pytest.raises(ValueError, match="a producer id has 6 bytes, got 7"):
        ProducerID(b"1234567")


def test_a_clock_begins_at_a_time_and_converts_back() -> None:
    assert new_clock(0).value == EPOCH_CLOCK == 0x1B21DD2138140000
    assert new_clock(datetime(1970, 1, 1, tzinfo=UTC)).value == EPOCH_CLOCK
    assert clock_at(12_000_000_300) == 1_955_086_849_920_000_048
    assert clock_at(399) == EPOCH_CLOCK + 48
    assert clock_at(datetime(1582, 10, 15, tzinfo=UTC)) == 0
    assert time_of_clock(EPOCH_CLOCK + 12 * CLOCK_UNITS_PER_SECOND) == datetime(1970, 1, 1, 0, 0, 12, tzinfo=UTC)


def test_a_clock_never_goes_back() -> None:
    clock = new_clock(10_000)
    before = clock.value
    clock.update(9_999)
    assert clock.value == before
    assert clock.tick() == before + 160
    clock.update(10_900)
    assert clock.value == before + 160
    clock.update(11_100)
    assert clock.value == before + 176


def test_an_update_makes_the_counter_zero_and_the_seed_steps_by_one() -> None:
    clock = Clock(step=1)
    clock.update(datetime(1970, 1, 1, tzinfo=UTC))
    assert [clock.tick(), clock.tick()] == [EPOCH_CLOCK + 1, EPOCH_CLOCK + 2]
    clock.update(100)
    assert clock.value == EPOCH_CLOCK + 16
    assert repr(clock) == f"Clock({EPOCH_CLOCK + 16}, step=1)"


def test_two_ticks_of_the_seeds_vector() -> None:
    clock = new_clock(1_567_304_621_981_273_734)
    clock.tick()
    assert clock.tick() == 2_205_855_587_517_004_112


def test_ticks_of_several_threads_are_unique() -> None:
    clock = Clock()
    seen: list[int] = []

    def tick() -> None:
        seen.extend([clock.tick() for _ in range(5_000)])

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 20_000
    assert clock.value == 20_000 * 160


def test_times_out_of_range_and_without_a_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        clock_at(datetime(2026, 1, 1))  # noqa: DTZ001 - the claim
    with pytest.raises(ValueError, match="is out of range: expected a time between 1582-10-15 and the year 5236"):
        clock_at(datetime(1582, 10, 14, tzinfo=UTC))
    with pytest.raises(ValueError, match="is out of range"):
        clock_at(datetime(5300, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="the clock value is -1"):
        Clock(-1)
    with pytest.raises(ValueError, match="the step of a clock is 0, expected 1 or more"):
        Clock(step=0)


def test_an_update_to_now_advances_and_never_goes_back() -> None:
    clock = Clock()
    before = time.time_ns()
    clock.update_to_now()
    assert clock_at(before) <= clock.value <= clock_at(time.time_ns())

    clock.value = later = clock_at(time.time_ns() + 10**12)
    clock.update_to_now()
    assert clock.value == later


def test_a_builder_makes_the_same_uuids_while_its_clock_goes_on_and_back() -> None:
    builder = UUIDBuilder(PRODUCER, Flags.CONTINUE_TXN)
    for clock in (0, 15, EPOCH_CLOCK, EPOCH_CLOCK + (1 << 36), EPOCH_CLOCK + (1 << 36) + 160, 160, (1 << 64) - 1):
        assert builder.build(clock) == build_uuid(PRODUCER, clock, Flags.CONTINUE_TXN)

    with pytest.raises(RuntimeError, match="the clock value is 18446744073709551616"):
        builder.build(1 << 64)


def test_texts_are_those_of_the_standard_library() -> None:
    # More UUIDs than texts are kept.
    for value in (uuid.uuid4() for _ in range(5_000)):
        assert uuid_text(value) == str(value)
    for clock, flags, text in VECTORS:
        assert uuid_text(build_uuid(PRODUCER, clock, flags)) == text
