"""Parsing of positions and durations."""

from datetime import UTC, datetime, timedelta

import pytest

from tidelog import Tick
from tidelog_cli.commands.positions import parse_duration, parse_position
from tidelog_cli.exit_codes import CommandError, ExitCode


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
