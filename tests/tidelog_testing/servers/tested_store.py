"""The log store of the servers that tests start: that of their settings, or, for a second run, the engine store.

``pytest --log-store engine`` runs the modules of ``suites.ON_ENGINE`` with servers whose logs are in folders. The tests
are the same, and name RocksDB or memory. Each start has a new view, as in another data folder.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog_server import opening
from tidelog_server.config import Config
from tidelog_server.runtime.clock import Clock
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.log_store import LogStore
from tidelog_testing.parts.engine_stores import OFTEN, create_log, open_on, shorten_often
from tidelog_testing.parts.folder_engine import FolderEngine

# Names, in such a run, the folder of logs that do not outlive their server.
_VARIABLE: Final = "TESTED_LOGS"


def use_engine_store(logs: Path) -> None:
    """Give the servers of this process, and those that it starts, the engine store.

    ``logs`` is the folder of those logs that are in memory otherwise.
    """
    os.environ[_VARIABLE] = str(logs)
    open_of_settings = opening._open_store

    def open_store(config: Config, clock: Clock) -> LogStore:
        match config.storage.kind:
            case "rocksdb":
                return _open(log_of(config.storage.data_dir), config.storage.data_dir)
            case "memory":
                return _open_once(logs)
            case _:
                return open_of_settings(config, clock)

    opening._open_store = open_store
    shorten_often()


def is_on_engine() -> bool:
    """Return whether servers have the engine store in place of that of their settings."""
    return _VARIABLE in os.environ


def prepare_server() -> Callable[[], None] | None:
    """Return what a process that a test forks calls before it serves; None if the store is that of its settings."""
    return _use_engine_store_too if is_on_engine() else None


def _use_engine_store_too() -> None:
    use_engine_store(Path(os.environ[_VARIABLE]))


def log_of(data_dir: Path) -> Path:
    """Return the folder of the log of a server with this data folder."""
    return data_dir.with_name(f"{data_dir.name}.records")


def delete_view(data_dir: Path) -> None:
    """Delete the view that an earlier server has left, if any."""
    if (data_dir / "FORMAT").exists():
        shutil.rmtree(data_dir)


def _open(log: Path, view: Path) -> EngineLogStore:
    if not log.exists():
        create_log(FolderEngine(log))
    delete_view(view)
    return open_on(FolderEngine(log), view, limits=OFTEN)


def _open_once(logs: Path) -> EngineLogStore:
    """Open a new log, which is deleted with its store."""
    folder = Path(tempfile.mkdtemp(dir=logs))
    store = _open(folder / "log", folder / "view")
    weakref.finalize(store, shutil.rmtree, folder)
    return store
