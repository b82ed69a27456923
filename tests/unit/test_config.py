"""Configuration: four layers, one name per setting, nothing ignored.

Method: whole configurations are loaded from literal files, environments and flags; typos are drawn by hypothesis.
"""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog_server.app import _told_settings
from tidelog_server.config import Config, ConfigError, claim_path, describe_settings, is_exposed, load_config
from tidelog_server.config.layers import KEYS
from tidelog_server.core.limits import Limits

ALL_KEYS = sorted(KEYS)


def problems_of(
    file: Path | None = None, environ: dict[str, str] | None = None, flags: dict[str, str] | None = None
) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ or {}, flags or {})
    return str(caught.value)


def a_file(folder: Path, text: str) -> Path:
    path = folder / "tidelog.toml"
    path.write_text(text)
    return path


def with_flags(**flags: str) -> Config:
    return load_config(None, {}, {name.replace("__", "."): value for name, value in flags.items()})


def test_without_any_layer_everything_is_built_in() -> None:
    config = load_config(None, {"PATH": "/bin"}, {})

    assert (config.server.host, config.server.grpc_port, config.server.http_port) == ("127.0.0.1", 7420, 7421)
    assert (config.storage.kind, config.storage.durability) == ("rocksdb", "sync")
    assert config.limits.to_limits() == Limits()
    assert set(config.origins.values()) == {"built-in"}


def test_a_later_layer_wins_and_is_named_as_origin(tmp_path: Path) -> None:
    path = a_file(tmp_path, '[log]\nlevel = "error"\n[server]\ngrpc_port = 1\nhttp_port = 1\nshutdown_grace_s = 1\n')
    environ = {"TIDELOG_SERVER__HTTP_PORT": "2", "TIDELOG_SERVER__GRPC_PORT": "2"}

    config = load_config(path, environ, {"server.grpc_port": "3"})

    assert (config.server.grpc_port, config.server.http_port, config.server.shutdown_grace_s) == (3, 2, 1.0)
    assert config.log.level == "error"
    assert config.origins["server.grpc_port"] == "flag --server.grpc_port"
    assert config.origins["server.http_port"] == "environment TIDELOG_SERVER__HTTP_PORT"
    assert config.origins["server.shutdown_grace_s"] == f"{path}:6"
    assert config.origins["log.level"] == f"{path}:2"
    assert config.origins["log.format"] == "built-in"


def test_the_line_of_a_dotted_key_is_found(tmp_path: Path) -> None:
    path = a_file(tmp_path, '# a comment\nstorage.durability = "os"\n')

    assert load_config(path, {}, {}).origins["storage.durability"] == f"{path}:2"


def test_the_configuration_cannot_be_changed() -> None:
    config = load_config(None, {}, {})

    with pytest.raises(ValueError, match="frozen"):
        config.server.grpc_port = 1


def test_limits_take_units() -> None:
    config = with_flags(limits__tail_ring_bytes="16MiB", limits__max_message_bytes="1000")

    assert config.limits.tail_ring_bytes == 16 << 20
    assert config.limits.max_message_bytes == 1_000
    assert config.texts["limits.tail_ring_bytes"] == "16MiB"


def is_one_letter_off(left: str, right: str) -> bool:
    return len(left) == len(right) and sum(a != b for a, b in zip(left, right, strict=True)) <= 1


@given(key=st.sampled_from(ALL_KEYS), position=st.integers(0, 40), letter=st.sampled_from("aeiourstnl_"))
def test_a_typo_in_any_layer_is_refused_and_the_right_key_suggested(
    key: str, position: int, letter: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    section, name = key.split(".")
    position %= len(name)
    typo = name[:position] + letter + name[position + 1 :]
    assume(f"{section}.{typo}" not in KEYS)
    # A letter in place of another may lie as near to a second key: `http_hort` is a port as much as a host.
    assume(sum(is_one_letter_off(f"{section}.{typo}", known) for known in ALL_KEYS) == 1)
    file = a_file(tmp_path_factory.mktemp("typo"), f"[{section}]\n{typo} = 1\n")
    variable = f"TIDELOG_{section}__{typo}".upper()

    assert f"did you mean '{key}'?" in problems_of(file)
    assert f"did you mean 'TIDELOG_{key.upper().replace('.', '__')}'?" in problems_of(environ={variable: "1"})
    assert f"did you mean '--{key}'?" in problems_of(flags={f"{section}.{typo}": "1"})


def test_a_key_in_the_wrong_section_is_refused_with_the_right_one() -> None:
    assert "did you mean '--storage.durability'?" in problems_of(flags={"server.durability": "os"})


def test_a_section_that_is_a_value_is_refused(tmp_path: Path) -> None:
    assert "unknown setting 'storage'" in problems_of(a_file(tmp_path, "storage = 1\n"))


def test_unknown_keys_of_all_layers_are_reported_together(tmp_path: Path) -> None:
    text = problems_of(a_file(tmp_path, "[zzz]\na = 1\n"), {"TIDELOG_ZZZ": "1"}, {"zzz": "1"})

    assert len(text.splitlines()) == 3
    assert "tidelog.toml:2" in text


def test_unknown_keys_and_values_that_are_not_allowed_are_reported_together(tmp_path: Path) -> None:
    file = a_file(tmp_path, '[storage]\ndurabilty = "os"\ndurability = "sink"\n')

    unknown, port, value = problems_of(file, flags={"server.grpc_port": "70000"}).splitlines()

    assert "did you mean 'storage.durability'?" in unknown
    assert value.startswith(f"storage.durability = 'sink' ({file}:3) is not allowed")
    assert port.startswith("server.grpc_port = '70000'")


def test_a_password_in_an_address_is_not_in_the_error() -> None:
    text = problems_of(flags={"metadata.kind": "etcd", "metadata.etcd_endpoints": "http://root:hunter2@etcd:2379"})

    assert "http://root:********@etcd:2379" in text
    assert "hunter2" not in text


def test_the_audit_log_gets_changed_settings_without_passwords() -> None:
    config = load_config(None, {}, {"tracing.endpoint": "http://me:hunter2@otel:4318", "log.level": "debug"})

    assert _told_settings(config) == {"tracing.endpoint": "http://me:********@otel:4318", "log.level": "debug"}


def test_variables_that_are_no_settings_are_allowed() -> None:
    environ = {"TIDELOG_ENDPOINT": "127.0.0.1:1", "TIDELOG_FAILPOINT": "", "TIDELOG_CONFIG": "x"}

    assert set(load_config(None, environ, {}).origins.values()) == {"built-in"}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("storage.durability", "sink", "'sync' or 'os'"),
        ("server.grpc_port", "70000", "less than or equal to 65535"),
        ("server.insecure", "perhaps", "boolean"),
        ("server.insecure", "1", "a boolean, true or false"),
        ("server.insecure", "yes", "a boolean, true or false"),
        ("server.reflection", "off", "a boolean, true or false"),
        ("mailboxes.http_api", "f", "a boolean, true or false"),
        ("metrics.per_mailbox", "", "a boolean, true or false"),
        ("limits.tail_ring_bytes", "many", "could not parse"),
        ("limits.tail_ring_bytes", "0", "greater than 0"),
        ("log.slow_append_ms", "-1", "greater than or equal to 0"),
        ("server.shutdown_grace_s", "nan", "finite"),
        ("server.host", "", "at least 1 character"),
    ],
)
def test_a_bad_value_names_key_value_origin_and_what_is_allowed(key: str, value: str, expected: str) -> None:
    text = problems_of(flags={key: value})

    assert text.startswith(f"{key} = '{value}' (flag --{key}) is not allowed: ")
    assert expected in text


@pytest.mark.parametrize("written", ["1", "0", '"yes"', '"on"', "1.0", '"1"', '""'])
def test_what_is_not_written_as_a_boolean_is_refused_in_files_too(tmp_path: Path, written: str) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text(f"[server]\ninsecure = {written}\n")
    with pytest.raises(ConfigError, match=r"tidelog\.toml:2.*a boolean, true or false"):
        load_config(file, {}, {})
    with pytest.raises(ConfigError, match=r"environment TIDELOG_SERVER__INSECURE.*a boolean, true or false"):
        load_config(None, {"TIDELOG_SERVER__INSECURE": written}, {})
    for right in ("true", "True"):
        assert load_config(None, {"TIDELOG_SERVER__INSECURE": right}, {}).server.insecure


def test_a_limit_above_the_one_that_contains_it_is_refused() -> None:
    text = problems_of(flags={"limits.max_message_bytes": "8MiB"})

    assert "limits.max_message_bytes = 8MiB" in text or "limits.max_message_bytes = '8MiB'" in text
    assert "at most limits.max_batch_bytes, which is 4194304 bytes" in text


@pytest.mark.parametrize(
    "prefix", ["pandora", "/", "/pandora/", "/metrics", "/livez/x", "/api/v1", "/api/v1/x", "/a b"]
)
def test_a_path_that_is_taken_or_is_none_is_refused(prefix: str) -> None:
    assert "expected a path such as /pandora" in problems_of(flags={"mailboxes.http_prefix": prefix})


@pytest.mark.parametrize("prefix", ["/pandora", "/a/b", "/api/v10", "/api", "/metrics2"])
def test_another_path_is_accepted(prefix: str) -> None:
    assert with_flags(mailboxes__http_prefix=prefix).mailboxes.http_prefix == prefix


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
@pytest.mark.parametrize("key", ["server.host", "server.http_host"])
def test_an_address_beyond_this_machine_needs_a_word_from_the_operator(key: str, host: str) -> None:
    assert "server.insecure = true" in problems_of(flags={key: host})
    assert load_config(None, {}, {key: host, "server.insecure": "true"}).texts[key] == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_addresses_need_none(host: str) -> None:
    assert with_flags(server__host=host).server.host == host


def test_a_missing_file_and_a_broken_one_are_refused(tmp_path: Path) -> None:
    assert "No such file" in problems_of(tmp_path / "nothing.toml")
    assert "is not a valid TOML file" in problems_of(a_file(tmp_path, "[server\n"))


def test_every_setting_is_described() -> None:
    descriptions = describe_settings()

    assert {setting.key for setting in descriptions} == KEYS
    assert all(setting.text and setting.default for setting in descriptions)


def test_what_is_shown_can_be_loaded_again() -> None:
    config = load_config(None, {}, {})

    assert load_config(None, {}, dict(config.texts)).limits == config.limits


@pytest.mark.parametrize(
    ("flags", "exposed"),
    [
        ({}, False),
        ({"server.insecure": "true"}, False),
        ({"server.host": "0.0.0.0", "server.insecure": "true"}, True),
        ({"server.http_host": "10.0.0.1", "server.insecure": "true"}, True),
        ({"server.host": "0.0.0.0", "server.insecure": "true", "auth.kind": "on"}, True),
        ({"server.host": "0.0.0.0", "auth.kind": "on", "tls.cert": "a", "tls.key": "b"}, False),
    ],
)
def test_a_server_that_lets_others_in_unprotected_knows_it(flags: dict[str, str], exposed: bool) -> None:
    config = load_config(None, {}, flags)
    assert is_exposed(config.server, config.tls, config.auth) == exposed


IN_A_CLUSTER = {"metadata.kind": "etcd", "metadata.etcd_endpoints": "e:2379", "cluster.node_id": "n1"}


def test_a_node_that_listens_on_all_addresses_must_say_where_clients_reach_it() -> None:
    on_all = {**IN_A_CLUSTER, "server.host": "0.0.0.0", "server.insecure": "true"}
    assert "cluster.advertise" in problems_of(flags=on_all)
    assert load_config(None, {}, {**on_all, "cluster.advertise": "n1.example:7420"}).cluster.peer_address == ""


@pytest.mark.parametrize("setting", ["cluster.advertise", "cluster.peer_address"])
@pytest.mark.parametrize("address", ["n1.example", "0.0.0.0:7420", "[::]:7420"])
def test_an_address_of_a_node_is_one_to_connect_to(setting: str, address: str) -> None:
    assert setting in problems_of(flags={**IN_A_CLUSTER, setting: address})


ON_KAFKA = {"storage.kind": "kafka", "engine.servers": "k1:9092, [::1]:9093", "cluster.node_id": "n1"}


def test_a_log_in_kafka_is_named_by_its_node_or_its_topic() -> None:
    config = load_config(None, {}, ON_KAFKA)
    assert config.engine.addresses() == ("k1:9092", "[::1]:9093")
    assert config.engine.topic_of(config.cluster.node_id) == "tidelog.single.n1"
    config = load_config(None, {}, {**ON_KAFKA, "engine.topic": "logs.n1", "cluster.node_id": ""})
    assert config.engine.topic_of(config.cluster.node_id) == "logs.n1"
    # Without a log in Kafka, nothing of it is needed.
    assert load_config(None, {}, {}).engine.addresses() == ()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"engine.servers": ""}, "engine.servers"),
        ({"engine.servers": "k1"}, "engine.servers"),
        ({"engine.servers": "k1:9092,"}, ""),
        ({"engine.topic": "a/b"}, "engine.topic"),
        ({"engine.topic": ".."}, "engine.topic"),
        ({"engine.topic": "x" * 250}, "engine.topic"),
        ({"cluster.node_id": ""}, "engine.topic"),
        ({"engine.cache_bytes": "1000"}, "engine.cache_bytes"),
        (
            {"metadata.kind": "memory"},
            "metadata.kind = 'memory'",
        ),
        ({"cluster.node_id": "auto"}, "cluster.node_id = 'auto'"),
        ({"engine.follows": "0"}, "engine.follows"),
        ({"engine.follows": "65"}, "engine.follows"),
        ({**IN_A_CLUSTER, "engine.topic": "logs.n1"}, "engine.topic = 'logs.n1'"),
        ({**IN_A_CLUSTER, "cluster.name": "a.b"}, "cluster.name = 'a.b'"),
    ],
)
def test_settings_of_a_log_in_kafka_that_do_not_fit_are_named(flags: dict[str, str], named: str) -> None:
    flags = {**ON_KAFKA, **flags}
    if named:
        assert named in problems_of(flags=flags)
    else:
        assert load_config(None, {}, flags).engine.addresses() == ("k1:9092",)


@pytest.mark.parametrize("flags", [{}, IN_A_CLUSTER, {"storage.kind": "memory"}])
def test_any_node_needs_a_cluster_and_an_engine(flags: dict[str, str]) -> None:
    problems = problems_of(flags={**flags, "cluster.node_id": "auto"})
    assert "cluster.node_id = 'auto' (flag --cluster.node_id) is not allowed: expected the name of this" in problems
    assert "auto needs metadata.kind = etcd and storage.kind = kafka" in problems


@pytest.mark.parametrize(("node_id", "is_any"), [("auto", True), ("n1", False)])
def test_nodes_of_a_cluster_may_have_their_logs_in_kafka(node_id: str, is_any: bool) -> None:
    flags = {**ON_KAFKA, **IN_A_CLUSTER, "cluster.node_id": node_id, "cluster.name": "prod"}
    config = load_config(None, {}, flags)
    assert config.cluster.serves_any_node is is_any
    assert config.engine.topic_of("n1", config.cluster.name) == "tidelog.prod.n1"


def test_a_cluster_needs_a_log_that_outlives_its_processes() -> None:
    assert "storage.kind = 'memory'" in problems_of(flags={**IN_A_CLUSTER, "storage.kind": "memory"})


def test_a_log_in_kafka_needs_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "confluent_kafka" else found(name))
    assert problems_of(flags=ON_KAFKA).endswith(
        "storage.kind = 'kafka' (flag --storage.kind) is not allowed: expected confluent-kafka to be installed: run "
        '`pip install ".[kafka]"` in a clone of Tidelog'
    )
    assert load_config(None, {}, {}).storage.kind == "rocksdb"


ON_PULSAR = {"storage.kind": "pulsar", "engine.service_url": "pulsar://p1:6650,p2:6650", "cluster.node_id": "n1"}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({}, ""),
        ({"engine.service_url": "pulsar+ssl://[::1]:6651", "engine.admin_url": "https://p1:8443/"}, ""),
        ({"engine.topic": "logs.n1", "cluster.node_id": "", "engine.namespace": "acme/logs"}, ""),
        ({"engine.service_url": ""}, "engine.service_url"),
        ({"engine.service_url": "p1:6650"}, "engine.service_url"),
        ({"engine.service_url": "http://p1:8080"}, "engine.service_url"),
        ({"engine.admin_url": "p1:8080"}, "engine.admin_url"),
        ({"engine.namespace": "public"}, "engine.namespace"),
        ({"engine.namespace": "a/b/c"}, "engine.namespace"),
        ({"cluster.node_id": ""}, "expected a topic, or cluster.node_id to be set, since storage.kind is pulsar"),
        ({"metadata.kind": "memory"}, "embedded or etcd, since storage.kind is pulsar"),
    ],
)
def test_settings_of_a_log_in_pulsar_that_do_not_fit_are_named(flags: dict[str, str], named: str) -> None:
    flags = {**ON_PULSAR, **flags}
    if named:
        assert named in problems_of(flags=flags)
    else:
        assert load_config(None, {}, flags).storage.is_in_engine


def test_a_log_in_pulsar_needs_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pulsar" else found(name))
    assert problems_of(flags=ON_PULSAR).endswith(
        "storage.kind = 'pulsar' (flag --storage.kind) is not allowed: expected pulsar-client to be installed: run "
        '`pip install ".[pulsar]"` in a clone of Tidelog'
    )
    assert load_config(None, {}, ON_KAFKA).storage.kind == "kafka"


SIGNED = {"auth.kind": "on", "auth.jwt_issuer": "https://id.example/realms/acme", "auth.jwt_audience": "tidelog"}


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_each_path_of_claims_can_be_written(names: list[str]) -> None:
    text = ".".join(name.replace("\\", r"\\").replace(".", r"\.") for name in names)
    assert claim_path(load_config(None, {}, {"auth.jwt_roles_claim": text}).auth.jwt_roles_claim) == tuple(names)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a\\", r"\a", "none."])
def test_what_is_no_path_of_claims_is_refused(text: str) -> None:
    assert r"such as realm_access.roles; \. is a dot" in problems_of(flags={"auth.jwt_roles_claim": text})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"auth.jwt_issuer": "http://id.example"}, "auth.jwt_issuer = 'http://id.example'"),
        ({"auth.jwt_issuer": "acme"}, "auth.jwt_issuer = 'acme'"),
        ({"auth.jwt_issuer": "https://[::1"}, "is not a URL"),
        ({"auth.jwt_issuer": "https://id.example?realm=acme"}, "more than a scheme, a host and a path"),
        ({"auth.jwt_issuer": "none"}, "auth.jwt_issuer = "), ({"auth.jwt_audience": "none"}, "auth.jwt_audience = "),
        ({"auth.jwt_jwks": "keys.json", "auth.jwt_ca": "ca.pem"}, "auth.jwt_ca = 'ca.pem'"),
        ({"auth.jwt_jwks": "https://[::1"}, "auth.jwt_jwks = 'https://[::1'"),
        ({"auth.jwt_jwks": "http://id.example/keys"}, "auth.jwt_jwks = 'http://id.example/keys'"),
        ({"auth.kind": "off"}, "auth.kind = on"), ({"auth.jwt_max_lifetime_s": "86401"}, "auth.jwt_max_lifetime_s"),
    ],
    ids=str,
)  # fmt: skip
def test_an_issuer_that_cannot_be_asked_for_its_keys_is_refused(changed: dict[str, str], told: str) -> None:
    assert told in problems_of(flags=SIGNED | {"auth.jwt_jwks": "discover"} | changed)


def test_an_issuer_is_asked_for_its_keys_or_they_are_named(tmp_path: Path) -> None:
    for keys in ("discover", "keys.json", "https://id.example/keys", "http://127.0.0.1:1/keys"):
        assert load_config(None, {}, SIGNED | {"auth.jwt_jwks": keys}).auth.jwt_jwks == keys
    # A name that is no URL is enough where the issuer need not be asked.
    load_config(None, {}, SIGNED | {"auth.jwt_jwks": "keys.json", "auth.jwt_issuer": "acme"})
    for name in ("discover", "https://id.example/keys"):
        load_config(None, {}, SIGNED | {"auth.jwt_jwks": name, "auth.jwt_ca": "ca.pem"})
