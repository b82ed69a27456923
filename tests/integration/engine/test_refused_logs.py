"""A log that cannot be the one a server has seen, or that it cannot read: refused at the start, and nothing is changed.

Method: a server on a log in a folder, of which the view has seen a good log.
"""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.engine_stores import create_log, open_on
from tidelog_testing.parts.entries import new_entry
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.servers.on_folder import server_on_folder
from tidelog_testing.servers.processes import ServerDiedError


def fill(log: Path, view: Path, groups: int, size_bytes: int) -> None:
    """Make a log with a number of groups."""
    create_log(FolderEngine(log))
    with closing(open_on(FolderEngine(log), view)) as store:
        store.create_vchannels([1])
        for number in range(groups):
            store.sync(store.write([new_entry(1, 100 * (number + 1), size_bytes=size_bytes)]))


def lose_the_end(log: Path) -> None:
    for path in sorted(path for path in log.iterdir() if path.name.isdecimal())[-2:]:
        path.unlink()


def make_again(log: Path) -> None:
    shutil.rmtree(log)
    RecordLog(FolderEngine(log), SystemClock()).create(bytes(range(1, 17)))


def make_empty(log: Path) -> None:
    shutil.rmtree(log)
    log.mkdir()


def replace_entries(log: Path) -> None:
    """As a copy of the log of which both have been appended to."""
    shutil.rmtree(log)
    fill(log, log.with_name("other-view"), groups=6, size_bytes=77)


def append_a_later_version(log: Path) -> None:
    engine = FolderEngine(log)
    (last,) = engine.read(engine.bounds().end - 1, 1).records
    engine.send(last.value[:4] + b"\2" + last.value[5:], lambda _: None)
    engine.poll(0)


def damage_the_last(log: Path) -> None:
    path = max(path for path in log.iterdir() if path.name.isdecimal())
    value = path.read_bytes()
    (log / f"{int(path.name) + 1:020}").write_bytes(value[:-1] + bytes([value[-1] ^ 1]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lose_the_end, "the log ends before position 5, and this process has read it up to position 7"),
        (make_again, "log 'test-log' is another one than the view in"),
        (make_empty, "log 'test-log' is another one than the view in"),
        (replace_entries, "it follows entry 4 with another chain hash than entry 4, the last one before it"),
        (
            append_a_later_version,
            "it has version 2, and this server knows versions up to 1: use the version of Tidelog",
        ),
        (damage_the_last, "the record at position 7 of the log cannot be used: it is damaged"),
    ],
)
def test_a_log_that_is_not_what_was_seen_is_data_loss(tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    log, view = tmp_path / "log", tmp_path / "view"
    fill(log, view, groups=4, size_bytes=700)
    spoil(log)
    before, has = FolderEngine(log).bounds(), (view / "FORMAT").read_bytes()
    with pytest.raises(ServerDiedError) as died:
        server_on_folder(log, view).kill()
    assert died.value.code == ExitCode.DATA_LOSS
    assert said in died.value.errors
    assert "nothing was changed. Keep the topic and the data folders as they are" in died.value.errors
    # It was not claimed either.
    assert FolderEngine(log).bounds() == before
    assert ((view / "FORMAT").read_bytes(), (view / "db" / "CURRENT").exists()) == (has, True)


def test_a_log_that_was_never_created_is_refused_without_a_view_too(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(ServerDiedError) as died:
        server_on_folder(tmp_path / "log", tmp_path / "view").kill()
    assert died.value.code == ExitCode.DATA_LOSS
    assert "the log has no first record: it was never created, or its begin was deleted" in died.value.errors
    assert FolderEngine(tmp_path / "log").bounds() == (0, 0)
