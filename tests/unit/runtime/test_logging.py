"""The log of a process whose stderr cannot be written."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tidelog_server.runtime.logging import configure_logging


@pytest.fixture(autouse=True)
def restored_configuration() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_lines_that_cannot_be_written_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stderr"
    with path.open("w") as stderr, Path("/dev/full").open("wb") as full:
        file = os.dup(stderr.fileno())
        monkeypatch.setattr(sys, "stderr", stderr)
        configure_logging("info", "json")
        log = structlog.get_logger()
        log.info("written")
        os.dup2(full.fileno(), stderr.fileno())
        log.info("dropped")
        log.info("dropped_too")
        os.dup2(file, stderr.fileno())
        log.info("written_again", name="\ud800")
        log.info("last")
        os.close(file)

    first, second, third = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["event"], first.get("dropped_lines")) == ("written", None)
    assert (second["event"], second["dropped_lines"]) == ("written_again", 2)
    assert (third["event"], third.get("dropped_lines")) == ("last", None)


def test_a_stream_in_memory_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger().info("written")

    assert json.loads(capsys.readouterr().err)["event"] == "written"
