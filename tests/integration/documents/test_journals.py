"""The example of docs/guides/journals.md works. Method: run it against its own server."""

from pathlib import Path

from tidelog_testing.documents.examples import output_of_example, page


def test_the_example_runs(tmp_path: Path) -> None:
    assert output_of_example(page("journals.md"), tmp_path).splitlines() == [
        "['web/clicks/part-000', 'web/clicks/part-001', 'web/clicks/part-002']",
        "web/clicks/part-000 has revision True",
        r"""[b'{"page": "/"}\n']""",
    ]
