"""`benchmarks engine`: replays, takeovers and starts run against a real Kafka, report their floors, and leave nothing.

Method: each in a short form, in a process of its own. The figures mean nothing here.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks.engine.takeover import pause_s
from tidelog_testing.servers.commands import json_output
from tidelog_testing.servers.etcd import needs_etcd
from tidelog_testing.servers.kafka import KafkaProcesses

_TURNS = {"speed_min", "speed_max", "seconds", "floor_seconds", "cpu_s", "floor_cpu_s", "cpu_ratio"}
_WITHIN_S = 240


def reported(folder: Path, kafka: KafkaProcesses, command: str, *options: str) -> dict[str, Any]:
    """Return the report of ``benchmarks engine COMMAND`` (asserted: the only one, and nothing is left)."""
    command_line = [sys.executable, "-m", "benchmarks", "engine", command, "--kafka", kafka.servers, "--json", *options]
    [report] = json_output(command_line, folder, _WITHIN_S)
    admin: Any = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    assert not [name for name in admin.list_topics(timeout=30).topics if name.startswith("tidelog-bench-")]
    assert report["ratio"] > 0
    return dict(report)


def test_replays(kafka: KafkaProcesses, tmp_path: Path) -> None:
    options = ["--mib", "2", "--group-entries", "10", "--vchannels", "3", "--rounds", "2"]
    report = reported(tmp_path, kafka, "replay", *options)
    assert report["settings"] == {"mib": 2, "entry_bytes": 1_024, "group_entries": 10, "vchannels": 3, "rounds": 2}
    assert report["details"].keys() >= _TURNS
    assert min(report["details"][name] for name in _TURNS) > 0
    assert report["floor"].keys() == {"name", "megabytes_per_second"}


def test_starts(kafka: KafkaProcesses, tmp_path: Path) -> None:
    report = reported(tmp_path, kafka, "start", "--vchannels", "1002", "--mib", "1", "--rounds", "1")
    assert report["settings"] == {"vchannels": 1_002, "mib": 1, "entry_bytes": 10_000, "rounds": 1}
    figures = _TURNS | {"without_view_seconds", "without_view_seconds_max", "without_view_cpu_s", "snapshots"}
    assert report["details"].keys() >= figures
    assert min(report["details"][name] for name in figures - {"snapshots"}) > 0


@needs_etcd
@pytest.mark.parametrize(("end", "lease_ttl_s"), [("SIGKILL", 2), ("SIGTERM", 300)])
def test_takeovers(kafka: KafkaProcesses, tmp_path: Path, end: str, lease_ttl_s: int) -> None:
    options = ["--end", end, "--rounds", "2", "--vchannels", "20", "--lease-ttl-s", f"{lease_ttl_s}", "--rate", "100"]
    report = reported(tmp_path, kafka, "takeover", *options)
    assert report["settings"] == {"rounds": 2, "vchannels": 20, "lease_ttl_s": lease_ttl_s, "rate": 100}
    details = report["details"]
    assert details["followed_share"] == 1
    assert details["acknowledged"] > 0
    # Details have three decimals.
    assert 0 < report["latency_us"]["p50"] <= report["latency_us"]["p99"] <= 1e6 * (details["pause_max_s"] + 0.001)
    if end == "SIGTERM":
        # A client with default settings follows the node, whose lease nothing here waits for.
        assert details["errors"] == details["lost_leases"] == 0
    else:
        assert report["latency_us"]["p50"] / 1e6 - 2 == pytest.approx(details["p50_beyond_lease_s"], abs=0.01)


def test_a_pause_ends_after_the_longest_time_without_an_acknowledgement() -> None:
    # The former owner still acknowledges at 10.1; the next one begins at 12.5, and is slow once.
    assert pause_s([9.0, 9.9, 10.1, 12.5, 12.6, 13.6], 10.0) == pytest.approx(2.5)
    assert pause_s([9.0, 10.4, 10.5], 10.0) == pytest.approx(0.4)
