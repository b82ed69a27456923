"""More connections than the server may have files, on both its ports, without credentials.

A third of them says nothing, a third begins a handshake of TLS and stops, and a third sends half a request of HTTP.
The server closes those above its limits; they are opened again.
"""

import asyncio
import socket
from contextlib import ExitStack, suppress
from typing import Final

from benchmarks.attacks.attack import Assault, Attack

_CLIENT_HELLO: Final = bytes.fromhex("16030102000100")
_HALF_REQUEST: Final = b"GET /metrics HTTP/1.1\r\nHost: "
_HTTP_SHARE: Final = 3
_AT_ONCE: Final = 100
_PAUSE_S: Final = 0.05


async def run(assault: Assault) -> None:
    """Hold them."""
    order = assault.order
    assert order.files is not None
    with ExitStack() as stack:
        held: list[socket.socket | None] = [None] * (order.files + order.files // 4)
        stack.callback(_close_all, held)
        while True:
            for begin in range(0, len(held), _AT_ONCE):
                for place in range(begin, min(begin + _AT_ONCE, len(held))):
                    if is_gone(held[place]):
                        held[place] = _opened(assault, place)
                await asyncio.sleep(_PAUSE_S if assault.counts["rounds"] else 0)
            assault.counts["rounds"] += 1
            assault.under_way()


def _opened(assault: Assault, place: int) -> socket.socket | None:
    order = assault.order
    is_http = place % _HTTP_SHARE == 0
    host, _, port = (order.http_endpoint if is_http else order.grpc_endpoint).rpartition(":")
    opened = socket.socket()
    # The server's queue of connections that wait may be full; that is no reason to wait.
    opened.setblocking(False)
    assault.counts["connections"] += 1
    with suppress(BlockingIOError):
        opened.connect((host, int(port)))
    with suppress(OSError):
        if is_http:
            opened.send(_HALF_REQUEST)
        elif place % 2:
            opened.send(_CLIENT_HELLO)
    return opened


def is_gone(held: socket.socket | None) -> bool:
    """Return whether the server has closed a connection, or there is no connection; closes this side too."""
    if held is None:
        return True
    try:
        is_open = held.recv(4_096) != b""
    except BlockingIOError:
        is_open = True
    except OSError:
        is_open = False
    if not is_open:
        held.close()
    return not is_open


def _close_all(held: list[socket.socket | None]) -> None:
    for each in held:
        if each is not None:
            each.close()


_WHAT: Final = "holds more connections without credentials than the server may have files, on both ports"

AT_1024_FILES: Final = Attack(name="connections-1024", what=_WHAT, run=run, files=1_024)
AT_4096_FILES: Final = Attack(name="connections-4096", what=_WHAT, run=run, files=4_096)
IN_PLAINTEXT: Final = Attack(name="connections-plaintext", what=_WHAT, run=run, files=1_024, is_open=True)
