"""Ports of loopback for servers that need to know theirs before they start; no two test processes get the same one."""

import fcntl
import secrets
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Final

# Linux assigns ports from 32,768 on to connections.
_PORTS: Final = range(12_000, 32_000)
_taken: set[int] = set()


def free_port() -> int:
    """Return a port that is free, that the system gives to no connection, and that no other process gets."""
    while True:
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if port not in _taken and _claimed(port) and _unused(port):
            _taken.add(port)
            return port


def free_ports(number: int) -> list[int]:
    """Return different ports, each as of `free_port`."""
    return [free_port() for _ in range(number)]


def _claimed(port: int) -> bool:
    """Lock the byte of the port until this process ends; return whether no other process has it."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims() -> IO[bytes]:
    """Open the file of the locks. It stays open: a process loses its locks when it closes any handle of the file."""
    return (Path(tempfile.gettempdir()) / "tidelog-test-ports").open("ab")


def _unused(port: int) -> bool:
    with socket.socket() as listening:
        try:
            listening.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
