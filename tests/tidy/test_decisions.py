"""Every decision that is cited has a page, every page has the fixed form, and the index lists all of them.

Method: the pages of `docs/decisions` as text, and all text files of the tree for citations.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from tidy.tree import ROOT, files, shown

FOLDER: Final = ROOT / "docs" / "decisions"
INDEX: Final = FOLDER / "README.md"
PAGES: Final = {path.name[:3]: path for path in sorted(FOLDER.glob("[0-9]*.md"))}
SECTIONS: Final = ["Context", "Decision", "Rejected alternatives", "Consequences"]
MAX_PAGE_WORDS: Final = 450

CITATION = re.compile(r"\bD-(\d{3})\b")
TITLE = re.compile(r"# D-(\d{3}) \S.*")
# The second paragraph of a page, as one line: a date, then relations to other pages.
STATUS = re.compile(
    r"Status: accepted 20\d\d-\d\d-\d\d((?:; [a-z ]+ \[D-\d{3}\]\([^)]+\)(?:, \[D-\d{3}\]\([^)]+\))*)*)"
)
RELATION = re.compile(r"; ([a-z ]+) (\[.+)")
LINK = re.compile(r"\[D-(\d{3})\]\(([^)\s]+)\)")
INVERSES: Final = {
    "supersedes": "superseded by",
    "superseded by": "supersedes",
    "amends": "amended by",
    "amended by": "amends",
}


def status(path: Path) -> str:
    return " ".join(path.read_text().split("\n\n")[1].split())


def relations(path: Path) -> set[tuple[str, str]]:
    """Return pairs of a relation, such as `amends`, and the number of the other page."""
    parts = re.findall(r"; [^;]+", status(path))
    found = [RELATION.fullmatch(part) for part in parts]
    return {(match[1], number) for match in found if match for number, _ in LINK.findall(match[2])}


def test_every_decision_that_is_cited_has_a_page() -> None:
    missing = []
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        # Numbers that were never used are named by the index only.
        if path != INDEX:
            missing += [f"{shown(path)}: D-{number}" for number in CITATION.findall(text) if number not in PAGES]
    assert missing == []


def test_a_number_has_one_page() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {path.name for path in PAGES.values()} | {INDEX.name}


@pytest.mark.parametrize("number", PAGES)
def test_a_page_has_the_fixed_form(number: str) -> None:
    text = PAGES[number].read_text()
    title = TITLE.fullmatch(text.splitlines()[0])
    assert title is not None
    assert title[1] == number
    assert STATUS.fullmatch(status(PAGES[number])) is not None
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert len(text.split()) <= MAX_PAGE_WORDS


@pytest.mark.parametrize("number", PAGES)
def test_links_between_pages_have_the_number_of_their_target(number: str) -> None:
    wrong = [(cited, name) for cited, name in LINK.findall(PAGES[number].read_text()) if name != PAGES[cited].name]
    assert wrong == []


def test_pages_that_supersede_or_amend_each_other_state_it_in_both() -> None:
    stated = {(number, relation, other) for number, path in PAGES.items() for relation, other in relations(path)}
    assert {relation for _, relation, _ in stated} <= set(INVERSES)
    assert [each for each in sorted(stated) if (each[2], INVERSES[each[1]], each[0]) not in stated] == []


def test_a_later_page_supersedes_an_earlier_one() -> None:
    later = [
        (number, other)
        for number, path in PAGES.items()
        for relation, other in relations(path)
        if (relation in {"supersedes", "amends"}) != (other < number)
    ]
    assert later == []


def test_the_index_has_every_page_with_its_title_and_status() -> None:
    rows = re.findall(r"^\| \[D-(\d{3})\]\((\S+)\) \| (.+?) \| (.+?) \|$", INDEX.read_text(), re.MULTILINE)
    expected = []
    for number, path in PAGES.items():
        title = path.read_text().splitlines()[0].removeprefix(f"# D-{number} ")
        plain = LINK.sub(r"D-\1", status(path)).removeprefix("Status: ")
        expected.append((number, path.name, title, re.sub(r"^accepted \S+?(?=;|$)", "accepted", plain)))
    assert sorted(rows) == expected
