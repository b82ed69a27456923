"""Starts the server registered in the entry point group."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol, Self, cast

from tidelog import AsyncClient

ENTRY_POINT_GROUP: Final = "tidelog.test_server"
_INSTALL: Final = "run `pip install '.[server]'` in a clone of Tidelog"


class _Handle(Protocol):
    """The object that the entry point returns."""

    @property
    def endpoint(self) -> str: ...
    @property
    def http_endpoint(self) -> str: ...
    def stop(self) -> None: ...


class TestServer:
    """A running server. Stop it with ``stop``, or use it as a context manager.

    Attributes:
        endpoint: ``host:port`` for clients.
        http_endpoint: ``host:port`` for probes and metrics.
        stop: Stops the server gracefully and waits until it has ended. Idempotent.
    """

    # Its name begins with "Test", so pytest would collect it as a test class.
    __test__ = False

    def __init__(self, handle: _Handle) -> None:
        self.endpoint = handle.endpoint
        self.http_endpoint = handle.http_endpoint
        self.stop = handle.stop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_server(folder: Path | str | None = None) -> TestServer:
    """Start a server and return when it accepts requests.

    Args:
        folder: Folder of the log; None to store the log in memory.

    Raises:
        RuntimeError: The server or one of its dependencies is not installed.
    """
    return TestServer(_starter()(None if folder is None else str(folder)))


@asynccontextmanager
async def server(folder: Path | str | None = None) -> AsyncIterator[AsyncClient]:
    """Run a server, as ``start_server`` does, and yield a client connected to it."""
    running = await asyncio.to_thread(start_server, folder)
    try:
        async with AsyncClient(running.endpoint) as client:
            yield client
    finally:
        await asyncio.to_thread(running.stop)


def _starter() -> Callable[[str | None], _Handle]:
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            return cast("Callable[[str | None], _Handle]", entry_point.load())
        except ModuleNotFoundError as error:
            # The package includes the server's code; the extra installs the dependencies.
            raise RuntimeError(f"the Tidelog server needs {error.name}, which is not installed: {_INSTALL}") from error
    raise RuntimeError(f"the Tidelog server is not installed: {_INSTALL}")
