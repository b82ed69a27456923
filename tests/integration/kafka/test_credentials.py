"""A Kafka with authentication and ACLs: what a server is refused there is named."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # public

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerProcess, refused_start

TOPIC: Final = "secured"
_JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="of-admin" user_admin="of-admin" user_tidelog="of-tidelog";'
)
_SETTINGS: Final = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controllers speak without authentication.
    "super.users": "User:admin;User:ANONYMOUS",
}  # fmt: skip


def options(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": user,
        "sasl.password": password,
    }  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcesses]:
    folder = tmp_path_factory.mktemp("secured")
    with KafkaProcesses(folder, settings=_SETTINGS, options=options("admin", "of-admin")) as running:
        yield running


def flags(kafka: KafkaProcesses, folder: Path, user: str, password: str) -> dict[str, object]:
    path = folder / f"options-of-{user}"
    path.write_text("".join(f"{name}={value}\n" for name, value in options(user, password).items()))
    return {
        "storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": TOPIC, "engine.options_file": path,
    }  # fmt: skip


def test_each_operation_that_is_not_permitted_is_named(secured: KafkaProcesses, tmp_path: Path) -> None:
    topic = "restricted"
    admin, user = (
        {**flags(secured, tmp_path, name, f"of-{name}"), "engine.topic": topic} for name in ("admin", "tidelog")
    )

    def create(settings: dict[str, object]) -> tuple[int, bytes]:
        ran = run_command(["engine", "create", topic, *(f"--{name}={value}" for name, value in settings.items())])
        return ran.returncode, ran.stderr

    code, said = create(user)
    assert code == ExitCode.BAD_CONFIG
    assert f"Kafka does not permit to create the topic '{topic}': grant it to the user".encode() in said
    assert create(admin)[0] == ExitCode.OK
    # An operation that the user needs further for each step, and what is named without it.
    steps = [
        (None, "describe"), (AclOperation.DESCRIBE, "describe"), (AclOperation.DESCRIBE_CONFIGS, "read"),
        (AclOperation.READ, "write to"),
    ]  # fmt: skip
    for operation, named in steps:
        if operation is not None:
            secured.permit("tidelog", topic, operation)
        died = refused_start(tmp_path / "store", user)
        assert died.code == ExitCode.BAD_CONFIG
        assert f"Kafka does not permit to {named} the topic '{topic}': grant it to the user of this" in died.errors
    secured.permit("tidelog", topic, AclOperation.WRITE)
    with ServerProcess(tmp_path / "store", user) as server:
        assert server.get("/readyz")[0] == 200


def test_a_server_with_its_credentials_starts_and_others_are_refused(secured: KafkaProcesses, tmp_path: Path) -> None:
    settings = flags(secured, tmp_path, "admin", "of-admin")
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    result = run_command(["engine", "create", TOPIC, *arguments])
    assert result.returncode == ExitCode.OK, result.stderr
    with ServerProcess(tmp_path / "store", settings) as server:
        assert server.get("/readyz")[0] == 200

    died = refused_start(tmp_path / "other", flags(secured, tmp_path, "tidelog", "of-tidelog"))
    assert died.code == ExitCode.BAD_CONFIG
    assert f"Kafka does not permit to describe the topic '{TOPIC}'" in died.errors

    died = refused_start(tmp_path / "other", flags(secured, tmp_path, "tidelog", "wrong"))
    assert died.code == ExitCode.BAD_CONFIG
    assert "Kafka refused the connection" in died.errors
    assert "wrong" not in died.errors


def test_the_doctor_names_what_a_user_may_not_do(secured: KafkaProcesses, tmp_path: Path) -> None:
    def found(user: str, password: str) -> dict[str, tuple[str, str]]:
        path = flags(secured, tmp_path, user, password)["engine.options_file"]
        lines = run_command(["doctor", "--kafka", secured.servers, "--engine.options_file", str(path)]).stdout
        records = map(json.loads, lines.splitlines())
        return {each["check"]: (each["severity"], each["text"]) for each in records}

    assert found("admin", "of-admin")["Kafka permissions"][0] == "ok"
    wrong = found("tidelog", "wrong")["Kafka"]
    assert wrong[0] == "failure"
    assert "Kafka refused the connection" in wrong[1]

    denied = found("tidelog", "of-tidelog")["Kafka permissions"]
    assert denied[0] == "warning"
    assert "Kafka does not permit to create the topic 'tidelog-doctor-" in denied[1]

    def permit(*operations: AclOperation) -> None:
        secured.permit("tidelog", "tidelog-doctor-", *operations, is_prefix=True)

    permit(AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE)
    denied = found("tidelog", "of-tidelog")["Kafka permissions"]
    assert denied[0] == "failure"
    assert "cannot append a record: Kafka does not permit to write to the topic 'tidelog-doctor-" in denied[1]
    permit(AclOperation.WRITE)
    denied = found("tidelog", "of-tidelog")["Kafka permissions"]
    assert denied[0] == "failure"
    assert "cannot read records: Kafka does not permit to read the topic 'tidelog-doctor-" in denied[1]
    permit(AclOperation.READ)
    assert found("tidelog", "of-tidelog")["Kafka permissions"][0] == "ok"
