"""Goal: an archive has exactly the files of its commits; a commit is atomic, and its number is unique.

Method: real folders. Hypothesis draws sequences of commits; damage is made by hand.
"""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.archive import manifest
from tidelog.spark.archive.manifest import Archive, ArchivedFile, ArchivedRange, Commit
from tidelog.spark.errors import ArchiveError, OptionError


def a_file(vchannel: str, first: int, last: int) -> ArchivedFile:
    path = f"{manifest.vchannel_folder(vchannel)}/{first}.parquet"
    return ArchivedFile(path, vchannel, first, last, 1, 9, "0" * 32, "0" * 32)


def a_commit(number: int, begin: int, end: int, *vchannels: str) -> Commit:
    names = vchannels or ("a/0",)
    ranges = {name: ArchivedRange(begin, end, 1) for name in names}
    return Commit(number, f"run{number}", "2026-01-01T00:00:00Z", ranges, [a_file(n, begin, end - 1) for n in names])


def write(root: Path, *commits: Commit) -> None:
    (root / manifest.FOLDER).mkdir(exist_ok=True)
    for commit in commits:
        manifest.append(root, commit)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=8, unique=True), st.integers(1, 3))
def test_commits_make_what_they_say(bounds: list[int], vchannels: int) -> None:
    ends = sorted(bounds)
    names = [f"a/{index}" for index in range(vchannels)]
    commits = [
        a_commit(number, begin, end, *names)
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False), start=1)
    ]

    texts = [Commit.from_json(commit.to_json(), "x") for commit in commits]
    folded = manifest.fold(Path("x"), texts)

    assert [replace(text, files=list(text.files)) for text in texts] == commits
    assert folded.last_commit == len(commits)
    assert set(folded.vchannels) == set(names)
    for each in folded.vchannels.values():
        assert (each.begin_tick, each.end_tick) == (0, ends[-1])
        assert [file.last_tick + 1 for file in each.files] == ends


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (a_file("b/0", 3, 4), "its range of b/0 is empty"),
        (a_file("a/0", 9, 10), "its range of a/0 is ticks 0 to 9"),
        (a_file("a/0", 4, 3), "its range of a/0 is ticks 0 to 9"),
    ],
)
def test_a_file_that_is_not_of_its_commit_is_an_error_and_no_gap(file: ArchivedFile, said: str) -> None:
    commit = replace(a_commit(1, 0, 10), files=[file])

    with pytest.raises(ArchiveError, match=said):
        manifest.fold(Path("x"), [commit])


def test_commits_are_read_back_in_order(tmp_path: Path) -> None:
    write(tmp_path, a_commit(1, 0, 10), a_commit(2, 10, 20, "a/0"))
    # A run that died during a commit leaves this file.
    (tmp_path / manifest.FOLDER / ".0123").write_text("{")

    found = manifest.load(tmp_path)

    assert (found.last_commit, found.vchannels["a/0"].end_tick, found.messages) == (2, 20, 2)


def test_a_number_is_taken_once(tmp_path: Path) -> None:
    write(tmp_path, a_commit(1, 0, 10))
    with pytest.raises(ArchiveError, match="already has commit 1"):
        manifest.append(tmp_path, a_commit(1, 0, 99))
    assert manifest.load(tmp_path).vchannels["a/0"].end_tick == 10
    assert [path.name for path in (tmp_path / manifest.FOLDER).iterdir()] == ["00000000000000000001.json"]


def test_no_archive_is_an_error_unless_one_is_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive at"):
        manifest.load(tmp_path)
    assert manifest.load(tmp_path, must_exist=False) == Archive(tmp_path)


def test_a_commit_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    write(tmp_path, *(a_commit(number, 10 * number, 10 * number + 10) for number in (1, 2, 3)))
    second = tmp_path / manifest.FOLDER / f"{2:020d}.json"
    text = second.read_text()

    for damaged, message in (
        (text[:50], "0002.json is damaged"),
        (json.dumps({**json.loads(text), "format": 2}), "has a format other than 1"),
        (json.dumps({**json.loads(text), "number": 7}), "has the number 7"),
        (json.dumps({**json.loads(text), "surprise": 7}), "is damaged"),
    ):
        second.write_text(damaged)
        with pytest.raises(ArchiveError, match=message):
            manifest.load(tmp_path)
    second.unlink()
    with pytest.raises(ArchiveError, match="lacks commit 2"):
        manifest.load(tmp_path)


def test_ranges_that_do_not_meet_are_refused() -> None:
    with pytest.raises(ArchiveError, match="the previous one ended at 10"):
        manifest.fold(Path("x"), [a_commit(1, 0, 10), a_commit(2, 11, 20)])


def test_what_was_lost_is_kept_in_mind() -> None:
    lost = replace(a_commit(2, 15, 20), ranges={"a/0": ArchivedRange(15, 20, 1, lost_before=15)})
    assert manifest.fold(Path("x"), [a_commit(1, 0, 10), lost]).vchannels["a/0"].lost == ((10, 15),)


def test_only_one_writes(tmp_path: Path) -> None:
    with manifest.writing(tmp_path):
        with pytest.raises(ArchiveError, match="another run writes"):
            with manifest.writing(tmp_path):
                pytest.fail("two wrote at once")
    with manifest.writing(tmp_path):
        pass


def test_of_many_that_commit_at_once_one_wins(tmp_path: Path) -> None:
    (tmp_path / manifest.FOLDER).mkdir()
    outcomes: list[str] = []

    def commit(end: int) -> None:
        try:
            manifest.append(tmp_path, a_commit(1, 0, end))
            outcomes.append("won")
        except ArchiveError:
            outcomes.append("lost")

    threads = [threading.Thread(target=commit, args=(end,)) for end in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["lost"] * 7 + ["won"]
    assert manifest.load(tmp_path).last_commit == 1


@pytest.mark.parametrize("url", ["s3://bucket/x", "s3a:/bucket/x", "dbfs:/x", "hdfs://name/x", "C:\\x"])
def test_what_is_no_folder_of_a_file_system_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (url, Path(url)):
        with pytest.raises(OptionError, match="object stores and other URLs are not supported"):
            manifest.load(name, must_exist=False)
        with pytest.raises(OptionError, match="is not a file system path"), manifest.writing(name):
            pytest.fail("it was taken for a folder")
    assert not list(tmp_path.iterdir())


def test_a_url_of_a_file_is_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (f"file://{tmp_path}/x", f"file:{tmp_path}/x", f"file://localhost{tmp_path}/x", "x", Path("x")):
        assert manifest.folder_path(name) == tmp_path / "x"
    with pytest.raises(OptionError, match="is not a file system path"):
        manifest.folder_path("file://another/x")
    assert manifest.folder_path("./a:b") == tmp_path / "a:b"


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv", "d.csv"):
        (tmp_path / name).touch()

    with pytest.raises(ArchiveError, match=r"it has 'a\.csv', 'b\.csv', 'c\.csv' and 1 more, but no _tidelog"):
        with manifest.writing(tmp_path):
            pytest.fail("it was taken for an archive")

    assert len(list(tmp_path.iterdir())) == 4


def test_what_a_first_run_left_that_died_is_an_archive(tmp_path: Path) -> None:
    # As on a separate file system.
    (tmp_path / "lost+found").mkdir()
    with manifest.writing(tmp_path):
        (tmp_path / manifest.DATA).mkdir()
    with manifest.writing(tmp_path):
        pass


def forged(change: dict[str, object], **parts: object) -> str:
    """Return the text of a commit with changed values of its only file."""
    fields = json.loads(a_commit(1, 0, 10).to_json())
    fields["files"][0].update(change)
    return json.dumps({**fields, **parts})


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../../etc/passwd"},
        {"path": "/etc/passwd"},
        {"path": "data/channel=a/vchannel=0/../../../x.parquet"},
        {"path": "data/channel=a/vchannel=1/0.parquet"},
        {"path": "data/channel=a/vchannel=0/0.parquet\0"},
        {"path": "data/channel=a/vchannel=0/.0.parquet"},
        {"path": "data/channel=a/vchannel=0/0.json"},
        {"path": 7},
        {"vchannel": "../x/0", "path": "data/channel=../x/vchannel=0/0.parquet"},
        {"vchannel": ["a/0"]},
        {"bytes": -1},
        {"messages": True},
        {"first_tick": "0"},
        {"last_tick": 1 << 63},
        {"digest": "x"},
        {"content_digest": 0},
    ],
)
def test_a_value_that_no_run_writes_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ArchiveError, match="is damaged"):
        Commit.from_json(forged(change), "x")


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "null", forged({}, run="a\nb"), forged({}, number="1"), forged({}, time=1)],
)
def test_a_text_that_no_run_writes_is_refused(text: str) -> None:
    with pytest.raises(ArchiveError, match="is damaged"):
        Commit.from_json(text, "x")


@pytest.mark.parametrize("kind", ["pipe", "link", "endless", "folder", "link above"])
def test_a_commit_that_is_no_regular_file_is_refused_without_being_read(tmp_path: Path, kind: str) -> None:
    write(tmp_path, a_commit(1, 0, 10))
    (path,) = (tmp_path / manifest.FOLDER).glob("*.json")
    text, elsewhere = path.read_text(), tmp_path / "elsewhere"
    if kind == "link above":
        path.parent.rename(elsewhere)
        path.parent.symlink_to(elsewhere)
    else:
        path.unlink()
        elsewhere.write_text(text)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(elsewhere)
        case "endless":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            assert kind == "link above"
    with pytest.raises(ArchiveError, match="restore it from a copy"):
        manifest.load(tmp_path)
