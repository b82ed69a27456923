"""The commands that use Pulsar: ``tidelog doctor --pulsar`` and ``benchmarks msgstream-pulsar``."""

import json
import subprocess
import sys

from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import PYTHON_PATH
from tidelog_testing.servers.pulsar import PulsarProcess


def findings(*options: str) -> dict[str, tuple[str, str]]:
    """Return the findings about Pulsar: severity and text by check."""
    lines = run_command(["doctor", *options]).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return {each["check"]: (each["severity"], each["text"]) for each in found if each["check"].startswith("Pulsar")}


def test_the_doctor_checks_a_broker(pulsar: PulsarProcess) -> None:
    found = findings("--pulsar", pulsar.url, "--pulsar-admin", pulsar.admin_url)

    # The broker of the tests has one bookie, which a log would need more of.
    assert {name for name, (severity, _) in found.items() if severity != "ok"} == {"Pulsar log copies"}
    assert found["Pulsar log copies"][0] == "warning"
    assert "runs Pulsar Server4.0.7" in found["Pulsar"][1]
    assert "5242880 bytes" in found["Pulsar message size"][1]
    assert "may send and receive in public/default" in found["Pulsar permissions"][1]
    assert "retains only what subscriptions need" in found["Pulsar retention"][1]


def test_the_doctor_says_what_a_broker_without_its_api_lacks(pulsar: PulsarProcess) -> None:
    found = findings("--pulsar", pulsar.url)

    assert found["Pulsar permissions"] == (
        "warning", "the broker does not create topics: pass --pulsar-admin, or create each topic before it is used",
    )  # fmt: skip
    assert found["Pulsar retention"] == ("ok", "not checked: pass --pulsar-admin")


def benchmark(pulsar: PulsarProcess, *options: str) -> str:
    """Return what a short ``benchmarks msgstream-pulsar`` prints."""
    command = ["msgstream-pulsar", "--pulsar", pulsar.url, "--admin-url", pulsar.admin_url, *options]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *command, "--messages", "2000", "--intervals", "3"],
        capture_output=True, text=True, timeout=120, check=True, env={"PYTHONPATH": PYTHON_PATH},
    ).stdout  # fmt: skip


def test_the_benchmark_prints_its_floors(pulsar: PulsarProcess) -> None:
    reports = [json.loads(line) for line in benchmark(pulsar, "--json").splitlines()]

    assert [each["name"].rpartition(", ")[2] for each in reports] == ["produce", "consume", "delay of packs"]
    assert all(each["ratio"] > 0 and each["floor"] for each in reports)


def test_the_benchmark_prints_tables(pulsar: PulsarProcess) -> None:
    printed = benchmark(pulsar)

    assert printed.count("ratio to the floor") == 3
    assert "floor: a tick at a plain reader, p50" in printed
