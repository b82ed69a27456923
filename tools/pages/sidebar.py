"""The list of pages at the side of each page.

Why not Sphinx's own: it copies the headings of all pages for each page, which takes most of the time of a build.
"""

from collections.abc import Iterable
from html import escape
from typing import Any

from sphinx.application import Sphinx

from pages.tree import Tree


def connect(app: Sphinx, tree: Tree) -> None:
    """Make each page show the tree, with what is below its own branch."""

    def replace(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
        context["toctree"] = lambda **_: _html(app, tree, page)

    # Ordering: before the theme, which asks for the tree at the default priority.
    app.connect("html-page-context", replace, priority=400)


def _html(app: Sphinx, tree: Tree, page: str) -> str:
    around = tree.around(page)

    def listed(pages: Iterable[str], level: int) -> str:
        return f"<ul>{''.join(entry(each, level) for each in pages)}</ul>"

    def entry(each: str, level: int) -> str:
        current = " current" if each in around else ""
        target = "#" if each == page else app.builder.get_relative_uri(page, each)
        below = listed(tree.below[each], level + 1) if current and each in tree.below else ""
        title = escape(app.env.titles[each].astext())
        link = f'<a class="reference internal{current}" href="{target}">{title}</a>'
        return f'<li class="toctree-l{level}{current}">{link}{below}</li>'

    return "".join(
        f'<p class="caption" role="heading"><span class="caption-text">{caption}</span></p>{listed(pages, 1)}'
        for caption, pages in tree.captions.items()
    )
