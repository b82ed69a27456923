"""The links of the site that lead nowhere, found in its files; links to other sites are not followed."""

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LINK: Final = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


class _Page(HTMLParser):
    """The targets and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value:
                self.links.append(value)


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def broken_links(html: Path) -> Iterator[str]:
    """Yield each link of HTML whose file or anchor is missing, and each of Markdown whose file is."""
    for path in sorted(html.rglob("*.html")):
        for link in dict.fromkeys(_read(path).links):
            if not _leads(path, link):
                yield f"{path.relative_to(html)} -> {link}"
    for path in sorted(html.rglob("*.md")):
        for link in _LINK.findall(_CODE.sub("", path.read_text())):
            target = path.parent / link.partition("#")[0]
            if not urlsplit(link).scheme and not target.exists():
                yield f"{path.relative_to(html)} -> {link}"


def _leads(path: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in _read(target).anchors
