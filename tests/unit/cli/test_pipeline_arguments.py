"""Goal: wrong arguments of ``tidelog pipeline`` are reported before Spark starts, and no file is created.

Method: the real command in this process, with a stub Java that only prints its version: a command that starts Spark
fails with another error than the tests expect.
"""

import errno
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tidelog.spark.archive import manifest
from tidelog.spark.archive.manifest import ArchivedRange, Commit
from tidelog.spark.pipelines import Digest, Digests, VchannelReport, VerifyReport
from tidelog_cli.child_environment import child_environment
from tidelog_cli.commands.pipeline import print_audit
from tidelog_cli.exit_codes import ExitCode
from tidelog_cli.output.records import Output
from tidelog_testing.servers.commands import COMMAND, pipeline_error

_JAVA = """#!/bin/sh
test "$2" = -version && echo "    java.specification.version = 21" >&2 && exit 0
exit 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory; the stub Java is installed."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    return empty


@pytest.fixture
def archived(tmp_path: Path) -> list[str]:
    """Return the options that read only an archive, without a server."""
    root = tmp_path / "archive"
    with manifest.writing(root):
        manifest.append(root, Commit(1, "run", "2026-01-01T00:00:00Z", {"orders/0": ArchivedRange(1, 2, 1)}, ()))
    return ["--archive", str(root), "--archive-only"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "s3://bucket/x", "orders"), ("archive", "dbfs:/x", "orders", "--trim"),
        ("compact", "s3a://bucket/x", "orders"), ("verify", "orders", "--archive", "gs://bucket/x"),
        ("stats", "orders", "--archive", "abfss://bucket@account/x"),
    ],
)  # fmt: skip
def test_an_object_store_is_refused_where_a_folder_is_named(folder: Path, arguments: tuple[str, ...]) -> None:
    error = pipeline_error(*arguments)

    assert error.code is ExitCode.USAGE
    assert "object stores and other URLs are not supported" in error.message
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("archive", "file/archive", "orders"), "cannot read or write {here}/file: Not a directory"),
        (("compact", "file", "orders"), "cannot read or write {here}/file: Not a directory"),
        (("stats", "orders", "--html", "a/x"), "cannot read or write {here}/a: No such file or directory"),
        (("verify", "orders", "--html", "file/x.html"), "cannot read or write {here}/file: Not a directory"),
        (("verify", "orders", "--html", "."), "cannot read or write .: Is a directory"),
        (("stats", "orders", "--parquet", "file/x"), "cannot read or write {here}/file: Not a directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_told_before_anything_is_read(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    (folder / "file").touch()

    error = pipeline_error(*arguments)

    assert (error.code, error.message) == (ExitCode.FAILURE, message.format(here=folder))
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_made_is_told_in_one_line(archived: list[str]) -> None:
    # No user can create it, not even root.
    error = pipeline_error("compact", "/proc/nothere", "orders", *archived)

    assert (error.code, error.message) == (
        ExitCode.FAILURE, "cannot read or write /proc/nothere: No such file or directory",
    )  # fmt: skip


def test_a_connection_that_fails_is_not_taken_for_the_input(
    monkeypatch: pytest.MonkeyPatch, archived: list[str]
) -> None:
    def refuse() -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr("tidelog_cli.commands.pipeline.check_java", refuse)

    error = pipeline_error("stats", "orders", *archived)

    assert (error.code, error.message) == (ExitCode.FAILURE, f"[Errno {errno.ECONNREFUSED}] Connection refused")


def test_ctrl_c_while_spark_starts_is_one_line(tmp_path: Path, archived: list[str]) -> None:
    started = tmp_path / "started"
    # Asked for the command that starts Spark, it prints its own path. As Spark's JVM, it does not notice our exit.
    script = f"""test "$1" = spark && touch {started} && exec sleep 100
        printf '\\0\\n%s\\0spark\\0' "$0"; exit 0"""
    (tmp_path / "java" / "bin" / "java").write_text(_JAVA.replace("exit 1", script))
    environment = child_environment() | {"JAVA_HOME": str(tmp_path / "java")}
    program = subprocess.Popen(
        [*COMMAND, "pipeline", "stats", "orders", *archived],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    give_up_s = time.monotonic() + 30
    while not started.exists():
        assert time.monotonic() < give_up_s, "Spark did not start its Java"
        time.sleep(0.01)
    program.send_signal(signal.SIGINT)
    # Returns when all processes have closed stderr, so Java has ended too.
    _, errors = program.communicate(timeout=240)

    assert (program.returncode, errors) == (130, "tidelog: interrupted\n")


def test_digests_of_an_audit_stay_whole_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    one, other = (f"{number:032x}" for number in range(2))
    reports = [VchannelReport(f"orders/{index}", 1 << 40, 1 << 50, 1 << 60, 1 << 61, one, other) for index in range(2)]
    total = Digests(Digest.parse("1" * 32), Digest.parse("2" * 32))

    print_audit(VerifyReport((), (), reports, 0, 0, 0, total), Output.TABLE)

    words = capsys.readouterr().out.split()
    assert {one, other, "1" * 32, "2" * 32, str(1 << 61)} <= set(words)
