"""What a server and `tidelog engine` refuse before a log in Pulsar is used, each with its own text and exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import ServerProcess, refused_start
from tidelog_testing.servers.pulsar import PulsarProcess

Settings = Callable[[str], dict[str, object]]


@pytest.fixture
def flags(pulsar: PulsarProcess, namespace: str) -> list[str]:
    return [*pulsar.flags, "--engine.namespace", namespace]


@pytest.fixture
def settings(pulsar: PulsarProcess, namespace: str) -> Settings:
    return lambda topic: {**pulsar.settings(topic), "engine.namespace": namespace}


def created(topic: str, flags: list[str], *arguments: str) -> tuple[int, str]:
    """Return exit code and stderr of `tidelog engine create`."""
    result = run_command(["engine", "create", topic, *flags, *arguments])
    return result.returncode, result.stderr.decode()


def test_a_log_is_created_once(flags: list[str]) -> None:
    assert created("once", flags) == (0, "created the log 'once'\n")
    assert created("once", flags) == (ExitCode.CONFLICT, "tidelog: the topic 'once' exists: choose another name\n")
    assert created("once", flags, "--if-not-exists") == (0, "the log 'once' exists\n")
    code, said = created("copies", flags, "--replicas", "3")
    assert code == ExitCode.BAD_CONFIG
    assert "set it with `pulsar-admin namespaces set-persistence`" in said


def test_a_topic_that_a_killed_command_has_left_is_finished(pulsar: PulsarProcess, flags: list[str]) -> None:
    pulsar.access(flags[-1]).create("unfinished")
    assert created("unfinished", flags) == (0, "created the log 'unfinished'\n")
    assert created("unfinished", flags)[0] == ExitCode.CONFLICT


def test_a_topic_that_another_program_has_made_is_no_log(
    pulsar: PulsarProcess, flags: list[str], settings: Settings, tmp_path: Path
) -> None:
    pulsar.create_topic(f"persistent://{flags[-1]}/strangers")
    code, said = created("strangers", flags)
    assert code == ExitCode.BAD_CONFIG
    assert "the topic 'strangers' has no property tidelog.id" in said
    died = refused_start(tmp_path / "store", settings("strangers"))
    assert died.code == ExitCode.BAD_CONFIG
    assert "`tidelog engine create` did not create it" in died.errors


def test_a_server_never_creates_a_log(settings: Settings, tmp_path: Path) -> None:
    for _ in range(2):
        died = refused_start(tmp_path / "store", settings("missing"))
        assert died.code == ExitCode.BAD_CONFIG
        assert "there is no topic 'missing': create the log with `tidelog engine create missing`" in died.errors


@pytest.mark.parametrize(
    ("policy", "value", "said"),
    [
        ("messageTTL", 3_600, "has messageTTL=3600, and a log needs 0"),
        ("subscriptionExpirationTime", 5, "has subscriptionExpirationTime=5, and a log needs 0"),
        (
            "backlogQuota",
            {"limitSize": 1_000_000, "limitTime": -1, "policy": "consumer_backlog_eviction"},
            "has the backlog quota destination_storage with policy=consumer_backlog_eviction",
        ),
        (
            "inactiveTopicPolicies",
            {
                "deleteWhileInactive": True,
                "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
                "maxInactiveDurationSeconds": 60,
            },
            "has inactiveTopicDeleteMode=delete_when_subscriptions_caught_up",
        ),
    ],
)
def test_a_policy_that_deletes_records_is_refused(
    pulsar: PulsarProcess, tmp_path: Path, policy: str, value: object, said: str
) -> None:
    namespace = f"public/policy-{policy.lower()}"
    pulsar.create_namespace(namespace)
    flags = [*pulsar.flags, "--engine.namespace", namespace]
    assert created("log", flags)[0] == ExitCode.OK
    pulsar.set_policy(namespace, policy, value)
    died = refused_start(tmp_path / "store", {**pulsar.settings("log"), "engine.namespace": namespace})
    assert died.code == ExitCode.BAD_CONFIG
    assert f"topic 'log' {said}" in died.errors


def test_a_log_whose_subscription_was_deleted_is_refused(
    pulsar: PulsarProcess, flags: list[str], settings: Settings, tmp_path: Path
) -> None:
    assert created("unsubscribed", flags)[0] == ExitCode.OK
    pulsar.unsubscribe(f"persistent://{flags[-1]}/unsubscribed", "tidelog")
    died = refused_start(tmp_path / "store", settings("unsubscribed"))
    assert died.code == ExitCode.BAD_CONFIG
    assert "the topic 'unsubscribed' has no subscription 'tidelog'" in died.errors


def test_logs_are_listed_with_their_end_and_other_topics_are_not(pulsar: PulsarProcess, tmp_path: Path) -> None:
    namespace = "public/listed"
    pulsar.create_namespace(namespace)
    flags = [*pulsar.flags, "--engine.namespace", namespace]
    for topic in ("tidelog.single.ls-1", "own-name"):
        assert created(topic, flags)[0] == ExitCode.OK
    pulsar.create_topic(f"persistent://{namespace}/strangers")
    settings = {**pulsar.settings("tidelog.single.ls-1"), "engine.namespace": namespace}
    with ServerProcess(tmp_path / "store", settings) as server, Client(server.grpc) as client:
        client.create_channel("orders")
        client.append("orders", b"1")
        client.append("orders", b"2")
        server.terminate()
        server.wait()
    # Its last ledger is empty now.
    pulsar.close_ledger(f"persistent://{namespace}/tidelog.single.ls-1")
    result = run_command(["engine", "ls", *flags, "-o", "json"])
    assert (result.returncode, result.stderr) == (0, b"")
    found = {each["log"]: each for each in json.loads(result.stdout)}
    assert found.keys() == {"tidelog.single.ls-1", "own-name"}
    served = found["tidelog.single.ls-1"]
    assert (served["cluster"], served["node"], served["replicas"], served["in_sync"]) == ("single", "ls-1", 1, None)
    assert (served["term"], served["entries"], served["problem"]) == (1, 2, "")
    assert (found["own-name"]["term"], found["own-name"]["entries"]) == (0, None)


def test_brokers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    settings = {
        "storage.kind": "pulsar", "engine.service_url": f"pulsar://127.0.0.1:{port}", "engine.topic": "x",
        "engine.admin_url": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    died = refused_start(tmp_path / "store", settings)
    assert died.code == ExitCode.UNAVAILABLE
    assert f"Pulsar's administration API at http://127.0.0.1:{port} does not answer" in died.errors


def test_the_doctor_uses_a_log_as_a_server_does_and_leaves_nothing(pulsar: PulsarProcess) -> None:
    namespace = "public/doctor"
    pulsar.create_namespace(namespace)
    at = ["--pulsar", pulsar.url, "--pulsar-admin", pulsar.admin_url, "--pulsar-namespace", namespace]
    assert created("log", [*pulsar.flags, "--engine.namespace", namespace])[0] == ExitCode.OK
    lines = run_command(["doctor", *at, "--engine.topic", "log"]).stdout.splitlines()
    found = {each["check"]: (each["severity"], each["text"]) for each in map(json.loads, lines)}
    assert found["Pulsar log"][0] == "ok"
    assert found["Pulsar log topic"][0] == found["Pulsar log copies"][0] == "warning"
    assert "an append is confirmed by 1 of 1 copies" in found["Pulsar log copies"][1]
    assert found["Pulsar log record size"] == ("ok", "records may have 900000 bytes, as a log needs")
    assert found["Pulsar log permissions"][0] == "ok"
    assert found["Pulsar log appends"][1].startswith("a confirmed append of 1000 bytes takes ")
    assert [each.name for each in pulsar.access(namespace).find_topics()] == ["log"]
