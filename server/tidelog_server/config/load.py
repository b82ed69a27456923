"""Loading: merges the layers, and reports all problems in one error."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from tidelog_cli.output.masks import without_passwords
from tidelog_server.config.error import ConfigError
from tidelog_server.config.layers import (
    Assignment,
    UnknownSettingsError,
    read_environment,
    read_file,
    read_flags,
    service_links,
)
from tidelog_server.config.relations import broken_relations
from tidelog_server.config.settings import SECTIONS, Settings, format_setting

BUILT_IN = "built-in"


class Config(Settings):
    """The effective configuration. Immutable and validated.

    Attributes:
        origins: Source of each ``section.name``: ``built-in``, ``tidelog.toml:3``, ``environment TIDELOG_LOG__LEVEL``
            or ``flag --log.level``.
        texts: Value of each ``section.name`` as text.
        ignored: Environment variables that were ignored, because Kubernetes sets them for a service.
    """

    origins: Mapping[str, str]
    texts: Mapping[str, str]
    ignored: Sequence[str] = ()

    @property
    def shown(self) -> Mapping[str, str]:
        """``texts`` for people and logs: without the passwords of addresses."""
        return {key: without_passwords(text) for key, text in self.texts.items()}

    def on_ports(self, grpc_port: int, http_port: int) -> "Config":
        """Return the same configuration with the ports that a server listens on."""
        server = self.server.model_copy(update={"grpc_port": grpc_port, "http_port": http_port})
        return self.model_copy(update={"server": server})


def load_config(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """Return the configuration: built-in defaults, overridden by the file, then the environment, then flags.

    Args:
        path: The TOML file; None to read no file.
        environ: Environment variables; those that do not begin with ``TIDELOG_`` are ignored.
        flags: Values by ``section.name``.

    Raises:
        ConfigError: Keys are unknown or values are not allowed. It lists all unknown keys and all invalid values;
            without these, all values that contradict others.
    """
    assignments, problems = _merged(path, environ, flags)
    try:
        settings = _validated(assignments)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    if problems:
        raise ConfigError(problems)
    _check_relations(settings, assignments)
    values = {f"{section}.{name}": value for section, values in settings for name, value in values}
    return Config(
        **dict(settings),
        origins={key: assignments[key].origin if key in assignments else BUILT_IN for key in values},
        texts={key: format_setting(value) for key, value in values.items()},
        ignored=service_links(environ),
    )


def assignments_of(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, Assignment]:
    """Return, for each key that a layer assigns, the assignment of the last such layer; for arguments as above.

    Raises:
        ConfigError: The file cannot be read, or keys are unknown.
    """
    effective, problems = _merged(path, environ, flags)
    if problems:
        raise ConfigError(problems)
    return effective


def _merged(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[dict[str, Assignment], list[str]]:
    """Return the assignments of known keys, and the problems of all layers."""
    layers: tuple[Callable[[], list[Assignment]], ...] = (
        lambda: read_file(path) if path is not None else [],
        lambda: read_environment(environ),
        lambda: read_flags(flags),
    )
    effective: dict[str, Assignment] = {}
    problems: list[str] = []
    for read in layers:
        try:
            effective |= {item.key: item for item in read()}
        except UnknownSettingsError as error:
            effective |= {item.key: item for item in error.known}
            problems += error.problems
        except ConfigError as error:
            problems += error.problems
    return effective, problems


def _validated(assignments: Mapping[str, Assignment]) -> Settings:
    """Return the settings. Raises ConfigError, which lists all invalid values."""
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for key, item in assignments.items():
        section, name = key.split(".")
        values[section][name] = item.value
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = [
            _problem(assignments["{}.{}".format(*detail["loc"])], _expected(detail["msg"]))
            for detail in error.errors(include_url=False)
        ]
    raise ConfigError(problems)


def _check_relations(settings: Settings, assignments: Mapping[str, Assignment]) -> None:
    problems = []
    for key, expected in broken_relations(settings):
        section, name = key.split(".")
        default = Assignment(key, getattr(getattr(settings, section), name), BUILT_IN)
        problems.append(_problem(assignments.get(key, default), f"expected {expected}"))
    if problems:
        raise ConfigError(problems)


def _problem(item: Assignment, expected: str) -> str:
    return f"{item.key} = {_quoted(item.value)} ({item.origin}) is not allowed: {expected}"


def _quoted(value: object) -> str:
    return f"'{without_passwords(value)}'" if isinstance(value, str) else format_setting(value)


def _expected(message: str) -> str:
    """Return pydantic's message as the end of our sentence."""
    text = message.removeprefix("Input should be ").removeprefix("Value error, ")
    return f"expected {text}" if text != message else message[:1].lower() + message[1:]
