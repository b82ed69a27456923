"""The state of a topic in Pulsar, as positions of a log; and the options of its client."""

from pathlib import Path
from typing import Any

import pytest

from tidelog_server.recordlog.engine import LogSetupError
from tidelog_server.recordlog.pulsar import TopicState, place_of, position_of, topic_path
from tidelog_server.recordlog.pulsar_connection import PulsarConnection
from tidelog_server.recordlog.records import pack_position, unpack_position

URL = "pulsar://broker:6650"


def stats(last: str, ledgers: dict[int, int], acknowledged: str | None = None) -> dict[str, Any]:
    """Return the part of ``internalStats`` that is read: ``last`` and ``acknowledged`` are LEDGER:ENTRY."""
    cursors = {} if acknowledged is None else {"tidelog": {"markDeletePosition": acknowledged}}
    listed = [{"ledgerId": number, "entries": entries} for number, entries in ledgers.items()]
    return {"lastConfirmedEntry": last, "ledgers": listed, "cursors": cursors}


def places(*positions: int) -> list[tuple[int, int]]:
    return [place_of(each) for each in positions]


@pytest.mark.parametrize(
    ("told", "begin", "end"),
    [
        (stats("7:-1", {7: 0}, "7:-1"), (7, 0), (7, 0)),
        # Pulsar reports the entries of a ledger once it is closed.
        (stats("7:4", {7: 0}, "7:-1"), (7, 0), (7, 5)),
        (stats("9:1", {7: 5, 9: 0}, "7:2"), (7, 3), (9, 2)),
        # After a restart of the broker.
        (stats("9:-1", {7: 5, 9: 0}, "7:2"), (7, 3), (7, 5)),
        (stats("9:-1", {7: 5, 9: 0}, "9:-1"), (7, 5), (7, 5)),
        # The ledgers of what was acknowledged are deleted, and the broker has restarted with an older position.
        (stats("9:1", {8: 3, 9: 0}, "7:2"), (8, 0), (9, 2)),
        (stats("9:1", {8: 3, 9: 0}), (8, 0), (9, 2)),
    ],
)
def test_bounds_are_those_of_records(told: dict[str, Any], begin: tuple[int, int], end: tuple[int, int]) -> None:
    assert places(*TopicState.of(told).bounds()) == [begin, end]


def test_a_topic_without_the_subscription_is_told() -> None:
    assert TopicState.of(stats("9:1", {8: 3, 9: 0})).trimmed is None


def test_records_are_counted_back_over_ledgers() -> None:
    state = TopicState.of(stats("12:1", {3: 2, 7: 3, 9: 0, 12: 0}, "3:0"))
    end = state.bounds().end
    counted = [(12, 1), (12, 0), (7, 2), (7, 1), (7, 0), (3, 1), (3, 0)]
    assert places(*(state.before(end, count) for count in range(1, 8))) == counted
    assert state.before(end, 8) == state.bounds().begin == position_of(3, 1)
    # From between two ledgers, and from the middle of one.
    assert places(state.before(position_of(9, 0), 1), state.before(position_of(7, 2), 3)) == [(7, 2), (3, 1)]


def test_records_are_counted_over_ledgers_also_in_one_that_has_grown() -> None:
    state = TopicState.of(stats("12:1", {3: 2, 7: 3, 9: 0, 12: 0}, "3:0"))
    begin, end = state.bounds()
    assert state.length(begin, end) == 1 + 3 + 2
    assert state.length(position_of(7, 1), position_of(9, 0)) == 2
    assert state.length(begin, position_of(12, 9)) == 1 + 3 + 9
    assert state.length(end, position_of(15, 4)) == 4
    assert state.length(end, begin) == 0


def test_positions_sort_as_the_log_and_fit_into_their_bytes() -> None:
    in_order = [(0, 0), (0, 1), (7, 0), (7, 49_999), (8, 0), ((1 << 63) - 1, (1 << 63) - 1)]
    positions = [position_of(*place) for place in in_order]
    assert sorted(positions) == positions
    assert places(*positions) == in_order
    assert [unpack_position(pack_position(each)) for each in positions] == positions
    # The one before the first of a ledger is behind all of the ledgers before it.
    assert place_of(position_of(8, 0) - 1) == (8, 0)


def test_a_name_is_a_part_of_a_path() -> None:
    assert topic_path("persistent://public/default/a/b?c") == "/persistent/public/default/a%2Fb%3Fc"


@pytest.mark.parametrize(
    ("service_url", "admin_url"),
    [
        (URL, "http://broker:8080"),
        ("pulsar+ssl://broker:6651,other:6651", "https://broker:8443"),
        ("pulsar://[::1]:6650", "http://[::1]:8080"),
    ],
)
def test_the_address_of_the_administration_api_has_a_default(service_url: str, admin_url: str) -> None:
    assert PulsarConnection(service_url).admin_url == admin_url
    assert PulsarConnection(service_url, "http://admin:80/").admin_url == "http://admin:80"


@pytest.mark.parametrize("service_url", ["http://broker:8080", "broker:6650", "pulsar://"])
def test_an_address_that_is_not_of_pulsar_is_refused(service_url: str) -> None:
    with pytest.raises(LogSetupError, match="must be pulsar://HOST:PORT"):
        PulsarConnection(service_url)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acks=1\n", "the option acks of Pulsar's client may not be set; those allowed are authParams, "),
        ("authParams=secret\n", "the option authParams must be token:TOKEN or file:///PATH"),
        ("authParams=token:a\nauthParams=token:b\n", "options:2: the option authParams is given twice"),
        ("tlsTrustCertsFilePath=/none/ca.pem\n", "a file of TLS for Pulsar cannot be used: "),
    ],
)
def test_an_option_that_is_not_allowed_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "options"
    path.write_text(text)
    with pytest.raises(LogSetupError) as raised:
        PulsarConnection.load(URL, "", str(path))
    assert said in str(raised.value)
