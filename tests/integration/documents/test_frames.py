"""What docs/guides/frames.md shows works, and its numbers and columns are those of the code.

Method: run its example; read its text.
"""

from pathlib import Path

from tidelog import arrow_schema
from tidelog.append.arrow_data import PIECE_BYTES
from tidelog.read.frames import MAX_FRAME_BYTES
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH
from tidelog_testing.documents.examples import output_of_example, page

PAGE = page("frames.md")


def test_the_example_appends_and_reads_frames(tmp_path: Path) -> None:
    assert output_of_example(PAGE, tmp_path).splitlines() == [
        "[b'21', b'22', b'5']", "[(22,)]", "3 ['timestamp', 'payload']",
    ]  # fmt: skip


def test_the_page_has_each_column_and_the_limits_of_the_code() -> None:
    table = PAGE[PAGE.index("| column |") : PAGE.index("**A table has a limit.**")]
    assert [name for name in arrow_schema().names if f"`{name}`" not in table] == []
    assert f"more than {MAX_FRAME_BYTES >> 30} GiB raises" in PAGE
    assert f"up to {MAX_MESSAGES_PER_BATCH:,} |" in PAGE
    assert f"batches of up to {PIECE_BYTES >> 20} MiB" in PAGE
