"""Where a scan begins on vchannels that were added to its channels. Method: each start, and positions of a former scan.

The sources are pure; scans over a server are in tests/integration/channels/test_growth.py.
"""

from datetime import UTC, datetime

import pytest

from tidelog import At, InvalidRequestError, Positions, Start, Tick
from tidelog.read.positions import WATERMARK
from tidelog.read.scan_plan import scan_arguments
from tidelog.read.scan_sources import Source, Targets, added_sources, sizes_of, sources_of
from tidelog.v1 import wal_service_pb2 as pb

NAMES = ["orders/0", "orders/1", "users/0"]
# It had one vchannel before.
WHOLE = Targets(NAMES, {"orders": [1]})


def sources(start: Start | Positions, scanned: Targets = WHOLE) -> list[Source]:
    return sources_of(scan_arguments(start, WATERMARK), scanned)


def added(start: Start | Positions, scanned: Targets = WHOLE) -> list[Source]:
    known = sources(start, scanned)
    for source in known:
        source.created_tick = 5
    return added_sources(scan_arguments(start, WATERMARK), known, [pb.ChannelSize(name="orders", vchannels=4)])


def start_of(source: Source) -> str:
    return str(source.to_wire(0).policy.WhichOneof("start"))


@pytest.mark.parametrize(
    ("start", "policy"),
    [
        (At.earliest(), "all"),
        (At.latest(), "all"),
        ({name: Tick(7) for name in NAMES}, "all"),
        (At.tick(7), "from_tick"),
        (At.time(datetime(2026, 1, 1, tzinfo=UTC)), "from_time_ms"),
        (At.message_id(bytes(8)), "from_message_id"),
    ],
)
def test_an_added_vchannel_is_read_from_its_first_message_or_from_the_start(
    start: Start | Positions, policy: str
) -> None:
    found = added(start)
    assert [(each.vchannel, start_of(each), each.created_tick) for each in found] == [
        ("orders/2", policy, 5), ("orders/3", policy, 5)
    ]  # fmt: skip
    # Once a watermark was received, nothing before it can follow.
    assert {each.to_wire(1 << 61).policy.after_tick for each in found} == {1 << 61}


def test_copies_of_a_broadcast_at_the_tick_after_which_a_scan_begins_are_delivered() -> None:
    found = added(At.after(7), Targets(["orders/0"], {"orders": []}))
    assert [each.to_wire(0).policy.from_tick for each in found] == [7, 7, 7]


def test_a_request_names_the_whole_channels_with_the_number_that_the_scan_knows() -> None:
    sizes = [(each.name, each.vchannels) for each in sizes_of(sources(At.earliest()), WHOLE.whole)]
    assert sizes == [("orders", 2)]


def test_positions_of_a_former_scan_may_lack_what_was_added_and_nothing_else() -> None:
    found = sources({"orders/0": Tick(7), "users/0": Tick(7)})
    assert [(each.vchannel, each.begin.floor_tick) for each in found] == [
        ("orders/0", 7), ("orders/1", 0), ("users/0", 7)
    ]  # fmt: skip
    for lacking in ({"orders/1": Tick(7), "users/0": Tick(7)}, {"users/0": Tick(7)}, {"orders/0": Tick(7)}):
        with pytest.raises(InvalidRequestError, match="has no position for"):
            sources(lacking)
    with pytest.raises(InvalidRequestError, match="has no position for orders/1"):
        sources({"orders/0": Tick(7), "users/0": Tick(7)}, Targets(NAMES))
    # A channel that never grew, and one that never had this number.
    for earlier in ([], [2]):
        with pytest.raises(InvalidRequestError, match="has no position for orders/1"):
            sources({"orders/0": Tick(7), "users/0": Tick(7)}, Targets(NAMES, {"orders": earlier}))
