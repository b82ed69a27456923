"""The hostile client process of ``benchmarks security``: without credentials, with three attacks in turns.

The attacks are malformed frames, metadata far above the limit, and streams that are opened and reset at full speed.
"""

import json
import os
import socket
import ssl
import sys
import time
from contextlib import suppress
from typing import Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection

_MALFORMED: Final = 50
_OVERSIZE: Final = 20
_RESETS: Final = 2_000
_OVERSIZE_BYTES: Final = 64 << 10
_TIMEOUT_S: Final = 2.0
# It represents another machine, so it yields to the measured client.
_NICENESS: Final = 5
_HEADERS: Final = [
    (":method", "POST"), (":scheme", "https"), (":authority", "bench"), ("te", "trailers"),  # codespell:ignore te
    ("content-type", "application/grpc"),
]  # fmt: skip


def malformed() -> bytes:
    """Return frames whose lengths and types contradict each other."""
    frames = [_preface().data_to_send()]
    for _ in range(_MALFORMED):
        # A SETTINGS frame of 5 bytes, DATA on stream 0, and HEADERS of noise.
        frames.append(b"\x00\x00\x05\x04\x00\x00\x00\x00\x00" + os.urandom(5))
        frames.append(b"\x00\x00\x04\x00\x00\x00\x00\x00\x00" + os.urandom(4))
        frames.append(b"\x00\x00\x10\x01\x04\x00\x00\x00\x01" + os.urandom(16))
    return b"".join(frames)


def oversize() -> bytes:
    """Return calls with 64 KiB of metadata each."""
    connection = _preface()
    for number in range(_OVERSIZE):
        path = (":path", "/tidelog.v1.WalService/GetWalName")
        # A different text each time; otherwise header compression would shrink it.
        padding = ("x-padding", f"{number:04}" * (_OVERSIZE_BYTES // 4))
        connection.send_headers(1 + 2 * number, [*_HEADERS[:3], path, *_HEADERS[3:], padding], end_stream=True)
    return connection.data_to_send()


def flood() -> bytes:
    """Return frames that open streams and reset them immediately."""
    connection = _preface()
    for number in range(_RESETS):
        path = (":path", "/tidelog.v1.WalService/AppendStream")
        connection.send_headers(1 + 2 * number, [*_HEADERS[:3], path, *_HEADERS[3:]])
        connection.reset_stream(1 + 2 * number, error_code=8)
    return connection.data_to_send()


def _preface() -> H2Connection:
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    return connection


class Attacker:
    """Opens connections and counts its attacks. The content is built in advance, so attacking is cheap."""

    def __init__(self, endpoint: str, ca: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._address = host, int(port)
        self._context = ssl.create_default_context(cafile=ca)
        self._context.set_alpn_protocols(["h2"])
        self._attacks = {"malformed": (malformed(), 3 * _MALFORMED), "oversize": (oversize(), _OVERSIZE),
                         "resets": (flood(), _RESETS)}  # fmt: skip
        self.counts = dict.fromkeys(self._attacks, 0)

    def attack_all(self) -> None:
        """Open a connection for each kind of attack. The server is expected to close it early."""
        for name, (content, count) in self._attacks.items():
            with (
                suppress(OSError),
                socket.create_connection(self._address, _TIMEOUT_S) as plain,
                self._context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
            ):
                self.counts[name] += count
                sock.sendall(content)
                # Wait for the beginning of the answer only.
                sock.recv(65_536)


def attack(order: dict[str, Any]) -> None:
    """Attack for ``order["seconds"]``, then print the counters."""
    os.nice(_NICENESS)
    attacker = Attacker(order["endpoint"], order["ca"])
    print("ready", flush=True)
    end_s = time.monotonic() + order["seconds"]
    while time.monotonic() < end_s:
        attacker.attack_all()
    print(json.dumps(attacker.counts), flush=True)


if __name__ == "__main__":
    attack(json.loads(sys.argv[1]))
