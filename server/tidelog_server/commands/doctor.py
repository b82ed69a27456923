"""``tidelog doctor``: check whether this machine suits a server, and whether a server responds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import grpc
import typer

from tidelog_cli import event_loop
from tidelog_cli.commands.version import installed_versions
from tidelog_cli.connection import secured_channel
from tidelog_cli.exit_codes import COMMON_CODES, ExitCode
from tidelog_cli.extras import extra_of
from tidelog_cli.numbers import seconds
from tidelog_cli.options.target import NOT_GIVEN, EndpointOption, target_at
from tidelog_cli.output.records import OutputOption, Record, print_records
from tidelog_server.commands import probes
from tidelog_server.commands.config_flags import (
    SETTINGS_HELP,
    TAKES_SETTINGS,
    ConfigOption,
    effective_config,
    parse_settings,
)
from tidelog_server.commands.probes import Finding, Severity
from tidelog_server.commands.pulsar import DEFAULT_PULSAR_NAMESPACE, pulsar_broker

if TYPE_CHECKING:
    from tidelog_server.config import Config, EngineSettings

_HEALTH: Final = "/grpc.health.v1.Health/Check"
# HealthCheckResponse with field 1, status, SERVING.
_SERVING: Final = b"\x08\x01"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    epilog = f"{COMMON_CODES} Here 8 means that there are warnings, 9 that there are failures. {SETTINGS_HELP}"
    app.command(context_settings=TAKES_SETTINGS, epilog=epilog)(doctor)


def doctor(
    context: typer.Context,
    config: ConfigOption = None,
    endpoint: EndpointOption = NOT_GIVEN,
    timeout: Annotated[float, typer.Option(callback=seconds, help="Seconds to wait for the server's response.")] = 2.0,
    *,
    pulsar: Annotated[
        str | None,
        typer.Option("--pulsar", help="Address of a Pulsar broker to check.", show_default=False),
    ] = None,
    pulsar_admin: Annotated[
        str | None, typer.Option("--pulsar-admin", help="Address of its administration API.", show_default=False)
    ] = None,
    pulsar_namespace: Annotated[
        str, typer.Option(help="Tenant and namespace of the topics.")
    ] = DEFAULT_PULSAR_NAMESPACE,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", help="Addresses of Kafka brokers to check for a log.", show_default=False),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Check disk, clock, open-file limit, Java for Spark, a running server, TLS files, keys of tokens and etcd.

    It shows versions, too. With --pulsar also a Pulsar broker: address, token (of TIDELOG_PULSAR_TOKEN), permissions,
    sizes and retention; with --pulsar-admin also what a log needs, as with --kafka.
    With --kafka also the brokers: addresses, options (of engine.options_file), permissions, sizes, copies, the time of
    a confirmed append, and the settings of the log (of engine.topic). It creates a topic and deletes it.
    """
    settings = effective_config(config, parse_settings(context.args))
    findings = [
        *findings_of(settings, endpoint, timeout),
        *(_pulsar(pulsar, pulsar_admin, pulsar_namespace, settings) if pulsar else ()),
        *(
            _installed(
                "Kafka", lambda: _engine("kafka", settings.engine.model_copy(update={"servers": kafka}), "Kafka")
            )
            if kafka
            else ()
        ),
        *(Finding(f"version of {name}", Severity.OK, text) for name, text in installed_versions().items()),
    ]
    print_records(finding_records(findings), output)
    worst = max(item.severity for item in findings)
    raise typer.Exit({Severity.OK: ExitCode.OK, Severity.WARNING: ExitCode.DEGRADED}.get(worst, ExitCode.UNHEALTHY))


def findings_of(settings: "Config", endpoint: str, timeout_s: float) -> list[Finding]:
    """Return what the probes find that need no more than the settings and the address of a server."""
    return [
        *_storage(settings.storage.kind, settings.storage.data_dir, settings.limits.min_free_disk_bytes),
        *probes.check_clock(),
        probes.check_open_files(),
        *probes.check_java(),
        event_loop.run(check_server(endpoint, timeout_s)),
        *_installed("TLS files", lambda: _tls(settings)),
        *_installed("keys of signed tokens", lambda: _keys(settings)),
        *_installed("etcd", lambda: _etcd(settings, timeout_s)),
    ]


def finding_records(findings: Sequence[Finding]) -> list[Record]:
    """Return findings as they are printed."""
    return [{"check": item.check, "severity": item.severity.name.lower(), "text": item.text} for item in findings]


async def check_server(endpoint: str, timeout_s: float) -> Finding:
    """Check the health of a server. An absent server is a failure only if something names one."""
    target = target_at(endpoint)
    address = target.endpoints[0]
    try:
        channel, metadata = secured_channel(target)
        async with channel:
            # Why raw bytes: the message classes of this service come with the extra `server`.
            ask: Any = channel.unary_unary(_HEALTH)
            answer: bytes = await ask(b"", timeout=timeout_s, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        text = f"no server responds at {address} ({error.code().name.lower().replace('_', ' ')})"
        if target.is_default:
            return Finding("server", Severity.OK, f"{text}; --endpoint was not given")
        return Finding("server", Severity.FAILURE, f"{text}: start it with `tidelog serve`, or correct --endpoint")
    if answer != _SERVING:
        return Finding("server", Severity.FAILURE, f"{address} is not serving: check its log and /readyz?verbose")
    return Finding("server", Severity.OK, f"{address} is serving")


def _installed(about: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Return the findings of ``check``, or a warning if its extra is not installed, as on a client machine."""
    try:
        return check()
    except ModuleNotFoundError as error:
        if (extra := extra_of(error)) is None:
            raise
        return [
            Finding(about, Severity.WARNING, f"not checked: needs `pip install '.[{extra}]'` in a clone of Tidelog")
        ]


def _tls(settings: "Config") -> list[Finding]:
    from tidelog_server.commands.probes_tls import check_tls_files

    found: list[Finding] = []
    tls, metadata = settings.tls, settings.metadata
    if tls.cert:
        found += check_tls_files(Path(tls.cert), Path(tls.key), Path(tls.client_ca) if tls.client_ca else None)
    if metadata.etcd_cert:
        found += check_tls_files(Path(metadata.etcd_cert), Path(metadata.etcd_key), name="etcd")
    return found


def _keys(settings: "Config") -> list[Finding]:
    from tidelog_server.commands.probes_keys import check_keys
    from tidelog_server.from_settings import security_settings

    source = security_settings(settings).keys
    return [] if source is None else [check_keys(source)]


def _etcd(settings: "Config", timeout_s: float) -> list[Finding]:
    if settings.metadata.kind != "etcd":
        return []
    from tidelog_server.commands.probes_etcd import check_etcd
    from tidelog_server.from_settings import etcd_access

    access = etcd_access(settings)
    return [
        finding
        for endpoint in access.endpoints
        for finding in event_loop.run(check_etcd(replace(access, endpoints=(endpoint,)), timeout_s=timeout_s))
    ]


def _pulsar(address: str, admin_url: str | None, namespace: str, settings: "Config") -> list[Finding]:
    from tidelog_server.commands.probes_pulsar import check_pulsar

    async def check() -> list[Finding]:
        async with pulsar_broker(address, admin_url, namespace) as broker:
            return await check_pulsar(broker)

    found = event_loop.run(check())
    if admin_url is None:
        text = "not checked: pass --pulsar-admin"
        return [*found, Finding("Pulsar log", Severity.OK, text)]
    given = {"service_url": address, "admin_url": admin_url, "namespace": namespace}
    return [*found, *_engine("pulsar", settings.engine.model_copy(update=given), "Pulsar log")]


def _engine(kind: str, engine: "EngineSettings", about: str) -> list[Finding]:
    from tidelog_server.commands.probes_engine import check_engine
    from tidelog_server.from_settings import log_access
    from tidelog_server.recordlog.engine import LogSetupError

    try:
        access = log_access(kind, engine)
    except LogSetupError as error:
        return [Finding(about, Severity.FAILURE, str(error))]
    return check_engine(access, engine.topic, about)


def _storage(kind: str, data_dir: Path, needed_bytes: int) -> list[Finding]:
    if kind == "memory":
        return [Finding("disk sync", Severity.OK, "not needed: storage.kind is memory")]
    return probes.check_disk(probes.nearest_folder(data_dir), needed_bytes)
