"""Parsing of positions for groups. Method: valid texts with their meaning, and invalid texts."""

from datetime import UTC, datetime, timedelta

import pytest

from tidelog import At, Tick
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.options.positions import parse_start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", At.earliest()),
        ("latest", At.latest()),
        ("7", Tick(7)),
        ("tick:7", Tick(7)),
        ("id:0000000000000007", At.message_id(bytes(7) + b"\x07")),
        ("time:2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("@2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_position_is_read(text: str, start: object) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["-1h", "@-1h"])
def test_how_long_ago_is_a_time(text: str) -> None:
    start = parse_start(text)

    assert isinstance(start, datetime)
    assert abs(datetime.now(UTC) - timedelta(hours=1) - start) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["", "now", "tick:", "tick:x", "id:xyz", "time:noon", "-", "-1", "@", "9" * 20])
def test_what_is_no_position_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(CommandError, match=r"^invalid .*: expected ") as refused:
        parse_start(text)
    assert refused.value.code is ExitCode.USAGE
