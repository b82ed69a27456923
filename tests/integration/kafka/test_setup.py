"""What a server and `tidelog engine create` refuse before a log is used, each with its own text and exit code."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import refused_start

ON_KAFKA = {"storage.kind": "kafka"}
GOOD = {
    "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false", "max.message.bytes": "1048576",
}  # fmt: skip


def created(kafka: KafkaProcesses, topic: str, *arguments: str) -> tuple[int, str]:
    """Return exit code and stderr of `tidelog engine create`."""
    result = run_command(["engine", "create", topic, "--engine.servers", kafka.servers, *arguments])
    return result.returncode, result.stderr.decode()


def on_topic(kafka: KafkaProcesses, topic: str) -> dict[str, object]:
    return {**ON_KAFKA, "engine.servers": kafka.servers, "engine.topic": topic}


def test_a_log_is_created_once(kafka: KafkaProcesses) -> None:
    assert created(kafka, "setup-once") == (0, "created the log 'setup-once'\n")
    code, said = created(kafka, "setup-once")
    assert (code, said) == (ExitCode.CONFLICT, "tidelog: the topic 'setup-once' exists: choose another name\n")


def test_a_log_that_exists_may_be_created_again_if_that_is_meant(kafka: KafkaProcesses) -> None:
    assert created(kafka, "setup-again", "--if-not-exists") == (0, "created the log 'setup-again'\n")
    assert created(kafka, "setup-again", "--if-not-exists") == (0, "the log 'setup-again' exists\n")
    kafka.create_topic("setup-strangers", GOOD)
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    producer.produce("setup-strangers", b"foreign", partition=0)
    assert producer.flush(30) == 0
    code, said = created(kafka, "setup-strangers", "--if-not-exists")
    assert code == ExitCode.BAD_CONFIG
    assert "the topic 'setup-strangers' exists, and its last positions have no record of a log" in said


def test_a_topic_whose_first_record_is_missing_is_finished(kafka: KafkaProcesses) -> None:
    """As a command that was killed between the two leaves it."""
    kafka.create_topic("setup-unfinished", GOOD)
    assert created(kafka, "setup-unfinished") == (0, "created the log 'setup-unfinished'\n")
    assert created(kafka, "setup-unfinished")[0] == ExitCode.CONFLICT


def test_more_copies_than_brokers_are_refused(kafka: KafkaProcesses) -> None:
    code, said = created(kafka, "setup-copies", "--replicas", "5")
    assert code == ExitCode.BAD_CONFIG
    assert "cannot create the topic 'setup-copies'" in said


def test_a_name_that_kafka_refuses_is_refused(kafka: KafkaProcesses) -> None:
    code, said = created(kafka, "setup/name")
    assert code == ExitCode.BAD_CONFIG
    assert "cannot create the topic 'setup/name'" in said


def test_a_server_never_creates_a_log(kafka: KafkaProcesses, tmp_path: Path) -> None:
    settings = {"engine.servers": kafka.servers, "cluster.node_id": "setup-none"}
    for _ in range(2):
        died = refused_start(tmp_path / "store", {**ON_KAFKA, **settings})
        assert died.code == ExitCode.BAD_CONFIG
        assert "there is no topic 'tidelog.single.setup-none': create the log with `tidelog engine" in died.errors


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("retention.ms", "604800000", "-1"),
        ("retention.bytes", "1000000", "-1"),
        ("unclean.leader.election.enable", "true", "false"),
        ("max.message.bytes", "500000", "at least 901024"),
    ],
)
def test_a_topic_with_a_setting_that_loses_records_is_refused(
    kafka: KafkaProcesses, tmp_path: Path, name: str, value: str, needed: str
) -> None:
    topic = f"setup-{name}"
    kafka.create_topic(topic, {**GOOD, name: value})
    died = refused_start(tmp_path / "store", on_topic(kafka, topic))
    assert died.code == ExitCode.BAD_CONFIG
    assert f"the topic '{topic}' has {name}={value}, and a log needs {needed}" in died.errors


def test_a_topic_with_several_partitions_is_refused(kafka: KafkaProcesses, tmp_path: Path) -> None:
    kafka.create_topic("setup-partitions", GOOD, partitions=2)
    died = refused_start(tmp_path / "store", on_topic(kafka, "setup-partitions"))
    assert died.code == ExitCode.BAD_CONFIG
    assert "the topic 'setup-partitions' has 2 partitions: a log needs 1" in died.errors


def test_a_topic_without_enough_copies_in_sync_is_refused(kafka: KafkaProcesses, tmp_path: Path) -> None:
    kafka.create_topic("setup-copies-missing", {**GOOD, "min.insync.replicas": "2"})
    died = refused_start(tmp_path / "store", on_topic(kafka, "setup-copies-missing"))
    assert died.code == ExitCode.UNAVAILABLE
    assert "of the topic 'setup-copies-missing', 1 replicas are in sync, and min.insync.replicas is 2" in died.errors


def test_a_topic_without_a_first_record_is_no_log(kafka: KafkaProcesses, tmp_path: Path) -> None:
    kafka.create_topic("setup-empty", GOOD)
    died = refused_start(tmp_path / "store", on_topic(kafka, "setup-empty"))
    assert died.code == ExitCode.DATA_LOSS
    assert "the log has no first record" in died.errors


def test_brokers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    died = refused_start(tmp_path / "store", {**ON_KAFKA, "engine.servers": servers, "engine.topic": "x"})
    assert died.code == ExitCode.UNAVAILABLE
    assert f"cannot describe the topic 'x' at {servers}" in died.errors
