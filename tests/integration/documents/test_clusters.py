"""The example of client/CLUSTERS.md runs as it stands. Method: run it against a server that is alone, which will do."""

from pathlib import Path

from tidelog_testing.documents.examples import output_of_example, page


def test_the_example_runs(tmp_path: Path) -> None:
    lines = output_of_example(page("CLUSTERS.md"), tmp_path).splitlines()
    assert lines[0].startswith("appended at ")
    assert lines[1] == "parcels/0 [b'one more']"
