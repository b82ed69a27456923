"""A server with a wall clock whose offset a file states: ``python -m tidelog_testing.servers.skewed --setting value``.

The variable ``SKEW_FILE`` names a file with milliseconds, which each reading of the clock reads again. A node of a
cluster that loses its lease restarts, as with ``tidelog serve``.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from tidelog_server.app import Server
from tidelog_server.config import load_config
from tidelog_server.runtime.clock import SystemClock

SKEW_FILE: Final = "SKEW_FILE"


class SkewedClock(SystemClock):
    """The system's clock, with an offset of its wall time."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, as a misadjusted clock would."""
        return max(0, super().wall_ms() + int(self._path.read_text() or 0))


async def _serve(arguments: list[str]) -> None:
    flags = {name.removeprefix("--"): value for name, value in zip(arguments[::2], arguments[1::2], strict=True)}
    clock = SkewedClock(Path(os.environ[SKEW_FILE]))
    server = await Server.start(load_config(None, {}, flags), clock)
    ready = {"event": "ready", "grpc": server.grpc_endpoint, "http": server.http_endpoint, "pid": os.getpid()}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    while True:
        cause = await server.wait_stopped()
        if not server.may_start_again:
            raise SystemExit(cause)
        await server.stop()
        server = await Server.start_again(server.again, clock)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1:]))
