"""The log of a process whose stderr cannot be written, or is not read, and what libraries log."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog

from tidelog_cli.output.queued_lines import MAX_QUEUED_BYTES
from tidelog_server.runtime.logging import configure_logging, count_dropped, flush_log, forward_library_logs

# Linux's default.
MAX_PIPE_BYTES: Final = 64 * 1024


@pytest.fixture(autouse=True)
def restored_configuration() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    count_dropped(lambda: None)


def test_lines_that_cannot_be_written_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stderr"
    dropped: list[None] = []
    with path.open("w") as stderr, Path("/dev/full").open("wb") as full:
        file = os.dup(stderr.fileno())
        monkeypatch.setattr(sys, "stderr", stderr)
        configure_logging("info", "json")
        count_dropped(lambda: dropped.append(None))
        log = structlog.get_logger()
        log.info("written")
        assert flush_log()
        os.dup2(full.fileno(), stderr.fileno())
        log.info("dropped")
        log.info("dropped_too")
        assert flush_log()
        os.dup2(file, stderr.fileno())
        log.info("written_again", name="\ud800")
        until(lambda: "log_lines_dropped" in path.read_text())
        log.info("last")
        assert flush_log()
        os.close(file)

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["written", "written_again", "log_lines_dropped", "last"]
    assert lines[2]["dropped_lines"] == len(dropped) == 2


def test_a_pipe_that_is_not_read_stops_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[None] = []
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stderr, os.fdopen(reader, "rb", buffering=0) as read:
        monkeypatch.setattr(sys, "stderr", stderr)
        configure_logging("info", "json")
        count_dropped(lambda: dropped.append(None))
        log = structlog.get_logger()
        text, written = "x" * 10_000, 0
        begin_s = time.monotonic()
        while not dropped:
            log.info("line", number=written, text=text)
            written += 1
        assert not flush_log(within_s=0.1)
        assert time.monotonic() - begin_s < 20

        received = b""
        while b"log_lines_dropped" not in received:
            received += read.read(1 << 20)
        assert flush_log()
    encoded = received.splitlines(keepends=True)
    # One line more than the queue holds, and at most what queue and pipe hold: the pipe may still be empty then.
    assert MAX_QUEUED_BYTES < written * len(encoded[-2]) < MAX_QUEUED_BYTES + 2 * MAX_PIPE_BYTES
    lines = [json.loads(line) for line in encoded]
    assert [line["number"] for line in lines[:-1]] == list(range(written - len(dropped)))
    assert lines[-1]["dropped_lines"] == len(dropped) == 1


def test_a_pipe_that_another_process_made_non_blocking_loses_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with os.fdopen(writer, "w") as stderr, os.fdopen(reader, "rb", buffering=0) as read:
        monkeypatch.setattr(sys, "stderr", stderr)
        configure_logging("info", "json")
        for number in range(30):
            structlog.get_logger().info("line", number=number, text="x" * 10_000)
        received = b""
        while received.count(b"\n") < 30:
            received += read.read(1 << 20)
    assert [json.loads(line)["number"] for line in received.splitlines()] == list(range(30))


def test_warnings_of_libraries_are_lines_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        forward_library_logs()
        logging.getLogger("asyncio").error("Exception in callback %s", "f")
    finally:
        root.handlers[:] = before
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["event"], line["logger"], line["message"]) == ("library", "asyncio", "Exception in callback f")


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_stream_in_memory_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger().info("written")

    assert json.loads(capsys.readouterr().err)["event"] == "written"
