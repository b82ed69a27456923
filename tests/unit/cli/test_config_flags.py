"""Settings as flags: every accepted form, and a usage error for every other."""

from pathlib import Path

import pytest

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.commands.config_flags import parse_file_and_settings, parse_settings


def test_both_forms_are_understood() -> None:
    assert parse_settings(["--log.level", "debug", "--server.host=::1"]) == {"log.level": "debug", "server.host": "::1"}


def test_one_word_among_them_is_a_file() -> None:
    for arguments in (["x.toml", "--log.level", "debug"], ["--log.level", "debug", "x.toml"]):
        assert parse_file_and_settings(arguments) == (Path("x.toml"), {"log.level": "debug"})
    assert parse_file_and_settings([]) == (None, {})
    with pytest.raises(CommandError, match=r"unexpected argument 'y\.toml'"):
        parse_file_and_settings(["x.toml", "y.toml"])


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse_settings(["--storage.data_dir=a=b"]) == {"storage.data_dir": "a=b"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["extra"], "unexpected argument 'extra'"),
        (["--log.level"], "--log.level needs a value"),
        (["--devv"], "no such option: --devv"),
        (["--log.level", "info", "--log.level=info"], "given twice"),
    ],
)
def test_anything_else_is_a_usage_error(arguments: list[str], expected: str) -> None:
    with pytest.raises(CommandError, match=expected) as caught:
        parse_settings(arguments)

    assert caught.value.code is ExitCode.USAGE
