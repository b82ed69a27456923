"""The doctor's probes: they measure, and they derive the right severity from measurements."""

from pathlib import Path

import pytest

from tidelog_server.commands import probes
from tidelog_server.commands.probes import Severity, SyncTimes


@pytest.mark.parametrize(
    ("write_us", "sync_us", "expected"),
    [
        (5, 100, Severity.OK),
        (10, 5_000, Severity.OK),
        (1, 2, Severity.WARNING),
        (1, 14, Severity.WARNING),
        (90, 100, Severity.WARNING),
    ],
)
def test_a_sync_that_is_too_fast_for_a_disk_is_reported(write_us: float, sync_us: float, expected: Severity) -> None:
    assert probes.judge_sync(SyncTimes(write_us, sync_us)).severity is expected


def test_the_disk_is_really_measured(tmp_path: Path) -> None:
    times = probes.measure_sync(tmp_path, syncs=3)

    assert 0 < times.write_us
    assert 0 < times.sync_us
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_a_failure(tmp_path: Path) -> None:
    findings = probes.check_disk(tmp_path / "nothing", 0)

    assert [finding.severity for finding in findings] == [Severity.FAILURE]


@pytest.mark.parametrize(("needed_bytes", "expected"), [(0, Severity.OK), (1 << 62, Severity.FAILURE)])
def test_free_space_is_compared_with_what_appends_need(tmp_path: Path, needed_bytes: int, expected: Severity) -> None:
    assert probes.check_free_space(tmp_path, needed_bytes).severity is expected


def test_the_folder_above_a_data_folder_that_is_not_there_yet_is_probed(tmp_path: Path) -> None:
    assert probes.nearest_folder(tmp_path / "a" / "b") == tmp_path


def test_the_clock_of_this_machine_passes() -> None:
    assert {finding.check for finding in probes.check_clock(0.01)} == {"clock pace", "clock date"}


@pytest.mark.parametrize(("version", "expected"), [("21", Severity.OK), ("11", Severity.WARNING)])
def test_the_java_of_spark_must_be_new_enough(
    version: str, expected: Severity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'java.specification.version = {version}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    [finding] = probes.check_java()

    assert (finding.check, finding.severity) == ("java", expected)
    assert str(java) in finding.text


def test_a_missing_java_is_reported_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    [finding] = probes.check_java()

    assert finding.severity is Severity.WARNING
    assert "apt-get install openjdk-17" in finding.text
