"""The example of docs/guides/gazette-consumers.md works. Method: run it as a user does, and compare what it prints."""

from pathlib import Path

from tidelog_testing.documents.examples import output_of_example, page


def test_the_example_counts_each_flight(tmp_path: Path) -> None:
    assert output_of_example(page("gazette-consumers.md"), tmp_path) == "flights 3, minutes 205\n"
