"""Each option of each command has an environment variable. Method: the whole tree of commands, and a few that run."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tidelog_cli.options.variables import name_variables, options_of
from tidelog_cli.root import app
from tidelog_server.config.layers import OTHER_VARIABLES, read_environment
from tidelog_server.config.settings import SECTIONS

# Those of the process's own server, and of what a script sets for many commands at once.
SHARED = {
    "TIDELOG_CONFIG", "TIDELOG_CONTEXT", "TIDELOG_ENDPOINT", "TIDELOG_HTTP_ENDPOINT", "TIDELOG_NO_PROGRESS",
    "TIDELOG_OUTPUT", "TIDELOG_QUIET", "TIDELOG_TIMEOUT", "TIDELOG_TLS_CA", "TIDELOG_TLS_CERT", "TIDELOG_TLS_KEY",
    "TIDELOG_TOKEN_FILE", "TIDELOG_WATCH_INTERVAL",
}  # fmt: skip


def _options(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield from ((path, option) for option in options_of(command))
    for name, below in getattr(command, "commands", {}).items():
        yield from _options(below, (*path, name))


@pytest.fixture(scope="module")
def options() -> list[tuple[tuple[str, ...], Any]]:
    """Return all options, with the command of each."""
    root = typer.main.get_command(app)
    name_variables(root, [])
    return list(_options(root, ()))


def test_every_option_has_a_variable_of_its_command_or_of_all(options: list[tuple[tuple[str, ...], Any]]) -> None:
    assert len(options) > 400
    for path, option in options:
        if option.envvar in SHARED:
            continue
        own = f"TIDELOG_{'_'.join(path)}_{max(option.opts, key=len)[2:]}".replace("-", "_").upper()
        assert option.envvar == own, (path, option.opts)


def test_no_two_options_of_a_command_share_a_variable(options: list[tuple[tuple[str, ...], Any]]) -> None:
    seen = [(path, option.envvar) for path, option in options]
    assert sorted(seen) == sorted(set(seen))


def test_a_server_starts_in_an_environment_with_any_of_them(options: list[tuple[tuple[str, ...], Any]]) -> None:
    variables = {str(option.envvar): "x" for _, option in options}
    assert read_environment(variables) == []
    assert SHARED <= OTHER_VARIABLES


def test_a_setting_with_one_underscore_too_few_is_still_refused() -> None:
    from tidelog_server.config.error import ConfigError

    names = [f"TIDELOG_{section}_{name}".upper() for section, model in SECTIONS.items() for name in model.model_fields]
    # These are the client's: a setting of that name has two underscores.
    clients = {"TIDELOG_TLS_CERT", "TIDELOG_TLS_KEY"}
    assert clients < set(names)
    for name in sorted(set(names) - clients):
        with pytest.raises(ConfigError, match="unknown setting"):
            read_environment({name: "1"})


@pytest.mark.parametrize("command", [["scan"], ["channel", "create"], ["check", "lag"], ["mailbox", "send"]])
def test_the_help_shows_them(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).output
    prefix = "TIDELOG_" + "_".join(command).upper()
    assert re.search(rf"env var:\s+{prefix}_", shown)
    assert "TIDELOG_ENDPOINT" in shown


def test_the_help_of_the_program_states_the_rule_and_offers_no_variable_for_what_prints_and_ends() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert "Each option has an environment variable: TIDELOG_, the command and the option" in shown
    for absent in ("TIDELOG_VERSION", "TIDELOG_INSTALL_COMPLETION", "TIDELOG_HELP"):
        assert absent not in shown


def test_a_variable_counts_where_the_option_is_not_given() -> None:
    def count(*arguments: str, **variables: str) -> str:
        result = CliRunner().invoke(app, ["scan", "orders", *arguments], env=variables)
        return str(result.exception) if result.exception else result.output

    assert "--count" in CliRunner().invoke(app, ["scan", "orders"], env={"TIDELOG_SCAN_COUNT": "-1"}).output
    assert "--count" not in count("--count", "1", TIDELOG_SCAN_COUNT="-1", TIDELOG_ENDPOINT="nowhere")
    assert "has no port" in count(TIDELOG_SCAN_COUNT="", TIDELOG_ENDPOINT="nowhere")
