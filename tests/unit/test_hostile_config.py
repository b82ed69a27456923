"""A configuration refuses what is no path, no file and no setting, and ignores what Kubernetes sets by itself."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import CommandError
from tidelog_cli.files import local_path
from tidelog_server.config import ConfigError, load_config
from tidelog_server.config.layers import KEYS
from tidelog_testing.parts.hostile_texts import TEXTS
from tidy.tree import ROOT, python_files

SERVICE_LINKS = {
    "TIDELOG_PORT": "tcp://10.43.0.7:7420",
    "TIDELOG_SERVICE_HOST": "10.43.0.7",
    "TIDELOG_SERVICE_PORT": "7420",
    "TIDELOG_SERVICE_PORT_GRPC": "7420",
    "TIDELOG_PORT_7420_TCP": "tcp://[fd00::7]:7420",
    "TIDELOG_PORT_7420_TCP_PROTO": "tcp",
    "TIDELOG_PORT_7420_TCP_PORT": "7420",
    "TIDELOG_PORT_7420_TCP_ADDR": "fd00::7",
    "TIDELOG_HEADLESS_SERVICE_HOST": "10.43.0.8",
    "TIDELOG_HEADLESS_PORT": "tcp://10.43.0.8:7420",
}


def test_service_links_of_kubernetes_are_ignored_and_named() -> None:
    assert load_config(None, SERVICE_LINKS, {}).ignored == tuple(sorted(SERVICE_LINKS))
    assert load_config(None, {}, {}).ignored == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDELOG_PORT", "7420"),
        ("TIDELOG_GRPC_PORT", "7420"),
        ("TIDELOG_SERVICE_HOST", "a b"),
        ("TIDELOG_SERVICE_PORT", "tcp"),
        ("TIDELOG_SERVER__PORT", "tcp://10.43.0.7:7420"),
        ("TIDELOG_PORTS", "tcp://10.43.0.7:7420"),
    ],
)
def test_a_variable_that_only_resembles_a_service_link_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{name}'"):
        load_config(None, {name: value}, {})


def test_every_variable_that_the_code_reads_may_be_set() -> None:
    names = {
        name
        for path in python_files()
        if {"client", "server"} & set(path.relative_to(ROOT).parts[:1])
        for name in re.findall(r'"(TIDELOG_[A-Z]+(?:_[A-Z]+)*)"', path.read_text())
    }
    assert {"TIDELOG_HTTP_ENDPOINT", "TIDELOG_PULSAR_TOKEN"} <= names
    load_config(None, dict.fromkeys(names, "x"), {})


@pytest.mark.parametrize("text", ["s3://bucket/x", "s3:/bucket/x", "gs://b", "file:///x", "hdfs:x", "a:b"])
def test_a_url_in_a_setting_of_a_path_is_refused_as_on_the_command_line(text: str) -> None:
    paths = [key for key in KEYS if re.search(r"(_file|_ca|\.ca|cert|_key|\.key|data_dir|deny_list|grants|jwks)$", key)]
    assert len(paths) >= 13
    for key in paths:
        with pytest.raises(ConfigError, match=f"{key} = '{text}'.*a path of this machine: URLs are not supported"):
            load_config(None, {}, {key: text})
    with pytest.raises(CommandError, match="is not a path of this machine"):
        local_path(text)


@pytest.mark.parametrize("text", ["./s3:x", "/a/b:c", "a/b:c", "x y", "é"])
def test_a_path_with_a_colon_is_a_path(text: str) -> None:
    assert load_config(None, {}, {"storage.data_dir": text}).storage.data_dir == local_path(text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "not a valid TOML file"),
        (b"a = " + b"9" * 5_000, "not a valid TOML file"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"#" * (2 << 20), "has more than 1048576 bytes"),
        (b"\xef\xbb\xbf[server]", "not a valid TOML file"),
        (b"\x00", "not a valid TOML file"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        load_config(tmp_path / "file", {}, {})


def test_a_device_is_no_configuration() -> None:
    with pytest.raises(ConfigError, match="has more than"):
        load_config(Path("/dev/zero"), {}, {})


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_may_be_in_brackets(host: str) -> None:
    assert load_config(None, {}, {"server.host": host, "server.http_host": host}).server.host == "::1"


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
def test_hostile_text_in_any_setting_is_accepted_or_refused(text: str) -> None:
    for key in KEYS:
        with suppress(ConfigError):
            load_config(None, {}, {key: text})
