"""Loading: merges the layers, and reports all problems in one error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tidelog_server.config.error import ConfigError
from tidelog_server.config.layers import KEYS, Assignment, read_environment, read_file, read_flags, service_links
from tidelog_server.config.settings import (
    SECTIONS,
    AuthSettings,
    ClusterSettings,
    LimitSettings,
    LogSettings,
    MailboxSettings,
    MetadataSettings,
    MetricsSettings,
    QuotaSettings,
    Section,
    ServerSettings,
    StorageSettings,
    TlsSettings,
    TracingSettings,
    broken_relations,
    format_setting,
)
from tidelog_server.core.limits import Limits

BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. Immutable and validated.

    Attributes:
        origins: Source of each ``section.name``: ``built-in``, ``tidelog.toml:3``, ``environment TIDELOG_LOG__LEVEL``
            or ``flag --log.level``.
        texts: Value of each ``section.name`` as text.
        ignored: Environment variables that were ignored, because Kubernetes sets them for a service.
    """

    server: ServerSettings
    storage: StorageSettings
    metadata: MetadataSettings
    cluster: ClusterSettings
    limits: Limits
    log: LogSettings
    tls: TlsSettings
    auth: AuthSettings
    quota: QuotaSettings
    mailboxes: MailboxSettings
    metrics: MetricsSettings
    tracing: TracingSettings
    origins: Mapping[str, str]
    texts: Mapping[str, str]
    ignored: Sequence[str] = ()

    def on_ports(self, grpc_port: int, http_port: int) -> "Config":
        """Return the same configuration with the ports that a server listens on."""
        server = self.server.model_copy(update={"grpc_port": grpc_port, "http_port": http_port})
        return replace(self, server=server)


def load_config(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """Return the configuration: built-in defaults, overridden by the file, then the environment, then flags.

    Args:
        path: The TOML file; None to read no file.
        environ: Environment variables; those that do not begin with ``TIDELOG_`` are ignored.
        flags: Values by ``section.name``.

    Raises:
        ConfigError: Keys are unknown or values are not allowed. It lists all unknown keys; otherwise all
            invalid values.
    """
    assignments = _effective(path, environ, flags)
    sections = _validated(assignments)
    _check_relations(sections, assignments)
    config = _build(sections, {key: item.origin for key, item in assignments.items()})
    return replace(config, ignored=service_links(environ))


def _effective(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, Assignment]:
    """Return, for each key that a layer assigns, the assignment of the last such layer."""
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
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return effective


def _validated(assignments: Mapping[str, Assignment]) -> dict[str, Section]:
    """Return one model for each section. Raises ConfigError, which lists all invalid values."""
    sections: dict[str, Section] = {}
    problems: list[str] = []
    for section, model in SECTIONS.items():
        values = {
            name: assignments[f"{section}.{name}"].value
            for name in model.model_fields
            if f"{section}.{name}" in assignments
        }
        try:
            sections[section] = model.model_validate(values)
        except ValidationError as error:
            problems += [
                _problem(assignments[f"{section}.{detail['loc'][0]}"], _expected(detail["msg"]))
                for detail in error.errors(include_url=False)
            ]
    if problems:
        raise ConfigError(problems)
    return sections


def _check_relations(sections: dict[str, Section], assignments: Mapping[str, Assignment]) -> None:
    problems = []
    for key, expected in broken_relations(sections):
        section, name = key.split(".")
        default = Assignment(key, getattr(sections[section], name), BUILT_IN)
        problems.append(_problem(assignments.get(key, default), f"expected {expected}"))
    if problems:
        raise ConfigError(problems)


def _problem(item: Assignment, expected: str) -> str:
    return f"{item.key} = {_quoted(item.value)} ({item.origin}) is not allowed: {expected}"


def _quoted(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else format_setting(value)


def _expected(message: str) -> str:
    """Return pydantic's message as the end of our sentence."""
    text = message.removeprefix("Input should be ").removeprefix("Value error, ")
    return f"expected {text}" if text != message else message[:1].lower() + message[1:]


def _build(sections: dict[str, Section], assigned_origins: Mapping[str, str]) -> Config:
    server, storage, metadata, cluster, limits, log, tls, auth, quota, mailboxes, metrics, tracing = (
        sections[name] for name in _SECTION_ORDER
    )
    assert isinstance(server, ServerSettings)
    assert isinstance(storage, StorageSettings)
    assert isinstance(metadata, MetadataSettings)
    assert isinstance(cluster, ClusterSettings)
    assert isinstance(limits, LimitSettings)
    assert isinstance(log, LogSettings)
    assert isinstance(tls, TlsSettings)
    assert isinstance(auth, AuthSettings)
    assert isinstance(quota, QuotaSettings)
    assert isinstance(mailboxes, MailboxSettings)
    assert isinstance(metrics, MetricsSettings)
    assert isinstance(tracing, TracingSettings)
    return Config(
        server=server,
        storage=storage,
        metadata=metadata,
        cluster=cluster,
        limits=limits.to_limits(),
        log=log,
        tls=tls,
        auth=auth,
        quota=quota,
        mailboxes=mailboxes,
        metrics=metrics,
        tracing=tracing,
        origins={key: assigned_origins.get(key, BUILT_IN) for key in _ordered_keys()},
        texts={key: format_setting(_value(sections, key)) for key in _ordered_keys()},
    )


_SECTION_ORDER: Sequence[str] = (
    "server", "storage", "metadata", "cluster", "limits", "log", "tls", "auth", "quota", "mailboxes", "metrics",
    "tracing",
)  # fmt: skip
assert set(_SECTION_ORDER) == set(SECTIONS)


def _ordered_keys() -> list[str]:
    keys = [f"{section}.{name}" for section in _SECTION_ORDER for name in SECTIONS[section].model_fields]
    assert set(keys) == KEYS
    return keys


def _value(sections: Mapping[str, Section], key: str) -> object:
    section, name = key.split(".")
    return getattr(sections[section], name)
