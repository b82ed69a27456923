"""The composition root: builds the layers from the bottom up, and closes them in the reverse order."""

import asyncio
import errno
import os
import platform
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import metadata as packages
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from tidelog_server.backup.checkpoints import Checkpoints
from tidelog_server.channels.catalog import ROOT
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.cluster.session import Session
from tidelog_server.config import (
    BUILT_IN,
    RELOADABLE,
    Config,
    ConfigError,
    ReloadablePart,
    Reloader,
    ReloadRefusedError,
)
from tidelog_server.core.addresses import address_text
from tidelog_server.core.errors import StorageFailedError, TidelogServerError
from tidelog_server.core.errors.access import AuditFailedError
from tidelog_server.core.errors.cluster import LogFailure, MetadataUnavailableError, OwnershipLostError, cause_of
from tidelog_server.core.limits import MAX_CONNECTIONS
from tidelog_server.from_settings import (
    etcd_access,
    free_port,
    node_record,
    optional_path,
    own_hosts,
    quotas,
    security_settings,
)
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.embedded import EmbeddedMetadataStore
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import MetadataStore, RevisionConflictError
from tidelog_server.node.node import Node
from tidelog_server.opening import Opened, Opening
from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_server.rpc.context import fields_of, is_local
from tidelog_server.rpc.http import HttpServer
from tidelog_server.rpc.peers import GrpcPeers, PeerAccess
from tidelog_server.rpc.server import ConnectionLimits, RpcServer
from tidelog_server.rpc.services.options import Syncs
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
from tidelog_server.security.grants import Verb
from tidelog_server.security.guard import Guard
from tidelog_server.security.quotas import QuotaTable
from tidelog_server.security.service import Security
from tidelog_server.storage.rocksdb.row_store import RowStore

if TYPE_CHECKING:
    from tidelog_server.rpc.tracing import CallTracer

# A stop: calls in flight get this share of the grace period, closing the log the rest, but at least MIN_STOP_S.
CALLS_SHARE_OF_GRACE: Final = 0.6
# Share of that during which new calls are still refused with an answer, before the port is closed.
REFUSING_SHARE: Final = 0.2
# A process that stops gives its node to another one after what is in flight, but waits no longer for that.
HAND_OVER_WITHIN_S: Final = 2.0

# Errors that mean, in a cluster, that the node has lost its registration.
_LOST = (RevisionConflictError, OwnershipLostError, MetadataUnavailableError)
# Pause between two starts that did not reach the cluster.
_START_AGAIN_S = 0.5
_log = structlog.get_logger()


class _NodeLeftError(Exception):
    """A node could not be opened after its log was claimed; this process leaves it to others."""


class Server:
    """A running node. Create one with ``start``; lives on the event loop that created it.

    Attributes:
        shutdown_grace_s: The configured maximum duration of ``stop``.
        is_damaged: True if storage failed because stored data is damaged: a restart would fail in the same way.
    """

    def __init__(self, opened: Opened, clock: Clock, started_s: float, max_connections: int = MAX_CONNECTIONS) -> None:
        self._config = config = opened.config
        self._clock = clock
        self._store = store = opened.store
        self._session = opened.session
        self._node_id = opened.node_id
        self._started_s = started_s
        self._max_connections = max_connections
        self.shutdown_grace_s = config.server.shutdown_grace_s
        self._metrics = Metrics(with_old_names=config.metrics.old_names)
        count_dropped(self._metrics.log_lines_dropped.inc)
        self._stopped_by: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._tasks = TaskOwner(self._task_failed)
        limits = config.limits.to_limits()
        self._log = LogNode(store, limits, clock, self._metrics, on_failure=self._log_stopped)
        self._node = Node(
            self._log,
            self._tasks,
            retention_check_interval_ms=config.storage.retention_check_interval_ms,
            blob_grace_s=config.mailboxes.blob_grace_s,
        )
        self._log.slow_appends.set_threshold(config.log.slow_append_ms)
        self._tracer = _open_tracing(config)
        self._security = Security(security_settings(config), clock, self._metrics)
        self._checkpoints = Checkpoints(self._log, self._tasks, store if config.metadata.kind == "embedded" else None)
        self._rpc: RpcServer | None = None
        mailboxes = config.mailboxes
        self._own_hosts = own_hosts(config)
        prefixes = [
            *([API_PREFIX] if mailboxes.http_api else []),
            *([mailboxes.http_prefix] if mailboxes.http_prefix else []),
        ]
        self._http = HttpServer(
            self._readiness, self._render_metrics, self._metrics,
            may_read_metrics=self._may_read_metrics, api_prefixes=prefixes, on_failure=self._task_failed,
            own_hosts=None if self._security.settings.needs_credentials else self._own_hosts,
        )  # fmt: skip
        self._teardown = AsyncExitStack()
        # Applies changed settings; other parts register themselves.
        self.reloader = Reloader(config)
        self._register_reloadable()
        self._is_serving = False
        self.is_damaged = False
        self._is_handed_over = False
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
            return await cls._start(opening, before_serving)
        except OwnershipLostError as error:
            if opening.config.metadata.kind != "etcd":
                raise
            _log.warning("lease_lost_at_start", error=str(error))
        except _NodeLeftError as error:
            _log.info("node_left_at_start", node=str(error))
        return await cls._start_again(opening.again(), before_serving)

    @classmethod
    async def start_again(
        cls, config: Config, clock: Clock | None = None, *, before_serving: Callable[[], None] = lambda: None
    ) -> "Server":
        """Start a server in place of one that lost its lease, from its ``again``; wait for the cluster without a limit.

        See ``start``.
        """
        return await cls._start_again(Opening.begin(config, clock, is_again=True), before_serving)

    @classmethod
    async def _start_again(cls, opening: Opening, before_serving: Callable[[], None]) -> "Server":
        while True:
            try:
                return await cls._start(opening, before_serving)
            except _LOST as error:
                _log.warning("lease_lost_at_start", error=str(error))
                await asyncio.sleep(_START_AGAIN_S)
            except _NodeLeftError as error:
                _log.info("node_left_at_start", node=str(error))
            opening = opening.again()

    @classmethod
    async def _start(cls, opening: Opening, before_serving: Callable[[], None]) -> "Server":
        opened = await opening.opened()
        # A standby waits for as long as others serve, which is no part of the start.
        started_s = opening.started_s if opened.session is None else opening.clock.monotonic_s()
        try:
            server = cls(opened, opening.clock, started_s, opening.max_connections)
        except BaseException:
            await opened.give_back()
            raise
        try:
            start = server._run_start(before_serving, waits_for_cluster=opening.is_again)
            await run_unless(server._stopped_by, start)
        except BaseException as error:
            await server.stop()
            # What the server had not come to.
            await opened.give_back()
            if opening.leaves(opened, error):
                raise _NodeLeftError(opened.node_id) from error
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
    def is_replaced(self) -> bool:
        """True if the server stopped because another process claimed its log: it must not start again by itself."""
        failure = self._log.admission.failure
        return isinstance(failure, OwnershipLostError) and failure.is_claimed

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

    async def stop(self) -> None:
        """Refuse new work, finish work in flight, sync, and release all resources. Idempotent."""
        self._log.begin_shutdown()
        if self._rpc is not None:
            await self._rpc.set_serving(is_serving=False)
        calls_s = self.shutdown_grace_s * CALLS_SHARE_OF_GRACE
        # Ordering: before the steps that wait for the log.
        watching = TaskOwner(self._task_failed)
        watching.start("silent log", self._log.give_up_silent(calls_s))
        try:
            if self._session is not None and self._is_serving:
                await self._hand_over(self._session)
            await self._teardown.aclose()
        finally:
            await watching.close()
        _log.info("stopped")

    async def _hand_over(self, session: Session) -> None:
        """Let another process serve the node while this one still refuses calls, which acknowledges nothing more."""
        self._is_handed_over = True
        try:
            async with asyncio.timeout(HAND_OVER_WITHIN_S):
                await self._log.committer.drained()
        except TimeoutError:
            # The registration ends with the other steps of the stop, or with its lease.
            _log.warning("hand_over_waits", node=self._node_id, seconds=HAND_OVER_WITHIN_S)
            return
        # Ordering: before another process claims the log, of which a snapshot may learn first.
        self._log.hand_over()
        await session.leave()
        _log.info("handed_over", node=self._node_id)

    async def _open(self, *, waits_for_cluster: bool = False) -> None:
        teardown = self._teardown
        if self._tracer is not None:
            teardown.push_async_callback(asyncio.to_thread, self._tracer.close)
        teardown.push_async_callback(asyncio.to_thread, self._store.close)
        teardown.push_async_callback(self._log.committer.close)
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
        """Register unless that preceded the claim, and open this node's channels. Probes are answered all the time."""
        # Imported here because it takes a tenth of a second, and most servers are not in a cluster.
        from tidelog_server.metadata.etcd import EtcdMetadataStore

        await self._listen_http()
        config = self._config
        # The address is registered before the node listens on it: clients retry until it answers.
        self._grpc_port = config.server.grpc_port or free_port(config.server.host)
        settings, teardown = config.cluster, self._teardown
        session = self._session
        if session is None:
            metadata = EtcdMetadataStore(etcd_access(config), config.metadata.etcd_prefix, self._clock)
            record = node_record(config, self._node_id, self._grpc_port, self.http_endpoint)
            session = Session(metadata, self._clock, record, root=ROOT, ttl_s=settings.lease_ttl_s)
        store = session.store
        peers = GrpcPeers(_peer_access(config))
        cluster = Cluster(session, self._clock, peers, root=ROOT)
        # Ordering: before the first task that can lose it.
        self._log.hold_lease(cluster.lease)
        # Ordering: the registration is removed after the last acknowledgement and the last renewal.
        teardown.push_async_callback(store.close)
        teardown.push_async_callback(session.leave)
        teardown.push_async_callback(peers.close)
        teardown.push_async_callback(self._tasks.close)
        folder = self._config.storage.data_dir
        try:
            async with asyncio.timeout(None if waits else settings.start_timeout_s):
                if self._session is None:
                    await cluster.register(self._store, folder)
                await cluster.open(self._store.head.last_tick, self._tasks)
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

    async def _serve(self) -> None:
        teardown = self._teardown
        self._tasks.keep("oracle", self._log.shared.oracle.run())
        for name, watch in self._log.watches(self._config.engine.silent_s).items():
            self._tasks.keep(name, watch)
        self._tasks.keep("watchdog", watch_event_loop(self._clock, self._metrics))
        security = self._security
        self._tasks.keep("security", security.run())
        self._tasks.keep("signing keys", security.run_keys())
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
            "ready", grpc=self.grpc_endpoint, http=self.http_endpoint, start_s=round(start_s, 3),
            max_connections=self._max_connections,
        )  # fmt: skip

    async def _listen_http(self) -> None:
        """Start the HTTP server, which answers probes."""
        server, files = self._config.server, self._security.settings.tls
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
        if security.settings.needs_credentials:
            audit = AuditLog(self._node.lifecycle, self._node.directory, self._node.vchannels, self._log, FoldEvents())
            await audit.open()
            self._tasks.keep("audit", audit.run())
            started = {"event": "start", "settings": _told_settings(config)}
            try:
                await audit.write(started)
            except AuditFailedError:
                # Reads are served nevertheless; the event is written as soon as possible.
                audit.note(started)
        if security.looks_at_calls:
            table = QuotaTable(quotas(config), self._clock, self._metrics)
            guard = Guard(
                security.authenticator, audit, table, self._metrics,
                fields_of=fields_of, content_of=self._node.catalog.content_of,
            )  # fmt: skip
            security.authenticator.on_failure = guard.unauthenticated
            self._tasks.keep("guard", guard.run())
        server = config.server
        return RpcServer(
            self._node, self._checkpoints, security, guard=guard, tracer=self._tracer,
            syncs=Syncs(config.storage.durability == "sync", self._store.write_traits.always_syncs),
            connections=ConnectionLimits(
                self._max_connections, server.max_streams_per_connection, server.max_connection_age_s,
                server.reflection, server.channelz, server.overload_protection,
            ),
            hold=self._http.held, metrics_text=self._http.metrics_text,
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
        if not self._security.settings.needs_credentials or (
            is_local(address) and is_own_host(request, self._own_hosts)
        ):
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
        calls_s = self.shutdown_grace_s * CALLS_SHARE_OF_GRACE
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
            return lambda: setattr(self, "shutdown_grace_s", config.server.shutdown_grace_s)

        for keys, prepare in (
            (("log.level", "log.format"), logging),
            (("log.slow_append_ms",), slow_appends),
            (("limits.min_free_disk_bytes", "limits.txn_keepalive_ms"), admission),
            (("server.shutdown_grace_s",), grace),
        ):
            self.reloader.register(ReloadablePart(frozenset(keys), prepare))
        assert self.reloader.keys == RELOADABLE

    def _bind(self, rpc: RpcServer, address: str) -> int:
        try:
            port = rpc.bind(address)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address) from error
        return port

    async def _open_metadata(self) -> MetadataStore:
        if self._config.metadata.kind == "embedded" and isinstance(self._store, RowStore):
            committer = self._log.committer
            return await EmbeddedMetadataStore.open(self._store.metadata_rows(), committer.executor, committer.write)
        # The metadata of a log in memory is in memory too, so that neither outlives the process.
        return MemoryMetadataStore()

    def _log_stopped(self, error: LogFailure) -> None:
        self.is_damaged = self.is_damaged or (isinstance(error, StorageFailedError) and error.is_damage)
        self._stop_because(error)

    def _task_failed(self, name: str, cause: BaseException) -> None:
        if self._is_handed_over and isinstance(cause, _LOST):
            # As intended: another process may own the registration.
            _log.debug("task_ended_after_hand_over", task=name)
            return
        if self._log.admission.lease is not None and isinstance(cause, _LOST):
            # Another process owns the registration, or etcd refuses our changes: the lease has ended.
            _log.warning("task_lost_its_lease", task=name, error=repr(cause))
            self._log.lose_lease(OwnershipLostError(self._node_id))
            return
        # A failure of the log was logged where it occurred, and makes all writing tasks fail.
        if not isinstance(cause, StorageFailedError | OwnershipLostError):
            _log.critical("task_failed", task=name, exc_info=cause)
        self._stop_because(TaskFailedError(name, str(cause)))

    def _stop_because(self, cause: Exception) -> None:
        if not self._stopped_by.done():
            self._stopped_by.set_result(cause)

    def _readiness(self) -> dict[str, str | None]:
        """Return the checks of readiness in order of weight: why each fails, None if it passes."""
        admission = self._log.admission
        return {
            "log": admission.why_stopped(),
            "start": None if self._is_serving else "starting",
            "tasks": _text_of(self._stopped_by.result()) if self._stopped_by.done() else None,
            **admission.waits(),
        }

    async def _render_metrics(self) -> bytes:
        wanted, metrics = self._config.metrics, self._metrics
        metrics.ready.set(not any(self._readiness().values()))
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
    return cause_of(cause) if isinstance(cause, LogFailure) else str(cause)


def _open_tracing(config: Config) -> "CallTracer | None":
    if config.tracing.endpoint == "off":
        return None
    # Imported here because its packages are optional.
    from tidelog_server.rpc.tracing import open_tracing

    return open_tracing(config.tracing.endpoint, config.tracing.sample_ratio)


def _running_versions() -> dict[str, str]:
    names = {"version": "tidelog", "grpcio": "grpcio", "rocksdict": "rocksdict"}
    return {"python": platform.python_version(), **{label: packages.version(name) for label, name in names.items()}}


def _told_settings(config: Config) -> dict[str, str]:
    """Return the settings that differ from the built-in ones, for the audit log, without passwords in addresses."""
    return {key: text for key, text in config.shown.items() if config.origins[key] != BUILT_IN}


def _peer_access(config: Config) -> PeerAccess:
    """Return the credentials with which this node calls other nodes."""
    cluster, tls = config.cluster, config.tls
    return PeerAccess(*map(optional_path, (cluster.ca, tls.cert, tls.key, cluster.token_file)))
