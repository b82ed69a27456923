"""The composition root: builds the layers from the bottom up, and closes them in the reverse order."""

import asyncio
import errno
import os
import platform
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import metadata as packages
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from tidelog_server.backup.checkpoints import Checkpoints
from tidelog_server.channels.catalog import ROOT
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.config import (
    BUILT_IN,
    Config,
    ConfigError,
    ReloadablePart,
    Reloader,
    ReloadRefusedError,
    is_exposed,
    is_unspecified,
)
from tidelog_server.core.addresses import address_text, host_of
from tidelog_server.core.errors import StorageFailedError, TidelogServerError
from tidelog_server.core.errors.access import AuditFailedError
from tidelog_server.core.errors.cluster import LogFailure, MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.limits import CALLS_SHARE_OF_GRACE, MAX_CONNECTIONS, REFUSING_SHARE
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.embedded import EmbeddedMetadataStore
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import MetadataStore, RevisionConflictError
from tidelog_server.node.node import Node
from tidelog_server.opening import Opening
from tidelog_server.rpc.columns.rows import AuditLines
from tidelog_server.rpc.context import fields_of, is_local
from tidelog_server.rpc.http import HttpServer
from tidelog_server.rpc.peers import GrpcPeers, PeerAccess
from tidelog_server.rpc.server import ConnectionLimits, RpcServer
from tidelog_server.rpc.tls import http_context, renewed_http_context
from tidelog_server.rpc.web.access import is_own_host
from tidelog_server.rpc.web.api import API_PREFIX
from tidelog_server.rpc.web.site import Site, SiteTerms
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.logging import configure_logging, count_dropped
from tidelog_server.runtime.metrics import Metrics, watch_event_loop
from tidelog_server.runtime.tasks import TaskFailedError, TaskOwner, run_unless
from tidelog_server.security.audit import AuditLog
from tidelog_server.security.authenticator import Shown
from tidelog_server.security.certificates import CertificateFiles
from tidelog_server.security.grants import Verb
from tidelog_server.security.guard import Guard
from tidelog_server.security.jwt_tokens import JwtPolicy
from tidelog_server.security.quotas import Quotas, QuotaTable
from tidelog_server.security.service import Security, SecuritySettings
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rocksdb.store import RocksdbLogStore

if TYPE_CHECKING:
    from tidelog_server.metadata.etcd_connection import EtcdAccess
    from tidelog_server.rpc.tracing import CallTracer

# Errors that mean, in a cluster, that the node has lost its registration.
_LOST = (RevisionConflictError, OwnershipLostError, MetadataUnavailableError)
# Pause between two starts that did not reach the cluster.
_START_AGAIN_S = 0.5
_log = structlog.get_logger()


class Server:
    """A running node. Create one with ``start``; lives on the event loop that created it."""

    def __init__(
        self, config: Config, clock: Clock, store: LogStore, started_s: float, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._started_s = started_s
        self._max_connections = max_connections
        self._grace_s = config.server.shutdown_grace_s
        self._metrics = Metrics()
        count_dropped(self._metrics.log_lines_dropped.inc)
        self._stopped_by: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._tasks = TaskOwner(self._task_failed)
        folder = config.storage.data_dir if isinstance(store, RocksdbLogStore) else None
        limits = config.limits.to_limits()
        self._log = LogNode(store, limits, clock, self._metrics, folder=folder, on_failure=self._log_stopped)
        self._node = Node(
            self._log,
            self._tasks,
            retention_check_interval_ms=config.storage.retention_check_interval_ms,
            blob_grace_s=config.mailboxes.blob_grace_s,
        )
        self._log.slow_appends.set_threshold(config.log.slow_append_ms)
        self._tracer = _open_tracing(config)
        self._security = Security(_security_settings(config), clock, self._metrics)
        has_files = isinstance(store, RocksdbLogStore) and config.metadata.kind == "embedded"
        self._checkpoints = Checkpoints(self._log, self._tasks, store if has_files else None)
        self._rpc: RpcServer | None = None
        mailboxes = config.mailboxes
        self._own_hosts = _own_hosts(config)
        prefixes = [
            *([API_PREFIX] if mailboxes.http_api else []),
            *([mailboxes.http_prefix] if mailboxes.http_prefix else []),
        ]
        self._http = HttpServer(
            self._why_not_ready, self._render_metrics, self._metrics,
            may_read_metrics=self._may_read_metrics, api_prefixes=prefixes,
            own_hosts=None if self._security.needs_credentials else self._own_hosts, on_failure=self._task_failed,
        )  # fmt: skip
        self._teardown = AsyncExitStack()
        # Applies changed settings; other parts register themselves.
        self.reloader = Reloader(config)
        self._register_reloadable()
        self._is_serving = False
        self._is_damaged = False
        # The port of a cluster node, which is registered before the node listens; 0 otherwise.
        self._grpc_port = 0
        self.grpc_endpoint = ""
        self.http_endpoint = ""

    @classmethod
    async def start(
        cls,
        config: Config,
        clock: Clock | None = None,
        *,
        before_serving: Callable[[], None] = lambda: None,
    ) -> "Server":
        """Recover the log, open all channels and listen.

        Args:
            config: All settings.
            clock: Source of time; None for the system's clocks.
            before_serving: Called after all channels are open and before the first call is served; it may block.

        Raises:
            OSError: An address is in use or not permitted, or the data folder is unusable.
            DataLossError: The log is damaged or shorter than it was. Nothing was modified.
            DataFolderError: The folder is in use, or has an unknown format.
            ConfigError: ``server.max_connections`` exceeds the limit of open files.
            MetadataUnavailableError: etcd, or the leader of the cluster, did not answer within
                ``cluster.start_timeout_s``, or refused.
            SecurityError: A certificate, key or grants file is unusable.
        """
        return await cls.start_from(Opening.begin(config, clock), before_serving=before_serving)

    @classmethod
    async def start_from(cls, opening: Opening, *, before_serving: Callable[[], None] = lambda: None) -> "Server":
        """As ``start``, of which ``opening`` has begun."""
        try:
            return await cls._start(opening, before_serving, waits_for_cluster=False)
        except OwnershipLostError as error:
            _log.warning("lease_lost_at_start", error=str(error))
        return await cls.start_again(opening.config, opening.clock, before_serving=before_serving)

    @classmethod
    async def start_again(
        cls, config: Config, clock: Clock | None = None, *, before_serving: Callable[[], None] = lambda: None
    ) -> "Server":
        """Start a server in place of one that lost its lease, from its ``again``; wait for the cluster without a limit.

        See ``start``.
        """
        while True:
            try:
                return await cls._start(Opening.begin(config, clock), before_serving, waits_for_cluster=True)
            except _LOST as error:
                _log.warning("lease_lost_at_start", error=str(error))
                await asyncio.sleep(_START_AGAIN_S)

    @classmethod
    async def _start(cls, opening: Opening, before_serving: Callable[[], None], *, waits_for_cluster: bool) -> "Server":
        store = await opening.store
        server = cls(opening.config, opening.clock, store, opening.started_s, opening.max_connections)
        try:
            await run_unless(server._stopped_by, server._run_start(before_serving, waits_for_cluster=waits_for_cluster))
        except BaseException:
            await server.stop()
            raise
        return server

    async def _run_start(self, before_serving: Callable[[], None], *, waits_for_cluster: bool) -> None:
        await self._open(waits_for_cluster=waits_for_cluster)
        before_serving()
        await self._serve()

    async def wait_stopped(self) -> str:
        """Wait until storage or a background task fails or the lease is lost, and return the cause.

        The caller must then stop the server.
        """
        return _text_of(await asyncio.shield(self._stopped_by))

    @property
    def may_start_again(self) -> bool:
        """True if the server stopped because it lost its lease: a new server, of ``again``, can register."""
        return self._log.has_lost_lease and self._log.admission.failure is None

    @property
    def is_damaged(self) -> bool:
        """True if storage failed because stored data is damaged: a restart would fail in the same way."""
        return self._is_damaged

    @property
    def again(self) -> Config:
        """The configuration for a server that replaces this one, with the same ports."""
        ports = [int(endpoint.rpartition(":")[2]) for endpoint in (self.grpc_endpoint, self.http_endpoint)]
        return self._config.on_ports(*ports)

    def reload(self, load: Callable[[], Config]) -> bool:
        """Apply the reloadable settings of the configuration that ``load`` returns, and log the result.

        ``load`` may raise ConfigError. Returns False if it did, or if a part refused its settings: nothing was changed.
        """
        try:
            outcome = self.reloader.reload(load())
        except (ConfigError, ReloadRefusedError) as error:
            _log.error("reload_refused", problem=str(error))
            return False
        for key in outcome.needs_restart:
            _log.warning("reload_needs_restart", setting=key)
        _log.warning("reloaded", changed=list(outcome.changed), needs_restart=list(outcome.needs_restart))
        return True

    @property
    def shutdown_grace_s(self) -> float:
        """The configured maximum duration of ``stop``."""
        return self._grace_s

    async def stop(self) -> None:
        """Refuse new work, finish work in flight, sync, and release all resources. Idempotent."""
        self._log.begin_shutdown()
        if self._rpc is not None:
            await self._rpc.set_serving(is_serving=False)
        await self._teardown.aclose()
        _log.info("stopped")

    async def _open(self, *, waits_for_cluster: bool = False) -> None:
        teardown = self._teardown
        if self._tracer is not None:
            teardown.push_async_callback(asyncio.to_thread, self._tracer.close)
        teardown.push_async_callback(asyncio.to_thread, self._store.close)
        teardown.push_async_callback(self._log.close)
        teardown.push_async_callback(self._node.close)
        teardown.push_async_callback(self._checkpoints.close)
        await self._checkpoints.open()
        if self._config.metadata.kind == "etcd":
            await self._open_in_cluster(waits=waits_for_cluster)
            return
        teardown.push_async_callback(self._tasks.close)
        metadata = await self._open_metadata()
        teardown.push_async_callback(metadata.close)
        await self._node.open(metadata)
        teardown.push_async_callback(self._security.close)
        await self._security.open(metadata, ROOT, self._config.storage.data_dir)

    async def _open_in_cluster(self, *, waits: bool) -> None:
        """Register, and open the channels of this node. Probes are answered from the beginning."""
        # Imported here because it takes a tenth of a second, and most servers are not in a cluster.
        from tidelog_server.metadata.etcd import EtcdMetadataStore

        await self._listen_http()
        # The address is registered before the node listens on it: clients retry until it answers.
        self._grpc_port = self._config.server.grpc_port or _free_port(self._config.server.host)
        settings, teardown = self._config.cluster, self._teardown
        store = EtcdMetadataStore(etcd_access(self._config), self._config.metadata.etcd_prefix, self._clock)
        peers = GrpcPeers(_peer_access(self._config))
        record = self._own_record()
        cluster = Cluster(store, self._clock, record, peers, root=ROOT, lease_ttl_s=settings.lease_ttl_s)
        # Ordering: before the first task that can lose it.
        self._log.hold_lease(cluster.lease)
        # Ordering: the registration is removed after the last acknowledgement and the last renewal.
        teardown.push_async_callback(store.close)
        teardown.push_async_callback(cluster.close)
        teardown.push_async_callback(peers.close)
        teardown.push_async_callback(self._tasks.close)
        folder = self._config.storage.data_dir
        try:
            async with asyncio.timeout(None if waits else settings.start_timeout_s):
                await cluster.open(self._store, folder, self._tasks)
                await self._node.open_in_cluster(store, cluster)
                await self._security.open(store, ROOT, folder)
                teardown.push_async_callback(self._security.close)
        except TimeoutError:
            raise MetadataUnavailableError(
                f"the node could not register within {settings.start_timeout_s:.0f} s; "
                + (
                    cluster.waits_for
                    or f"last error of etcd at {self._config.metadata.etcd_endpoints}: "
                    f"{store.last_failure or 'no error'}"
                )
            ) from None

    def _own_record(self) -> NodeRecord:
        """Return the record that this node registers: the addresses for clients and other nodes."""
        settings = self._config.cluster
        address = settings.advertise or address_text(self._config.server.host, self._grpc_port)
        peer_address = "" if settings.peer_address == address else settings.peer_address
        http_host, http_port = host_of(self.http_endpoint), self.http_endpoint.rpartition(":")[2]
        if is_unspecified(http_host):
            # The HTTP server listens on all addresses, including the advertised one.
            http_host = host_of(peer_address or address)
        return NodeRecord(
            settings.node_id, address, address_text(http_host, http_port), secrets.token_hex(8),
            packages.version("tidelog"), peer_address,
        )  # fmt: skip

    async def _serve(self) -> None:
        teardown = self._teardown
        self._tasks.keep("oracle", self._log.shared.oracle.run())
        if self._log.folder is not None:
            self._tasks.keep("disk", self._log.watch_disk())
        self._tasks.keep("watchdog", watch_event_loop(self._clock, self._metrics))
        security = self._security
        self._tasks.keep("security", security.run())
        rpc = self._rpc = await self._make_rpc()
        if not self.http_endpoint:
            await self._listen_http()
        host = self._config.server.host
        port = self._bind(rpc, address_text(host, self._grpc_port or self._config.server.grpc_port))
        self.grpc_endpoint = address_text(host, port)
        await rpc.start()
        self._http.serve_api(self._make_site(rpc).answer)
        self._is_serving = True
        teardown.push_async_callback(self._stop_calls, rpc)
        start_s = self._clock.monotonic_s() - self._started_s
        self._metrics.start_seconds.set(start_s)
        self._metrics.build_info.labels(**_running_versions()).set(1)
        _log.info(
            "ready",
            grpc=self.grpc_endpoint,
            http=self.http_endpoint,
            start_s=round(start_s, 3),
            max_connections=self._max_connections,
        )

    async def _listen_http(self) -> None:
        """Start the HTTP server, which answers probes."""
        server, files = self._config.server, self._security.files
        tls = None
        if files is not None:
            tls = http_context(files)
            self._security.on_renewed = lambda _: self._http.renew(renewed_http_context(files))
        http_port = await self._http.start(server.http_host, server.http_port, tls)
        self._teardown.push_async_callback(self._http.stop)
        self.http_endpoint = address_text(server.http_host, http_port)

    async def _make_rpc(self) -> RpcServer:
        """Return the services, with a guard if calls must be checked."""
        config, security = self._config, self._security
        guard = audit = None
        if security.needs_credentials:
            audit = AuditLog(self._node.lifecycle, self._node.directory, self._node.vchannels, self._log, AuditLines())
            await audit.open()
            self._tasks.keep("audit", audit.run())
            started = {"event": "start", "settings": _told_settings(config)}
            try:
                await audit.write(started)
            except AuditFailedError:
                # Reads are served nevertheless; the event is written as soon as possible.
                audit.note(started)
        if security.looks_at_calls:
            quotas = QuotaTable(_quotas(config), self._clock, self._metrics)
            guard = Guard(
                security.authenticator, audit, quotas, self._metrics,
                fields_of=fields_of, content_of=self._node.content_of,
            )  # fmt: skip
            security.on_failure = guard.unauthenticated
            self._tasks.keep("guard", guard.run())
        server = config.server
        return RpcServer(
            self._node, self._checkpoints, security, guard=guard, tracer=self._tracer,
            syncs_by_default=config.storage.durability == "sync",
            connections=ConnectionLimits(
                self._max_connections, server.max_streams_per_connection, server.max_connection_age_s,
                server.reflection, server.overload_protection,
            ),
            hold=self._http.held,
        )  # fmt: skip

    def _make_site(self, rpc: RpcServer) -> Site:
        """Return the API of mailboxes over HTTP."""
        config, mailboxes = self._config, self._config.mailboxes
        terms = SiteTerms(
            mailboxes.http_api, mailboxes.http_prefix, mailboxes.http_max_body_bytes, bool(config.tls.client_ca),
            secrets.token_bytes(32),
        )  # fmt: skip
        return Site(rpc.web_calls, self._clock, terms, self._http.strangers_turn)

    def _may_read_metrics(self, request: web.Request) -> bool:
        """Return whether a request may read metrics: any local one; from other machines it needs admin.read.

        A page of another site may make a local browser ask, under a name that leads to this machine: it is not local.
        """
        address = request.remote or ""
        if not self._security.needs_credentials or (is_local(address) and is_own_host(request, self._own_hosts)):
            return True
        values = tuple(request.headers.getall("Authorization", []))
        try:
            # HTTP connections are cheap to open, so all connections of an address count as one.
            shown = Shown(values, b"", address, False, request.secure, f"http:{address}")
            principal = self._security.authenticator.authenticate(shown)
        except TidelogServerError:
            return False
        return principal.grants.allow_somewhere(Verb.ADMIN_READ)

    async def _stop_calls(self, rpc: RpcServer) -> None:
        # The rest of the grace period is for closing the log.
        calls_s = self._grace_s * CALLS_SHARE_OF_GRACE
        refusing_s = calls_s * REFUSING_SHARE
        await rpc.refuse(refusing_s)
        await rpc.stop(calls_s - refusing_s)

    def _register_reloadable(self) -> None:
        def logging(config: Config) -> Callable[[], None]:
            return lambda: configure_logging(config.log.level, config.log.format)

        def slow_appends(config: Config) -> Callable[[], None]:
            return lambda: self._log.slow_appends.set_threshold(config.log.slow_append_ms)

        def admission(config: Config) -> Callable[[], None]:
            limits = config.limits.to_limits()

            def apply() -> None:
                current = self._log.admission.limits
                self._log.admission.limits = replace(
                    current, min_free_disk_bytes=limits.min_free_disk_bytes, txn_keepalive_ms=limits.txn_keepalive_ms
                )

            return apply

        def grace(config: Config) -> Callable[[], None]:
            return lambda: setattr(self, "_grace_s", config.server.shutdown_grace_s)

        for keys, prepare in (
            (("log.level", "log.format"), logging),
            (("log.slow_append_ms",), slow_appends),
            (("limits.min_free_disk_bytes", "limits.txn_keepalive_ms"), admission),
            (("server.shutdown_grace_s",), grace),
        ):
            self.reloader.register(ReloadablePart(frozenset(keys), prepare))

    def _bind(self, rpc: RpcServer, address: str) -> int:
        try:
            port = rpc.bind(address)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address) from error
        return port

    async def _open_metadata(self) -> MetadataStore:
        if self._config.metadata.kind == "embedded" and isinstance(self._store, RocksdbLogStore):
            committer = self._log.committer
            return await EmbeddedMetadataStore.open(self._store.metadata_rows(), committer.executor, committer.write)
        # The metadata of a log in memory is in memory too, so that neither outlives the process.
        return MemoryMetadataStore()

    def _log_stopped(self, error: LogFailure) -> None:
        self._is_damaged = self._is_damaged or (isinstance(error, StorageFailedError) and error.is_damage)
        self._stop_because(error)

    def _task_failed(self, name: str, cause: BaseException) -> None:
        if self._log.admission.lease is not None and isinstance(cause, _LOST):
            # Another process owns the registration, or etcd refuses our changes: the lease has ended.
            _log.warning("task_lost_its_lease", task=name, error=repr(cause))
            self._log.lose_lease(OwnershipLostError(self._config.cluster.node_id))
            return
        # A storage failure was logged where it occurred, and makes all writing tasks fail.
        if not isinstance(cause, StorageFailedError):
            _log.critical("task_failed", task=name, exc_info=cause)
        self._stop_because(TaskFailedError(name, str(cause)))

    def _stop_because(self, cause: Exception) -> None:
        if not self._stopped_by.done():
            self._stopped_by.set_result(cause)

    def _why_not_ready(self) -> str | None:
        admission = self._log.admission
        if admission.failure is not None:
            return f"storage failed: {admission.failure.values['cause']}"
        if admission.is_shutting_down:
            return "shutting down"
        if not self._is_serving:
            return "starting"
        if admission.lease is not None and not admission.lease.is_held():
            return "the node's lease expired"
        if self._stopped_by.done():
            return _text_of(self._stopped_by.result())
        return "the disk is nearly full" if admission.is_disk_full else None

    async def _render_metrics(self) -> bytes:
        wanted, metrics = self._config.metrics, self._metrics
        metrics.ready.set(self._why_not_ready() is None)
        if (lease := self._log.admission.lease) is not None:
            metrics.lease_remaining_seconds.replace([(lease.node_id, lease.left_s())])
        if self._is_serving:
            self._log.refresh_metrics()
            self._node.refresh_metrics(per_group=wanted.per_group, per_mailbox=wanted.per_mailbox)
        if self._is_serving and wanted.per_vchannel:
            ticks = self._log.vchannel_ticks()
            metrics.vchannel_first_tick.replace([(name, first) for name, first, _ in ticks])
            metrics.vchannel_tail_tick.replace([(name, tail) for name, _, tail in ticks])
        # On a thread: with a label per vchannel the text may have megabytes.
        return await asyncio.to_thread(metrics.render)


def _text_of(cause: Exception) -> str:
    return str(cause.values["cause"]) if isinstance(cause, StorageFailedError) else str(cause)


def _open_tracing(config: Config) -> "CallTracer | None":
    if config.tracing.endpoint == "off":
        return None
    # Imported here because its packages are optional.
    from tidelog_server.rpc.tracing import open_tracing

    return open_tracing(config.tracing.endpoint, config.tracing.sample_ratio)


def _own_hosts(config: Config) -> frozenset[str]:
    """Return the hosts that the configuration gives this server: that of the HTTP port, and those of its node."""
    addresses = (config.cluster.advertise, config.cluster.peer_address)
    hosts = (config.server.http_host, *(address.rpartition(":")[0] for address in addresses if address))
    # As names of hosts are compared: without regard to case.
    return frozenset(map(str.lower, hosts))


def _running_versions() -> dict[str, str]:
    names = {"version": "tidelog", "grpcio": "grpcio", "rocksdict": "rocksdict"}
    return {"python": platform.python_version(), **{label: packages.version(name) for label, name in names.items()}}


def _security_settings(config: Config) -> SecuritySettings:
    tls, auth = config.tls, config.auth
    jwt = None
    if auth.jwt_jwks:
        jwt = JwtPolicy(auth.jwt_issuer, auth.jwt_audience, auth.jwt_leeway_s, auth.jwt_max_lifetime_s)
    return SecuritySettings(
        needs_credentials=auth.kind == "on",
        tls=CertificateFiles(Path(tls.cert), Path(tls.key), _path(tls.client_ca)) if tls.cert else None,
        deny_list=_path(tls.deny_list),
        jwt=jwt,
        jwks=auth.jwt_jwks,
        grants=_path(auth.grants),
        max_failures_per_minute=config.quota.auth_failures_per_minute,
        is_exposed=is_exposed(config.server, tls, auth),
    )


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _quotas(config: Config) -> Quotas:
    if config.auth.kind == "off":
        return Quotas()
    quota = config.quota
    return Quotas(
        quota.requests_per_s, quota.request_burst, int(quota.in_bytes_per_s), int(quota.out_bytes_per_s),
        quota.ticks_per_s, quota.shared_calls_per_s,
    )  # fmt: skip


def _told_settings(config: Config) -> dict[str, str]:
    """Return the settings that differ from the built-in ones, for the audit log. Settings contain no secrets."""
    return {key: config.texts[key] for key, origin in config.origins.items() if origin != BUILT_IN}


def etcd_access(config: Config) -> "EtcdAccess":
    """Return the addresses and credentials for etcd."""
    from tidelog_server.metadata.etcd_connection import EtcdAccess

    metadata = config.metadata
    files = (metadata.etcd_password_file, metadata.etcd_ca, metadata.etcd_cert, metadata.etcd_key)
    return EtcdAccess(metadata.endpoints(), metadata.etcd_username, *map(_path, files))


def _peer_access(config: Config) -> PeerAccess:
    """Return the credentials with which this node calls other nodes."""
    cluster, tls = config.cluster, config.tls
    return PeerAccess(_path(cluster.ca), _path(tls.cert), _path(tls.key), _path(cluster.token_file))


def _free_port(host: str) -> int:
    """Return a port that is free now."""
    family, kind, protocol, _, _ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
