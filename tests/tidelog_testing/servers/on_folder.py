"""Servers whose logs are in folders that several of them share. No setting offers that: they use them as they do Kafka.

A folder has one log, of servers without a cluster, or one in a folder of its own for each node of a cluster.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from tidelog_server import opening, standby_process
from tidelog_server.channels.catalog import ROOT
from tidelog_server.cluster.log_records import LogRecord, log_key
from tidelog_server.config import Config
from tidelog_server.recordlog.engine import EngineUnavailableError, Report
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import INCARNATION_BYTES
from tidelog_server.runtime.clock import Clock
from tidelog_server.storage.engine.open import LogName, prepare_engine_store
from tidelog_server.storage.engine.snapshot_plan import SnapshotLimits
from tidelog_server.storage.log_store import LogStore
from tidelog_testing.parts.engine_stores import OFTEN, create_log, open_on, shorten_often
from tidelog_testing.parts.folder_engine import FolderEngine, Unruly
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.processes import ServerProcess, lasting_port

LOG: Final = "TESTED_LOG"
"""The variable that names the folder."""
LOSE: Final = "lose"
"""The file in the folder of a log that makes the server of the log lose the position of its next record."""
NODE_SETTINGS: Final = {"storage.kind": "kafka", "engine.servers": "127.0.0.1:1"}
"""Settings of a node of a cluster whose log is in a folder."""
SETTINGS: Final = {**NODE_SETTINGS, "engine.topic": "folder"}
ORDERLY: Final = Unruly()


def silence(log: Path, pid: int) -> None:
    """Make the process ``pid`` wait in vain for the log in the folder ``log``."""
    (log / f"silent-{pid}").touch()


class _TroubledEngine(FolderEngine):
    """A log that stores a record, and reports a broken connection, once for each file ``LOSE``.

    It stores nothing for a process that is to see it silent; see ``silence``.
    """

    def poll(self, timeout_s: float) -> None:
        if (self._folder / f"silent-{os.getpid()}").exists():
            time.sleep(timeout_s)
        else:
            super().poll(timeout_s)

    def send(self, value: bytes, report: Report) -> None:
        try:
            (self._folder / LOSE).unlink()
        except FileNotFoundError:
            super().send(value, report)
        else:
            super().send(value, lambda _: report(EngineUnavailableError("the connection broke")))


def use_folder(unruly: Unruly = ORDERLY, limits: SnapshotLimits = OFTEN) -> None:
    """Make this process open its log in a folder, and make snapshots of it often, unless ``limits`` say otherwise."""
    log = Path(os.environ[LOG])

    def open_in_folder(config: Config, clock: Clock) -> LogStore:
        return open_on(_TroubledEngine(log, unruly), config.storage.data_dir, limits=limits)

    opening._open_on_engine = open_in_folder
    shorten_often()


def use_folder_and_lose_it() -> None:
    """Make this process open its log in a folder; another one claims the log once it is open, the first time."""
    use_folder()
    opened = opening._open_on_engine

    def open_and_lose(config: Config, clock: Clock) -> LogStore:
        opening._open_on_engine = opened
        store = opened(config, clock)
        open_on(FolderEngine(Path(os.environ[LOG])), config.storage.data_dir.with_name("other")).close()
        return store

    opening._open_on_engine = open_and_lose


def use_folders() -> None:
    """Make this process, one of a cluster, open the log of each node in a folder, and make snapshots of it often."""
    logs = Path(os.environ[LOG])

    def log_in_folder(config: Config, topic: str, clock: Clock) -> tuple[RecordLog, LogName]:
        return RecordLog(_TroubledEngine(logs / topic), clock), LogName(config.storage.kind, topic)

    # Not ended: the process serves nothing else.
    mock.patch.multiple(
        standby_process, record_log=log_in_folder, prepare_engine_store=partial(prepare_engine_store, limits=OFTEN)
    ).start()
    shorten_often()


def create_node(etcd: EtcdProcess, prefix: str, logs: Path, node_id: str) -> None:
    """Create a node of a cluster, with an empty log in a folder in ``logs``. ``prefix`` is that of all keys in etcd."""
    identity = node_id.encode().ljust(INCARNATION_BYTES)
    create_log(FolderEngine(logs / node_id), identity)
    etcd.control("put", f"{prefix}{log_key(ROOT, node_id)}", LogRecord(node_id, identity).encode().decode())


def server_on_folder(
    log: Path,
    view: Path,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], None] = use_folder,
    settings: Mapping[str, object] | None = None,
) -> ServerProcess:
    """Start a server on the log in the folder ``log``, which exists, with a view in the folder ``view``.

    Raises:
        ServerDiedError: The process ended before it was ready.
    """
    return ServerProcess(view, {**SETTINGS, **(settings or {})}, {LOG: str(log), **(env or {})}, prepare=prepare)


class Owners(Held):
    """Servers on one log at one address, one after the other, each with a view of its own. ``with`` ends the last.

    Attributes:
        server: The one that runs.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        """Create the log, and start the first server. ``settings`` are further ones of all servers."""
        self._folder = folder
        self._settings = {**lasting_port(), **(settings or {})}
        self._started = 0
        create_log(FolderEngine(folder / "log"))
        self.server = self._start()

    def move(self) -> None:
        """End the server by SIGKILL, and start the next one, in another data folder, with nothing but the log."""
        self.server.kill()
        self.server = self._start()

    def kill(self) -> None:
        """End the server by SIGKILL. Idempotent."""
        self.server.kill()

    @property
    def view(self) -> Path:
        """The data folder of the server."""
        return self._folder / f"view-{self._started}"

    def _start(self) -> ServerProcess:
        self._started += 1
        return server_on_folder(self._folder / "log", self.view, settings=self._settings)
