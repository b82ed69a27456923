"""The JSON Schema of the settings accepts the files that the loader accepts.

Method: jsonschema, with the files of the deployment, every default, and values at the bounds of settings; the loader
with the same values.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from tidelog_server.config import ConfigError, describe_settings, load_config, settings_schema
from tidelog_testing.servers.processes import ROOT

SCHEMA = settings_schema()


def is_valid(document: object) -> bool:
    Draft7Validator.check_schema(SCHEMA)
    return bool(Draft7Validator(SCHEMA).is_valid(document))


def test_the_files_of_the_deployment_are_valid() -> None:
    for path in (ROOT / "deploy").rglob("tidelog*.toml"):
        assert is_valid(tomllib.loads(path.read_text())), path
    assert is_valid({})


def test_each_setting_has_its_description_and_a_valid_default() -> None:
    for setting in describe_settings():
        section, name = setting.key.split(".")
        found = SCHEMA["properties"][section]["properties"][name]
        assert found["description"] == setting.text
        assert is_valid({section: {name: found["default"]}}), setting.key
    assert all(section["description"] for section in SCHEMA["properties"].values())


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("log.level", "debug", True), ("log.level", "loud", False), ("log.levels", "debug", False),
        ("server.grpc_port", 65_535, True), ("server.grpc_port", 65_536, False), ("server.grpc_port", -1, False),
        ("server.grpc_port", True, False), ("server.reflection", False, True), ("server.reflection", "yes", False),
        ("limits.max_batch_bytes", "4MiB", True), ("limits.max_batch_bytes", "1.5 gib", False),
        ("limits.min_free_disk_bytes", "1.5 gib", True), ("limits.min_free_disk_bytes", 0, True),
        ("limits.max_batch_bytes", 0, False), ("limits.max_batch_bytes", "4 pounds", False),
        ("mailboxes.http_max_body_bytes", 255, False), ("mailboxes.http_max_body_bytes", 1 << 20, True),
        ("mailboxes.http_max_body_bytes", (1 << 20) + 1, False), ("auth.jwt_leeway_s", 301, False),
        ("tracing.sample_ratio", 0.5, True), ("tracing.sample_ratio", 1.5, False),
    ],
)  # fmt: skip
def test_a_value_is_accepted_as_by_the_loader(key: str, value: Any, expected: bool, tmp_path: Path) -> None:
    section, name = key.split(".")
    file = tmp_path / "tidelog.toml"
    text = str(value).lower() if isinstance(value, bool | int | float) else f'"{value}"'
    file.write_text(f"[{section}]\n{name} = {text}\n")
    is_loaded = True
    try:
        load_config(file, {}, {})
    except ConfigError:
        is_loaded = False
    # A rule between settings refuses it: the schema lacks these.
    is_rule = (key, value) == ("limits.max_batch_bytes", "1.5 gib")
    assert (is_valid({section: {name: value}}), is_loaded) == (expected or is_rule, expected)


def test_an_unknown_section_is_refused() -> None:
    assert not is_valid({"servers": {}})
