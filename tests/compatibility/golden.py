"""The golden files, unpacked for a test, and servers on them."""

import asyncio
import json
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from tidelog import Client
from tidelog_testing.parts.clocks import SetClock
from tidelog_testing.parts.grpc_calls import running_server

GOLDEN: Final = Path(__file__).resolve().parent / "golden"
_Result = TypeVar("_Result")


@cache
def expected() -> dict[str, Any]:
    """Return the content of the golden files as the old server and client read it."""
    content: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
    return content


def unpack(name: str, folder: Path) -> Path:
    """Unpack ``data``, ``backup``, ``archive`` or ``client`` into ``folder``; return the path of what was packed."""
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / ("tidelog" if name == "client" else name)


async def on_server(folder: Path, work: Callable[[Client], _Result], token: str | None = None) -> _Result:
    """Run ``work`` with a client of a server on ``folder``, whose clock is where the golden files were finished.

    Why not today: the server forgets finished broadcasts after a day, and tokens expire.
    """
    clock = SetClock(expected()["time_ms"])
    async with running_server(folder, clock=clock, auth__kind="on" if token else "off") as server:

        def run() -> _Result:
            with Client(server.grpc_endpoint, client_id="golden-test", token=token) as client:
                return work(client)

        return await asyncio.to_thread(run)
