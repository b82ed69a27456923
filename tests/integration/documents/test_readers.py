"""What docs/guides/readers.md shows works, and its numbers are those of the code.

Method: run its example; read its text.
"""

from pathlib import Path
from typing import get_args

from tidelog import ReaderState, Retry
from tidelog.client import DEFAULT_CONNECT_TIMEOUT_S
from tidelog.read.reader_events import LAGGING_AFTER_S, WAITING_AFTER_S
from tidelog.transport.transport import WARN_EVERY_S
from tidelog_testing.documents.examples import output_of_example, page

PAGE = page("readers.md")


def test_the_example_resumes_between_the_copies_of_a_broadcast(tmp_path: Path) -> None:
    printed = output_of_example(PAGE, tmp_path).splitlines()

    assert printed[0] == "connected meters/0 meters/1"
    assert printed.count("meters/0 [b'end of the day']") == printed.count("meters/1 [b'end of the day']") == 1


def test_the_page_has_each_state_and_the_bounds_of_the_code() -> None:
    assert [state for state in get_args(ReaderState) if f"| `{state}` |" not in PAGE] == []
    assert f"`Retry.give_up_s` has passed without an answer: {Retry().give_up_s:.0f} s" in PAGE
    assert f"waits up to {DEFAULT_CONNECT_TIMEOUT_S:.0f} s for the connection" in PAGE
    assert f"the server has been away for {WAITING_AFTER_S:.0f} s" in PAGE
    assert f"older than {LAGGING_AFTER_S:.0f} s" in PAGE
    assert f"at most every {WARN_EVERY_S:.0f} s" in PAGE
