"""Options that are numbers refuse what is not finite, by their name and with the code for wrong usage."""

import pytest
from typer.testing import CliRunner

from tidelog_cli.exit_codes import ExitCode
from tidelog_cli.root import app


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1"])
@pytest.mark.parametrize(
    "command",
    [
        "channel ls --timeout", "check ready --timeout", "check append --timeout", "check append --max-ms",
        "check lag g --max-seconds", "check disk --warning-gib", "check disk --critical-gib", "top --interval",
        "broadcast send x orders --wait", "doctor --timeout",
    ],
)  # fmt: skip
def test_a_number_that_is_not_finite_is_refused_by_the_name_of_its_option(command: str, value: str) -> None:
    *words, option = command.split()
    ended = CliRunner().invoke(app, [*words, f"{option}={value}"])

    assert ended.exit_code == ExitCode.USAGE
    assert option in ended.output


def test_a_duration_beyond_what_timers_can_hold_is_refused() -> None:
    ended = CliRunner().invoke(app, ["channel", "ls", "--timeout=1e300"])

    assert ended.exit_code == ExitCode.USAGE
    assert "at most 3155760000" in ended.output
