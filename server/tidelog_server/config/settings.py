"""Every setting of the server with its default and bounds. Each class is one section of the file.

A setting has one name in three spellings: ``durability`` under ``[storage]`` in the file,
``TIDELOG_STORAGE__DURABILITY`` in the environment, ``--storage.durability`` as a flag.
"""

import importlib.util
import inspect
import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationInfo, field_validator

from tidelog_server.config.values import (
    NONE,
    Bytes,
    FilePath,
    Host,
    OptionalPath,
    OptionalPathOrUrl,
    OptionalText,
    check_boolean,
    check_number,
    check_whole_number,
)
from tidelog_server.core.limits import (
    DEFAULT_BLOB_GRACE_S,
    MAX_BATCH_BYTES_CEILING,
    MAX_KEEPALIVE_US,
    MAX_NODE_ID_CHARACTERS,
    MAX_RESPONSE_BYTES,
    MIB,
    WHOLE_PERCENT,
    Limits,
)
from tidelog_server.core.nodes import is_node_id

# An IPv6 address is in brackets; without them, its last part could be the port.
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^\s,:\[\]]+):[0-9]{1,5}")

_PATH = re.compile(r"(?!/api/v1(?:/|$))(?:/[A-Za-z0-9._~-]+)+", re.ASCII)
_TAKEN_PATHS = ("livez", "readyz", "metrics")

Port = Annotated[int, Field(ge=0, le=65_535)]


_CHECKS: Final[dict[object, Callable[[object], object]]] = {
    bool: check_boolean, int: check_whole_number, float: check_number,
}  # fmt: skip


class Section(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_text(cls, value: object, info: ValidationInfo) -> object:
        """Refuse values that pydantic accepts as numbers or booleans but are not written as such: ``1_0``, ``yes``."""
        assert info.field_name is not None
        kind = cls.model_fields[info.field_name].annotation
        return _CHECKS[kind](value) if kind in _CHECKS else value


class ServerSettings(Section):
    """``[server]``: listening addresses, connections and shutdown."""

    host: Host = Field("127.0.0.1", min_length=1, description="address that gRPC listens on: host name or IP address")
    grpc_port: Port = Field(7420, description="gRPC port, 0 to 65535; 0 chooses a free port")
    http_host: Host = Field(
        "127.0.0.1", min_length=1, description="address that the health and metrics server listens on"
    )
    http_port: Port = Field(7421, description="port of health and metrics, 0 to 65535; 0 chooses a free port")
    shutdown_grace_s: float = Field(
        10.0, ge=0, le=3_600, description="maximum seconds for shutdown, including calls in flight; 0 to 3600"
    )
    insecure: bool = Field(False, description="accept other machines without TLS or authentication")
    reflection: bool = Field(True, description="serve gRPC reflection; needs admin.read if authentication is on")
    max_connections: int = Field(
        0, ge=0, le=1_000_000, description="maximum gRPC connections; 0: as the limit of open files allows, max. 10,000"
    )
    max_streams_per_connection: int = Field(
        100, ge=1, le=10_000, description="maximum concurrent calls per connection, 1 to 10000"
    )
    overload_protection: bool = Field(
        False, description="refuse streams on connections with too many unfinished ones; for hostile clients"
    )
    max_connection_age_s: int = Field(
        0, ge=0, le=30 * 86_400, description="seconds before clients must reconnect; streams resume; 0: no limit"
    )


class StorageSettings(Section):
    """``[storage]``: the log store."""

    kind: Literal["rocksdb", "memory"] = Field("rocksdb", description="log store; memory is lost at exit")
    data_dir: FilePath = Field(Path("tidelog-data"), description="data folder, created if missing")
    durability: Literal["sync", "os"] = Field(
        "sync", description="default durability of an ack: on disk (sync), or in the OS"
    )
    retention_check_interval_ms: int = Field(
        10_000, ge=1, le=3_600_000, description="milliseconds between retention checks, 1 to 3600000"
    )
    accept_head_loss: bool = Field(
        False, description="start without HEAD, the proof that no acknowledged data is lost; for one start only"
    )


class MetadataSettings(Section):
    """``[metadata]``: the store of channels, groups and tokens."""

    kind: Literal["embedded", "memory", "etcd"] = Field(
        "embedded", description="metadata store; memory is lost at exit, etcd is shared by all nodes of a cluster"
    )
    etcd_endpoints: OptionalText = Field("", description="etcd addresses, host:port, separated by commas")
    etcd_prefix: str = Field("/", min_length=1, description="prefix of all keys in etcd")
    etcd_username: OptionalText = Field("", description="etcd user; empty: no authentication")
    etcd_password_file: OptionalPath = Field("", description="file with the etcd user's password in its first line")
    etcd_ca: OptionalPath = Field("", description="CA file for etcd's certificate, PEM; turns TLS on")
    etcd_cert: OptionalPath = Field("", description="file of this node's client certificate for etcd, PEM")
    etcd_key: OptionalPath = Field("", description="file of the private key of etcd_cert, PEM")

    def endpoints(self) -> tuple[str, ...]:
        """Return the addresses of etcd."""
        return tuple(part.strip() for part in self.etcd_endpoints.split(",") if part.strip())


class ClusterSettings(Section):
    """``[cluster]``: this node of a cluster; used if ``metadata.kind`` is ``etcd``."""

    node_id: OptionalText = Field("", description="unique name of this node; belongs to its data folder")
    lease_ttl_s: int = Field(10, ge=2, le=300, description="seconds until a dead node loses its lease, 2 to 300")
    advertise: OptionalText = Field(
        "", description="host:port at which clients reach this node; empty: server.host and grpc_port"
    )
    peer_address: OptionalText = Field(
        "", description="host:port at which other nodes reach this node; empty: cluster.advertise"
    )
    ca: OptionalPath = Field("", description="CA file for other nodes' certificates, PEM; turns on TLS to them")
    token_file: OptionalPath = Field("", description="file of the token for calls to other nodes")
    start_timeout_s: float = Field(60.0, gt=0, le=86_400, description="maximum seconds that a start waits for etcd")


def _limit(name: str, description: str, **bounds: Any) -> Any:
    """Return the field of a limit, whose default is that of ``Limits``."""
    default = getattr(Limits(), name)
    return Field(ByteSize(default) if "bytes" in name else default, description=description, **bounds)


class LimitSettings(Section):
    """``[limits]``: upper bounds; bytes as a number or with a unit such as ``8MiB``."""

    max_message_bytes: Bytes = _limit("max_message_bytes", "maximum bytes of a message's payload", gt=0)
    max_batch_bytes: Bytes = _limit("max_batch_bytes", "maximum bytes of a batch", gt=0)
    max_in_flight_bytes_per_stream: Bytes = _limit(
        "max_in_flight_bytes_per_stream", "maximum unacknowledged bytes per append stream", gt=0
    )
    max_in_flight_bytes: Bytes = _limit("max_in_flight_bytes", "maximum unacknowledged bytes on the server", gt=0)
    max_unread_bytes: Bytes = _limit(
        "max_unread_bytes",
        "maximum bytes of scan responses that clients have not read; a third per principal",
        ge=MAX_RESPONSE_BYTES,
    )
    max_open_streams: int = _limit("max_open_streams", "maximum open streams on the server", gt=0)
    max_open_streams_per_principal: int = _limit(
        "max_open_streams_per_principal",
        "maximum open streams per principal; per address if authentication is off",
        gt=0,
    )
    tail_ring_bytes: Bytes = _limit(
        "tail_ring_bytes", "bytes of memory for the newest messages, read by following scans", gt=0
    )
    min_free_disk_bytes: Bytes = _limit(
        "min_free_disk_bytes", "free disk space in bytes below which appends are refused", ge=0
    )
    max_txn_bytes: Bytes = _limit("max_txn_bytes", "maximum bytes of a transaction, staged on disk", gt=0)
    max_staged_bytes: Bytes = _limit("max_staged_bytes", "maximum bytes of all open transactions, staged on disk", gt=0)
    max_open_txns: int = _limit("max_open_txns", "maximum open transactions on the server", gt=0)
    max_open_txns_per_client: int = _limit("max_open_txns_per_client", "maximum open transactions per client", gt=0)
    txn_keepalive_ms: int = _limit(
        "txn_keepalive_ms",
        "default keepalive of transactions: milliseconds without a call until one is aborted",
        gt=0,
        le=MAX_KEEPALIVE_US // 1_000,
    )
    max_principal_percent: int = _limit(
        "max_principal_percent",
        "maximum share of each limited number that one principal may use, in percent, 1 to 100",
        gt=0,
        le=WHOLE_PERCENT,
    )
    max_mailbox_messages: int = _limit(
        "max_mailbox_messages", "maximum messages in all mailboxes of the server; about 100 bytes of memory each", gt=0
    )
    max_mailbox_memory_bytes: Bytes = _limit(
        "max_mailbox_memory_bytes",
        "maximum memory of what all mailboxes of the server hold: messages without their bodies, "
        "deduplication keys, groups, leases, ended locks, and blobs without their bytes",
        gt=0,
    )

    def to_limits(self) -> Limits:
        """Return the limits for the layers below. Call only if ``broken_relations`` yields nothing."""
        return Limits(**{name: int(value) for name, value in self})


class LogSettings(Section):
    """``[log]``: the server's log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="minimum severity of logged events")
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: text on a terminal, JSON otherwise")
    slow_append_ms: int = Field(1_000, ge=0, description="log appends that take longer, in milliseconds; 0: never")


class TlsSettings(Section):
    """``[tls]``: encryption. Files are reloaded when they change."""

    cert: OptionalPath = Field("", description="file of the server's certificate and its chain, PEM; empty: no TLS")
    key: OptionalPath = Field("", description="file of the private key of tls.cert, PEM")
    client_ca: OptionalPath = Field("", description="CA file, PEM; if set, clients need a certificate signed by it")
    deny_list: OptionalPath = Field(
        "", description="file of denied client certificates: a serial or SPIFFE id per line"
    )


class AuthSettings(Section):
    """``[auth]``: authentication and authorization."""

    kind: Literal["off", "on"] = Field("off", description="on: calls need credentials and grants")
    grants: OptionalPath = Field("", description="file of grants for signed tokens and client certificates, TOML")
    jwt_issuer: OptionalText = Field("", description="required issuer (iss) of signed tokens (JWT)")
    jwt_audience: OptionalText = Field("", description="required audience (aud) of signed tokens: this server")
    jwt_jwks: OptionalPathOrUrl = Field(
        "", description="file or https URL of the keys of signed tokens; empty: refuse them"
    )
    jwt_leeway_s: int = Field(30, ge=0, le=300, description="allowed clock difference in seconds, 0 to 300")
    jwt_max_lifetime_s: int = Field(
        3_600, ge=60, le=86_400, description="maximum lifetime of signed tokens, in seconds"
    )


class QuotaSettings(Section):
    """``[quota]``: limits per principal, applied only if authentication is on. A rate of 0 means no limit."""

    requests_per_s: int = Field(5_000, ge=0, description="calls per second; 0: no limit")
    request_burst: int = Field(10_000, ge=1, description="calls in a burst")
    in_bytes_per_s: Bytes = Field(ByteSize(0), ge=0, description="request bytes per second; 0: no limit")
    out_bytes_per_s: Bytes = Field(
        ByteSize(0), ge=0, description="bytes of scans, deliveries and blobs per second; 0: no limit"
    )
    ticks_per_s: int = Field(10_000_000, ge=0, description="ticks allocated per second; 0: no limit")
    shared_calls_per_s: int = Field(
        1_000, ge=0, description="calls per second while other principals are active; 0: no limit"
    )
    auth_failures_per_minute: int = Field(10, ge=1, description="failed authentications per address")


class MailboxSettings(Section):
    """``[mailboxes]``: blobs, and mailboxes over HTTP, on the port of health and metrics."""

    http_api: bool = Field(True, description="serve mailboxes as JSON under /api/v1; calls are checked as by gRPC")
    http_prefix: OptionalText = Field(
        "", description="path below which pandora's endpoints are served, such as /pandora; empty: none"
    )
    http_max_body_bytes: Bytes = Field(
        ByteSize(4_096), ge=256, le=MIB,
        description="maximum size of a message at pandora's endpoints, URL-encoded; 256 to 1MiB",
    )  # fmt: skip
    blob_grace_s: float = Field(
        DEFAULT_BLOB_GRACE_S, ge=0.1, le=366 * 86_400, description="seconds before a blob without references is deleted"
    )


class MetricsSettings(Section):
    """``[metrics]``: optional metrics with a label per object."""

    per_vchannel: bool = Field(False, description="report first and tail tick of each vchannel; a label each")
    per_group: bool = Field(False, description="report the lag of each consumer group; a label each")
    per_mailbox: bool = Field(False, description="report the messages of each mailbox; four labels each")


class TracingSettings(Section):
    """``[tracing]``: OpenTelemetry spans of calls; needs ``tidelog[otel]``."""

    endpoint: str = Field("off", pattern=r"^(off|https?://\S+)$", description="OTLP endpoint URL for spans, or off")
    sample_ratio: float = Field(
        0.01, ge=0, le=1, description="sampled fraction of calls without a trace context, 0 to 1"
    )


class Settings(BaseModel):
    """All settings. Each field is one section of the file."""

    model_config = ConfigDict(frozen=True)

    server: ServerSettings
    storage: StorageSettings
    metadata: MetadataSettings
    cluster: ClusterSettings
    limits: LimitSettings
    log: LogSettings
    tls: TlsSettings
    auth: AuthSettings
    quota: QuotaSettings
    mailboxes: MailboxSettings
    metrics: MetricsSettings
    tracing: TracingSettings


SECTIONS: Final[dict[str, type[Section]]] = inspect.get_annotations(Settings)


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """One setting, for listings.

    Attributes:
        key: ``section.name``.
        default: Default value, as written in a file.
        text: Short description.
    """

    key: str
    default: str
    text: str


def describe_settings() -> list[SettingDescription]:
    """Return all settings, section by section."""
    return [
        SettingDescription(f"{section}.{name}", format_setting(field.default) or '""', field.description or "")
        for section, model in SECTIONS.items()
        for name, field in model.model_fields.items()
    ]


def format_setting(value: object) -> str:
    """Return a setting's value as text: booleans in lower case, whole MiB with the unit, an empty string as NONE."""
    if value == "":
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize) and value > 0 and value % (1 << 20) == 0:
        return f"{value >> 20}MiB"
    return str(value)


def broken_relations(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key, expected value) for each violated rule between settings."""
    limits, tls, auth = settings.limits, settings.tls, settings.auth
    yield from _exposed_addresses(settings.server, is_closed=bool(tls.cert) and auth.kind == "on")
    yield from _broken_security(tls, auth)
    if settings.tracing.endpoint != "off" and importlib.util.find_spec("opentelemetry") is None:
        yield (
            "tracing.endpoint",
            '"off", since OpenTelemetry is not installed: run `pip install ".[otel]"` in a clone of Tidelog',
        )
    yield from _broken_cluster(settings)
    prefix = settings.mailboxes.http_prefix
    if prefix and (not _PATH.fullmatch(prefix) or prefix.split("/")[1] in _TAKEN_PATHS):
        yield (
            "mailboxes.http_prefix",
            f"a path such as /pandora, without a / at its end, outside of /api/v1, /{', /'.join(_TAKEN_PATHS)}",
        )
    for smaller, larger in (
        ("max_message_bytes", "max_batch_bytes"),
        ("max_batch_bytes", "max_in_flight_bytes_per_stream"),
        ("max_in_flight_bytes_per_stream", "max_in_flight_bytes"),
        ("max_batch_bytes", "max_txn_bytes"),
        ("max_txn_bytes", "max_staged_bytes"),
    ):
        bound = getattr(limits, larger)
        if getattr(limits, smaller) > bound:
            yield f"limits.{smaller}", f"at most limits.{larger}, which is {bound} bytes"
    if limits.max_batch_bytes > MAX_BATCH_BYTES_CEILING:
        yield "limits.max_batch_bytes", f"at most {MAX_BATCH_BYTES_CEILING} bytes"


def _broken_cluster(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key, expected value) for settings that are missing or invalid for a node on etcd."""
    metadata, cluster = settings.metadata, settings.cluster
    if metadata.kind != "etcd":
        return
    if not metadata.endpoints() or not all(_ADDRESS.fullmatch(each) for each in metadata.endpoints()):
        yield "metadata.etcd_endpoints", "addresses such as 10.0.0.1:2379,10.0.0.2:2379, since metadata.kind is etcd"
    if not is_node_id(cluster.node_id):
        yield (
            "cluster.node_id",
            (f"1 to {MAX_NODE_ID_CHARACTERS} of a-z, 0-9 and -, such as node-1, unique in the cluster"),
        )
    yield from _broken_addresses(settings.server, cluster)
    if settings.storage.kind != "rocksdb":
        yield "storage.kind", "rocksdb, since metadata.kind is etcd: the metadata would outlive a log in memory"
    if metadata.etcd_username and not metadata.etcd_password_file:
        yield "metadata.etcd_password_file", "a file, since metadata.etcd_username is set"
    if bool(metadata.etcd_cert) != bool(metadata.etcd_key):
        yield "metadata.etcd_key", "both metadata.etcd_cert and metadata.etcd_key, or neither"
    if metadata.etcd_cert and not metadata.etcd_ca:
        yield "metadata.etcd_ca", "a file, since metadata.etcd_cert is set"


def _broken_addresses(server: ServerSettings, cluster: ClusterSettings) -> Iterator[tuple[str, str]]:
    """Yield the addresses of this node that clients or other nodes cannot connect to."""
    for name in ("advertise", "peer_address"):
        address = getattr(cluster, name)
        if address and (not _ADDRESS.fullmatch(address) or is_unspecified(address.rpartition(":")[0])):
            yield f"cluster.{name}", "host:port, with a host that other machines can connect to"
    if not cluster.advertise and is_unspecified(server.host):
        yield (
            "cluster.advertise",
            f"host:port at which clients reach this node, since they cannot connect to server.host, which is "
            f"{server.host}",
        )


def is_unspecified(host: str) -> bool:
    """Return whether ``host`` means all addresses of a machine, as 0.0.0.0 does; clients cannot connect to it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _exposed_addresses(server: ServerSettings, *, is_closed: bool) -> Iterator[tuple[str, str]]:
    """Yield the addresses that other machines can reach unprotected although ``insecure`` is not set."""
    for name in ("host", "http_host"):
        if not (server.insecure or is_closed or _is_loopback(getattr(server, name))):
            yield (
                f"server.{name}",
                "a loopback address such as 127.0.0.1, because calls are not both encrypted and authenticated; "
                "set tls.cert, tls.key and auth.kind = on, or server.insecure = true if the network is trusted",
            )


def is_exposed(server: ServerSettings, tls: TlsSettings, auth: AuthSettings) -> bool:
    """Return whether the server accepts other machines without TLS or without authentication."""
    is_local = _is_loopback(server.host) and _is_loopback(server.http_host)
    return not is_local and not (tls.cert and auth.kind == "on")


def _broken_security(tls: TlsSettings, auth: AuthSettings) -> Iterator[tuple[str, str]]:
    if bool(tls.cert) != bool(tls.key):
        yield ("tls.key" if tls.cert else "tls.cert"), "both tls.cert and tls.key, or neither"
    for name in ("client_ca", "deny_list"):
        if getattr(tls, name) and not tls.cert:
            yield f"tls.{name}", "tls.cert and tls.key to be set too"
    if tls.deny_list and not tls.client_ca:
        yield "tls.deny_list", "tls.client_ca to be set too: without it clients present no certificate"
    yield from _broken_jwt(auth)
    if auth.kind == "off":
        for name in ("grants", "jwt_jwks"):
            if getattr(auth, name):
                yield f"auth.{name}", "auth.kind = on: with authentication off it has no effect"


def _broken_jwt(auth: AuthSettings) -> Iterator[tuple[str, str]]:
    if auth.jwt_jwks:
        for name in ("jwt_issuer", "jwt_audience"):
            if not getattr(auth, name):
                yield f"auth.{name}", "a value, since auth.jwt_jwks is set"
        if auth.jwt_jwks.startswith("http://") and not _is_loopback(
            urllib.parse.urlsplit(auth.jwt_jwks).hostname or ""
        ):
            yield "auth.jwt_jwks", "an https URL: an attacker who replaces the keys in transit can forge any token"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
