"""The sets of golden files, unpacked for a test, and servers on them."""

import asyncio
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tidelog import Client
from tidelog_testing.parts.clocks import SetClock
from tidelog_testing.parts.grpc_calls import running_server

GOLDEN: Final = Path(__file__).resolve().parent / "golden"
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class GoldenSet:
    """The files that one commit wrote.

    Attributes:
        commit: The commit.
        folder: Folder with the files.
    """

    commit: str
    folder: Path

    def __str__(self) -> str:
        return self.commit

    @property
    def expected(self) -> dict[str, Any]:
        """The content of the files as the old server and client read it."""
        return _read(self.folder / "expected.json")

    def unpack(self, name: str, target: Path) -> Path:
        """Unpack ``data``, ``backup``, ``archive``, ``pending`` or ``client``; return the path of what was packed."""
        with tarfile.open(self.folder / f"{name}.tar.xz") as packed:
            packed.extractall(target, filter="data")
        return target / ("tidelog" if name == "client" else name)

    async def on_server(self, folder: Path, work: Callable[[Client], _Result], token: str | None = None) -> _Result:
        """Run ``work`` with a client of a server on ``folder``, whose clock is where the files were finished.

        Why not today: the server forgets finished broadcasts after a day, and tokens and leases expire.
        """
        clock = SetClock(self.expected["time_ms"])
        async with running_server(folder, clock=clock, auth__kind="on" if token else "off") as server:

            def run() -> _Result:
                with Client(server.grpc_endpoint, client_id="golden-test", token=token) as client:
                    return work(client)

            return await asyncio.to_thread(run)


@cache
def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


FIRST: Final = GoldenSet("23ee37d", GOLDEN)
LATEST: Final = GoldenSet("b2ad59b", GOLDEN / "b2ad59b")
"""The set that has mailboxes, journals and blobs."""
each_set: Final = pytest.mark.parametrize("golden", [FIRST, LATEST], ids=str)
"""Runs a test with each set as ``golden``."""
