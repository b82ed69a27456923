"""Separate hosts on one machine: network namespaces, with Linux's ``ip``, as root.

Each host has its own loopback and addresses, so the address of another host really is another host.
The machine's own network does not change: the links run between namespaces only.
"""

import os
import secrets
import subprocess
from collections.abc import Sequence
from typing import Final

from tidelog_testing.parts.missing import missing
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.processes import PYTHON_PATH

_COMMAND_WITHIN_S: Final = 60.0
_NAME_BYTES: Final = 3


class HostsUnavailableError(Exception):
    """Network namespaces cannot be created here; the text states the reason."""


class Hosts(Held):
    """Network namespaces and the links between them; ``with`` removes all of them."""

    def __init__(self) -> None:
        """Start without hosts."""
        self._prefix = f"tidelog-{secrets.token_hex(_NAME_BYTES)}"
        self._names: list[str] = []
        self._links = 0

    def kill(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", self.namespace(name)], check=True, timeout=_COMMAND_WITHIN_S)

    def namespace(self, name: str) -> str:
        """Return the system's name of a host."""
        return f"{self._prefix}-{name}"

    def add(self, name: str) -> None:
        """Create a host with a loopback. Raises HostsUnavailableError."""
        _ip("netns", "add", self.namespace(name))
        self._names.append(name)
        self._ip_on(name, "link", "set", "lo", "up")

    def bridge(self, name: str) -> None:
        """Turn a host into a switch: everything plugged into it is one network."""
        self._ip_on(name, "link", "add", "bridge", "type", "bridge")
        self._ip_on(name, "link", "set", "bridge", "up")

    def plug(self, name: str, switch: str, address: str) -> None:
        """Connect a host to a switch, with an address such as 10.0.0.1/24."""
        end, other_end = self._link(name, switch)
        self._ip_on(switch, "link", "set", other_end, "master", "bridge")
        self._raise(name, end, address)

    def connect(self, name: str, address: str, other: str, other_address: str) -> None:
        """Connect two hosts directly, each with an address such as 10.0.0.1/24."""
        end, other_end = self._link(name, other)
        self._raise(name, end, address)
        self._raise(other, other_end, other_address)

    def wrapper(self, name: str) -> list[str]:
        """Return the command that runs another one on a host."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def run(self, name: str, command: Sequence[str], timeout_s: float = _COMMAND_WITHIN_S) -> str:
        """Run a command on a host and return its output. Raises AssertionError with the output if it fails."""
        done = subprocess.run(
            [*self.wrapper(name), *command],
            capture_output=True, text=True, timeout=timeout_s, check=False,
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        )  # fmt: skip
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def _link(self, name: str, other: str) -> tuple[str, str]:
        """Create a cable between two hosts, up at both ends, and return the names of its ends."""
        self._links += 1
        end, other_end = f"a{self._links}", f"b{self._links}"
        self._ip_on(name, "link", "add", end, "type", "veth", "peer", "name", other_end, "netns", self.namespace(other))
        self._ip_on(other, "link", "set", other_end, "up")
        self._ip_on(name, "link", "set", end, "up")
        return end, other_end

    def _raise(self, name: str, interface: str, address: str) -> None:
        self._ip_on(name, "address", "add", address, "dev", interface)

    def _ip_on(self, name: str, *arguments: str) -> None:
        _ip("-netns", self.namespace(name), *arguments)


def hosts_or_why_not() -> Hosts:
    """Return hosts, or skip the test with the reason; under CI=true the test fails instead."""
    hosts = Hosts()
    try:
        with hosts:
            hosts.add("first")
            hosts.add("second")
            hosts.connect("first", "198.51.100.1/24", "second", "198.51.100.2/24")
    except HostsUnavailableError as error:
        missing(str(error))
    return Hosts()


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ["ip", *arguments], capture_output=True, text=True, timeout=_COMMAND_WITHIN_S, check=False
        )
    except FileNotFoundError:
        raise HostsUnavailableError("hosts need the program ip: apt-get install iproute2") from None
    if done.returncode != 0:
        raise HostsUnavailableError(
            f"ip {' '.join(arguments)} failed ({done.stderr.strip()}): network namespaces need root with CAP_NET_ADMIN "
            "and CAP_SYS_ADMIN, and a kernel with veth and bridge"
        )
