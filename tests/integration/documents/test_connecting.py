"""The example of docs/guides/connecting.md runs as it is, and the page names every variable that the resolver reads."""

import pytest

from tidelog.settings.resolver import CONTEXT_VARIABLE, ENDPOINT_VARIABLE, VARIABLES
from tidelog.testing import start_server
from tidelog_testing.documents.examples import page, run_example


def test_the_example_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_server() as running:
        monkeypatch.setenv("TIDELOG_ENDPOINT", running.endpoint)
        run_example("connecting.md", {})


def test_the_page_names_every_variable() -> None:
    text = page("connecting.md")
    for variable in (CONTEXT_VARIABLE, ENDPOINT_VARIABLE, *VARIABLES.values(), "TIDELOG_CONFIG_HOME"):
        assert f"`{variable}`" in text
