"""UUIDs of messages contain a clock, flags and a producer without loss.

Method: round trips of random values, and the layout written a second time with the fields of `uuid.UUID`.
"""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.gazette import ProducerID, build_uuid, clock_at, get_clock, get_flags, get_producer_id

PRODUCERS = st.binary(min_size=6, max_size=6).map(ProducerID)
CLOCKS = st.integers(0, 2**64 - 1)
FLAGS = st.integers(0, 2**10 - 1)


@given(PRODUCERS, CLOCKS, FLAGS)
def test_a_uuid_contains_what_it_was_built_from(producer: ProducerID, clock: int, flags: int) -> None:
    uuid = build_uuid(producer, clock, flags)
    assert (get_producer_id(uuid), get_clock(uuid), get_flags(uuid)) == (producer, clock, flags)
    assert UUID(str(uuid)) == uuid
    assert uuid.version == 1


@given(st.uuids())
def test_any_uuid_is_decoded_by_its_fields(uuid: UUID) -> None:
    time = uuid.time_low | uuid.time_mid << 32 | (uuid.time_hi_version & 0xFFF) << 48
    counter = uuid.clock_seq_hi_variant >> 2 & 0xF
    assert get_clock(uuid) == time << 4 | counter
    assert get_flags(uuid) == (uuid.clock_seq_hi_variant & 3) << 8 | uuid.clock_seq_low
    assert int.from_bytes(get_producer_id(uuid), "big") == uuid.node


@given(CLOCKS, CLOCKS, PRODUCERS)
def test_times_order_as_clocks(a: int, b: int, producer: ProducerID) -> None:
    first, second = build_uuid(producer, a, 0), build_uuid(producer, b, 0)
    assert (first.time < second.time) <= (get_clock(first) < get_clock(second))


@given(st.integers(0, 10**20), st.integers(0, 10**20))
def test_later_times_have_clocks_that_are_not_smaller(a: int, b: int) -> None:
    assert (clock_at(a) <= clock_at(b)) >= (a <= b)
