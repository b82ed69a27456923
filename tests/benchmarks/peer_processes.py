"""Servers of other systems, and a client process for each, for the benchmarks that compare with them by turns.

All servers listen on loopback, and sync before they answer. A client runs in an environment of its own.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.server_process import ServerProcess
from tidelog_testing.servers.ports import free_port

_HERE: Final = Path(__file__).parent
_CONNECT_WITHIN_S: Final = 60.0
_POLL_S: Final = 0.05
_KAFKA_CLUSTER: Final = "dGlkZWxvZy1iZW5jaG1hcg"


@dataclass(frozen=True, slots=True)
class PeerServer:
    """A server, and the interpreter of its client.

    Attributes:
        port: Its port.
        python: Interpreter with the client's packages.
    """

    port: int
    python: str


def start_peers(
    stack: ExitStack, folder: Path, peers: Sequence[str], *, kafka: Path | None = None
) -> Mapping[str, PeerServer]:
    """Start the servers of ``peers``, which ``stack`` ends. ``kafka`` is an unpacked distribution of Kafka.

    Raises:
        CommandError: Something that the peers need is missing; the message says what.
    """
    _check_present(peers, kafka)
    programs = _environment(folder / "environment")
    python = f"{programs}/python"
    found: dict[str, PeerServer] = {}
    for peer in peers:
        match peer:
            case "tidelog":
                ours = ServerProcess(folder / "tidelog", {"limits.min_free_disk_bytes": "0"})
                stack.callback(ours.stop)
                found[peer] = PeerServer(int(ours.grpc.rpartition(":")[2]), sys.executable)
            case "redis":
                found[peer] = PeerServer(stack.enter_context(_redis(folder)), python)
            case "nats":
                found[peer] = PeerServer(stack.enter_context(_nats(f"{programs}/nats-server", folder)), python)
            case "kafka":
                assert kafka is not None
                found[peer] = PeerServer(stack.enter_context(_kafka(kafka, folder)), python)
            case _:
                raise AssertionError(peer)
    return found


def _check_present(peers: Sequence[str], kafka: Path | None) -> None:
    """Check what is not installed with the environment, before that is made. Raises CommandError."""
    if "redis" in peers and shutil.which("redis-server") is None:
        raise CommandError("redis-server is not installed: run apt-get install redis-server")
    if "kafka" not in peers:
        return
    if kafka is None or not any((kafka / "libs").glob("kafka_*.jar")):
        raise CommandError(f"{kafka} has no libs/kafka_*.jar: pass the folder that the archive of Kafka unpacks to")
    if shutil.which("java") is None:
        raise CommandError("Kafka needs java: install a Java runtime")


def _environment(folder: Path) -> Path:
    """Install the packages of the peers, and return the folder of the programs. Raises CommandError."""
    venv.create(folder, with_pip=True)
    listed = _HERE / "peers.txt"
    command = [
        f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(listed),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"the packages in {listed} cannot be installed: {done.stderr.strip()}")
    return folder / "bin"


@contextmanager
def _redis(folder: Path) -> Iterator[int]:
    port = free_port()
    data = folder / "redis"
    data.mkdir()
    flags = {
        "port": port, "bind": "127.0.0.1", "dir": data, "appendonly": "yes", "appendfsync": "always", "save": "",
        "loglevel": "warning",
    }  # fmt: skip
    with _process(
        ["redis-server", *(str(part) for name, value in flags.items() for part in (f"--{name}", value))], port
    ):
        yield port


@contextmanager
def _nats(program: str, folder: Path) -> Iterator[int]:
    port = free_port()
    configuration = folder / "nats.conf"
    configuration.write_text(
        f'host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: "{folder}/nats", sync_interval: always }}\n'
    )
    with _process([program, "-c", str(configuration), "-l", str(folder / "nats.log")], port):
        yield port


@contextmanager
def _kafka(distribution: Path, folder: Path) -> Iterator[int]:
    """Run a node that is broker and controller, and syncs each batch before it answers."""
    port, controller_port = free_port(), free_port()
    data = folder / "kafka"
    data.mkdir()
    settings = {
        "process.roles": "broker,controller", "node.id": 1, "log.dirs": data / "log",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "offsets.topic.replication.factor": 1, "log.flush.interval.messages": 1,
    }  # fmt: skip
    configuration = data / "server.properties"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx512m", "-cp", f"{distribution}/libs/*"]
    format_log = [*java, "kafka.tools.StorageTool", "format", "-t", _KAFKA_CLUSTER, "-c", str(configuration)]
    done = subprocess.run(format_log, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"Kafka did not format its log: {done.stderr.strip() or done.stdout.strip()}")
    with _process([*java, "kafka.Kafka", str(configuration)], port):
        yield port


@contextmanager
def _process(command: Sequence[str], port: int) -> Iterator[None]:
    """Run a server until it accepts connections, and kill it at the end. Raises CommandError."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_accepts_connections(port, command[0]))
        yield
    finally:
        process.kill()
        process.wait()


async def _accepts_connections(port: int, program: str) -> None:
    try:
        async with asyncio.timeout(_CONNECT_WITHIN_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(_POLL_S)
                else:
                    writer.close()
                    return
    except TimeoutError as error:
        raise CommandError(f"{program} did not accept connections within {_CONNECT_WITHIN_S:.0f} s") from error


class PeerClient:
    """A running client process."""

    def __init__(self, peer: str, process: "subprocess.Popen[str]") -> None:
        self._peer = peer
        self._process = process
        self.answer()

    def run(self, part: str, seconds: float) -> dict[str, Any]:
        """Let the client run a part for ``seconds``; return what it prints."""
        assert self._process.stdin is not None
        print(part, seconds, file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next line of the client. Raises CommandError if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CommandError(f"the client of {self._peer} ended early, with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def peer_client(module: str, peer: str, server: PeerServer, settings: Mapping[str, Any]) -> Iterator[PeerClient]:
    """Run ``module`` of this package as the client of ``peer``; its order on the command line has the settings."""
    order = json.dumps({"peer": peer, "port": server.port, **settings})
    # The package itself imports nothing, so the clients of other systems need only its folder.
    path = sys.path if peer == "tidelog" else [str(_HERE.parent)]
    process = subprocess.Popen(
        [server.python, "-m", f"benchmarks.{module}", order], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )  # fmt: skip
    try:
        yield PeerClient(peer, process)
    finally:
        process.kill()
        process.communicate()
