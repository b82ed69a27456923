"""``benchmarks mailbox-peers``: cycles of send, fetch and acknowledge on Tidelog, Redis streams and NATS, by turns.

All three sync before they answer. Each has a client process of its own, with the fastest client that Python has for it:
hiredis for Redis, nats-py for NATS, and the stream of ``bench mailbox`` for Tidelog.
"""

import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import ServerProcess

PEERS: Final = ("tidelog", "redis", "nats")
_PARTS: Final = ("batches", "workers")
_HERE: Final = Path(__file__).parent
_CONNECT_WITHIN_S: Final = 20.0
_POLL_S: Final = 0.05
_WARM_UP_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class PeersSettings:
    """Settings of ``benchmarks mailbox-peers``.

    Attributes:
        seconds: Seconds of a turn.
        rounds: Number of turns of each peer.
        size: Bytes per message.
        per_batch: Messages per send, fetch and acknowledgement.
        in_flight: Number of batches in flight.
        workers: Number of workers that process one message at a time.
    """

    seconds: float
    rounds: int
    size: int
    per_batch: int
    in_flight: int
    workers: int


@dataclass(frozen=True, slots=True)
class _Server:
    """A server, and the interpreter of its client.

    Attributes:
        port: Its port.
        python: Interpreter with the client's packages.
    """

    port: int
    python: str


def measure_peers(folder: Path, settings: PeersSettings) -> Sequence[Report]:
    """Run the peers by turns; return a report for each peer and part.

    Raises:
        CommandError: Something that the peers need is missing; the message says what.
    """
    redis_server = shutil.which("redis-server")
    if redis_server is None:
        raise CommandError("redis-server is not installed: run apt-get install redis-server")
    environment = _environment(folder / "environment")
    with ExitStack() as stack:
        ours = ServerProcess(folder / "tidelog", {"limits.min_free_disk_bytes": "0"})
        stack.callback(ours.stop)
        servers = {
            "tidelog": _Server(int(ours.grpc.rpartition(":")[2]), sys.executable),
            "redis": _Server(stack.enter_context(_redis(redis_server, folder)), f"{environment}/python"),
            "nats": _Server(stack.enter_context(_nats(f"{environment}/nats-server", folder)), f"{environment}/python"),
        }
        clients = {peer: stack.enter_context(_client(peer, server, settings)) for peer, server in servers.items()}
        rates = _by_turns(clients, settings)
    return [_report(part, peer, rates, settings) for part in _PARTS for peer in PEERS]


def _by_turns(clients: Mapping[str, "_Client"], settings: PeersSettings) -> dict[tuple[str, str], list[float]]:
    """Return the cycles per second of each turn, by part and peer."""
    rates: dict[tuple[str, str], list[float]] = {(part, peer): [] for part in _PARTS for peer in PEERS}
    for part in _PARTS:
        for client in clients.values():
            client.cycles_per_second(part, settings.seconds / _WARM_UP_SHARE)
    for number in range(settings.rounds):
        for part in _PARTS:
            # In alternating order.
            for peer in PEERS if number % 2 else reversed(PEERS):
                rates[part, peer].append(clients[peer].cycles_per_second(part, settings.seconds))
    return rates


def _report(part: str, peer: str, rates: Mapping[tuple[str, str], Sequence[float]], settings: PeersSettings) -> Report:
    ours, theirs = rates[part, "tidelog"], rates[part, peer]
    shown = asdict(settings)
    for name in ("workers",) if part == "batches" else ("per_batch", "in_flight"):
        del shown[name]
    # The median over the rounds: the speed of the disk drifts.
    ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
    details = {} if peer == "tidelog" else {"tidelog_to_this": ratio}
    return Report(f"{peer}, {part}", shown, statistics.median(theirs), details=details)


# -- What the peers need -----------------------------------------------------------------------------------


def _environment(folder: Path) -> Path:
    """Install the packages of the peers, and return the folder of the programs. Raises CommandError."""
    venv.create(folder, with_pip=True)
    listed = _HERE / "peers.txt"
    command = [
        f"{folder}/bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        str(listed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"the packages in {listed} cannot be installed: {done.stderr.strip()}")
    return folder / "bin"


@contextmanager
def _redis(program: str, folder: Path) -> Iterator[int]:
    port = _free_port()
    data = folder / "redis"
    data.mkdir()
    flags = {
        "port": port, "bind": "127.0.0.1", "dir": data, "appendonly": "yes", "appendfsync": "always", "save": "",
        "loglevel": "warning",
    }  # fmt: skip
    with _process([program, *(str(part) for name, value in flags.items() for part in (f"--{name}", value))], port):
        yield port


@contextmanager
def _nats(program: str, folder: Path) -> Iterator[int]:
    port = _free_port()
    configuration = folder / "nats.conf"
    configuration.write_text(
        f'host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: "{folder}/nats", sync_interval: always }}\n'
    )
    with _process([program, "-c", str(configuration), "-l", str(folder / "nats.log")], port):
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# -- Clients -----------------------------------------------------------------------------------------------


class _Client:
    """A running client process."""

    def __init__(self, peer: str, process: "subprocess.Popen[str]") -> None:
        self._peer = peer
        self._process = process
        self.answer()

    def cycles_per_second(self, part: str, seconds: float) -> float:
        """Let the client run cycles for ``seconds``."""
        assert self._process.stdin is not None
        print(part, seconds, file=self._process.stdin, flush=True)
        found = self.answer()
        return float(found["cycles"] / found["seconds"])

    def answer(self) -> dict[str, Any]:
        """Return the next line of the client. Raises CommandError if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CommandError(f"the client of {self._peer} ended early, with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def _client(peer: str, server: _Server, settings: PeersSettings) -> Iterator[_Client]:
    order = json.dumps({"peer": peer, "port": server.port, **asdict(settings)})
    process = subprocess.Popen(
        [server.python, str(_HERE / "mailbox_peer.py"), order], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path) if peer == "tidelog" else ""},
    )  # fmt: skip
    try:
        yield _Client(peer, process)
    finally:
        process.kill()
        process.communicate()
