"""Goal: what is wrong with the arguments of ``tidelog pipeline`` is told before Spark starts, and nothing is made.

Method: the real command in this process, with a Java that can tell its version and nothing else: whoever starts it
fails in another way than the tests expect.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidelog_server.cli.exit_codes import CommandError, ExitCode
from tidelog_server.cli.root import app

_JAVA = """#!/bin/sh
test "$2" = -version && echo "    java.specification.version = 21" >&2 && exit 0
exit 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory of a user who has that Java."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    return empty


def fail(*arguments: str) -> CommandError:
    """Run ``tidelog pipeline`` and return what it fails with."""
    error = CliRunner().invoke(app, ["pipeline", *arguments]).exception
    assert isinstance(error, CommandError), error
    return error


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "s3://bucket/x", "orders"), ("archive", "dbfs:/x", "orders", "--trim"),
        ("compact", "s3a://bucket/x", "orders"), ("verify", "orders", "--archive", "gs://bucket/x"),
        ("stats", "orders", "--archive", "abfss://bucket@account/x"),
    ],
)  # fmt: skip
def test_an_object_store_is_refused_where_a_folder_is_named(folder: Path, arguments: tuple[str, ...]) -> None:
    error = fail(*arguments)

    assert error.code is ExitCode.USAGE
    assert "object stores and other URLs are not supported" in error.message
    assert not list(folder.iterdir())
