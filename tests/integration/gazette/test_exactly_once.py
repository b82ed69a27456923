"""The example of exactly-once consumers ends with the totals of a plain sum.

Method: run it as a user does, on both databases.
"""

import os
import subprocess
import sys

from tidelog_testing.servers.postgres import PostgresProcess
from tidelog_testing.servers.processes import PYTHON_PATH, ROOT


def example(*options: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.exactly_once", "--flights", "4000", "--kills", "2", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), PYTHON_PATH])},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3_000:]
    return ran.stdout


def test_totals_in_sqlite_equal_a_plain_sum() -> None:
    assert "4,000 flights of 15 carriers" in example()


def test_totals_in_postgres_equal_a_plain_sum() -> None:
    with PostgresProcess() as postgres:
        output = example("--database", f"postgres:{postgres.conninfo}")
        assert "equal to a plain sum" in output
        (flights,) = postgres.execute("SELECT sum(flights) FROM totals")[0]
        assert flights == 4_000
