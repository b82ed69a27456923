"""`tidelog bench --kafka` and `--pulsar`: benchmarks run against a real engine, report floors, and leave no topic.

Method: each with very few messages in a process of its own. The figures mean nothing here.
"""

import json
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_server.commands.bench.measures.engine import Shape, shape_between
from tidelog_server.recordlog.records import MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES
from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.commands import run_command


@pytest.mark.parametrize(
    ("command", "options", "figures"),
    [
        ("append", ["--messages", "20000"], {"messages_per_second", "megabytes_per_second"}),
        ("latency", ["--messages", "60"], {"messages_per_second", "latency_us"}),
        ("scan", ["--messages", "20000", "--size", "1000"], {"megabytes_per_second"}),
    ],
)
def test_a_benchmark_reports_its_floor_and_deletes_its_topics(
    broker: Broker, tmp_path: Path, command: str, options: list[str], figures: set[str]
) -> None:
    result = run_command(["bench", command, *broker.bench_flags, "--folder", str(tmp_path), "--json", *options])
    assert result.returncode == ExitCode.OK, result.stderr
    [report] = map(json.loads, result.stdout.splitlines())
    assert report["name"] == f"{command} on {broker.system}"
    assert figures <= report.keys()
    assert report["ratio"] > 0
    assert list(tmp_path.iterdir()) == []
    assert not [name for name in broker.topics() if name.startswith("tidelog-bench-")]


@pytest.mark.parametrize("other", [["--endpoint", "127.0.0.1:1"], ["--single"], ["--stalled-follower"]])
def test_options_that_exclude_each_other_are_refused(other: list[str]) -> None:
    result = run_command(["bench", "append", "--kafka", "127.0.0.1:1", *other])
    assert result.returncode == ExitCode.USAGE
    assert f"--kafka or --pulsar, and {other[0]}, are both given".encode() in result.stderr


def test_one_engine_is_measured() -> None:
    result = run_command(["bench", "append", "--kafka", "127.0.0.1:1", "--pulsar", "pulsar://127.0.0.1:1"])
    assert result.returncode == ExitCode.USAGE
    assert b"--kafka and --pulsar are both given" in result.stderr


def test_the_floor_has_the_records_of_the_server() -> None:
    header = MAX_RECORD_BYTES - MAX_PAYLOAD_BYTES
    assert Shape(1, 500).records() == [500 + header]
    assert Shape(1, 2 * MAX_PAYLOAD_BYTES).records() == [MAX_RECORD_BYTES, MAX_RECORD_BYTES]
    assert Shape(1, MAX_PAYLOAD_BYTES + 7).records() == [MAX_RECORD_BYTES, 7 + header]
    before = {"tidelog_log_confirm_seconds_count": 3.0, "tidelog_log_appended_bytes_total": 100.0}
    after = {"tidelog_log_confirm_seconds_count": 7.0, "tidelog_log_appended_bytes_total": 2_100.0}
    assert shape_between(before, after) == Shape(4, 500)
