"""The services of docker-compose.yml as plain processes: the same commands, variables and health checks.

This does what a container engine would: it fills in variables of ``.env``, takes entry point and variables of the image
from its Dockerfile, and replaces each host name by 127.0.0.1, each port by a free one, and each volume by a folder. Two
more variables set the server's ports: without its own network it cannot use the usual ones.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tidelog_testing.servers.held import Held
from tidelog_testing.servers.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[3]
COMPOSE_FILE: Final = ROOT / "deploy" / "docker-compose.yml"
ENV_EXAMPLE: Final = ROOT / "deploy" / ".env.example"
_JOB_WITHIN_S: Final = 300.0
_CONTAINER_PORTS: Final = {"etcd": (2379, 2380), "prometheus": (9090,), "kafka": (9092, 9093), "pulsar": (6650, 8080)}
_SERVER_PORTS: Final = (7420, 7421)
_VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")
_ADDRESS: Final = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9.-]*):(\d{4,5})\b")


def read_compose(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the compose file with its variables filled in."""
    values = variables or {}
    text = _VARIABLE.sub(lambda found: values.get(found[1], found[2]), COMPOSE_FILE.read_text())
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def dockerfile_of(service: Mapping[str, Any]) -> str:
    """Return the Dockerfile stage that a service's image is built from; empty for a pulled image."""
    build = service.get("build")
    if build is None:
        return ""
    path = (COMPOSE_FILE.parent / build["context"] / build.get("dockerfile", "Dockerfile")).resolve()
    stages = re.split(r"(?m)^(?=FROM )", path.read_text())[1:]
    if "target" not in build:
        return stages[-1]
    return next(stage for stage in stages if f" AS {build['target']}\n" in stage)


def instruction(dockerfile: str, name: str) -> list[str]:
    """Return the list of an instruction in its exec form; empty if it is missing."""
    found = re.search(rf"(?m)^{name} (\[.*\])$", dockerfile)
    parsed: list[str] = json.loads(found[1]) if found else []
    return parsed


def image_variables(dockerfile: str) -> dict[str, str]:
    """Return the variables that ENV sets, except the path."""
    joined = dockerfile.replace("\\\n", " ")
    pairs = [pair for line in re.findall(r"(?m)^ENV (.+)$", joined) for pair in line.split()]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name != "PATH"}


def as_user_of_image(service: Mapping[str, Any], etc: Path) -> list[str]:
    """Return a wrapper, for root, that runs a command as the user of a service's image.

    In a mount namespace, ``/etc`` is a copy in the folder ``etc``, in which the image's own ``groupadd`` and
    ``useradd`` run: the user has an entry in ``passwd`` exactly if it has one in the image. It may read all files, as
    in an image: here, the interpreter may be in a folder that is closed to other users.
    """
    dockerfile = dockerfile_of(service)
    user = re.findall(r"(?m)^USER (\d+):(\d+)$", dockerfile)[-1]
    entries = re.findall(r"\b(?:groupadd|useradd) [^&\n\\]+", dockerfile)
    readable = "dac_read_search"
    script = [
        f"cp --archive /etc/. {etc}", f"mount --bind {etc} /etc", *entries, "cd /tmp",
        f"exec setpriv --reuid {user[0]} --regid {user[1]} --clear-groups --no-new-privs "
        f'--inh-caps=-all,+{readable} --ambient-caps=-all,+{readable} "$@"',
    ]  # fmt: skip
    return ["unshare", "--mount", "sh", "-c", " && ".join(script), "sh"]


class ComposeProcesses(Held):
    """Services as processes; ``with`` ends all running ones by SIGKILL.

    Attributes:
        ports: For each service and container port, the port on 127.0.0.1.
        volumes: For each named volume, its folder.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        """Choose ports and create folders; start nothing. ``variables`` are those of ``.env``."""
        self._folder = folder
        self.services: dict[str, dict[str, Any]] = read_compose(variables)["services"]
        self.ports = {
            (name, port): free_port() for name in self.services for port in _CONTAINER_PORTS.get(name, _SERVER_PORTS)
        }
        self.volumes = {name: folder / "volumes" / name for name in read_compose()["volumes"]}
        for path in self.volumes.values():
            path.mkdir(parents=True)
        self._published = {
            int(host_port): self.ports[name, int(port)]
            for name, service in self.services.items()
            for _, host_port, port in (text.split(":") for text in service.get("ports", []))
            if (name, int(port)) in self.ports
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def kill(self) -> None:
        for name in list(self._running):
            self._end(name, signal.SIGKILL, 30.0)

    def endpoint(self, service: str, port: int = 7420) -> str:
        """Return the endpoint of a service."""
        return f"127.0.0.1:{self.ports[service, port]}"

    def command(self, service: str) -> list[str]:
        """Return the program of a service and its arguments, translated to this machine."""
        definition = self.services[service]
        entrypoint = definition.get("entrypoint") or instruction(dockerfile_of(definition), "ENTRYPOINT")
        return self._runnable(service, [*entrypoint, *definition.get("command", [])])

    def environment(self, service: str) -> dict[str, str]:
        """Return the variables of a service, without this process's TIDELOG variables."""
        definition = self.services[service]
        own = {**image_variables(dockerfile_of(definition)), **definition.get("environment", {})}
        # Replaces the interpreter of the image's environment.
        own = {name: sys.executable if name == "PYSPARK_PYTHON" else value for name, value in own.items()}
        translated = dict(zip(own, self._translated(service, list(map(str, own.values()))), strict=True))
        if (service, 7420) in self.ports and "TIDELOG_SERVER__HOST" in own:
            translated["TIDELOG_SERVER__GRPC_PORT"] = str(self.ports[service, 7420])
            translated["TIDELOG_SERVER__HTTP_PORT"] = str(self.ports[service, 7421])
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        return {**inherited, **translated}

    def start(self, service: str, wrapper: Sequence[str] = ()) -> None:
        """Start a service; does not wait until it is healthy."""
        output = (self._folder / f"{service}.output").open("ab")
        with output:
            self._running[service] = subprocess.Popen(
                [*wrapper, *self.command(service)],
                env=self.environment(service),
                stdout=output,
                stderr=output,
                cwd=self._folder,
                start_new_session=True,
            )

    def run(self, service: str, wrapper: Sequence[str] = ()) -> int:
        """Run a service that ends by itself, and return its exit code."""
        self.start(service, wrapper)
        return self._running.pop(service).wait(_JOB_WITHIN_S)

    def health(self, service: str) -> subprocess.CompletedProcess[str]:
        """Run the health check of a service once."""
        kind, *command = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.execute(service, command)

    def execute(self, service: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment of a service, as ``docker compose exec`` does."""
        environment = self.environment(service)
        if (service, 7420) in self.ports:
            environment["TIDELOG_ENDPOINT"] = self.endpoint(service)
            environment["TIDELOG_HTTP_ENDPOINT"] = self.endpoint(service, 7421)
        return subprocess.run(
            self._runnable(service, command), env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    def wait_healthy(self, service: str, timeout_s: float = 60.0) -> None:
        """Wait until the health check of a running service passes. Raises TimeoutError, or when it ended."""
        self._wait(service, lambda: self.health(service).returncode == 0, "healthy", timeout_s)

    def wait_ready(self, service: str, timeout_s: float = 60.0) -> None:
        """Wait until a running server accepts appends, by its HTTP port. Raises TimeoutError, or when it ended."""
        self._wait(service, lambda: self._is_ready(service), "ready", timeout_s)

    def wait_until_written(self, service: str, text: str, timeout_s: float = 60.0) -> None:
        """Wait until a running service has written ``text``. Raises TimeoutError, or when it ended."""
        self._wait(service, lambda: text in self.output(service), f"at {text!r}", timeout_s)

    def _wait(self, service: str, is_so: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            if (code := self._running[service].poll()) is not None:
                raise AssertionError(f"{service} ended with {code}:\n{self.output(service)}")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{service} is not {what}:\n{self.output(service)}")
            time.sleep(0.05)

    def stop(self, service: str) -> int:
        """End a service as ``docker compose stop`` does, and return its exit code. Raises TimeoutExpired."""
        grace = self.services[service]["stop_grace_period"]
        return self._end(service, signal.SIGTERM, float(grace.removesuffix("s")))

    def output(self, service: str) -> str:
        """Return what a service has written so far."""
        return (self._folder / f"{service}.output").read_text(errors="replace")

    def metrics(self, service: str) -> str:
        """Return the metrics of a running server."""
        return self._get(service, "/metrics")

    def _is_ready(self, service: str) -> bool:
        try:
            return self._get(service, "/readyz") == "ok\n"
        except OSError:
            return False

    def _get(self, service: str, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.endpoint(service, 7421)}{path}", timeout=5) as response:
            return str(response.read().decode())

    def _end(self, service: str, number: signal.Signals, timeout_s: float) -> int:
        process = self._running.pop(service)
        if process.poll() is None:
            os.killpg(process.pid, number)
        return process.wait(timeout_s)

    def _translated(self, service: str, texts: Sequence[str]) -> list[str]:
        """Return texts with programs, host names, ports and mounted folders of this machine."""
        mounts = {
            target: str(self.volumes.get(source, (COMPOSE_FILE.parent / source).resolve()))
            for source, target in (text.split(":")[:2] for text in self.services[service].get("volumes", []))
        }
        copied = re.findall(r"(?m)^COPY (deploy/\S+) (/\S+)$", dockerfile_of(self.services[service]))
        mounts |= {target: str(ROOT / source) for source, target in copied}

        def address(found: re.Match[str]) -> str:
            host, port = found[1], int(found[2])
            if port in self._published and host == "127.0.0.1":
                return f"127.0.0.1:{self._published[port]}"
            owner = service if host in ("0.0.0.0", "127.0.0.1") else host
            return f"127.0.0.1:{self.ports[owner, port]}"

        def one(text: str) -> str:
            for target, source in mounts.items():
                text = re.sub(rf"(?<![\w/]){re.escape(target)}(?=/|$)", source, text)
            text = _ADDRESS.sub(address, text)
            return "127.0.0.1" if text == "0.0.0.0" else text

        return [one(text) for text in texts]

    def _runnable(self, service: str, command: Sequence[str]) -> list[str]:
        """Return a command with its program and arguments translated to this machine."""
        program, *arguments = command
        return [_program(program), *self._translated(service, arguments)]


def _program(name: str) -> str:
    """Return the path of a program of this environment or of the system, or else the text unchanged."""
    if name == "python":
        return sys.executable
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.is_file() else shutil.which(name) or name
