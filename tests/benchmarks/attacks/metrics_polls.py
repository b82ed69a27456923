"""Four pollers that ask for ``/metrics`` as fast as they are answered."""

import asyncio
from typing import Final

from benchmarks.attacks.attack import Assault, Attack

_POLLERS: Final = 4
_LENGTH: Final = b"content-length:"


async def run(assault: Assault) -> None:
    """Poll."""
    async with asyncio.TaskGroup() as pollers:
        for _ in range(_POLLERS):
            pollers.create_task(poll(assault, "/metrics"))
        assault.under_way()


async def poll(assault: Assault, path: str) -> None:
    """Ask for ``path`` again and again, on one connection as long as it stands."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    host, _, port = assault.order.http_endpoint.rpartition(":")
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                while True:
                    writer.write(request)
                    await _answer(reader)
                    assault.counts["answered"] += 1
            finally:
                writer.close()
        except (OSError, asyncio.IncompleteReadError):
            assault.counts["failed"] += 1


async def _answer(reader: asyncio.StreamReader) -> None:
    """Read an answer, whatever it is."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH))
    await reader.readexactly(int(length[len(_LENGTH) :]))


ATTACK: Final = Attack(
    name="metrics-polls", what="polls /metrics from four connections without a pause", run=run, is_open=True
)
