"""The tree of the pages: which page is below which, and in what order."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Final, Self

HOME: Final = "index"
"""The first page: README.md of the repository."""
_MAP: Final = "docs/README"
_SECTIONS: Final = {
    "Start": (_MAP, "docs/start/*"),
    "Guides": ("docs/guides/*", "docs/guides/mailboxes/index"),
    "Spark": ("docs/guides/spark/*",),
    "Operation": ("docs/operate/*", "deploy/README", "SECURITY", "docs/performance"),
    "Reference": (
        "docs/reference/api/index", "docs/reference/commands/index", "docs/reference/settings", "docs/reference/*",
        "proto/README",
    ),
    "Architecture": ("docs/architecture/*", "docs/decisions/README"),
    "Repository": ("*",),
}  # fmt: skip
"""The captions at the side, and the pages below each; a star is no slash. A page belongs to the first that matches."""
_ABOVE: Final = {"docs/reference/protocol": "proto/README"}
"""Folders whose pages are below one that is elsewhere."""


@dataclass(frozen=True)
class Tree:
    """The pages, as paths without their suffix, in the order in which the map of the documents names them.

    Attributes:
        captions: The pages below each caption. Those that the map does not name are last.
        below: The pages below each page that is the first of a folder.
    """

    captions: Mapping[str, Sequence[str]]
    below: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, pages: Iterable[str], map_text: str) -> Self:
        """Return the tree of all pages; ``map_text`` is that of docs/README.md."""
        ordered = _ordered(pages, map_text)
        known, below, left = set(ordered), dict[str, list[str]](), list[str]()
        for page in ordered:
            parent = _parent(page, known)
            (left if parent is None else below.setdefault(parent, [])).append(page)
        captions: dict[str, list[str]] = {}
        for caption, patterns in _SECTIONS.items():
            found = [page for pattern in patterns for page in left if _matches(page, pattern)]
            captions[caption] = list(dict.fromkeys(found))
            left = [page for page in left if page not in captions[caption]]
        return cls(captions, below)

    def around(self, page: str) -> set[str]:
        """Return a page and the pages that it is below."""
        above = [each for each, pages in self.below.items() if page in pages]
        return {page}.union(*map(self.around, above))


def _parent(page: str, known: set[str]) -> str | None:
    """Return the first page of a page's folder, or of a folder above; None if a caption is above it."""
    path = PurePosixPath(page)
    for folder in path.parents:
        if str(folder) in {".", "docs"}:
            return None
        for first in (f"{folder}/index", f"{folder}/README", _ABOVE.get(str(folder), "")):
            if first in known and first != page:
                return first
    return None


def _ordered(pages: Iterable[str], map_text: str) -> list[str]:
    links = re.findall(r"\]\(([^)#]+)\.md", map_text)
    named = [re.sub(r"^docs/\.\./", "", f"docs/{link}") for link in links]
    places = {page: place for place, page in reversed(list(enumerate(named)))}
    return sorted((page for page in pages if page != HOME), key=lambda page: places.get(page, len(places)))


def _matches(page: str, pattern: str) -> bool:
    return fnmatch(page, pattern) and (pattern == "*" or page.count("/") == pattern.count("/"))
