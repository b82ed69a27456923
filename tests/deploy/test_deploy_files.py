"""The files of deploy/ keep their promises: tight containers, loopback ports, known settings, one set of defaults.

Method: the files as data, without an engine. `make check-deploy` has the checks that need other tools.
"""

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelog_server.config import load_config
from tidelog_server.config.layers import KEYS
from tidelog_testing.servers.compose import (
    COMPOSE_FILE,
    ENV_EXAMPLE,
    ROOT,
    dockerfile_of,
    image_variables,
    instruction,
    read_compose,
)

DEPLOY = ROOT / "deploy"
SERVICES: dict[str, dict[str, Any]] = read_compose()["services"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_tight(name: str) -> None:
    service = SERVICES[name]
    assert service["init"] is True
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert "stop_grace_period" in service
    assert service.get("privileged") is None
    assert all(text.startswith("127.0.0.1:") for text in service.get("ports", []))


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"spark", "certificates", "kafka-log", "pulsar-log"}))
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


def test_a_service_waits_until_what_it_needs_is_healthy() -> None:
    conditions = {
        condition["condition"] for service in SERVICES.values() for condition in service.get("depends_on", {}).values()
    }
    assert conditions == {"service_healthy", "service_completed_successfully"}


def test_the_grace_of_compose_is_longer_than_the_grace_of_the_server() -> None:
    for service in SERVICES.values():
        grace = service.get("environment", {}).get("TIDELOG_SERVER__SHUTDOWN_GRACE_S")
        assert grace is None or float(grace) < float(service["stop_grace_period"].removesuffix("s"))


def test_the_example_of_variables_has_exactly_the_defaults() -> None:
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE_FILE.read_text()))
    example = dict(re.findall(r"(?m)^(\w+)=(.*)$", ENV_EXAMPLE.read_text()))
    assert example == defaults


def test_the_compose_file_takes_values_from_variables() -> None:
    changed = read_compose({"TIDELOG_PORT": "9420"})["services"]["tidelog"]["ports"]
    assert changed[0] == "127.0.0.1:9420:7420"


def test_images_are_built_here_or_named_without_a_registry() -> None:
    named = [service["image"] for service in SERVICES.values()]
    named += re.findall(r"(?m)^FROM (\S+)", "".join(path.read_text() for path in DEPLOY.rglob("Dockerfile")))
    assert [image for image in named if "." in image.split("/")[0].split(":")[0] and "/" in image] == []


BUILT_HERE = sorted(name for name, service in SERVICES.items() if "build" in service)


@pytest.mark.parametrize("name", BUILT_HERE)
def test_no_registry_is_asked_for_an_image_that_is_built_here(name: str) -> None:
    assert SERVICES[name]["pull_policy"] == "never"


def test_every_check_is_frequent_while_its_service_starts_and_the_file_for_old_engines_takes_that_back() -> None:
    checked = {name for name, service in SERVICES.items() if "test" in service.get("healthcheck", {})}
    assert {SERVICES[name]["healthcheck"].get("start_interval") for name in checked} == {"1s"}
    old = (DEPLOY / "docker-compose.old-engine.yml").read_text()
    without = re.findall(r"(?m)^  ([a-z0-9-]+):\n    healthcheck: \{start_interval: !reset null\}$", old)
    assert sorted(without) == sorted(checked)


def test_a_container_asks_for_no_more_open_files_than_an_engine_allows_by_default() -> None:
    limits = {name: service["ulimits"]["nofile"] for name, service in SERVICES.items() if "ulimits" in service}
    assert set(limits) > {"tidelog", "node-1", "tidelog-tls"}
    assert {int(limit[kind]) for limit in limits.values() for kind in ("soft", "hard")} == {4096}


def test_the_profile_tls_serves_other_machines_when_variables_say_so() -> None:
    changed = read_compose({"TIDELOG_TLS_ADDRESS": "0.0.0.0"})["services"]["tidelog-tls"]["ports"]
    assert changed == ["0.0.0.0:7440:7420"]


def test_a_volume_for_backups_belongs_to_the_user_of_the_image() -> None:
    dockerfile = dockerfile_of(SERVICES["tidelog"])
    assert re.search(r"install --directory --mode 0700 --owner 65532 --group 65532 \S+ /backups$", dockerfile, re.M)
    for name, volume in (("tidelog", "backups"), ("tidelog-tls", "tls-backups")):
        assert f"{volume}:/backups" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", ["tidelog", "etcd", "spark"])
def test_an_image_runs_as_a_number_that_has_an_entry_among_its_users(name: str) -> None:
    dockerfile = dockerfile_of(SERVICES[name])
    assert re.search(r"(?m)^USER 65532:65532$", dockerfile)
    assert re.search(r"\bgroupadd --gid 65532 ", dockerfile)
    assert re.search(r"\buseradd --uid 65532 --gid 65532 ", dockerfile)


def test_the_image_begins_with_the_command_line() -> None:
    dockerfile = dockerfile_of(SERVICES["tidelog"])
    assert instruction(dockerfile, "ENTRYPOINT") == ["tidelog"]
    assert instruction(dockerfile, "CMD") == ["serve"]
    assert re.search(r'(?m)^  CMD \["tidelog", "check", "health", "--timeout", "2"\]$', dockerfile)
    assert instruction(dockerfile, "VOLUME") == ["/var/lib/tidelog"]


def settings_in_compose() -> set[str]:
    names = {name for service in SERVICES.values() for name in service.get("environment", {})}
    names |= set(image_variables(dockerfile_of(SERVICES["tidelog"])))
    return {name for name in names if name.startswith("TIDELOG_") and "__" in name}


def test_settings_in_variables_are_settings_of_the_server() -> None:
    keys = {name.removeprefix("TIDELOG_").lower().replace("__", ".") for name in settings_in_compose()}
    cluster = (DEPLOY / "kubernetes/overlays/etcd/cluster.env").read_text()
    keys |= {name.lower().replace("__", ".") for name in re.findall(r"(?m)^TIDELOG_(\w+)=", cluster)}
    assert keys - KEYS == set()


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("tidelog.toml")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_a_configuration_file_is_one_that_the_server_takes(path: Path) -> None:
    config = load_config(path, {}, {})
    assert str(config.storage.data_dir) == "/var/lib/tidelog/data"
    assert config.server.shutdown_grace_s == 20


def test_the_unit_does_not_start_again_what_a_person_must_look_at() -> None:
    unit = unit_of_systemd()["Service"]
    assert unit["RestartPreventExitStatus"].split() == ["65", "73", "75", "76", "77", "78"]
    assert unit["Restart"] == "on-failure"
    assert float(unit["TimeoutStopSec"]) > 20
    assert (unit["StateDirectory"], unit["UMask"]) == ("tidelog", "0077")


def test_nodes_of_the_profile_etcd_reach_each_other_by_the_names_of_their_containers() -> None:
    for node in ("node-1", "node-2", "node-3"):
        assert SERVICES[node]["environment"]["TIDELOG_CLUSTER__PEER_ADDRESS"] == f"{node}:7420"


def test_pods_of_the_overlay_etcd_may_call_each_other() -> None:
    folder = DEPLOY / "kubernetes" / "overlays" / "etcd"
    pods = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "tidelog"}}}]
    added = [(each["path"], each["value"]) for each in yaml.safe_load((folder / "networkpolicy.yaml").read_text())]
    assert ("/spec/ingress/-", {"from": pods, "ports": [{"port": "grpc"}]}) in added
    assert ("/spec/egress/-", {"to": pods, "ports": [{"port": "grpc"}]}) in added
    pod = yaml.safe_load((folder / "statefulset.yaml").read_text())["spec"]["template"]["spec"]
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"] if "value" in each}
    own_name = "$(TIDELOG_CLUSTER__NODE_ID).tidelog-pods.tidelog.svc:7420"
    assert variables["TIDELOG_CLUSTER__PEER_ADDRESS"] == own_name


def unit_of_systemd() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser's manual says
    parser.read(DEPLOY / "systemd" / "tidelog.service")
    return parser


def manifest(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "base" / f"{name}.yaml").read_text())
    return loaded


def test_pods_run_as_the_user_of_the_image_without_any_right() -> None:
    pod = manifest("statefulset")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (65532, True)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert manifest("serviceaccount")["automountServiceAccountToken"] is False
    assert set(container) >= {"startupProbe", "livenessProbe", "readinessProbe", "resources"}


def test_a_pod_has_a_volume_for_backups_but_in_a_cluster_whose_nodes_refuse_them() -> None:
    spec = manifest("statefulset")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["volumeMounts"][3] == {"name": "backups", "mountPath": "/backups"}
    assert spec["volumeClaimTemplates"][1]["metadata"]["name"] == "backups"
    removed = yaml.safe_load((DEPLOY / "kubernetes/overlays/etcd/backups.yaml").read_text())
    assert removed == [
        {"op": "remove", "path": "/spec/template/spec/containers/0/volumeMounts/3"},
        {"op": "remove", "path": "/spec/volumeClaimTemplates/1"},
    ]


def test_pods_services_budget_and_policy_select_the_same() -> None:
    label = {"app.kubernetes.io/name": "tidelog"}
    spec = manifest("statefulset")["spec"]
    assert spec["template"]["metadata"]["labels"] == label
    assert spec["selector"]["matchLabels"] == label
    assert manifest("poddisruptionbudget")["spec"]["selector"]["matchLabels"] == label
    assert manifest("networkpolicy")["spec"]["podSelector"]["matchLabels"] == label
    assert manifest("service")["spec"]["selector"] == manifest("service-headless")["spec"]["selector"] == label
    assert spec["serviceName"] == manifest("service-headless")["metadata"]["name"]


def test_the_port_of_metrics_serves_no_mailboxes_without_authentication() -> None:
    for name, service in SERVICES.items():
        variables = service.get("environment", {})
        if variables.get("TIDELOG_SERVER__INSECURE") == "true":
            assert variables["TIDELOG_MAILBOXES__HTTP_API"] == "false", name
    base = load_config(DEPLOY / "kubernetes" / "base" / "tidelog.toml", {}, {})
    assert (base.server.insecure, base.mailboxes.http_api) == (True, False)
