"""Goal: the example program for Spark runs from its first cell to its last.

Method: run it as a user does, with a server and a Spark session of its own.
"""

import pytest

from tidelog_testing.documents.examples import run_program


@pytest.mark.spark
def test_flights_on_spark() -> None:
    ran = run_program("client/examples/flights_on_spark.py")
    told = [line for line in ran.stdout.splitlines() if line[:1].isalpha()]
    assert told[-4:] == [
        "now 3000", "in the morning 2000", "delayed by more than an hour 187", "archived 3187 findings 0"
    ]  # fmt: skip
