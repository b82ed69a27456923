"""The part of a start in which a process of a cluster waits for a node, if nodes have their logs in an engine.

The process answers probes meanwhile: it is alive, and not ready, because it is a standby.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from tidelog_server.channels.catalog import ROOT
from tidelog_server.cluster.log_records import LogRecord, StandbyRecord
from tidelog_server.cluster.session import Session
from tidelog_server.cluster.standby import LeftNodes, Standby, Won
from tidelog_server.config import Config
from tidelog_server.core.addresses import address_text
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.from_settings import etcd_access, free_port, node_record, own_hosts, record_log, security_settings
from tidelog_server.metadata.etcd import EtcdMetadataStore
from tidelog_server.rpc.context import is_local
from tidelog_server.rpc.http import HttpServer
from tidelog_server.rpc.tls import http_context, renewed_http_context
from tidelog_server.rpc.web.access import is_own_host
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.runtime.tasks import GuardingTasks
from tidelog_server.security.certificates import CertificateFiles
from tidelog_server.security.service import Security
from tidelog_server.storage.engine.open import PreparedStore, prepare_engine_store
from tidelog_server.storage.format.folder_errors import DataFolderError

STANDBY: Final = "standby"
"""Why a process without a node is not ready."""
# How often the certificate of the probes is read again.
_RENEW_EVERY_S: Final = 60.0
_log = structlog.get_logger()


class StandbyProcess:
    """A process that waits for a node. Lives on the event loop; ``run`` once."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        left: LeftNodes,
        *,
        waits_for_cluster: bool,
    ) -> None:
        """Read the files of certificates and credentials.

        Args:
            config: All settings.
            clock: Source of time.
            left: Nodes that this process leaves to others.
            waits_for_cluster: Whether to wait for etcd without a limit.

        Raises:
            SecurityError: A file is unusable.
        """
        self._config = config
        self._clock = clock
        self._left = left
        self._start_timeout_s = None if waits_for_cluster else config.cluster.start_timeout_s
        self._metrics = Metrics(with_old_names=config.metrics.old_names)
        # Read now, so that files that are unusable do not end this process when it is needed.
        self._security = Security(security_settings(config), clock, self._metrics)
        self._own_hosts = own_hosts(config)
        self._tasks = GuardingTasks()
        self._grpc_port = 0
        self._http_endpoint = ""
        self._standby: Standby | None = None

    async def run(self) -> tuple[Won, Config]:
        """Wait until this process serves a node; return it, and the settings with the ports that it has registered.

        Raises:
            OSError: The address of the HTTP port cannot be used.
            DataFolderError: The data folder is that of a node without an engine.
            MetadataUnavailableError: etcd did not answer within ``cluster.start_timeout_s``.
            Exception: As ``Standby.run``.
        """
        config = self._config
        if config.cluster.serves_any_node and (config.storage.data_dir / "FORMAT").exists():
            raise DataFolderError(
                f"{config.storage.data_dir} is the folder of one log: with cluster.node_id = auto, choose a folder in "
                "which each log that is applied has its own one, as storage.data_dir. Nothing was changed"
            )
        won: list[Won] = []

        async def running(standby: Standby) -> None:
            won.append(await standby.run())

        try:
            async with AsyncExitStack() as teardown:
                await self._listen_http(teardown)
                # Registered before anything listens on it: clients retry until it answers.
                self._grpc_port = config.server.grpc_port or free_port(config.server.host)
                store = self._metadata_store()
                teardown.push_async_callback(store.close)
                self._standby = standby = self._new_standby(store)
                self._tasks.start("etcd", self._expect_etcd(standby, store))
                await self._tasks.run(running(standby))
        except BaseException:
            for each in won:
                await each.give_back()
            raise
        return won[0], config.on_ports(self._grpc_port, int(self._http_endpoint.rpartition(":")[2]))

    def _new_standby(self, store: EtcdMetadataStore) -> Standby:
        cluster = self._config.cluster
        is_any = cluster.serves_any_node
        return Standby(
            store, self._clock, root=ROOT, process=secrets.token_hex(8), only=None if is_any else cluster.node_id,
            max_follows=self._config.engine.follows, lease_ttl_s=cluster.lease_ttl_s, new_session=self._new_session,
            open_log=self._open_log, left=self._left, described=self._described(),
        )  # fmt: skip

    def _described(self) -> StandbyRecord:
        # As it will register for any node.
        record = self._node_record(self._config.cluster.node_id)
        return StandbyRecord(
            frozenset(), address=record.address, http_address=record.http_address, version=record.version
        )  # fmt: skip

    def _node_record(self, node_id: str) -> NodeRecord:
        return node_record(self._config, node_id, self._grpc_port, self._http_endpoint)

    def _metadata_store(self) -> EtcdMetadataStore:
        return EtcdMetadataStore(etcd_access(self._config), self._config.metadata.etcd_prefix, self._clock)

    def _new_session(self, node_id: str) -> Session:
        return Session(
            self._metadata_store(), self._clock, self._node_record(node_id), root=ROOT,
            ttl_s=self._config.cluster.lease_ttl_s,
        )  # fmt: skip

    def _open_log(self, node_id: str, record: LogRecord, is_abandoned: Callable[[], bool]) -> PreparedStore:
        config = self._config
        folder: Path = config.storage.data_dir
        log, name = record_log(config, record.topic, self._clock)
        log.is_abandoned = is_abandoned
        return prepare_engine_store(
            folder / node_id if config.cluster.serves_any_node else folder, log, name,
            cache_bytes=int(config.engine.cache_bytes),
        )  # fmt: skip

    async def _expect_etcd(self, standby: Standby, store: EtcdMetadataStore) -> None:
        """Fail if etcd does not answer in time."""
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await standby.has_seen.wait()
        except TimeoutError:
            raise MetadataUnavailableError(
                f"etcd did not answer within {self._start_timeout_s:.0f} s; last error of etcd at "
                f"{self._config.metadata.etcd_endpoints}: {store.last_failure or 'no error'}"
            ) from None

    # -- Probes --------------------------------------------------------------------------------------------

    async def _listen_http(self, teardown: AsyncExitStack) -> None:
        server, files = self._config.server, self._security.settings.tls
        http = HttpServer(
            lambda: {"standby": STANDBY}, self._render_metrics, self._metrics, may_read_metrics=self._may_read_metrics,
            on_failure=self._tasks.fail,
            own_hosts=None if self._security.settings.needs_credentials else self._own_hosts,
        )  # fmt: skip
        port = await http.start(server.http_host, server.http_port, None if files is None else http_context(files))
        teardown.push_async_callback(http.stop)
        teardown.push_async_callback(self._tasks.close)
        self._http_endpoint = address_text(server.http_host, port)
        if files is not None:
            self._tasks.keep("certificate", self._renew(http, files))
        _log.info("standby_listens", http=self._http_endpoint)

    async def _renew(self, http: HttpServer, files: CertificateFiles) -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            http.renew(await asyncio.to_thread(renewed_http_context, files))

    def _may_read_metrics(self, request: web.Request) -> bool:
        """Return whether a request may read metrics: a standby knows no tokens, so only a local one if it must."""
        return not self._security.settings.needs_credentials or (
            is_local(request.remote or "") and is_own_host(request, self._own_hosts)
        )  # fmt: skip

    async def _render_metrics(self) -> bytes:
        metrics, standby = self._metrics, self._standby
        metrics.ready.set(False)
        if standby is not None:
            lags = standby.lags
            metrics.standby_lag_positions.replace([(node, lag.positions) for node, lag in lags.items()])
            metrics.standby_lag_seconds.replace([(node, lag.seconds) for node, lag in lags.items()])
        return await asyncio.to_thread(self._metrics.render)
