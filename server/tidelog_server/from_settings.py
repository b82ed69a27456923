"""What several parts of a start make from the settings: addresses, files, and access to etcd and to the engine."""

import secrets
import socket
from importlib import metadata as packages
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_server.config import DISCOVERED, Config, EngineSettings, claim_path, is_exposed, is_unspecified
from tidelog_server.core.addresses import address_text, host_of
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.recordlog.access import LogAccess
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import Clock
from tidelog_server.security.certificates import CertificateFiles
from tidelog_server.security.jwks import KeySource
from tidelog_server.security.jwt_tokens import JwtPolicy
from tidelog_server.security.quotas import Quotas
from tidelog_server.security.service import SecuritySettings

if TYPE_CHECKING:
    from tidelog_server.metadata.etcd_connection import EtcdAccess
    from tidelog_server.storage.engine.open import LogName


def own_hosts(config: Config) -> frozenset[str]:
    """Return the hosts that the configuration gives this server: that of the HTTP port, and those of its node."""
    addresses = (config.cluster.advertise, config.cluster.peer_address)
    hosts = (config.server.http_host, *(address.rpartition(":")[0] for address in addresses if address))
    # As names of hosts are compared: without regard to case.
    return frozenset(map(str.lower, hosts))


def optional_path(text: str) -> Path | None:
    """Return the path that a setting names; None if it is empty."""
    return Path(text) if text else None


def security_settings(config: Config) -> SecuritySettings:
    """Return the settings of certificates and credentials."""
    tls, auth = config.tls, config.auth
    jwt = keys = None
    if auth.jwt_jwks:
        jwt = JwtPolicy(
            auth.jwt_issuer, auth.jwt_audience, auth.jwt_leeway_s, auth.jwt_max_lifetime_s,
            claim_path(auth.jwt_roles_claim), auth.jwt_require_jti, auth.jwt_require_typ,
        )  # fmt: skip
        location = "" if auth.jwt_jwks == DISCOVERED else auth.jwt_jwks
        keys = KeySource(location, auth.jwt_issuer, optional_path(auth.jwt_ca))
    client_ca = optional_path(tls.client_ca)
    return SecuritySettings(
        needs_credentials=auth.kind == "on",
        tls=CertificateFiles(Path(tls.cert), Path(tls.key), client_ca) if tls.cert else None,
        deny_list=optional_path(tls.deny_list),
        jwt=jwt,
        keys=keys,
        grants=optional_path(auth.grants),
        max_failures_per_minute=config.quota.auth_failures_per_minute,
        is_exposed=is_exposed(config.server, tls, auth),
    )


def quotas(config: Config) -> Quotas:
    """Return the quotas of each principal; without limits if calls need no credentials."""
    if config.auth.kind == "off":
        return Quotas()
    quota = config.quota
    return Quotas(
        quota.requests_per_s, quota.request_burst, int(quota.in_bytes_per_s), int(quota.out_bytes_per_s),
        quota.ticks_per_s, quota.shared_calls_per_s,
    )  # fmt: skip


def etcd_access(config: Config) -> "EtcdAccess":
    """Return the addresses and credentials for etcd."""
    from tidelog_server.metadata.etcd_connection import EtcdAccess

    metadata = config.metadata
    files = (metadata.etcd_password_file, metadata.etcd_ca, metadata.etcd_cert, metadata.etcd_key)
    return EtcdAccess(metadata.endpoints(), metadata.etcd_username, *map(optional_path, files))


def node_record(config: Config, node_id: str, grpc_port: int, http_endpoint: str) -> NodeRecord:
    """Return the record that a node registers: the addresses for clients and other nodes, and a new incarnation."""
    settings = config.cluster
    address = settings.advertise or address_text(config.server.host, grpc_port)
    peer_address = "" if settings.peer_address == address else settings.peer_address
    http_host, http_port = host_of(http_endpoint), http_endpoint.rpartition(":")[2]
    if is_unspecified(http_host):
        # The HTTP server listens on all addresses, including the advertised one.
        http_host = host_of(peer_address or address)
    return NodeRecord(
        node_id, address, address_text(http_host, http_port), secrets.token_hex(8), packages.version("tidelog"),
        peer_address,
    )  # fmt: skip


def free_port(host: str) -> int:
    """Return a port that is free now."""
    family, kind, protocol, _, _ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def record_log(config: Config, topic: str, clock: Clock) -> "tuple[RecordLog, LogName]":
    """Return the log in a topic, after a check of the topic, and which one it is.

    Raises:
        LogSetupError: There is no such topic, or its settings or the options of the client are not allowed.
        EngineUnavailableError: The engine does not answer.
    """
    from tidelog_server.storage.engine.open import LogName

    access = log_access(config.storage.kind, config.engine)
    name = LogName(config.storage.kind, topic, access.check(topic))
    return RecordLog(access.engine(topic), clock), name


def log_access(kind: str, engine: EngineSettings) -> LogAccess:
    """Return the engine with the logs.

    Args:
        kind: One of ``ENGINE_KINDS``.
        engine: Its address and options.

    Raises:
        LogSetupError: An address or an option is not allowed.
    """
    # Imported here, because the clients are optional, and other stores need none of them.
    if kind == "pulsar":
        from tidelog_server.recordlog.pulsar_access import PulsarAccess
        from tidelog_server.recordlog.pulsar_connection import PulsarConnection

        connection = PulsarConnection.load(engine.service_url, engine.admin_url, engine.options_file)
        return PulsarAccess(connection, engine.namespace)
    from tidelog_server.recordlog.kafka_access import KafkaAccess

    return KafkaAccess.load(",".join(engine.addresses()), engine.options_file)
