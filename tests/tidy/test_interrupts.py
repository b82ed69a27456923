"""Tests of Ctrl-C pass under any parent. Method: one of them, in a process that inherits an ignored SIGINT."""

import subprocess
import sys

from tidy.tree import ROOT

ONE = "tests/integration/client/test_sync.py::test_ctrl_c_ends_a_call_that_waits"


def test_a_test_of_ctrl_c_passes_where_sigint_was_ignored_by_the_parent() -> None:
    command = f"trap '' INT; exec {sys.executable} -m pytest --quiet --timeout 60 -p no:cacheprovider {ONE}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout
