"""The first steps of a start: checks of what does not depend on the log, and opening it on a thread.

Apart from ``app``, whose imports take as long as a small log takes to open: a start imports it meanwhile. Most of that
time is the start-up gate, which is another process.
"""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import structlog

from tidelog_server.config import SERVICE_LINKS_HINT, Config, connections_of_address
from tidelog_server.core.addresses import address_text
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.logging import configure_logging
from tidelog_server.runtime.process_limits import open_files_limit
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_server.storage.recovery.open import open_rocksdb_log_store

if TYPE_CHECKING:
    from tidelog_server.cluster.session import Session
    from tidelog_server.cluster.standby import LeftNodes

_log = structlog.get_logger()
# By name: the module runs in another process, and importing it here would delay that.
_START_CHECK: Final = "tidelog_server.node.start_check"


def stands_by(config: Config) -> bool:
    """Return whether this process waits for a node, with others, before it opens the log of one."""
    return config.storage.is_in_engine and config.metadata.kind == "etcd"


class Opened(NamedTuple):
    """A log that is open.

    Attributes:
        config: All settings, with the ports that are registered.
        store: The log.
        session: The registration in whose term the log was claimed; None if the log is not in an engine, or the server
            is not in a cluster.
    """

    config: Config
    store: LogStore
    session: "Session | None" = None

    @property
    def node_id(self) -> str:
        """Id of the node; empty if none is needed."""
        return self.config.cluster.node_id if self.session is None else self.session.record.node_id

    async def give_back(self) -> None:
        """Close the log and end the registration: no server serves it. Idempotent."""
        await asyncio.to_thread(self.store.close)
        if self.session is not None:
            await self.session.close()


@dataclass(frozen=True, slots=True)
class Opening:
    """A start whose log is being opened.

    Attributes:
        config: All settings.
        clock: Source of time.
        started_s: When the start began, on the clock.
        max_connections: Number of connections that one address may have.
        is_again: Whether it follows a server or a start that has lost its lease, and so waits for the cluster without
            a limit.
        left: Nodes that this process leaves to others; None unless it stands by.
        store: The log, which is being opened; None if this process stands by.
    """

    config: Config
    clock: Clock
    started_s: float
    max_connections: int
    is_again: bool
    left: "LeftNodes | None"
    store: asyncio.Future[LogStore] | None

    @classmethod
    def begin(
        cls,
        config: Config,
        clock: Clock | None = None,
        *,
        is_again: bool = False,
        left: "LeftNodes | None" = None,
    ) -> Self:
        """Check the settings and the addresses, and begin to open the log. Arguments as the attributes.

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
        store = None
        if stands_by(config):
            from tidelog_server.cluster.standby import LeftNodes

            left = left or LeftNodes(clock)
        else:
            store = asyncio.get_running_loop().run_in_executor(None, _open_store, config, clock)
        return cls(config, clock, started_s, max_connections, is_again, left, store)

    def again(self) -> Self:
        """Begin the next attempt. Raises as ``begin``."""
        return self.begin(self.config, self.clock, is_again=True, left=self.left)

    async def opened(self) -> Opened:
        """Return the log once it is open; in a cluster with an engine, once this process serves a node.

        Raises:
            Exception: As ``app.Server.start``.
        """
        if self.store is not None:
            return Opened(self.config, await self.store)
        # Imported here: it answers HTTP, and other starts have no part before the log is open.
        from tidelog_server.standby_process import StandbyProcess

        assert self.left is not None
        process = StandbyProcess(self.config, self.clock, self.left, waits_for_cluster=self.is_again)
        won, config = await process.run()
        return Opened(config, won.store, won.session)

    def leaves(self, opened: Opened, error: BaseException) -> bool:
        """Return whether this process leaves a node to others, whose server did not start because of ``error``."""
        if self.left is None or not self.config.cluster.serves_any_node:
            return False
        from tidelog_server.cluster.standby import NOT_OPENED

        if not isinstance(error, NOT_OPENED) or isinstance(error, OwnershipLostError):
            return False
        self.left.leave(opened.node_id, error)
        return True


def _open_store(config: Config, clock: Clock) -> LogStore:
    if config.storage.kind == "memory":
        return MemoryLogStore()
    if config.storage.is_in_engine:
        return _open_on_engine(config, clock)
    folder: Path = config.storage.data_dir
    # The records of a cluster node are in etcd: they are checked after it has registered.
    check = _START_CHECK if config.metadata.kind == "embedded" else STORE_CHECK
    return open_rocksdb_log_store(folder, accept_head_loss=config.storage.accept_head_loss, check=check)


def _open_on_engine(config: Config, clock: Clock) -> LogStore:
    """Claim the log in a topic, and open its store.

    Raises:
        LogSetupError: There is no such topic, or its settings or the options of the client are not allowed.
        EngineUnavailableError, TenureEndedError: The engine does not answer, or not for certain.
    """
    # Imported here, because other stores need none of it.
    from tidelog_server.from_settings import record_log
    from tidelog_server.storage.engine.open import open_engine_store

    topic = config.engine.topic_of(config.cluster.node_id)
    log, name = record_log(config, topic, clock)
    return open_engine_store(config.storage.data_dir, log, name, cache_bytes=int(config.engine.cache_bytes))


def _check_address(host: str, port: int) -> None:
    """Raise OSError, whose ``filename`` is the address, if this process cannot listen on ``host:port``."""
    if port == 0:
        return
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            error.filename = address_text(host, port)
            raise
