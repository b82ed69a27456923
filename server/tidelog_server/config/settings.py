"""Every setting of the server with its default and bounds. One class is one section of the file.

A setting has one name in three spellings: ``durability`` under ``[storage]`` in the file,
``TIDELOG_STORAGE__DURABILITY`` in the environment, ``--storage.durability`` as a flag.
"""

import importlib.util
import ipaddress
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationInfo, field_validator

from tidelog_server.config.values import Bytes, FilePath, check_number, check_whole_number
from tidelog_server.core.limits import (
    MAX_BATCH_BYTES_CEILING,
    MAX_KEEPALIVE_US,
    MAX_NODE_ID_CHARACTERS,
    MAX_RESPONSE_BYTES,
    WHOLE_PERCENT,
    Limits,
)
from tidelog_server.core.nodes import is_node_id

_DEFAULT_LIMITS = Limits()
_ADDRESS = re.compile(r"[^\s,]+:[0-9]{1,5}")

Port = Annotated[int, Field(ge=0, le=65_535)]

NONE = "none"
# A setting that may be left out: its word for that can be loaded again.
OptionalText = Annotated[str, BeforeValidator(lambda value: "" if value == NONE else value)]


class Section(BaseModel):
    """A frozen section that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_text(cls, value: object, info: ValidationInfo) -> object:
        """Refuse what pydantic would read as a number and is not written as one, such as ``true`` and ``1_0``."""
        assert info.field_name is not None
        kind = cls.model_fields[info.field_name].annotation
        return check_whole_number(value) if kind is int else check_number(value) if kind is float else value


class ServerSettings(Section):
    """``[server]``: where the server listens and how it ends."""

    host: str = Field("127.0.0.1", min_length=1, description="address that gRPC listens on")
    grpc_port: Port = Field(7420, description="port of gRPC; 0 takes any free one")
    http_host: str = Field("127.0.0.1", min_length=1, description="address that health and metrics listen on")
    http_port: Port = Field(7421, description="port of health and metrics; 0 takes any free one")
    shutdown_grace_s: float = Field(
        10.0, ge=0, le=3_600, description="seconds that a stop may take, calls in flight included"
    )
    insecure: bool = Field(False, description="allows other machines in without TLS or authentication")
    reflection: bool = Field(True, description="lets tools list the services; needs admin.read with authentication")
    max_connections: int = Field(
        0, ge=0, le=1_000_000, description="connections of gRPC clients; 0: as open files permit, at most 10,000"
    )
    max_streams_per_connection: int = Field(100, ge=1, le=10_000, description="calls at once on a connection")
    overload_protection: bool = Field(
        False, description="refuses streams of a connection that has too many unfinished; for hostile clients"
    )
    max_connection_age_s: int = Field(
        0, ge=0, le=30 * 86_400, description="seconds after which a connection is renewed, streams resume; 0 for never"
    )


class StorageSettings(Section):
    """``[storage]``: where messages live."""

    kind: Literal["rocksdb", "memory"] = Field("rocksdb", description="log store; memory forgets at exit")
    data_dir: FilePath = Field(Path("tidelog-data"), description="folder of the data, made when it is missing")
    durability: Literal["sync", "os"] = Field("sync", description="what an ack promises: on disk, or in the OS")
    retention_check_interval_ms: int = Field(
        10_000, ge=1, le=3_600_000, description="pause between looks for messages that channels may forget"
    )
    accept_head_loss: bool = Field(
        False, description="start although HEAD is lost, and with it the proof that nothing else is; use once"
    )


class MetadataSettings(Section):
    """``[metadata]``: where the names of channels live."""

    kind: Literal["embedded", "memory", "etcd"] = Field(
        "embedded", description="metadata store; memory forgets at exit, etcd is shared by nodes"
    )
    etcd_endpoints: OptionalText = Field("", description="addresses of etcd, host:port with commas between")
    etcd_prefix: str = Field("/", min_length=1, description="what all keys in etcd begin with")
    etcd_username: OptionalText = Field("", description="user of etcd; empty for none")
    etcd_password_file: OptionalText = Field("", description="file whose first line is the user's password")
    etcd_ca: OptionalText = Field("", description="file of certificates that etcd's must come from; turns TLS on")
    etcd_cert: OptionalText = Field("", description="file of the certificate that etcd gets from this node")
    etcd_key: OptionalText = Field("", description="file of its key")

    def endpoints(self) -> tuple[str, ...]:
        """Return the addresses of etcd."""
        return tuple(part.strip() for part in self.etcd_endpoints.split(",") if part.strip())


class ClusterSettings(Section):
    """``[cluster]``: this node among others; used with ``metadata.kind = etcd``."""

    node_id: OptionalText = Field("", description="name of this node, which stays with its data folder")
    lease_ttl_s: int = Field(10, ge=2, le=300, description="seconds after which a node that is gone is forgotten")
    advertise: OptionalText = Field(
        "", description="host:port at which clients reach this node; empty: where gRPC listens"
    )
    peer_address: OptionalText = Field(
        "", description="host:port at which other nodes reach this one; empty: cluster.advertise"
    )
    ca: OptionalText = Field("", description="file of authorities of other nodes' certificates; calls them with TLS")
    token_file: OptionalText = Field("", description="file of the token that other nodes are shown")
    start_timeout_s: float = Field(60.0, gt=0, le=86_400, description="seconds that a start waits for etcd")


class LimitSettings(Section):
    """``[limits]``: bounds; those in bytes as a number or with a unit such as ``8MiB``."""

    max_message_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.max_message_bytes), gt=0, description="one message's payload"
    )
    max_batch_bytes: Bytes = Field(ByteSize(_DEFAULT_LIMITS.max_batch_bytes), gt=0, description="one batch")
    max_in_flight_bytes_per_stream: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.max_in_flight_bytes_per_stream),
        gt=0,
        description="unacknowledged on a stream",
    )
    max_in_flight_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.max_in_flight_bytes), gt=0, description="unacknowledged on the server"
    )
    max_unread_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.max_unread_bytes), ge=MAX_RESPONSE_BYTES,
        description="responses of scans that clients have not taken; a principal has a third of it",
    )  # fmt: skip
    max_open_streams: int = Field(_DEFAULT_LIMITS.max_open_streams, gt=0, description="open streams on the server")
    max_open_streams_per_principal: int = Field(
        _DEFAULT_LIMITS.max_open_streams_per_principal, gt=0,
        description="open streams of a principal, or of an address without authentication",
    )  # fmt: skip
    tail_ring_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.tail_ring_bytes), gt=0, description="memory that serves live scans"
    )
    min_free_disk_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.min_free_disk_bytes),
        ge=0,
        description="appends stop below so much free disk",
    )

    max_txn_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.max_txn_bytes), gt=0, description="one transaction, staged on disk"
    )
    max_staged_bytes: Bytes = Field(
        ByteSize(_DEFAULT_LIMITS.max_staged_bytes), gt=0, description="all open transactions, staged on disk"
    )
    max_open_txns: int = Field(_DEFAULT_LIMITS.max_open_txns, gt=0, description="open transactions on the server")
    max_open_txns_per_client: int = Field(
        _DEFAULT_LIMITS.max_open_txns_per_client, gt=0, description="open transactions of one client"
    )
    txn_keepalive_ms: int = Field(
        _DEFAULT_LIMITS.txn_keepalive_ms,
        gt=0,
        le=MAX_KEEPALIVE_US // 1_000,
        description="life of a silent transaction that names none",
    )
    max_principal_percent: int = Field(
        _DEFAULT_LIMITS.max_principal_percent,
        gt=0,
        le=WHOLE_PERCENT,
        description="most of what is limited in number that one principal may use, of the whole",
    )

    def to_limits(self) -> Limits:
        """Return the limits as the layers below know them. Call when ``broken_relations`` yields none."""
        return Limits(**{name: int(value) for name, value in self})


class LogSettings(Section):
    """``[log]``: what the server says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe event shown")
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: text on a terminal, else JSON")
    slow_append_ms: int = Field(1_000, ge=0, description="appends that take longer are logged; 0 for none")


class TlsSettings(Section):
    """``[tls]``: encryption. Files are read again when they change."""

    cert: OptionalText = Field(
        "", description="file of the server's certificate with its chain, PEM; empty for plaintext"
    )
    key: OptionalText = Field("", description="file of its private key, PEM")
    client_ca: OptionalText = Field("", description="file of authorities; if set, clients need a certificate of theirs")
    deny_list: OptionalText = Field("", description="file of refused certificates: serials and SPIFFE ids, one a line")


class AuthSettings(Section):
    """``[auth]``: who may do what."""

    kind: Literal["off", "on"] = Field("off", description="on: calls need credentials, and may do what is granted")
    grants: OptionalText = Field("", description="file of what signed tokens and client certificates may do, TOML")
    jwt_issuer: OptionalText = Field("", description="issuer of signed tokens (JWT)")
    jwt_audience: OptionalText = Field("", description="audience of signed tokens: this server")
    jwt_jwks: OptionalText = Field("", description="file or https URL of their keys; empty to take none")
    jwt_leeway_s: int = Field(30, ge=0, le=300, description="seconds by which clocks may differ")
    jwt_max_lifetime_s: int = Field(3_600, ge=60, le=86_400, description="longest lifetime of a signed token")


class QuotaSettings(Section):
    """``[quota]``: what one principal may use; only with authentication. 0 for no bound."""

    requests_per_s: int = Field(5_000, ge=0, description="calls per second")
    request_burst: int = Field(10_000, ge=1, description="calls at once after a pause")
    in_bytes_per_s: Bytes = Field(ByteSize(0), ge=0, description="bytes of requests per second")
    out_bytes_per_s: Bytes = Field(ByteSize(0), ge=0, description="bytes of scans per second")
    ticks_per_s: int = Field(10_000_000, ge=0, description="ticks of AllocateTicks per second")
    auth_failures_per_minute: int = Field(10, ge=1, description="failed authentications from one address")


class MetricsSettings(Section):
    """``[metrics]``: what ``/metrics`` tells beyond the node as a whole."""

    per_vchannel: bool = Field(False, description="first and tail tick of each vchannel; a label for each")
    per_group: bool = Field(False, description="lag of each consumer group; a label for each")


class TracingSettings(Section):
    """``[tracing]``: spans of calls, for OpenTelemetry; needs ``tidelog[otel]``."""

    endpoint: str = Field("off", pattern=r"^(off|https?://\S+)$", description="URL that takes spans by OTLP, or off")
    sample_ratio: float = Field(0.01, ge=0, le=1, description="share of calls traced whose clients do not say")


SECTIONS: dict[str, type[Section]] = {
    "server": ServerSettings,
    "storage": StorageSettings,
    "metadata": MetadataSettings,
    "cluster": ClusterSettings,
    "limits": LimitSettings,
    "log": LogSettings,
    "tls": TlsSettings,
    "auth": AuthSettings,
    "quota": QuotaSettings,
    "metrics": MetricsSettings,
    "tracing": TracingSettings,
}


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """One setting, for listings.

    Attributes:
        key: ``section.name``.
        default: As it would be written in a file.
        text: What it does, in a few words.
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
    """Return a setting's value as text: truth in lower case, whole MiB with their unit, an empty text as a word."""
    if value == "":
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize) and value > 0 and value % (1 << 20) == 0:
        return f"{value >> 20}MiB"
    return str(value)


def broken_relations(sections: dict[str, Section]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is expected) for each broken rule between settings."""
    server, limits = sections["server"], sections["limits"]
    assert isinstance(server, ServerSettings)
    assert isinstance(limits, LimitSettings)
    tls, auth = sections["tls"], sections["auth"]
    assert isinstance(tls, TlsSettings)
    assert isinstance(auth, AuthSettings)
    yield from _exposed_addresses(server, is_closed=bool(tls.cert) and auth.kind == "on")
    yield from _broken_security(tls, auth)
    tracing = sections["tracing"]
    assert isinstance(tracing, TracingSettings)
    if tracing.endpoint != "off" and importlib.util.find_spec("opentelemetry") is None:
        yield "tracing.endpoint", 'OpenTelemetry to be installed: pip install "tidelog[otel]"'
    yield from _broken_cluster(sections)
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


def _broken_cluster(sections: dict[str, Section]) -> Iterator[tuple[str, str]]:
    """Yield what a node on etcd lacks."""
    storage, metadata, cluster = sections["storage"], sections["metadata"], sections["cluster"]
    server = sections["server"]
    assert isinstance(server, ServerSettings)
    assert isinstance(storage, StorageSettings)
    assert isinstance(metadata, MetadataSettings)
    assert isinstance(cluster, ClusterSettings)
    if metadata.kind != "etcd":
        return
    if not metadata.endpoints() or not all(_ADDRESS.fullmatch(each) for each in metadata.endpoints()):
        yield "metadata.etcd_endpoints", "addresses such as 10.0.0.1:2379,10.0.0.2:2379, for metadata.kind is etcd"
    if not is_node_id(cluster.node_id):
        yield (
            "cluster.node_id",
            (f"1 to {MAX_NODE_ID_CHARACTERS} of a-z, 0-9 and -, such as node-1, another one for each node"),
        )
    yield from _broken_addresses(server, cluster)
    if storage.kind != "rocksdb":
        yield "storage.kind", "rocksdb, for metadata in etcd outlives a log in memory"
    if metadata.etcd_username and not metadata.etcd_password_file:
        yield "metadata.etcd_password_file", "a file, for metadata.etcd_username is set"
    if bool(metadata.etcd_cert) != bool(metadata.etcd_key):
        yield "metadata.etcd_key", "a file exactly where metadata.etcd_cert is one"
    if metadata.etcd_cert and not metadata.etcd_ca:
        yield "metadata.etcd_ca", "a file, for metadata.etcd_cert is set"


def _broken_addresses(server: ServerSettings, cluster: ClusterSettings) -> Iterator[tuple[str, str]]:
    """Yield the addresses of this node at which nothing could reach it."""
    for name in ("advertise", "peer_address"):
        address = getattr(cluster, name)
        if address and (not _ADDRESS.fullmatch(address) or is_unspecified(address.rpartition(":")[0])):
            yield f"cluster.{name}", "host:port, with a host that others can connect to"
    if not cluster.advertise and is_unspecified(server.host):
        yield (
            "cluster.advertise",
            f"host:port at which clients reach this node, for server.host is {server.host}, which is no address to "
            "connect to",
        )


def is_unspecified(host: str) -> bool:
    """Return whether ``host`` stands for all addresses of a machine, as 0.0.0.0 does: not one to connect to."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _exposed_addresses(server: ServerSettings, *, is_closed: bool) -> Iterator[tuple[str, str]]:
    """Yield the addresses that other machines could reach without the operator having said so."""
    for name in ("host", "http_host"):
        if not (server.insecure or is_closed or _is_loopback(getattr(server, name))):
            yield (
                f"server.{name}",
                "a loopback address such as 127.0.0.1, because nothing is encrypted or authenticated; "
                "set tls.cert, tls.key and auth.kind = on, or server.insecure = true if the network is trusted",
            )


def is_exposed(server: ServerSettings, tls: TlsSettings, auth: AuthSettings) -> bool:
    """Tell whether other machines are let in without TLS or without authentication."""
    is_local = _is_loopback(server.host) and _is_loopback(server.http_host)
    return not is_local and not (tls.cert and auth.kind == "on")


def _broken_security(tls: TlsSettings, auth: AuthSettings) -> Iterator[tuple[str, str]]:
    if bool(tls.cert) != bool(tls.key):
        yield ("tls.key" if tls.cert else "tls.cert"), "both tls.cert and tls.key, or neither"
    for name in ("client_ca", "deny_list"):
        if getattr(tls, name) and not tls.cert:
            yield f"tls.{name}", "tls.cert and tls.key to be set too"
    if tls.deny_list and not tls.client_ca:
        yield "tls.deny_list", "tls.client_ca to be set too: without it no client has a certificate"
    yield from _broken_jwt(auth)
    if auth.kind == "off":
        for name in ("grants", "jwt_jwks"):
            if getattr(auth, name):
                yield f"auth.{name}", "auth.kind = on: with authentication off it would protect nothing"


def _broken_jwt(auth: AuthSettings) -> Iterator[tuple[str, str]]:
    if auth.jwt_jwks:
        for name in ("jwt_issuer", "jwt_audience"):
            if not getattr(auth, name):
                yield f"auth.{name}", "a text, since auth.jwt_jwks is set"
        if auth.jwt_jwks.startswith("http://") and not _is_loopback(
            urllib.parse.urlsplit(auth.jwt_jwks).hostname or ""
        ):
            yield "auth.jwt_jwks", "an https URL: whoever can change the keys on their way can be anybody"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
