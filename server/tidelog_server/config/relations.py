"""Rules between settings: what a value requires of others, and what addresses other machines can reach."""

import importlib.util
import ipaddress
import re
from collections.abc import Iterator

from tidelog_server.config.settings import (
    DISCOVERED,
    AuthSettings,
    ClusterSettings,
    EngineSettings,
    ServerSettings,
    Settings,
    TlsSettings,
)
from tidelog_server.core.limits import MAX_BATCH_BYTES_CEILING, MAX_NODE_ID_CHARACTERS
from tidelog_server.core.nodes import is_node_id
from tidelog_server.recordlog.kinds import ENGINE_KINDS

# An IPv6 address is in brackets; without them, its last part could be the port.
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^\s,:\[\]]+):[0-9]{1,5}")

_PATH = re.compile(r"(?!/api/v1(?:/|$))(?:/[A-Za-z0-9._~-]+)+", re.ASCII)
_TAKEN_PATHS = ("healthz", "livez", "readyz", "metrics")

_PULSAR_URL = re.compile(r"pulsar(\+ssl)?://[^\s/]+", re.ASCII)
_HTTP_URL = re.compile(r"https?://[^\s/]+/?", re.ASCII)
_NAMESPACE = re.compile(r"[A-Za-z0-9=:._-]+/[A-Za-z0-9=:._-]+", re.ASCII)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", re.ASCII)


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
    yield from _broken_engine(settings)
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


def _broken_engine(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key, expected value) for settings that are missing or invalid for a log in an engine."""
    engine, is_in_cluster = settings.engine, settings.metadata.kind == "etcd"
    if settings.cluster.serves_any_node and not (is_in_cluster and settings.storage.is_in_engine):
        yield (
            "cluster.node_id",
            f"the name of this node; auto needs metadata.kind = etcd and storage.kind = {' or '.join(ENGINE_KINDS)}: "
            "any process can serve a node only if its log is in an engine",
        )
    name = settings.storage.kind
    if (kind := ENGINE_KINDS.get(name)) is None:
        return
    if importlib.util.find_spec(kind.module) is None:
        yield "storage.kind", f"{kind.package} to be installed: {kind.remedy}"
    yield from _broken_address_of_engine(name, engine)
    if engine.topic and not _TOPIC.fullmatch(engine.topic):
        yield "engine.topic", "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
    if is_in_cluster and engine.topic:
        yield "engine.topic", "no value, since metadata.kind is etcd: the cluster has a topic for each node"
    if not is_in_cluster and not engine.topic and not is_node_id(settings.cluster.node_id):
        yield "engine.topic", f"a topic, or cluster.node_id to be set, since storage.kind is {name}"
    if settings.metadata.kind == "memory":
        yield (
            "metadata.kind",
            f"embedded or etcd, since storage.kind is {name}: the log would outlive metadata in memory",
        )


def _broken_address_of_engine(kind: str, engine: EngineSettings) -> Iterator[tuple[str, str]]:
    if kind == "kafka" and not (engine.addresses() and all(map(_ADDRESS.fullmatch, engine.addresses()))):
        yield "engine.servers", "addresses such as 10.0.0.1:9092,10.0.0.2:9092, since storage.kind is kafka"
    if kind == "pulsar":
        if not _PULSAR_URL.fullmatch(engine.service_url):
            yield "engine.service_url", "an address such as pulsar://10.0.0.1:6650, since storage.kind is pulsar"
        if engine.admin_url and not _HTTP_URL.fullmatch(engine.admin_url):
            yield "engine.admin_url", "an address such as http://10.0.0.1:8080"
        if not _NAMESPACE.fullmatch(engine.namespace):
            yield "engine.namespace", "a tenant and a namespace, such as public/default"


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
    if cluster.name and not is_node_id(cluster.name):
        yield "cluster.name", f"1 to {MAX_NODE_ID_CHARACTERS} of a-z, 0-9 and -"
    if settings.storage.kind == "memory":
        yield (
            "storage.kind",
            f"rocksdb, {' or '.join(ENGINE_KINDS)}, since metadata.kind is etcd: the metadata would outlive a log in "
            "memory",
        )
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
        for name in ("grants", "jwt_jwks", "jwt_ca"):
            if getattr(auth, name):
                yield f"auth.{name}", "auth.kind = on: with authentication off it has no effect"


def _broken_jwt(auth: AuthSettings) -> Iterator[tuple[str, str]]:
    if not auth.jwt_jwks:
        return
    # Imported here: most servers accept no signed tokens, and start faster without it.
    from tidelog_server.security.jwks import KeySetError, check_url, discovery_url, is_url

    for name in ("jwt_issuer", "jwt_audience"):
        if not getattr(auth, name):
            yield f"auth.{name}", "a value, since auth.jwt_jwks is set"
    is_discovered = auth.jwt_jwks == DISCOVERED
    name = "jwt_issuer" if is_discovered else "jwt_jwks"
    try:
        if is_discovered and auth.jwt_issuer:
            discovery_url(auth.jwt_issuer)
        elif is_url(auth.jwt_jwks):
            check_url(auth.jwt_jwks)
    except KeySetError as error:
        yield (
            f"auth.{name}",
            f"an https URL, because replaced keys let an attacker forge any token: {error}",
        )
    if auth.jwt_ca and not is_discovered and not is_url(auth.jwt_jwks):
        yield "auth.jwt_ca", "no value, since auth.jwt_jwks is a file: nothing is fetched"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
