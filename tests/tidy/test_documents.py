"""Documents link to things that exist, and name commands that work.

Method: every Markdown file of the tree, as text, without code blocks where they would be misread.
"""

import re
from pathlib import Path

from tidy.tree import ROOT, files, python_files, shown

CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)
MAX_ARCHITECTURE_LINES = 400
MAX_FOLDER_README_LINES = 60
# The specification of the wire, and an index with a row for each decision.
LONG_READMES = ("proto/README.md", "docs/decisions/README.md")


def prose(path: Path) -> str:
    return CODE_BLOCK.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    titles = [title for _, title in HEADING.findall(prose(path))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path: Path) -> list[str]:
    broken = []
    for link in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        is_whole = target.exists() and (not anchor or anchor in anchors(target))
        if not is_whole:
            broken.append(f"{shown(path)} -> {link}")
    return broken


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_document_has_one_title() -> None:
    titles = {shown(path): [level for level, _ in HEADING.findall(prose(path))] for path in files(".md")}
    assert {name: levels for name, levels in titles.items() if levels.count("#") != 1} == {}


def test_links_within_the_repository_resolve() -> None:
    assert [link for path in files(".md") for link in broken_links(path)] == []


def test_documents_name_only_make_targets_that_exist() -> None:
    named = {
        (shown(path), target)
        for path in files(".md")
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    targets = make_targets()
    assert [where for where in sorted(named) if where[1] not in targets] == []


def test_make_prints_a_line_of_help_for_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    helped = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))
    assert helped == make_targets()


def test_numbered_invariants_that_code_cites_exist() -> None:
    known = set(re.findall(r"\bINV-\d+\b", (ROOT / "docs/architecture/overview.md").read_text()))
    cited = {
        (shown(path), number)
        for path in (*python_files(), *files(".md", ".proto", ".toml"))
        for number in re.findall(r"\bINV-\d+\b", path.read_text())
    }
    assert [where for where in sorted(cited) if where[1] not in known] == []


def test_maps_stay_short() -> None:
    lines = {shown(path): len(path.read_text().splitlines()) for path in files(".md")}
    long_maps = {
        name: count
        for name, count in lines.items()
        if name.endswith("/README.md") and name not in LONG_READMES and count > MAX_FOLDER_README_LINES
    }
    assert long_maps == {}
    assert lines["docs/architecture/overview.md"] <= MAX_ARCHITECTURE_LINES


def test_files_that_the_map_of_the_architecture_names_exist() -> None:
    page = (ROOT / "docs" / "architecture" / "where.md").read_text()
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+|[\w-]+\.toml)`", page)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_files_that_the_overview_of_the_architecture_names_exist() -> None:
    page = prose(ROOT / "docs" / "architecture" / "overview.md")
    named = re.findall(r"(?:`|\*\*)((?:[\w.-]+/)*[\w.-]+\.(?:py|toml)|(?:[\w.-]+/){2,})(?:`|\*\*)", page)
    # The page shortens the paths of the two packages.
    folders = (ROOT, ROOT / "server" / "tidelog_server", ROOT / "client" / "tidelog")
    assert len(named) > 100
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []
