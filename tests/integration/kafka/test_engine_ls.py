"""`tidelog engine ls`: the logs in a Kafka, those with other names and broken ones included."""

import json
from pathlib import Path

from confluent_kafka import Producer

from tidelog import Client
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import ServerProcess

FIT = {"retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"}


def test_logs_are_listed_with_their_end_and_other_topics_are_not(kafka: KafkaProcesses, tmp_path: Path) -> None:
    at = ["--engine.servers", kafka.servers]
    for topic in ("tidelog.single.ls-1", "ls-own-name"):
        assert run_command(["engine", "create", topic, *at]).returncode == ExitCode.OK
    kafka.create_topic("ls-strangers", FIT)
    kafka.create_topic("tidelog.blue.ls-2", {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    producer.produce("ls-strangers", b"foreign", partition=0)
    assert producer.flush(30) == 0
    settings = {"storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": "tidelog.single.ls-1"}
    with ServerProcess(tmp_path / "store", settings) as server, Client(server.grpc) as client:
        client.create_channel("orders")
        client.append("orders", b"1")
        client.append("orders", b"2")
        server.terminate()
        server.wait()

    result = run_command(["engine", "ls", *at, "-o", "json"])
    assert (result.returncode, result.stderr) == (0, b"")
    found = {each["log"]: each for each in json.loads(result.stdout) if "ls-" in each["log"]}
    assert found.keys() == {"tidelog.single.ls-1", "ls-own-name", "tidelog.blue.ls-2"}
    served = found["tidelog.single.ls-1"]
    assert (served["cluster"], served["node"], served["replicas"], served["in_sync"]) == ("single", "ls-1", 1, 1)
    assert (served["term"], served["entries"], served["problem"]) == (1, 2, "")
    assert served["end"] > 4
    assert (found["ls-own-name"]["term"], found["ls-own-name"]["end"]) == (0, 1)
    broken = found["tidelog.blue.ls-2"]
    assert (broken["cluster"], broken["node"], broken["term"]) == ("blue", "ls-2", None)
    assert "has cleanup.policy=compact, and a log needs delete" in broken["problem"]


def test_brokers_that_do_not_answer_are_named() -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    result = run_command(["engine", "ls", "--engine.servers", servers])
    assert result.returncode == ExitCode.UNAVAILABLE
    assert f"cannot list the topics at {servers}".encode() in result.stderr
