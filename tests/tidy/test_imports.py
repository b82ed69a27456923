"""Each third-party package is imported in one place, and not by `core`.

Method: the import statements of every product module. The contracts of import-linter in pyproject.toml prove
the order of the layers; these tests check what they cannot express.
"""

import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tidy.test_public_names import PRIVATE_MODULES
from tidy.tree import ROOT, imports, python_files, shown

CLIENT = ROOT / "client" / "tidelog"
CLI = ROOT / "client" / "tidelog_cli"
SERVER = ROOT / "server" / "tidelog_server"

# In a pattern, a star also matches slashes.
HOMES = {
    "aetcd": ["server/tidelog_server/metadata/etcd*", "server/tidelog_server/commands/probes_etcd.py"],
    "aiohttp": [
        "server/tidelog_server/rpc/*",
        "server/tidelog_server/app*",
        "server/tidelog_server/standby_process.py",
    ],
    "confluent_kafka": [
        "server/tidelog_server/recordlog/kafka*.py",
        "server/tidelog_server/commands/bench/floors/kafka_floor.py",
    ],
    "cryptography": [
        "server/tidelog_server/security/*",
        "server/tidelog_server/commands/probes_tls.py",
        "server/tidelog_server/commands/self_certificates.py",
    ],
    "deltalake": ["client/tidelog/spark/pipelines/delta.py"],
    "google": ["client/tidelog/*", "server/tidelog_server/rpc/*"],
    "grpc": [
        "client/tidelog/*",
        "server/tidelog_server/rpc/*",
        "client/tidelog_cli/*",
        "server/tidelog_server/commands/*",
        "server/tidelog_server/metadata/etcd*",
    ],
    "jinja2": ["server/tidelog_server/rpc/web/page.py"],
    "jwt": ["server/tidelog_server/security/*"],
    "matplotlib": [],
    "numpy": [
        "client/tidelog/spark/pipelines/*",
        "server/tidelog_server/rpc/*",
        "client/tidelog_cli/*",
    ],
    "opentelemetry": ["client/tidelog/tracing/*", "server/tidelog_server/rpc/tracing.py"],
    "prometheus_client": [
        "server/tidelog_server/runtime/*",
        "server/tidelog_server/rpc/*",
        "client/tidelog_cli/metrics_text.py",
    ],
    "pulsar": [
        "client/tidelog/msgstream/*",
        "server/tidelog_server/recordlog/pulsar*.py",
        "server/tidelog_server/commands/bench/floors/pulsar_floor.py",
    ],
    "psutil": ["server/tidelog_server/runtime/*", "client/tidelog_cli/*", "server/tidelog_server/commands/*"],
    "psycopg": ["client/tidelog/gazette/stores/_*postgres.py"],
    "pyarrow": ["client/tidelog/*", "client/tidelog_cli/*"],
    "pydantic": ["server/tidelog_server/config*"],
    "pyspark": ["client/tidelog/spark/*", "client/tidelog_cli/*"],
    "rich": ["client/tidelog_cli/*", "server/tidelog_server/commands/*"],
    "rocksdict": [
        "server/tidelog_server/storage/rocksdb/*",
        "server/tidelog_server/storage/engine/view.py",
        "server/tidelog_server/commands/bench/floors/rocksdb_floor.py",
    ],
    "typer": ["client/tidelog_cli/*", "server/tidelog_server/commands/*"],
    "uvloop": ["client/tidelog_cli/event_loop.py"],
    "yaml": ["client/tidelog_cli/output/records.py"],
}


def product_files() -> list[Path]:
    return [path for path in python_files() if {CLIENT, CLI, SERVER} & set(path.parents)]


@pytest.mark.parametrize("package", sorted(HOMES))
def test_an_outside_package_is_imported_at_its_home_only(package: str) -> None:
    strangers = [
        shown(path)
        for path in product_files()
        if any(name.partition(".")[0] == package for name in imports(path))
        and not any(fnmatchcase(shown(path), home) for home in HOMES[package])
    ]
    assert strangers == []


def test_core_imports_the_standard_library_only() -> None:
    foreign = [
        f"{shown(path)} imports {name}"
        for path in python_files()
        if SERVER / "core" in path.parents
        for name in imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("tidelog_server.core")
    ]
    assert foreign == []


def test_the_server_imports_only_formats_and_the_generated_code_of_the_client() -> None:
    # The commands are programs of users: they use the client.
    users = {SERVER / "commands"}
    foreign = [
        f"{shown(path)} imports {name}"
        for path in python_files()
        if SERVER in path.parents and not users & set(path.parents)
        for name in imports(path)
        if name.partition(".")[0] == "tidelog"
        and not name.startswith(("tidelog.wire.", "tidelog.pandora_formats.", "tidelog.v1."))
    ]
    assert foreign == []


def test_spark_uses_only_public_names_of_the_client() -> None:
    private = [
        f"{shown(path)} imports {name}"
        for path in python_files()
        if CLIENT / "spark" in path.parents
        for name in imports(path)
        if name.startswith("tidelog.") and (name.split(".")[1] in PRIVATE_MODULES or "._" in name)
        # One module decides for clients, commands and Spark which server is called.
        if not name.startswith("tidelog.settings.resolver")
    ]
    assert private == []
