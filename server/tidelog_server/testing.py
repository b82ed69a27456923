"""A server in the test process, on free loopback ports. ``tidelog.testing`` loads it through an entry point."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

import structlog

from tidelog_server.app import Server
from tidelog_server.config import load_config
from tidelog_server.runtime.tasks import TaskOwner

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server with its own thread and event loop.

    Attributes:
        endpoint: ``host:port`` of gRPC.
        http_endpoint: ``host:port`` of probes and metrics.
    """

    endpoint: str
    http_endpoint: str
    _loop: asyncio.AbstractEventLoop
    _stop_asked: asyncio.Event
    _thread: threading.Thread

    def stop(self) -> None:
        """Stop the server gracefully and wait until it has ended. Idempotent."""
        if self._thread.is_alive():
            # The loop is closed if the server has ended by itself meanwhile.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop_asked.set)
            self._thread.join()


def start(folder: str | None = None) -> RunningServer:
    """Start a server and return when it accepts requests. Its log is in ``folder``; in memory if None."""
    started: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    # On asyncio's default loop: the process belongs to the user. Together with ``serve``, this tests both loops.
    thread = threading.Thread(
        target=lambda: asyncio.run(_run(folder, started)),
        name="tidelog-server",
        daemon=True,
    )
    thread.start()
    server, loop, stop_asked = started.result()
    return RunningServer(server.grpc_endpoint, server.http_endpoint, loop, stop_asked, thread)


async def _run(folder: str | None, started: "Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
    flags = {
        "server.grpc_port": "0",
        "server.http_port": "0",
        # A test closes its clients before the server, so there are few calls to refuse.
        "server.shutdown_grace_s": "2",
        "log.level": "warning",
        "limits.min_free_disk_bytes": "0",
        **({"storage.data_dir": folder} if folder else {"storage.kind": "memory"}),
    }
    try:
        server = await Server.start(load_config(None, {}, flags))
    except BaseException as error:
        started.set_exception(error)
        raise
    stop_asked = asyncio.Event()
    started.set_result((server, asyncio.get_running_loop(), stop_asked))
    tasks = TaskOwner(lambda name, cause: _log.error("task_failed", task=name, exc_info=cause))
    tasks.start("watch", _stop_with(server, stop_asked))
    await stop_asked.wait()
    await tasks.close()
    await server.stop()


async def _stop_with(server: Server, stop_asked: asyncio.Event) -> None:
    """End a server whose storage or task has failed, so that its clients do not wait for it."""
    await server.wait_stopped()
    stop_asked.set()
