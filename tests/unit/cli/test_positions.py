"""Positions, times and durations on the command line are parsed exactly; a time without a zone is refused."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tidelog import At, Tick
from tidelog_cli.commands.mailboxes.arguments import parse_time
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.options.positions import parse_duration, parse_moment, parse_position, parse_start


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5d", timedelta(hours=36)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["9999999999d", "9" * 400 + "d"])
def test_a_duration_that_is_too_long_is_refused_with_the_limit(text: str) -> None:
    with pytest.raises(CommandError, match="is too long: expected at most 999999999d") as caught:
        parse_duration(text)

    assert caught.value.code is ExitCode.USAGE
    assert len(caught.value.message) < 120


def test_a_number_is_a_tick_and_an_at_sign_begins_a_time() -> None:
    assert parse_position("123") == Tick(123)
    assert parse_position("@2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    ago = parse_position("@-1h")
    assert isinstance(ago, datetime)
    assert timedelta(minutes=59) < datetime.now(UTC) - ago < timedelta(minutes=61)


@pytest.mark.parametrize("text", ["", "x", "-1", "@", "@-", "@-5", "@-5x", "@yesterday", "99999999999999999999"])
def test_what_is_no_position_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_position(text)

    assert caught.value.code is ExitCode.USAGE
    assert "invalid" in caught.value.message
    assert "expected" in caught.value.message


@pytest.fixture
def in_paris(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to one that is an hour ahead of UTC in January."""
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_paris")
@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_moment, "2026-01-31T12:00:00"),
        (parse_time, "2026-01-31T12:00"),
        (parse_position, "@2026-01-31T12:00:00"),
        (parse_start, "@2026-01-31 12:00"),
        (parse_start, "time:2026-01-31T12"),
    ],
)
def test_a_time_without_zone_is_refused_with_both_readings(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse(text)

    assert caught.value.code is ExitCode.USAGE
    assert caught.value.message == (
        "2026-01-31T12:00:00 has no time zone, expected 2026-01-31T12:00:00+00:00 for UTC, "
        "or 2026-01-31T12:00:00+01:00 for local time"
    )


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59"])
def test_the_ends_of_the_calendar_are_refused_too(text: str) -> None:
    with pytest.raises(CommandError, match="has no time zone, expected"):
        parse_moment(text)


@pytest.mark.usefixtures("in_paris")
def test_a_time_with_zone_is_that_instant() -> None:
    assert parse_moment("2026-01-31T12:00:00+05:30") == datetime(2026, 1, 31, 6, 30, tzinfo=UTC)
    assert parse_start("time:2026-01-31T12:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_the_client_refuses_a_time_without_zone_with_both_readings() -> None:
    noon = datetime(2026, 1, 31, 12)  # noqa: DTZ001 - that is the point
    for call in (At.time, Tick.at):
        with pytest.raises(ValueError, match=r"has no time zone, expected 2026-01-31T12:00:00\+00:00 for UTC, or"):
            call(noon)
