"""A topic that was deleted and made again is another one, whatever records it has."""

import shutil
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tidelog_cli.exit_codes import ExitCode
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerProcess, refused_start

TOPIC = "topic-id"
_SOON_S = 30.0


def test_records_that_were_copied_to_a_new_topic_are_not_claimed(kafka: KafkaProcesses, tmp_path: Path) -> None:
    settings = {"storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": TOPIC}
    assert run_command(["engine", "create", TOPIC, "--engine.servers", kafka.servers]).returncode == ExitCode.OK
    with ServerProcess(tmp_path / "store", settings) as server:
        server.terminate()
        assert server.wait() == ExitCode.OK
    access = KafkaAccess(kafka.servers)
    former = access.engine(TOPIC)
    records = former.read(0, 1 << 20).records
    former.close()
    admin: Any = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.delete_topics([TOPIC])[TOPIC].result(_SOON_S)
    while TOPIC in admin.list_topics(timeout=_SOON_S).topics:
        admin.poll(0.05)
    access.create(TOPIC)
    access.check_created(TOPIC)
    copier = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for record in records:
        copier.produce(TOPIC, record.value, partition=0)
    assert copier.flush(_SOON_S) == 0

    copy = access.engine(TOPIC)
    before = copy.bounds()
    for _ in ("with a view", "without"):
        died = refused_start(tmp_path / "store", settings)
        assert died.code == ExitCode.DATA_LOSS
        assert f"log '{TOPIC}' was made in kafka under the id " in died.errors
        shutil.rmtree(tmp_path / "store")
    assert copy.bounds() == before
    copy.close()
