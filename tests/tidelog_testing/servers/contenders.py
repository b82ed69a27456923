"""Servers that share a log, each of which takes it from the one before: in a folder, in Kafka or in Pulsar.

They have no cluster, and each is started to claim the log; or they are processes of a cluster, which serve its one node
in turns.
"""

import os
import random
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from unittest import mock

from tidelog_cli.exit_codes import ExitCode
from tidelog_server import standby_process
from tidelog_server.storage.engine import open as opening
from tidelog_server.storage.engine.snapshot_plan import LIMITS
from tidelog_testing.faults import stop_points
from tidelog_testing.parts.engine_stores import OFTEN, shorten_often
from tidelog_testing.parts.folder_engine import Unruly
from tidelog_testing.servers.engine_cluster import WITHIN_S, EngineCluster, EngineProcess
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.on_folder import LOG, ORDERLY, SETTINGS, use_folder
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess
from tidelog_testing.servers.pulsar import PulsarProcess

Plant: TypeAlias = Callable[[], None] | None
"""Leaves a rule out in a server: a function of ``faults.plants``."""
_SILENT_S: Final = 5
_STARTS: Final = 30
_PROCESSES: Final = 3
_NODE: Final = "n1"
_POLL_S: Final = 0.02
# A process that could not open the node leaves it to others for 30 s.
_SERVES_WITHIN_S: Final = 180.0
# The engine does not answer, or not for certain.
_AGAIN: Final = (ExitCode.UNAVAILABLE, ExitCode.STORAGE_FAILED)


class Contenders(Held):
    """Servers on one log. ``with`` ends all of them.

    Attributes:
        refused: Number of starts that failed because the engine did not answer.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._points: dict[int, Path] = {}

    @abstractmethod
    def start(self) -> ServerProcess:
        """Let another server take the log over, whether the last one serves or not; return it once it serves."""

    @abstractmethod
    def ends(self, server: ServerProcess) -> int | None:
        """Wait until a former owner has ended; return its exit code, or None if it is a standby."""

    def ask(self, server: ServerProcess, point: str) -> None:
        """Ask a server to stop, or to be killed: see ``stop_points.ask``."""
        stop_points.ask(server.pid, self._points[server.pid], point)


class SingleContenders(Contenders):
    """Servers without a cluster, each with a view in a folder of its own, or an earlier one, or none."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        prepare: Callable[[], None],
        env: Mapping[str, str],
        seed: int,
    ) -> None:
        """Arguments as those of ``ServerProcess``; ``seed`` decides which views are deleted."""
        super().__init__()
        self._folder = folder
        self._settings = settings
        self._prepare = prepare
        self._env = env
        self._random = random.Random(seed)
        self._started: list[ServerProcess] = []

    @classmethod
    def on_folder(cls, folder: Path, seed: int, unruly: Unruly = ORDERLY, plant: Plant = None) -> "SingleContenders":
        """Return servers on the log in ``folder/log``, which exists."""
        return cls(folder, SETTINGS, partial(_use_folder, unruly, plant), {LOG: str(folder / "log")}, seed)

    @classmethod
    def on_kafka(
        cls, folder: Path, seed: int, kafka: KafkaProcesses, topic: str, plant: Plant = None
    ) -> "SingleContenders":
        """Return servers on a log in Kafka, which exists."""
        settings = {
            "storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": topic,
            "engine.silent_s": _SILENT_S,
        }  # fmt: skip
        return cls(folder, settings, partial(_use_engine, plant), {}, seed)

    @classmethod
    def on_pulsar(cls, folder: Path, seed: int, pulsar: PulsarProcess, topic: str) -> "SingleContenders":
        """Return servers on a log in Pulsar, which exists."""
        settings = {**pulsar.settings(topic), "engine.silent_s": _SILENT_S}
        return cls(folder, settings, partial(_use_engine, None), {}, seed)

    def start(self, env: Mapping[str, str] | None = None) -> ServerProcess:
        """Start the next server, with further variables, as a supervisor does.

        It is started again while the engine does not answer, or not for certain.

        Raises:
            ServerDiedError: It ended before it was ready, for another reason.
        """
        view = self._folder / f"view-{len(self._started) % 3}"
        point = self._folder / f"point-{len(self._started)}"
        if self._random.random() < 0.3:
            shutil.rmtree(view, ignore_errors=True)
        server = self._started_on(view, {**self._env, stop_points.FILE: str(point), **(env or {})})
        self._started.append(server)
        self._points[server.pid] = point
        return server

    def _started_on(self, view: Path, env: Mapping[str, str]) -> ServerProcess:
        for _ in range(_STARTS - 1):
            try:
                return ServerProcess(view, self._settings, env, prepare=self._prepare)
            except ServerDiedError as died:
                if died.code not in _AGAIN:
                    raise
                self.refused += 1
        return ServerProcess(view, self._settings, env, prepare=self._prepare)

    def ends(self, server: ServerProcess) -> int | None:
        return server.wait()

    def kill(self) -> None:
        """End all of them with SIGKILL."""
        for server in self._started:
            server.kill()


class ClusterContenders(Contenders):
    """Three processes of a cluster on Kafka, one of which serves its one node, and the others stand by."""

    def __init__(self, folder: Path, etcd: EtcdProcess, kafka: KafkaProcesses, name: str) -> None:
        """Create the node.

        Args:
            folder: Folder of the views.
            etcd: Where the processes register.
            kafka: Where the log of the node is.
            name: Name of the cluster.
        """
        super().__init__()
        self._cluster = EngineCluster(
            folder / "cluster", etcd, engine={"engine.servers": kafka.servers}, prepare=_use_cluster
        )
        self._cluster.settings |= {"cluster.name": name, "engine.silent_s": _SILENT_S}
        self._owner: EngineProcess | None = None
        created = self._cluster.create_in_engine(_NODE, name)
        assert created.returncode == 0, created.stderr

    def start(self) -> ServerProcess:
        """See ``Contenders``. A process that is alive loses its registration."""
        former = self._owner
        for number in range(_PROCESSES):
            each = self._cluster.processes.get(f"p{number}")
            if each is None or each.code is not None:
                if each is not None:
                    each.kill()
                self._start(f"p{number}")
        ends_s = time.monotonic() + _SERVES_WITHIN_S
        while time.monotonic() < ends_s:
            for each in self._cluster.processes.values():
                if each is not former and each.code is None and each.state == "ready":
                    self._owner = each
                    return each
            if former is not None and former.code is None and not stop_points.is_stopped(former.pid):
                # Again if it has registered again: the others may have left the node, because Kafka did not answer.
                self._cluster.revoke(_NODE, former)
            time.sleep(_POLL_S)
        raise TimeoutError({name: each.errors[-2_000:] for name, each in self._cluster.processes.items()})

    def ends(self, server: ServerProcess) -> int | None:
        assert isinstance(server, EngineProcess)
        ends_s = time.monotonic() + WITHIN_S
        while server.code is None and server.state != "standby":
            if ends_s < time.monotonic():
                raise TimeoutError(server.errors[-2_000:])
            time.sleep(_POLL_S)
        return server.code

    def kill(self) -> None:
        """End all of them with SIGKILL."""
        self._cluster.kill()

    def _start(self, name: str) -> None:
        point = self._cluster.folder / f"{name}.point"
        process = self._cluster.start(name, env={stop_points.FILE: str(point)})
        self._points[process.pid] = point


def _use_folder(unruly: Unruly, plant: Plant) -> None:
    unruly = replace(unruly, seed=os.getpid())
    if plant is None:
        use_folder(unruly)
        stop_points.use_points()
    else:
        # Parts, of which each says which one it is, would show it without the judge.
        use_folder(unruly, LIMITS)
        plant()


def _use_cluster() -> None:
    # Not ended: the process serves nothing else.
    mock.patch.object(
        standby_process, "prepare_engine_store", partial(opening.prepare_engine_store, limits=OFTEN)
    ).start()
    shorten_often()
    stop_points.use_points()


def _use_engine(plant: Plant) -> None:
    # Not ended: the process serves nothing else.
    mock.patch.object(opening, "open_engine_store", partial(opening.open_engine_store, limits=OFTEN)).start()
    shorten_often()
    stop_points.use_points()
    if plant is not None:
        plant()
