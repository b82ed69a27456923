"""Starts the server that the entry point group names."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, cast

from tidelog import AsyncClient

ENTRY_POINT_GROUP: Final = "tidelog.test_server"
_INSTALL: Final = "pip install 'tidelog[server]'"


class _Handle(Protocol):
    """What the entry point returns."""

    @property
    def endpoint(self) -> str: ...
    @property
    def http_endpoint(self) -> str: ...
    def stop(self) -> None: ...


class TestServer:
    """A running server. Stop it with ``stop``, or use it with ``with``.

    Attributes:
        endpoint: For clients, ``host:port``.
        http_endpoint: For probes and metrics, ``host:port``.
    """

    # Its name begins like a test's, which pytest would collect.
    __test__ = False

    def __init__(self, handle: _Handle) -> None:
        self.endpoint = handle.endpoint
        self.http_endpoint = handle.http_endpoint
        self._handle = handle

    def stop(self) -> None:
        """Stop the server gracefully and wait until it is gone. Idempotent."""
        self._handle.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_server(folder: Path | str | None = None) -> TestServer:
    """Start a server whose log is in ``folder``, or in memory without one; return once it takes requests.

    Raises:
        RuntimeError: No server is installed beside the client, or not all that it needs.
    """
    return TestServer(_starter()(None if folder is None else str(folder)))


@asynccontextmanager
async def server(folder: Path | str | None = None) -> AsyncIterator[AsyncClient]:
    """Run a server, as ``start_server`` does, and yield a client of it."""
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
            # The package has the server's code; what that needs comes with the extra.
            raise RuntimeError(f"the Tidelog server needs {error.name}, which is not installed: {_INSTALL}") from error
    raise RuntimeError(f"no Tidelog server is installed beside the client: {_INSTALL}")
