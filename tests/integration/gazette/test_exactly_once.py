"""The example of exactly-once consumers ends with the totals of a plain sum.

Method: run it as a user does, on both databases.
"""

import pytest

from tidelog_testing.documents.examples import run_program
from tidelog_testing.servers.postgres import PostgresProcess


def example(*options: str) -> str:
    return run_program("-m", "examples.exactly_once", "--flights", "4000", "--kills", "2", *options).stdout


def test_totals_in_sqlite_equal_a_plain_sum() -> None:
    assert "4,000 flights of 15 carriers" in example()


@pytest.mark.extended
def test_totals_in_postgres_equal_a_plain_sum() -> None:
    with PostgresProcess() as postgres:
        output = example("--database", f"postgres:{postgres.conninfo}")
        assert "equal to a plain sum" in output
        (flights,) = postgres.execute("SELECT sum(flights) FROM totals")[0]
        assert flights == 4_000
