"""The demonstration on a log in an engine: killed, its folder deleted, and read in Spark with equal totals.

Method: the real program with a few flights, as a user runs it.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import PYTHON_PATH, ROOT

FLIGHTS: Final = 2_000
ADDRESSES: Final = ("servers", "service_url", "admin_url")


def run_example(output: Path, engine: str, **addresses: object) -> subprocess.CompletedProcess[str]:
    options = [text for name, value in addresses.items() for text in (f"--{name.replace('_', '-')}", f"{value}")]
    return subprocess.run(
        [
            sys.executable, "-m", "examples.flights", "--engine", engine, *options, "--flights", f"{FLIGHTS}",
            "--output", str(output),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), PYTHON_PATH])},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.spark
def test_the_totals_are_equal_after_the_server_and_its_folder_are_gone(broker: Broker, tmp_path: Path) -> None:
    settings = broker.settings("")
    addresses = {name: settings[f"engine.{name}"] for name in ADDRESSES if f"engine.{name}" in settings}
    ran = run_example(tmp_path, str(settings["storage.kind"]), **addresses)
    assert ran.returncode == 0, ran.stderr
    assert f"{FLIGHTS:,} messages were read back" in ran.stdout
    assert "its data folder was deleted; it starts in another one" in ran.stderr
    assert "none of it is in the log" in ran.stderr
    assert (tmp_path / "delays.png").exists()
    assert not [name for name in broker.topics() if name.startswith("tidelog.demo.")]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "form", "said"),
    [
        ("kafka", {"servers": "127.0.0.1:{}"}, "cannot create the topic 'tidelog.demo."),
        (
            "pulsar",
            {"service_url": "pulsar://127.0.0.1:{}", "admin_url": "http://127.0.0.1:{}"},
            "Pulsar's administration API at http://127.0.0.1:{} does not answer",
        ),
    ],
)
def test_an_engine_that_does_not_answer_is_named(tmp_path: Path, engine: str, form: dict[str, str], said: str) -> None:
    port = free_ports(1)[0]
    ran = run_example(tmp_path, engine, **{name: text.format(port) for name, text in form.items()})
    assert ran.returncode == 1
    assert "tidelog demo: " in ran.stderr
    assert said.format(port) in ran.stderr
    assert f"127.0.0.1:{port}" in ran.stderr


def test_an_address_of_another_engine_is_refused(tmp_path: Path) -> None:
    ran = run_example(tmp_path, "kafka", service_url="pulsar://127.0.0.1:6650")
    assert ran.returncode == 2
    assert "--service-url needs --engine pulsar" in ran.stderr
