"""Credentials of a client: tokens from files."""

import logging
from pathlib import Path

import pytest

from tidelog import TokenFile


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tidelog"]


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666])
def test_a_token_file_that_others_can_read_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    path = tmp_path / "a.token"
    path.write_text("tdl_secret")
    path.chmod(mode)
    token = TokenFile(path)
    with caplog.at_level(logging.WARNING, "tidelog"):
        assert [token(), token()] == ["tdl_secret"] * 2
    [warning] = warnings_of(caplog)
    assert (str(path) in warning, f"{mode:04o}" in warning, "chmod 600" in warning) == (True, True, True)
    assert "tdl_secret" not in warning


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
def test_a_token_file_that_others_cannot_read_is_used_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    path = tmp_path / "a.token"
    path.write_text("tdl_secret")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "tidelog"):
        assert TokenFile(path)() == "tdl_secret"
    assert warnings_of(caplog) == []
