"""Ports of the test kit: two test processes that choose at the same time never get the same one."""

import fcntl
import subprocess
import sys

import pytest

from tidelog_testing.servers import ports
from tidelog_testing.servers.processes import PYTHON_PATH

_CHOOSE = """
from tidelog_testing.servers import ports
ports._PORTS = range({first}, {first} + 2)
print(ports.free_port())
"""


def test_a_process_never_chooses_a_port_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(port for port in range(12_000, 31_000, 2) if ports._claimed(port) and ports._claimed(port + 1))
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 1))
    assert ports.free_port() == first
    # The other byte is given back: to the other process, of the two ports, only this one is left.
    fcntl.lockf(ports._claims(), fcntl.LOCK_UN, 1, first + 1)
    command = [sys.executable, "-c", _CHOOSE.format(first=first)]
    for _ in range(3):
        chosen = subprocess.run(command, env={"PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True, check=True)
        assert int(chosen.stdout) == first + 1
