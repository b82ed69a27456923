"""The first steps of a start: checks of what does not depend on the log, and opening it on a thread.

Apart from ``app``, whose imports take as long as a small log takes to open: a start imports it meanwhile. Most of that
time is the start-up gate, which is another process.
"""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import structlog

from tidelog_server.config import SERVICE_LINKS_HINT, Config, connections_of_address
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.logging import configure_logging
from tidelog_server.runtime.process_limits import open_files_limit
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_server.storage.recovery.open import open_rocksdb_log_store

_log = structlog.get_logger()
# By name: the module runs in another process, and importing it here would delay that.
_START_CHECK: Final = "tidelog_server.node.start_check"


@dataclass(frozen=True, slots=True)
class Opening:
    """A start whose log is being opened.

    Attributes:
        config: All settings.
        clock: Source of time.
        started_s: When the start began, on the clock.
        max_connections: Number of connections that one address may have.
        store: The log, once it is open; raises as ``app.Server.start`` does.
    """

    config: Config
    clock: Clock
    started_s: float
    max_connections: int
    store: asyncio.Future[LogStore]

    @classmethod
    def begin(cls, config: Config, clock: Clock | None = None) -> Self:
        """Check the settings and the addresses, and begin to open the log.

        Raises:
            OSError: An address is in use or not permitted.
            ConfigError: ``server.max_connections`` exceeds the limit of open files.
        """
        assert __debug__, "the server does not run with assertions disabled"
        configure_logging(config.log.level, config.log.format)
        if config.ignored:
            _log.warning("variables_ignored", variables=list(config.ignored), reason=SERVICE_LINKS_HINT)
        clock = clock or SystemClock()
        started_s = clock.monotonic_s()
        max_connections = connections_of_address(config.server, open_files_limit())
        # Before the log is opened, because recovery may take long and would be in vain.
        _check_address(config.server.host, config.server.grpc_port)
        _check_address(config.server.http_host, config.server.http_port)
        store = asyncio.get_running_loop().run_in_executor(None, _open_store, config)
        return cls(config, clock, started_s, max_connections, store)


def _open_store(config: Config) -> LogStore:
    if config.storage.kind == "memory":
        return MemoryLogStore()
    folder: Path = config.storage.data_dir
    # The records of a cluster node are in etcd: they are checked after it has registered.
    check = _START_CHECK if config.metadata.kind == "embedded" else STORE_CHECK
    return open_rocksdb_log_store(folder, accept_head_loss=config.storage.accept_head_loss, check=check)


def _check_address(host: str, port: int) -> None:
    """Raise OSError if this process cannot listen on ``host:port``."""
    if port == 0:
        return
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
