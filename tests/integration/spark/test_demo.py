"""Goal: the demonstration succeeds, and detects that the rows read differ from the messages appended.

Method: the real program with a few flights, as a user runs it but without a terminal; and its comparison separately.
"""

from pathlib import Path

import pytest

from examples.flights.flights import Flight, read_flights
from examples.flights.summary import summarise
from tidelog_testing.documents.examples import run_program

FLIGHTS = 2_000


@pytest.mark.spark
def test_the_demonstration_agrees_with_its_source(tmp_path: Path) -> None:
    ran = run_program("-m", "examples.flights", "--flights", str(FLIGHTS), "--output", str(tmp_path))

    assert f"{FLIGHTS:,} messages were read back" in ran.stdout
    assert "United Air Lines" in ran.stdout
    assert "killed the server with SIGKILL" in ran.stderr
    assert "messages of a transaction on two channels were stored when the server died" in ran.stdout
    assert "none of it is in the log" in ran.stderr
    assert "acknowledged by 2 consumers" in ran.stdout
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return read_flights(50)


def test_the_comparison_finds_no_difference_in_another_order(flights: list[Flight]) -> None:
    assert summarise(flights, 4).differences(summarise(reversed(flights), 4)) == []


def test_the_comparison_finds_a_message_that_is_missing_doubled_or_changed(flights: list[Flight]) -> None:
    first, second, *rest = flights
    changed = Flight(
        first.line, first.carrier, first.payload + b" ", first.event_time, first.departure_delay, first.arrival_delay
    )

    for other in ([second, *rest], [first, first, second, *rest], [second, second, *rest], [changed, second, *rest]):
        assert summarise(flights, 4).differences(summarise(other, 4)) != []
