"""Every setting of the server with its default and bounds. Each class is one section of the file.

A setting has one name in three spellings: ``durability`` under ``[storage]`` in the file,
``TIDELOG_STORAGE__DURABILITY`` in the environment, ``--storage.durability`` as a flag.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationInfo, field_validator

from tidelog_server.config.values import (
    NONE,
    Bytes,
    ClaimPath,
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
    MAX_KEEPALIVE_US,
    MAX_NODES,
    MAX_RESPONSE_BYTES,
    MIB,
    WHOLE_PERCENT,
    Limits,
)
from tidelog_server.recordlog.kinds import ENGINE_KINDS

ANY_NODE: Final = "auto"
"""As ``cluster.node_id``: any node that has no process."""

DISCOVERED: Final = "discover"
"""As ``auth.jwt_jwks``: the issuer names the URL of its keys."""

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
    channelz: bool = Field(
        False, description="serve channelz, gRPC's figures of connections and calls; needs admin.read as reflection"
    )
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

    kind: Literal["rocksdb", "memory", "kafka", "pulsar"] = Field(
        "rocksdb", description="log store; memory is lost at exit; kafka, pulsar: a topic of it, see [engine]"
    )
    data_dir: FilePath = Field(
        Path("tidelog-data"), description="data folder, created if missing; with an engine a view that may be deleted"
    )
    durability: Literal["sync", "os"] = Field(
        "sync", description="default durability of an ack: on disk (sync), or in the OS"
    )
    retention_check_interval_ms: int = Field(
        10_000, ge=1, le=3_600_000, description="milliseconds between retention checks, 1 to 3600000"
    )
    accept_head_loss: bool = Field(
        False, description="start without HEAD, the proof that no acknowledged data is lost; for one start only"
    )

    @property
    def is_in_engine(self) -> bool:
        """Whether the log is in an engine, and what is here is a view of it."""
        return self.kind in ENGINE_KINDS


class EngineSettings(Section):
    """``[engine]``: the engine of the log; used if ``storage.kind`` is ``kafka`` or ``pulsar``."""

    servers: OptionalText = Field("", description="addresses of Kafka's brokers, host:port, separated by commas")
    service_url: OptionalText = Field("", description="address of Pulsar, pulsar://HOST:PORT or pulsar+ssl://HOST:PORT")
    admin_url: OptionalText = Field(
        "", description="address of Pulsar's administration API; empty: port 8080 of that host, with TLS 8443"
    )
    namespace: str = Field("public/default", description="tenant and namespace of the topics in Pulsar")
    topic: OptionalText = Field(
        "", description="topic of the log; empty: tidelog.single. and cluster.node_id; in a cluster etcd has the names"
    )
    options_file: OptionalPath = Field(
        "", description="file of options for the engine's client, name=value in each line, such as those of TLS"
    )
    cache_bytes: Bytes = Field(
        ByteSize(64 * MIB), ge=MIB, description="maximum bytes of the log in memory, for readers; at least 1MiB"
    )

    follows: int = Field(
        2, ge=1, le=MAX_NODES, description="logs that a process without a node applies, 1 to 64; cluster.node_id = auto"
    )
    silent_s: float = Field(
        10.0,
        ge=0.1,
        le=3_600,
        description="seconds without a confirmation until changes are refused, 0.1 to 3600",
    )

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the brokers."""
        return tuple(part.strip() for part in self.servers.split(",") if part.strip())

    def topic_of(self, node_id: str, cluster: str = "single") -> str:
        """Return the topic of the log of a node."""
        return self.topic or f"tidelog.{cluster}.{node_id}"


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

    name: OptionalText = Field("", description="name of the cluster in the names of the topics that it creates")
    node_id: OptionalText = Field(
        "", description="unique name of this node; auto: any node without a process, with logs in an engine"
    )
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

    @property
    def serves_any_node(self) -> bool:
        """Whether this process serves any node that has no process."""
        return self.node_id == ANY_NODE


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
        "",
        description="file or https URL of the keys of signed tokens; discover: as auth.jwt_issuer says (OpenID Connect "
        "Discovery); empty: refuse them",
    )
    jwt_ca: OptionalPath = Field(
        "", description="CA file for the server of the keys, PEM; empty: the authorities that the system trusts"
    )
    jwt_roles_claim: ClaimPath = Field(
        "roles",
        description=r"claim of signed tokens with the list of roles, such as groups, or a path: realm_access.roles; "
        r"\. is a dot in a name",
    )
    jwt_require_jti: bool = Field(True, description="refuse signed tokens without an id, jti")
    jwt_require_typ: bool = Field(True, description="refuse signed tokens without typ in the header")
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
    old_names: bool = Field(True, description="report renamed metrics under their old names too, for one version")


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
    engine: EngineSettings
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

RELOADABLE: Final = frozenset((
    "limits.min_free_disk_bytes", "limits.txn_keepalive_ms", "log.format", "log.level", "log.slow_append_ms",
    "server.shutdown_grace_s",
))  # fmt: skip
"""Settings that take effect at SIGHUP."""


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
