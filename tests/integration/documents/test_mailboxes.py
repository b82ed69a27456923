"""The examples of docs/guides/mailboxes work. Method: run each against its own server."""

from hashlib import sha256
from pathlib import Path

from tidelog_testing.documents.examples import output_of_example, page


def test_the_example_runs(tmp_path: Path) -> None:
    assert output_of_example(page("mailboxes/index.md"), tmp_path).splitlines() == [
        "60000 43200000",
        "90000",
        "['orders/dead', 'orders/eu']",
        "orders/eu sends its dead letters there",
    ]


def test_the_example_of_messages_runs(tmp_path: Path) -> None:
    assert output_of_example(page("mailboxes/messages.md"), tmp_path).splitlines() == [
        "True True",
        "b'welcome ann' {'template': 'welcome'} 1",
        "MailboxCounts(available=0, delayed=1, leased=0, dead=0, oldest_age_ms=0, body_bytes=12, is_paused=False)",
        "[b'a', b'c', b'b']",
    ]


def test_jobs_are_done_with_their_acknowledgements(tmp_path: Path) -> None:
    assert output_of_example(page("mailboxes/once.md"), tmp_path).splitlines() == ["[b'ONE', b'THREE', b'TWO']", "3"]


def test_the_example_of_blobs_runs(tmp_path: Path) -> None:
    assert output_of_example(page("mailboxes/blobs.md"), tmp_path).splitlines() == [
        f"{sha256(b'a large body').hexdigest()[:8]} b'a large body'",
        "BlobDescription(size_bytes=12, references=1, messages=0)",
        "not stored: 00000000",
    ]
