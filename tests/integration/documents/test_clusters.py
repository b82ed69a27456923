"""The example of docs/guides/clusters.md runs as it stands. Method: run it against a single server."""

from pathlib import Path

from tidelog_testing.documents.examples import output_of_example, page


def test_the_example_runs(tmp_path: Path) -> None:
    lines = output_of_example(page("clusters.md"), tmp_path).splitlines()
    assert lines[0].startswith("appended at ")
    assert lines[1] == "parcels/0 [b'one more']"
