"""`tidelog doctor --kafka`: what a log needs of a Kafka, and whether this one has it."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.ports import free_ports

Findings = dict[str, tuple[str, str]]


def findings(*options: str) -> Findings:
    """Return the findings about Kafka: severity and text by check."""
    lines = run_command(["doctor", *options]).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return {each["check"]: (each["severity"], each["text"]) for each in found if each["check"].startswith("Kafka")}


def topics(kafka: KafkaProcesses) -> set[str]:
    admin: Any = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    return set(admin.list_topics(timeout=30).topics)


def test_the_doctor_uses_a_log_as_a_server_does_and_leaves_nothing(kafka: KafkaProcesses) -> None:
    found = findings("--kafka", kafka.servers)

    assert found["Kafka"] == ("ok", f"1 broker answers at {kafka.servers}")
    assert found["Kafka copies"][0] == "warning"
    assert "confirmed by 1 of 1 copies" in found["Kafka copies"][1]
    assert found["Kafka record size"] == ("ok", "records may have 900000 bytes, as a log needs")
    assert found["Kafka permissions"][0] == "ok"
    severity, text = found["Kafka appends"]
    assert severity == "ok"
    assert 0 < float(text.removeprefix("a confirmed append of 1000 bytes takes ").partition(" ms")[0]) < 5_000
    assert not [name for name in topics(kafka) if name.startswith("tidelog-doctor-")]


@pytest.mark.parametrize(
    ("topic", "severity", "text"),
    [
        ("doctor-none", "failure", "there is no topic 'doctor-none'"),
        ("doctor-compacted", "failure", "has cleanup.policy=compact, and a log needs delete"),
        ("doctor-log", "warning", "in the topic 'doctor-log' an append is confirmed by 1 of 1 copies"),
    ],
)
def test_the_doctor_checks_the_topic_of_the_log(kafka: KafkaProcesses, topic: str, severity: str, text: str) -> None:
    if topic == "doctor-compacted":
        kafka.create_topic(topic, {"cleanup.policy": "compact"})
    elif topic == "doctor-log":
        assert run_command(["engine", "create", topic, "--engine.servers", kafka.servers]).returncode == 0
    found = findings("--kafka", kafka.servers, "--engine.topic", topic)
    assert found["Kafka topic"][0] == severity
    assert text in found["Kafka topic"][1]


def test_brokers_that_do_not_answer_and_options_that_are_not_allowed_are_failures(tmp_path: Path) -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    found = findings("--kafka", servers)
    assert found.keys() == {"Kafka"}
    assert found["Kafka"][0] == "failure"
    assert f"cannot connect at {servers}" in found["Kafka"][1]
    (tmp_path / "options").write_text("acks=1\n")
    found = findings("--kafka", servers, "--engine.options_file", str(tmp_path / "options"))
    assert "the option acks may not be set" in found["Kafka"][1]
