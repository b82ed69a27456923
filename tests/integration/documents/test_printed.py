"""The examples of the pages work. Method: run each against its own server, and compare what it prints."""

from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from tidelog_testing.documents.examples import output_of_example, page

PRINTED: Final = {
    "gazette.md": ["acknowledged in my/clicks/part-000 my/clicks/part-001", "ann /", "ann /a", "bob /b"],
    "gazette-consumers.md": ["flights 3, minutes 205"],
    "journals.md": [
        "['web/clicks/part-000', 'web/clicks/part-001', 'web/clicks/part-002']",
        "web/clicks/part-000 has revision True",
        r"""[b'{"page": "/"}\n']""",
    ],
    "mailboxes/index.md": [
        "60000 43200000",
        "90000",
        "['orders/dead', 'orders/eu']",
        "orders/eu sends its dead letters there",
    ],
    "mailboxes/messages.md": [
        "True True",
        "b'welcome ann' {'template': 'welcome'} 1",
        "MailboxCounts(available=0, delayed=1, leased=0, dead=0, oldest_age_ms=0, body_bytes=12, is_paused=False)",
        "[b'a', b'c', b'b']",
    ],
    "mailboxes/once.md": ["[b'ONE', b'THREE', b'TWO']", "3"],
    "mailboxes/blobs.md": [
        f"{sha256(b'a large body').hexdigest()[:8]} b'a large body'",
        "BlobDescription(size_bytes=12, references=1, messages=0)",
        "not stored: 00000000",
    ],
    "rocksmq.md": ["three EUR"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_example_prints_its_lines(name: str, tmp_path: Path) -> None:
    assert output_of_example(page(name), tmp_path) == "".join(f"{line}\n" for line in PRINTED[name])


def test_the_example_for_clusters_runs_against_a_single_server(tmp_path: Path) -> None:
    lines = output_of_example(page("clusters.md"), tmp_path).splitlines()
    assert lines[0].startswith("appended at ")
    assert lines[1] == "parcels/0 [b'one more']"
