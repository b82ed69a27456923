"""Builds the documents as a site: ``make docs`` runs it.

The Markdown files of the repository, as they are, and the pages that are made from the program are gathered in a folder
in the layout of the repository. Sphinx makes HTML of them, with a warning as an error. Beside each page of HTML is its
Markdown, and ``llms.txt`` lists these files (https://llmstxt.org).
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx
from sphinx.domains.python._object import PyObject
from sphinx.util.docutils import docutils_namespace, patch_docutils

from generated import ROOT
from pages import api, commands, llms, protocol, settings, sidebar
from pages.links import broken_links
from pages.tree import HOME, Tree

OUTPUT: Final = ROOT / "dist" / "docs"
_LINK: Final = re.compile(r"(\[[^\]]+\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_MAP: Final = "docs/README.md"
# A class shows what it inherits, except from these.
_FOREIGN: Final = ("int", "str", "dict", "tuple", "Enum", "Exception", "BaseException")
_CONFIG: Final[dict[str, Any]] = {
    "project": "Tidelog",
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "root_doc": HOME,
    "html_theme": "furo",
    "html_title": "Tidelog",
    "html_search_scorer": str(ROOT / "tools" / "pages" / "search_scorer.js"),
    "html_copy_source": False,
    "html_show_sphinx": False,
    "myst_heading_anchors": 4,
    "myst_links_external_new_tab": False,
    "autodoc_default_options": {
        "members": True,
        "inherited-members": "int,str,dict,tuple,Enum,Exception,BaseException",
    },
    "autodoc_member_order": "bysource",
    "autodoc_typehints": "signature",
    "napoleon_use_ivar": True,
    # Quotation marks stay as they are written, so that a text that was copied runs.
    "smartquotes": False,
    # A shell's lines with output are no program, and some blocks have only a part of one.
    "suppress_warnings": ["misc.highlighting_failure"],
}


@dataclass
class Site:
    """The pages, as Sphinx reads them and as Markdown, by their path.

    Attributes:
        sources: What Sphinx reads.
        texts: What stands beside the HTML where it differs.
        files: Other files that pages link to.
    """

    sources: dict[str, str]
    texts: dict[str, str]
    files: set[str] = field(default_factory=set)

    @property
    def tree(self) -> Tree:
        """The tree of the pages."""
        return Tree.of([path.removesuffix(".md") for path in self.sources], self.sources[_MAP])

    @property
    def markdown(self) -> dict[str, str]:
        """What stands beside the HTML."""
        return self.sources | self.texts


def _unlink_attributes() -> None:
    """Make the names of attributes plain text: as links they would lead to any class with an attribute of the name."""
    for field_type in PyObject.doc_field_types:
        if field_type.name == "variable":
            field_type.rolename = ""


def gathered() -> Site:
    """Return all pages of the site, with links that lead to a page or to a file of the site."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"]
    found = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    written = {name: (ROOT / name).read_text() for name in sorted(filter(None, found)) if (ROOT / name).is_file()}
    site = Site({}, dict(api.pages(as_text=True)))
    for name, text in written.items():
        place = f"{HOME}.md" if name == "README.md" else name
        site.sources[place] = _relinked(text, name, site.files)
    for made in (api.pages(as_text=False), commands.pages(), settings.pages(), protocol.pages()):
        site.sources.update(made)
    return site


def _relinked(text: str, name: str, files: set[str]) -> str:
    """Return a page whose links to README.md and to folders lead to their pages; add other files to ``files``."""

    def replaced(found: re.Match[str]) -> str:
        target = (ROOT / name).parent / found[2]
        if not target.resolve().is_relative_to(ROOT):
            return found[0]
        place = target.resolve().relative_to(ROOT).as_posix()
        if place == "README.md":
            return f"{found[1]}{found[2].removesuffix('README.md')}{HOME}.md{found[3]}"
        if target.is_dir():
            has_page = (target / "README.md").is_file()
            # A folder without a page is named, and no link.
            return f"{found[1]}{found[2].rstrip('/')}/README.md{found[3]}" if has_page else found[1][1:-2]
        if target.is_file() and target.suffix != ".md":
            files.add(place)
        return found[0]

    return _LINK.sub(replaced, text)


def build(output: Path = OUTPUT) -> list[str]:
    """Build the site into ``output / "html"``; return its broken links.

    Raises:
        SystemExit: Sphinx warned, which it prints.
    """
    source, doctrees, html = output / "source", output / "doctrees", output / "html"
    for folder in (source, doctrees, html):
        shutil.rmtree(folder, ignore_errors=True)
    site = gathered()
    tree = site.tree
    _write_all(site.sources, site.files, source)
    _unlink_attributes()
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            str(source), None, str(html), str(doctrees), "html", confoverrides=_CONFIG,
            status=None, warning=sys.stderr, warningiserror=True,
        )  # fmt: skip
        app.connect("source-read", _adds_toctrees(tree))
        sidebar.connect(app, tree)
        app.build()
        if app.statuscode:
            raise SystemExit(app.statuscode)
    _write_all(site.markdown, site.files, html)
    (html / "llms.txt").write_text(llms.index(site.markdown, tree))
    return list(broken_links(html))


def _adds_toctrees(tree: Tree) -> Callable[[Sphinx, str, list[str]], None]:
    """Return the handler that adds, to a page that others are below, a hidden table of them, which Sphinx needs."""

    def add(app: Sphinx, page: str, content: list[str]) -> None:
        for pages in tree.captions.values() if page == HOME else [tree.below.get(page, ())]:
            entries = "\n".join(f"/{each}" for each in pages)
            content[0] += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n" if entries else ""

    return add


def _write_all(pages: Mapping[str, str], files: Iterable[str], folder: Path) -> None:
    """Write pages, and copies of files of the repository, to their paths below a folder."""
    for name in (*pages, *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text)
    for name in files:
        shutil.copyfile(ROOT / name, folder / name)


if __name__ == "__main__":
    if broken := build(Path(sys.argv[1]) if sys.argv[1:] else OUTPUT):
        raise SystemExit("\n".join(("broken links:", *broken)))
