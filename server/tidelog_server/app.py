"""The composition root: builds the layers bottom up, and takes them down in the right order."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from tidelog_server.broker.broker import Broker
from tidelog_server.config import Config
from tidelog_server.core.errors import StorageFailedError
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.embedded import EmbeddedMetadataStore
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.rpc.http import HttpServer
from tidelog_server.rpc.server import RpcServer
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.logging import configure_logging
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.runtime.watchdog import watch_event_loop
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory_log_store import MemoryLogStore
from tidelog_server.storage.rocksdb_log_store import RocksdbLogStore
from tidelog_server.storage.rocksdb_open import open_rocksdb_log_store

_log = structlog.get_logger()


class Server:
    """A running node. Build one with ``start``; lives on the event loop that built it."""

    def __init__(self, config: Config, clock: Clock, store: LogStore, started_s: float) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._started_s = started_s
        self._metrics = Metrics()
        self._stopped_by: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks = TaskOwner(self._task_failed)
        folder = config.storage.data_dir if isinstance(store, RocksdbLogStore) else None
        self._node = LogNode(store, config.limits, clock, self._metrics, folder=folder, on_failure=self._storage_failed)
        self._broker = Broker(self._node, self._tasks)
        self._rpc = RpcServer(self._broker, self._node, syncs_by_default=config.storage.durability == "sync")
        self._http = HttpServer(self._why_not_ready, self._render_metrics)
        self._teardown = AsyncExitStack()
        self.grpc_endpoint = ""
        self.http_endpoint = ""

    @classmethod
    async def start(
        cls, config: Config, clock: Clock | None = None, *, before_serving: Callable[[], None] = lambda: None
    ) -> "Server":
        """Recover the log, open all channels and listen.

        Args:
            config: All settings.
            clock: Time; the system's if None.
            before_serving: Called once all channels are open and nobody is served yet; it may block.

        Raises:
            OSError: An address is taken or not allowed, or the data folder cannot be used.
            DataLossError: The log is damaged or shorter than it was. Nothing was modified.
            DataFolderError: The folder is in use, or of an unknown format.
        """
        assert __debug__, "the server does not run with assertions switched off"
        configure_logging(config.log.level, config.log.format)
        clock = clock or SystemClock()
        started_s = clock.monotonic_s()
        # Before the log is opened: recovering it for nothing may take long.
        _check_address(config.server.host, config.server.grpc_port)
        _check_address(config.server.http_host, config.server.http_port)
        store = await asyncio.to_thread(_open_store, config)
        server = cls(config, clock, store, started_s)
        try:
            await server._open()
            before_serving()
            await server._serve()
        except BaseException:
            await server.stop()
            raise
        return server

    async def wait_stopped(self) -> str:
        """Wait until storage or a background task has failed, and return why: the process should end then."""
        return await asyncio.shield(self._stopped_by)

    async def stop(self) -> None:
        """Take no new work, finish what is in flight, sync, and release everything. Idempotent."""
        self._node.begin_shutdown()
        await self._rpc.set_serving(is_serving=False)
        await self._teardown.aclose()
        _log.info("stopped")

    async def _open(self) -> None:
        teardown = self._teardown
        teardown.push_async_callback(asyncio.to_thread, self._store.close)
        teardown.push_async_callback(self._node.close)
        teardown.push_async_callback(self._broker.close)
        teardown.push_async_callback(self._tasks.close)
        metadata = await self._open_metadata()
        teardown.push_async_callback(metadata.close)
        await self._broker.open(metadata)

    async def _serve(self) -> None:
        teardown = self._teardown
        self._tasks.start("oracle", self._node.shared.oracle.run())
        self._tasks.start("disk", self._node.watch_disk())
        self._tasks.start("watchdog", watch_event_loop(self._clock, self._metrics))
        server = self._config.server
        http_port = await self._http.start(server.http_host, server.http_port)
        teardown.push_async_callback(self._http.stop)
        grpc_port = self._bind(f"{server.host}:{server.grpc_port}")
        self.grpc_endpoint = f"{server.host}:{grpc_port}"
        self.http_endpoint = f"{server.http_host}:{http_port}"
        await self._rpc.start()
        teardown.push_async_callback(self._rpc.stop, server.shutdown_grace_s)
        start_s = self._clock.monotonic_s() - self._started_s
        self._metrics.start_seconds.set(start_s)
        _log.info("ready", grpc=self.grpc_endpoint, http=self.http_endpoint, start_s=round(start_s, 3))

    def _bind(self, address: str) -> int:
        try:
            port = self._rpc.bind(address)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address) from error
        return port

    async def _open_metadata(self) -> MetadataStore:
        if self._config.metadata.kind == "embedded" and isinstance(self._store, RocksdbLogStore):
            committer = self._node.committer
            return await EmbeddedMetadataStore.open(self._store.metadata_table(), committer.executor, committer.write)
        # A log that is in memory has its metadata there too: neither outlives the process.
        return MemoryMetadataStore()

    def _storage_failed(self, error: StorageFailedError) -> None:
        self._stop_because(error.values["cause"])

    def _task_failed(self, name: str, cause: BaseException) -> None:
        # A storage failure was logged where it happened, and takes the tasks that write along.
        if not isinstance(cause, StorageFailedError):
            _log.critical("task_failed", task=name, exc_info=cause)
        self._stop_because(f"the background task '{name}' failed: {cause}")

    def _stop_because(self, cause: str) -> None:
        if not self._stopped_by.done():
            self._stopped_by.set_result(cause)

    def _why_not_ready(self) -> str | None:
        admission = self._node.admission
        if admission.failure is not None:
            return f"storage failed: {admission.failure.values['cause']}"
        if admission.is_shutting_down:
            return "shutting down"
        if self._stopped_by.done():
            return self._stopped_by.result()
        return "the disk is nearly full" if admission.is_disk_full else None

    def _render_metrics(self) -> bytes:
        self._node.refresh_metrics()
        self._broker.refresh_metrics()
        return self._metrics.render()


def _open_store(config: Config) -> LogStore:
    if config.storage.kind == "memory":
        return MemoryLogStore()
    folder: Path = config.storage.data_dir
    return open_rocksdb_log_store(folder, accept_head_loss=config.storage.accept_head_loss)


def _check_address(host: str, port: int) -> None:
    """Raise OSError if ``host:port`` cannot be listened on."""
    if port == 0:
        return
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
