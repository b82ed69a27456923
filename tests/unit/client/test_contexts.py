"""The file of contexts: its mode, its content, and changes by several processes. Method: real files and processes."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.settings.contexts import (
    MAX_CONTEXTS,
    MAX_FILE_BYTES,
    Context,
    ContextError,
    ContextFile,
    Contexts,
    check_name,
    folder_of,
)

PROD, TEST = Context("tidelogs://a:1,b:2", token="secret"), Context("localhost:7420", token_file="/run/token")


def saved(folder: Path, **contexts: Context) -> ContextFile:
    file = ContextFile(folder)
    with file.changed() as held:
        for name, context in contexts.items():
            held[0] = held[0].added(name, context, replace=False)
    return file


def test_what_is_saved_is_read_and_only_the_user_can_read_it(tmp_path: Path) -> None:
    file = saved(tmp_path / "deep" / "folder", prod=PROD, test=TEST)
    assert file.read() == Contexts({"prod": PROD, "test": TEST})
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert sorted(each.name for each in file.path.parent.iterdir()) == ["contexts.json", "contexts.lock"]


def test_the_mode_does_not_depend_on_the_umask_nor_on_the_former_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = saved(tmp_path, prod=PROD)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_a_selection_and_the_one_before() -> None:
    both = Contexts({"prod": PROD, "test": TEST})
    with pytest.raises(ContextError, match="no previous context"):
        both.used("-")
    used = both.used("prod").used("test")
    assert (used.current, used.previous) == ("test", "prod")
    assert used.used("test") == used
    back = used.used("-")
    assert (back.current, back.previous) == ("prod", "test")
    assert back.removed("prod") == Contexts({"test": TEST}, "", "test")
    assert back.removed("-") == Contexts({"prod": PROD}, "prod", "")


def test_a_name_is_taken_once_unless_it_is_replaced() -> None:
    contexts = Contexts({"prod": PROD})
    with pytest.raises(ContextError, match="already: pass --replace"):
        contexts.added("prod", TEST, replace=False)
    assert contexts.added("prod", TEST, replace=True).by_name == {"prod": TEST}
    many = Contexts({f"c{number}": TEST for number in range(MAX_CONTEXTS)})
    with pytest.raises(ContextError, match="the maximum"):
        many.added("another", TEST, replace=False)
    assert many.added("c1", PROD, replace=True).by_name["c1"] == PROD


@pytest.mark.parametrize("name", ["", "-", "--help", "a b", "a/b", "../a", "a\n", ".a", "ä", "a" * 65, "a\0"])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(ContextError, match="expected 1 to 64 letters"):
        check_name(name)
    with pytest.raises(ContextError):
        Contexts({"prod": PROD}).added(name, TEST, replace=False)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(ContextError, match="no context 'stage': expected one of prod, test"):
        Contexts({"test": TEST, "prod": PROD}).name_of("stage")
    with pytest.raises(ContextError, match="no context 'stage': add one with"):
        Contexts().name_of("stage")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o666, 0o601])
def test_a_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    file = saved(tmp_path, prod=PROD)
    file.path.chmod(mode)
    with pytest.raises(ContextError, match=rf"has mode {mode:04o}.*chmod 600"):
        file.read()
    before = file.path.read_bytes()
    with pytest.raises(ContextError, match="has mode"), file.changed():
        pass
    assert file.path.read_bytes() == before


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for make in (Path.mkdir, os.mkfifo):
        path = tmp_path / make.__name__ / "contexts.json"
        path.parent.mkdir()
        make(path)
        with pytest.raises(ContextError, match=r"contexts\.json is not a file"):
            ContextFile(path.parent).read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, prod=PROD)
    os.chown(file.path, 12_345, -1)
    with pytest.raises(ContextError, match="belongs to the user with id 12345"):
        file.read()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "has no object 'contexts'"),
        ('{"version": 2, "contexts": {}}', "version 2, expected 1"),
        ('{"version": 1, "contexts": {"a": []}}', "not an object of texts"),
        ('{"version": 1, "contexts": {"a": {"endpoint": 7}}}', "not an object of texts"),
        ('{"version": 1, "contexts": {"a": {}}}', "'a' without endpoint"),
        ('{"version": 1, "contexts": {"a": {"endpoint": "a:1", "tokn": "t0p"}}}', "'a' with 'tokn'"),
        ('{"version": 1, "contexts": {"a b": {"endpoint": "a:1"}}}', "name of a context is 'a b'"),
        ('{"version": 1, "current": "b", "contexts": {"a": {"endpoint": "a:1"}}}', "selects 'b'"),
        ('{"version": 1, "current": 3, "contexts": {"a": {"endpoint": "a:1"}}}', "selects 3"),
        (" " * (MAX_FILE_BYTES + 1), "more than"),
    ],
)
def test_other_content_is_refused_with_the_reason(tmp_path: Path, content: str, reason: str) -> None:
    file = saved(tmp_path, prod=PROD)
    file.path.write_text(content)
    with pytest.raises(ContextError, match=reason) as refused:
        file.read()
    assert "t0p" not in str(refused.value)


def test_too_many_bytes_are_not_written(tmp_path: Path) -> None:
    file = saved(tmp_path, prod=PROD)
    with pytest.raises(ContextError, match="more than"), file.changed() as held:
        held[0] = held[0].added("large", Context("a:1", token="t" * MAX_FILE_BYTES), replace=False)
    assert file.read() == Contexts({"prod": PROD})


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    elsewhere = saved(tmp_path / "dotfiles", prod=PROD)
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "contexts.json").symlink_to(elsewhere.path)
    saved(folder, test=TEST)
    assert (folder / "contexts.json").is_symlink()
    assert sorted(elsewhere.read().by_name) == ["prod", "test"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ContextError, match="cannot write"), ContextFile(tmp_path / "file").changed():
        pass
    with pytest.raises(ContextError, match="set HOME or TIDELOG_CONFIG_HOME"), ContextFile(None).changed():
        pass
    assert ContextFile(None).read() == Contexts()


def test_an_exception_in_the_block_changes_nothing(tmp_path: Path) -> None:
    file = saved(tmp_path, prod=PROD)
    with pytest.raises(KeyError), file.changed() as held:
        held[0] = held[0].removed("prod")
        raise KeyError
    assert file.read() == Contexts({"prod": PROD})


_WRITER = """
import sys
from pathlib import Path
from tidelog.settings.contexts import Context, ContextFile
for number in range(20):
    with ContextFile(Path(sys.argv[1])).changed() as held:
        name = f"{sys.argv[2]}-{number}"
        held[0] = held[0].added(name, Context("a:1"), replace=False).used(name)
"""


def test_several_processes_that_change_the_file_lose_nothing(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), f"w{each}"]) for each in range(4)]
    while any(writer.poll() is None for writer in writers):
        # A reader takes no lock, and never meets half of a file.
        ContextFile(tmp_path).read()
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(ContextFile(tmp_path).read().by_name) == 80
    assert sorted(each.name for each in tmp_path.iterdir()) == ["contexts.json", "contexts.lock"]


@given(st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True), st.text(min_size=1)))
def test_all_texts_are_kept(tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]) -> None:
    contexts = {name: Context("a:1", token=token) for name, token in tokens.items()}
    file = saved(tmp_path_factory.mktemp("contexts"), **contexts)
    assert file.read() == Contexts(contexts)
    if contexts:
        assert json.loads(file.path.read_bytes().decode("ascii"))["version"] == 1


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"TIDELOG_CONFIG_HOME": "/a", "XDG_CONFIG_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CONFIG_HOME": "/b", "HOME": "/c"}, "/b/tidelog"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/c"}, "/c/.config/tidelog"),
        ({"HOME": "/c"}, "/c/.config/tidelog"),
        ({}, None),
    ],
)
def test_the_folder_follows_the_conventions_of_the_desktop(variables: dict[str, str], folder: str | None) -> None:
    assert folder_of(variables) == (None if folder is None else Path(folder))


def test_a_token_is_in_no_representation() -> None:
    assert "secret" not in repr(PROD)
    assert "secret" not in repr(Contexts({"prod": PROD}))
