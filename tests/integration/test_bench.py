"""The benchmarks run, clean up after themselves, and report in the documented form.

Method: each with very few messages in a process of its own. The figures mean nothing here.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog_server.cli.child_environment import child_environment

COMMAND = [sys.executable, "-c", "import sys; from tidelog_server.cli import main; main(sys.argv[1:])"]
FIGURES = {"messages_per_second", "megabytes_per_second"}


def bench(folder: Path, *arguments: str, timeout_s: float = 110) -> list[dict[str, Any]]:
    process = subprocess.Popen(
        [*COMMAND, "bench", *arguments, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment(), cwd=folder,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # Not SIGKILL: the benchmark must stop the server that it started.
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    assert process.returncode == 0, stderr
    assert list(folder.iterdir()) == []
    return [json.loads(line) for line in stdout.splitlines()]


def test_append_reports_rates_memory_and_floor(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--messages", "20000", "--vchannels", "2", "--stalled-follower")

    assert report["name"] == "append"
    assert report["settings"]["messages"] == 20_000
    assert report.keys() >= FIGURES | {"server_rss_bytes", "floor", "ratio"}
    assert report["floor"].keys() == {"name", "messages_per_second"}
    assert all(0 < report[figure] for figure in FIGURES | {"server_rss_bytes", "ratio"})


def test_single_appends_report_latencies_too(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--single", "--concurrency", "8", "--messages", "200")

    assert report["latency_us"].keys() == {"p50", "p99", "p999"}
    assert report["settings"]["producers"] == 8


def test_transactions_are_compared_with_plain_appends(tmp_path: Path) -> None:
    *reports, large = bench(tmp_path, "txn", "--transactions", "400", "--concurrency", "8", "--large-mib", "20")

    assert large["settings"]["mebibytes"] == 20
    assert 0 < large["details"]["commit_milliseconds"]
    assert 0 < large["server_rss_bytes"]
    assert [report["settings"]["vchannels"] for report in reports] == [1, 4]
    for report in reports:
        assert report["latency_us"].keys() == {"p50", "p99", "p999"}
        rates = report["details"]
        assert rates["commits_per_second"] * 10 == pytest.approx(report["messages_per_second"], rel=0.01)
        assert 0 < report["ratio"]


def test_broadcasts_are_compared_with_appends(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "broadcast", "--broadcasts", "20", "--vchannels", "8")

    assert report["settings"]["vchannels"] == 8
    assert report["ratio"] == pytest.approx(report["latency_us"]["p50"] / report["floor"]["latency_us"], rel=0.01)
    assert 0 < report["details"]["ack_of_all_p50_us"]


def test_latency_is_compared_with_echo_and_sync(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "latency", "--messages", "40")

    assert 0 < report["latency_us"]["p50"] <= report["latency_us"]["p99"] <= report["latency_us"]["p999"]
    assert report["floor"].keys() == {"name", "latency_us"}
    assert report["ratio"] == pytest.approx(report["latency_us"]["p50"] / report["floor"]["latency_us"], rel=0.01)


def test_scan_reports_bytes_objects_and_raw_batches(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "scan", "--messages", "20000")

    assert report["settings"]["messages_per_second_of"] == "bytes objects"
    assert report["settings"]["megabytes_per_second_of"] == "raw batches"
    assert report["floor"].keys() == {"name", "megabytes_per_second"}
    assert all(0 < report[figure] for figure in FIGURES | {"ratio"})


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_reads_the_log_and_parquet(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "spark", "--messages", "10000", timeout_s=240)

    assert report["name"] == "spark"
    assert 0 < report["ratio"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_twenty_million_messages_do_not_age_the_server(tmp_path: Path) -> None:
    [report] = bench(tmp_path, "append", "--messages", "20000000", "--stalled-follower", timeout_s=900)

    assert report["server_rss_bytes"] < 500_000_000
    assert 0.8 <= report["details"]["last_tenth_to_first"]
    assert report["details"]["seek_p50_ms"] < 10
    assert report["details"]["restart_s"] < 3
