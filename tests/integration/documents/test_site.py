"""The documents build as a site without a warning or a broken link, and its search finds every name.

Method: the site of this commit. The index that its search reads is asked as the page does: the words of a query,
without case, as titles, as objects, and as words that are reduced to their stem.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import typer
from sphinx.search.en import SearchEnglish

import tidelog
from tidelog.errors import TidelogError
from tidelog_cli.root import app
from tidelog_server.config import describe_settings
from tidelog_testing.documents.exports import exported_names
from tidelog_testing.servers.browser import browser
from tidelog_testing.servers.processes import ROOT

PACKAGES: Final = ("gazette", "msgstream", "pandora", "rocksmq", "spark", "testing", "tracing")


class Index:
    """What the search of the site finds."""

    def __init__(self, html: Path) -> None:
        text = (html / "searchindex.js").read_text()
        index: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
        self.pages: list[str] = index["docnames"]
        self._stem = SearchEnglish({}).stem
        self._words: dict[str, Any] = index["terms"] | index["titleterms"]
        self._titles = {title.lower() for title in index["alltitles"]}
        self._objects = {name.lower() for name in objects(index)}

    def has_title(self, title: str) -> bool:
        return title.lower() in self._titles

    def has_object(self, name: str) -> bool:
        return name.lower() in self._objects

    def has_word(self, word: str) -> bool:
        return self._stem(word.lower()) in self._words


def objects(index: dict[str, Any]) -> Iterator[str]:
    for prefix, entries in index["objects"].items():
        for entry in entries:
            yield f"{prefix}.{entry[4]}" if prefix else entry[4]


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once, as `make docs` does."""
    output = tmp_path_factory.mktemp("site")
    program = [sys.executable, str(ROOT / "tools" / "make_docs.py"), str(output)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return output / "html"


@pytest.fixture(scope="module")
def index(html: Path) -> Index:
    return Index(html)


def test_the_search_finds_every_public_name(index: Index) -> None:
    names = [f"tidelog.{name}" for name in exported_names(tidelog)]
    for package in PACKAGES:
        names += [public_name(package, name) for name in exported_names(import_module(f"tidelog.{package}"))]
    assert len(names) > 400
    assert [name for name in names if not index.has_object(name)] == []


def public_name(package: str, name: str) -> str:
    value = getattr(import_module(f"tidelog.{package}"), name)
    # A package may export a name that `tidelog` exports.
    return f"tidelog.{name}" if getattr(value, "__module__", "") == "tidelog" else f"tidelog.{package}.{name}"


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield f"{path} {name}", child
            yield from commands(child, f"{path} {name}")


def test_the_search_finds_every_command_and_every_option(index: Index) -> None:
    found = dict(commands(typer.main.get_command(app), "tidelog"))
    assert len(found) > 80
    assert [path for path in found if not index.has_title(path)] == []
    options = {
        f"{path.replace(' ', '-')}.{option}"
        for path, command in found.items()
        if not hasattr(command, "commands")
        for parameter in command.params
        if not parameter.hidden and parameter.param_type_name == "option"
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert len(options) > 300
    assert [option for option in sorted(options) if not index.has_object(option)] == []


def test_the_search_finds_every_setting_metric_and_error(index: Index) -> None:
    settings = [setting.key for setting in describe_settings()]
    metrics = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "operate" / "metrics.md").read_text(), re.MULTILINE)
    errors = [name for name in exported_names(tidelog) if name.endswith("Error")]
    reasons = [reason.removeprefix("REASON_") for name in errors for reason in getattr(tidelog, name).reasons]
    assert min(len(settings), len(metrics), len(errors), len(reasons)) > 50
    assert [name for name in settings if not index.has_object(name)] == []
    assert [name for name in metrics if not index.has_word(name)] == []
    assert [name for name in (*errors, *reasons) if not index.has_title(name)] == []


def test_the_section_that_an_error_names_exists(html: Path) -> None:
    kinds = [getattr(tidelog, name) for name in exported_names(tidelog) if name.endswith("Error")]
    text = (html / "docs" / "reference" / "errors.html").read_text()
    for kind in (TidelogError, *kinds):
        page, _, anchor = kind.page.partition("#")
        assert page == "docs/reference/errors.md"
        assert f'id="{anchor}"' in text, kind


def test_the_index_for_language_models_names_every_page_with_its_markdown(html: Path, index: Index) -> None:
    text = (html / "llms.txt").read_text()
    linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\.md\)", text, re.MULTILINE)
    assert text.startswith("# Tidelog\n\n> ")
    assert sorted([*linked, "index"]) == sorted(index.pages)
    assert [page for page in (*linked, "index") if not (html / f"{page}.md").is_file()] == []


def test_no_page_names_the_machine_that_built_it(html: Path) -> None:
    texts = [path for suffix in ("html", "md", "js", "txt") for path in html.rglob(f"*.{suffix}")]
    assert [path.name for path in texts if str(ROOT) in path.read_text()] == []


async def test_the_search_of_a_browser_lists_what_a_user_of_kafka_needs_first(html: Path) -> None:
    found: dict[str, list[str]] = {}
    async with browser() as context:
        page = await context.new_page()
        for query in ("kafka", "partition key", "consumer group", "lag", "reset offsets", "last hour", "data frame"):
            await page.goto(f"{(html / 'search.html').as_uri()}?{urlencode({'q': query})}")
            await page.get_by_text("Search finished").wait_for()
            links = await page.locator("#search-results li > a").all()
            found[query] = [str(await link.get_attribute("href")).partition("#")[0] for link in links[:8]]
    assert found["kafka"][0] == "docs/start/from-kafka.html"
    for query, pages in found.items():
        # How Tidelog is built comes after how it is used.
        before = pages[: pages.index("docs/start/from-kafka.html")]
        assert not any(page.startswith(("docs/decisions/", "docs/architecture/", "CHANGELOG")) for page in before), (
            query
        )
