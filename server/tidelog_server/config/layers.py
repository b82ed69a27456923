"""The layers of configuration: the assignments of each layer, with their origins.

A layer is a list of assignments. Unknown keys are refused here, before any value is checked: a misspelled setting that
is ignored is noticed too late.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_server.config.error import ConfigError
from tidelog_server.config.settings import SECTIONS
from tidelog_server.core.limits import MIB

MAX_CONFIG_BYTES: Final = MIB
"""Size of a configuration file."""

PREFIX: Final = "TIDELOG_"

# Variables that begin with the prefix but are not server settings.
OTHER_VARIABLES: Final = frozenset(
    {
        "TIDELOG_CONFIG",  # Path of the configuration file.
        "TIDELOG_CONFIG_HOME",  # Folder of the contexts of client commands.
        "TIDELOG_CONTEXT",  # The context of client commands.
        "TIDELOG_ENDPOINT",  # Address that client commands connect to.
        "TIDELOG_FAILPOINT",  # Crash tests only, see runtime.failpoints.
        "TIDELOG_GAZETTE_FAILPOINT",  # The same for consumers of journals.
        "TIDELOG_HTTP_ENDPOINT",  # Address that `tidelog check` and `tidelog top` connect to.
        "TIDELOG_HYPOTHESIS",  # Search time of the tests; the servers that they start inherit it.
        "TIDELOG_NO_PROGRESS",
        "TIDELOG_OUTPUT",
        "TIDELOG_PULSAR_TOKEN",  # Token of `tidelog doctor --pulsar` and `benchmarks msgstream-pulsar`.
        "TIDELOG_QUIET",
        "TIDELOG_TIMEOUT",
        # Credentials and certificates of client commands, see tidelog_cli.options.target.
        "TIDELOG_TLS_CA",
        "TIDELOG_TLS_CERT",
        "TIDELOG_TLS_KEY",
        "TIDELOG_TOKEN",
        "TIDELOG_TOKEN_FILE",
        "TIDELOG_WATCH_INTERVAL",
    }
)

# Those of options of commands, see tidelog_cli.options.variables: with one underscore, which settings never have alone.
_OF_OPTIONS: Final = re.compile(
    "TIDELOG_(APPEND|AUDIT|BACKUP|BENCH|BROADCAST|CHANNEL|CHECK|CLUSTER_LS|CTX|DEBUG|DOCTOR"
    "|ENGINE_(CREATE|EXPORT|IMPORT|LS)|GROUP|JOURNAL|MAILBOX|PIPELINE|SCAN|SERVE|TAIL|TOKEN|TOP|TXN)(_[A-Z0-9]+)+"
)

KEYS: Final = frozenset(f"{section}.{name}" for section, model in SECTIONS.items() for name in model.model_fields)

_HEADER: Final = re.compile(r"\s*\[\s*([A-Za-z0-9_.\"'\- ]+?)\s*\]")
_ASSIGNMENT: Final = re.compile(r"\s*([A-Za-z0-9_.\"'\- ]+?)\s*=")

# Kubernetes sets these in each pod for each service of its namespace, here for one called tidelog or tidelog-...
_ADDRESS: Final = "[0-9a-fA-F.:\\[\\]]+"
_SERVICE_LINKS: Final = tuple(
    (re.compile(f"TIDELOG_([A-Z0-9_]+_)?{name}"), re.compile(value))
    for name, value in (
        ("SERVICE_HOST", _ADDRESS),
        ("SERVICE_PORT(_[A-Z0-9_]+)?", "[0-9]{1,5}"),
        ("PORT(_[0-9]{1,5}_(TCP|UDP|SCTP))?", f"(tcp|udp|sctp)://{_ADDRESS}:[0-9]{{1,5}}"),
        ("PORT_[0-9]{1,5}_(TCP|UDP|SCTP)_PROTO", "tcp|udp|sctp"),
        ("PORT_[0-9]{1,5}_(TCP|UDP|SCTP)_PORT", "[0-9]{1,5}"),
        ("PORT_[0-9]{1,5}_(TCP|UDP|SCTP)_ADDR", _ADDRESS),
    )
)
SERVICE_LINKS_HINT: Final = (
    "Kubernetes sets them for a service of that name; enableServiceLinks: false in the pod turns them off"
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The value of one setting in one layer.

    Attributes:
        key: A known ``section.name``.
        value: A string, or the value parsed from TOML.
        origin: Source, for display: ``tidelog.toml:3``, ``environment TIDELOG_LOG__LEVEL``.
    """

    key: str
    value: object
    origin: str


class UnknownSettingsError(ConfigError):
    """A layer assigns settings that do not exist.

    Attributes:
        known: The layer's assignments of settings that exist, so that their values are checked for the same report.
    """

    def __init__(self, problems: Sequence[str], known: Sequence[Assignment]) -> None:
        super().__init__(problems)
        self.known = tuple(known)


def read_file(path: Path) -> list[Assignment]:
    """Return the assignments in a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not valid TOML.
        UnknownSettingsError: It has unknown keys.
    """
    try:
        text = _text_of(path)
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError([f"cannot read the configuration file {path}: {error.strerror}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path} is nested too deeply for a configuration file"]) from error
    except ValueError as error:
        # Of TOML, of UTF-8, or of a number with thousands of digits.
        raise ConfigError([f"{path} is not a valid TOML file: {error}"]) from error
    lines = _lines_of_keys(text)
    assignments = [
        Assignment(key, value, f"{path}:{lines[key]}" if key in lines else str(path)) for key, value in _flatten(tables)
    ]
    return _known(assignments, {key: key for key in KEYS})


def _text_of(path: Path) -> str:
    """Return the content of a file. Raises OSError, or ConfigError if it is too long; that of a device has no end."""
    with path.open("rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError([f"{path} has more than {MAX_CONFIG_BYTES} bytes: expected a configuration file"])
    return content.decode()


def read_environment(environ: Mapping[str, str]) -> list[Assignment]:
    """Return the assignments in the variables that begin with ``TIDELOG_``.

    Raises:
        UnknownSettingsError: Such a variable is neither a setting, nor one of OTHER_VARIABLES, nor that of an option of
            a command, nor a service link.
    """
    spellings = {PREFIX + key.upper().replace(".", "__"): key for key in KEYS}
    assignments = [
        Assignment(name, value, f"environment {name}")
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and not _is_other(name) and not is_service_link(name, value)
    ]
    return _known(assignments, spellings, extra=OTHER_VARIABLES)


def _is_other(name: str) -> bool:
    return name in OTHER_VARIABLES or _OF_OPTIONS.fullmatch(name) is not None


def service_links(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that are ignored because they are service links of Kubernetes."""
    return tuple(sorted(name for name, value in environ.items() if is_service_link(name, value)))


def is_service_link(name: str, value: str) -> bool:
    """Return whether a variable has the name and the value of a service link; a setting has two underscores."""
    return "__" not in name and any(
        links.fullmatch(name) and values.fullmatch(value) for links, values in _SERVICE_LINKS
    )


def read_flags(flags: Mapping[str, str]) -> list[Assignment]:
    """Return the assignments in flags, whose names are given without the leading dashes.

    Raises:
        UnknownSettingsError: A flag is unknown.
    """
    assignments = [Assignment(f"--{name}", value, f"flag --{name}") for name, value in flags.items()]
    return _known(assignments, {f"--{key}": key for key in KEYS})


def _known(
    assignments: list[Assignment], spellings: Mapping[str, str], extra: frozenset[str] = frozenset()
) -> list[Assignment]:
    """Return the assignments with their keys as ``section.name``.

    Raises:
        UnknownSettingsError: Some keys are unknown; the error lists all of them.
    """
    problems = [
        f"unknown setting '{item.key}' ({item.origin}){_suggestion(item.key, [*spellings, *extra])}"
        for item in assignments
        if item.key not in spellings
    ]
    known = [Assignment(spellings[item.key], item.value, item.origin) for item in assignments if item.key in spellings]
    if problems:
        raise UnknownSettingsError(problems, known)
    return known


def _differs_in_one_letter(left: str, right: str) -> bool:
    return len(left) == len(right) and sum(a != b for a, b in zip(left, right, strict=True)) == 1


def _suggestion(key: str, candidates: list[str]) -> str:
    """Return the end of an error message about an unknown key: the key that was probably meant, or where to look."""
    # A key in the wrong section is as common as a typo, so the last part is also compared by itself.
    # One wrong letter is the nearest match: `etcd_ce` means `etcd_ca`, although difflib prefers `etcd_cert`.
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
    """Return the line number of each key, from 1, where a regular expression finds it; tomllib reports no lines."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _HEADER.match(line):
            table = _bare(header[1]) + "."
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault(table + _bare(assignment[1]), number)
    return lines


def _bare(key: str) -> str:
    return re.sub(r"[\"' ]", "", key)
