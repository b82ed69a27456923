"""The synchronous client across forks. Method: a program that forks, in a process of its own, against a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog_testing.servers.processes import ServerProcess

IN_TIME_S = 60.0


def forked(folder: Path, case: str) -> Any:
    """Return what a case of ``tidelog_testing.loads.forking`` prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ServerProcess(folder) as server:
        program = [sys.executable, "-m", "tidelog_testing.loads.forking", server.grpc, case]
        done = subprocess.run(
            program, capture_output=True, text=True, env=environment, timeout=IN_TIME_S, check=False
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_client_goes_on_in_a_forked_child_and_in_its_parent(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "paused")

    assert found["answers"] == ["sync"] * 20
    assert found["stored"] == ["before", "child", "after"] * 10


def test_a_child_forked_while_a_stream_was_open_is_told_so_and_the_parent_goes_on(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "streaming")

    assert found == {"answers": ["ForkError", "parent"], "stored": ["parent"]}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="gRPC's threads are seen on Linux only")
def test_a_child_forked_while_others_used_grpc_is_told_so_and_a_later_one_goes_on(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "others")

    assert found == {"answers": ["ForkError", "sync", "sync"], "stored": ["parent", "child"]}


def test_calls_of_other_threads_end_when_a_fork_interrupts_them(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "busy")

    # Each child appended or got a ForkError.
    assert found["answers"] == ["True"]


def test_a_scan_that_was_refused_before_a_fork_goes_on_in_parent_and_child(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "scanning")

    assert found["answers"] == ["refused", "later", "later"]


def test_a_child_gets_ids_of_its_own(tmp_path: Path) -> None:
    first, child, second = map(int, forked(tmp_path / "log", "ids")["answers"])

    assert second == first + 1
    assert child not in range(first, first + 1_000)


def test_calls_on_mailboxes_continue_after_a_fork_unless_a_fetch_waits(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "mailboxes")

    assert found["answers"] == ["False", "False", "False", "after", "before", "child", "ForkError", "last"]


def test_the_client_of_a_cluster_goes_on_in_a_forked_child_and_in_its_parent(tmp_path: Path) -> None:
    found = forked(tmp_path / "log", "cluster")

    assert found == {"answers": ["orders"] * 3, "stored": ["before", "child", "parent"]}
