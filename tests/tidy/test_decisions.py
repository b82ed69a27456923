"""Every number that is cited has a page, every page has the fixed form, and the index lists all pages and numbers.

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
# For each number that a page has.
MAX_WORDS: Final = 450
MAX_PAGE_LINES: Final = 250

CITATION = re.compile(r"\bD-(\d{3})\b")
TITLE = re.compile(r"# D-(\d{3}) \S.*")
DATE: Final = r"20\d\d-\d\d-\d\d"
# The second paragraph of a page, as one line: a date, then other numbers of the page, then relations to other pages.
STATUS = re.compile(
    rf"Status: accepted {DATE}(?:; also D-\d{{3}} \({DATE}\)(?:, D-\d{{3}} \({DATE}\))*)?"
    r"(?:; [a-z ]+ \[D-\d{3}\]\([^)]+\)(?:, \[D-\d{3}\]\([^)]+\))*)*"
)
ALSO = re.compile(r"; also (D-[^;]+)")
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


def also(path: Path) -> list[str]:
    """Return the numbers that a page has besides that of its title."""
    match = ALSO.search(status(path))
    return CITATION.findall(match[1]) if match else []


# The page of each number: its own page, or the one that has it as another number.
HOLDERS: Final = {number: path for path in PAGES.values() for number in (path.name[:3], *also(path))}


def relations(path: Path) -> set[tuple[str, str]]:
    """Return pairs of a relation, such as `amends`, and the number of another page."""
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
            missing += [f"{shown(path)}: D-{number}" for number in CITATION.findall(text) if number not in HOLDERS]
    assert missing == []


def test_a_number_has_one_page() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {path.name for path in PAGES.values()} | {INDEX.name}
    numbers = [number for path in PAGES.values() for number in (path.name[:3], *also(path))]
    assert [number for number in sorted(set(numbers)) if numbers.count(number) > 1] == []


@pytest.mark.parametrize("number", PAGES)
def test_a_page_has_the_fixed_form(number: str) -> None:
    path = PAGES[number]
    text = path.read_text()
    title = TITLE.fullmatch(text.splitlines()[0])
    assert title is not None
    assert title[1] == number
    assert STATUS.fullmatch(status(path)) is not None
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert len(text.split()) <= MAX_WORDS * (1 + len(also(path)))
    assert len(text.splitlines()) <= MAX_PAGE_LINES


@pytest.mark.parametrize("number", PAGES)
def test_a_page_names_each_of_its_numbers_below_its_status(number: str) -> None:
    _, _, body = PAGES[number].read_text().partition("## Decision")
    assert [other for other in also(PAGES[number]) if f"D-{other}" not in body] == []


def test_links_to_decisions_lead_to_the_page_of_their_number() -> None:
    links = [
        (path, number, Path(name).name) for path in files(".md") for number, name in LINK.findall(path.read_text())
    ]
    assert len(links) > len(HOLDERS)
    assert [(shown(path), *link) for path, *link in links if link[1] != HOLDERS[link[0]].name] == []
    assert [(shown(path), number) for path, number, _ in links if HOLDERS[number] == path] == []


def test_pages_that_supersede_or_amend_each_other_state_it_in_both() -> None:
    stated = {
        (number, relation, HOLDERS[other].name[:3])
        for number, path in PAGES.items()
        for relation, other in relations(path)
    }
    assert {relation for _, relation, _ in stated} <= set(INVERSES)
    assert [each for each in sorted(stated) if (each[2], INVERSES[each[1]], each[0]) not in stated] == []


def test_a_later_number_supersedes_an_earlier_one() -> None:
    wrong = []
    for number, path in PAGES.items():
        own = [number, *also(path)]
        for relation, other in relations(path):
            is_later = relation in {"supersedes", "amends"}
            if not (max(own) > other if is_later else min(own) < other):
                wrong.append((number, relation, other))
    assert wrong == []


def test_the_index_has_every_page_with_its_title_and_status() -> None:
    rows = re.findall(r"^\| \[D-(\d{3})\]\((\S+)\) \| (.+?) \| (.+?) \|$", INDEX.read_text(), re.MULTILINE)
    expected = []
    for number, path in PAGES.items():
        title = path.read_text().splitlines()[0].removeprefix(f"# D-{number} ")
        plain = LINK.sub(r"D-\1", status(path)).removeprefix("Status: ")
        expected.append((number, path.name, title, re.sub(rf"^(accepted) {DATE}| \({DATE}\)", r"\1", plain)))
    assert sorted(rows) == expected


def test_the_index_leads_from_every_other_number_to_its_page() -> None:
    rows = re.findall(r"^\| D-(\d{3}) \| \[D-(\d{3})\]\((\S+)\) \|$", INDEX.read_text(), re.MULTILINE)
    expected = [(other, path.name[:3], path.name) for path in PAGES.values() for other in also(path)]
    assert rows == sorted(expected)
