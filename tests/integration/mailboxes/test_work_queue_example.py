"""The example of a work queue does each job once although its workers are killed.

Method: run it as a user does.

Promises of docs/reference/guarantees.md: G52.
"""

import os
import subprocess
import sys

from tidelog_testing.servers.processes import PYTHON_PATH, ROOT


def test_each_claim_has_one_result() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.work_queue", "--flights", "4000", "--kills", "4"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), PYTHON_PATH])},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3_000:]
    assert "243 claims were done once each, and 22 letters sent" in ran.stdout
