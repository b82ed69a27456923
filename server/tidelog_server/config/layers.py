"""The layers of configuration: what each of them assigns, and where exactly it says so.

A layer is a list of assignments. Unknown keys are refused here, before any value is looked at: a setting that
is ignored for its spelling is found out when it is too late.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_server.config.error import ConfigError
from tidelog_server.config.settings import SECTIONS

PREFIX: Final = "TIDELOG_"

# Variables that begin with the prefix and are no settings of the server.
OTHER_VARIABLES: Final = frozenset(
    {
        "TIDELOG_CONFIG",  # Path of the configuration file.
        "TIDELOG_ENDPOINT",  # Where client commands connect to.
        "TIDELOG_FAILPOINT",  # Crash tests only, see runtime.failpoints.
        "TIDELOG_HYPOTHESIS",  # How long the tests search; a server that they start inherits it.
        "TIDELOG_NO_PROGRESS",
        "TIDELOG_OUTPUT",
        "TIDELOG_QUIET",
        "TIDELOG_TIMEOUT",
        # What client commands show and check, see cli.connection.
        "TIDELOG_TLS_CA",
        "TIDELOG_TLS_CERT",
        "TIDELOG_TLS_KEY",
        "TIDELOG_TOKEN",
        "TIDELOG_TOKEN_FILE",
    }
)

KEYS: Final = frozenset(f"{section}.{name}" for section, model in SECTIONS.items() for name in model.model_fields)

_HEADER: Final = re.compile(r"\s*\[\s*([A-Za-z0-9_.\"'\- ]+?)\s*\]")
_ASSIGNMENT: Final = re.compile(r"\s*([A-Za-z0-9_.\"'\- ]+?)\s*=")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One setting as one layer has it.

    Attributes:
        key: ``section.name``, a known one.
        value: A text, or what TOML made of it.
        origin: Where it stands, for people: ``tidelog.toml:3``, ``environment TIDELOG_LOG__LEVEL``.
    """

    key: str
    value: object
    origin: str


def read_file(path: Path) -> list[Assignment]:
    """Return what a TOML file assigns.

    Raises:
        ConfigError: The file cannot be read, is no TOML, or has unknown keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError([f"cannot read the configuration file {path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path} is not a TOML file: {error}"]) from error
    lines = _lines_of_keys(text)
    assignments = [
        Assignment(key, value, f"{path}:{lines[key]}" if key in lines else str(path)) for key, value in _flatten(tables)
    ]
    return _known(assignments, {key: key for key in KEYS})


def read_environment(environ: Mapping[str, str]) -> list[Assignment]:
    """Return what the variables with our prefix assign.

    Raises:
        ConfigError: A variable with our prefix is neither a setting nor one of OTHER_VARIABLES.
    """
    spellings = {PREFIX + key.upper().replace(".", "__"): key for key in KEYS}
    assignments = [
        Assignment(name, value, f"environment {name}")
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES
    ]
    return _known(assignments, spellings, extra=OTHER_VARIABLES)


def read_flags(flags: Mapping[str, str]) -> list[Assignment]:
    """Return what flags assign; their names come without the leading dashes.

    Raises:
        ConfigError: A flag is unknown.
    """
    assignments = [Assignment(f"--{name}", value, f"flag --{name}") for name, value in flags.items()]
    return _known(assignments, {f"--{key}": key for key in KEYS})


def _known(
    assignments: list[Assignment], spellings: Mapping[str, str], extra: frozenset[str] = frozenset()
) -> list[Assignment]:
    """Return the assignments under their ``section.name``, or refuse all unknown ones at once."""
    problems = [
        f"unknown setting '{item.key}' ({item.origin}){_suggestion(item.key, [*spellings, *extra])}"
        for item in assignments
        if item.key not in spellings
    ]
    if problems:
        raise ConfigError(problems)
    return [Assignment(spellings[item.key], item.value, item.origin) for item in assignments]


def _differs_in_one_letter(left: str, right: str) -> bool:
    return len(left) == len(right) and sum(a != b for a, b in zip(left, right, strict=True)) == 1


def _suggestion(key: str, candidates: list[str]) -> str:
    """Return a closing half-sentence that helps with an unknown key."""
    # A key under the wrong section is as common as a typo, so the last part is compared alone too.
    # One wrong letter counts as nearest: `etcd_ce` is `etcd_ca`, though it has more in common with `etcd_cert`.
    matches = [name for name in candidates if _differs_in_one_letter(key, name)]
    if not matches:
        matches = difflib.get_close_matches(key, candidates, n=1, cutoff=0.75)
    if not matches:
        last = re.split(r"\.|__", key)[-1].lower()
        matches = [name for name in candidates if re.split(r"\.|__", name)[-1].lower() == last]
    if matches:
        return f": did you mean '{matches[0]}'?"
    return ": 'tidelog config show' lists the settings"


def _flatten(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tables.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{key}.")
        elif not (isinstance(value, dict) and key in SECTIONS):  # An empty section assigns nothing.
            yield key, value


def _lines_of_keys(text: str) -> dict[str, int]:
    """Return the line of each key, from 1, as far as a plain reading finds it; tomllib does not tell."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _bare(header[1]) + "."
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault(table + _bare(assignment[1]), number)
    return lines


def _bare(key: str) -> str:
    return re.sub(r"[\"' ]", "", key)
