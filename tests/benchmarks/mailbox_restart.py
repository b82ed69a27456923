"""``benchmarks mailbox-restart``: starts of a server with many mailboxes, without messages and with them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from tidelog import AsyncClient
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1 import mailbox_service_pb2_grpc
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import ServerProcess

_AT_ONCE: Final = 64
_TIMEOUT_S: Final = 120.0
_PER_SEND: Final = 1_000


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """Settings of ``benchmarks mailbox-restart``.

    Attributes:
        mailboxes: Number of mailboxes.
        messages: Messages per mailbox.
        size: Bytes per message.
    """

    mailboxes: int
    messages: int
    size: int

    @property
    def names(self) -> list[str]:
        """The names of all mailboxes."""
        return [f"box-{number:06}" for number in range(self.mailboxes)]


async def measure_restart(process: ServerProcess, settings: RestartSettings) -> Report:
    """Restart after a stop and after SIGKILL, without messages and with them.

    A server is ready before it has loaded its mailboxes. The time until all are loaded is that until each of them has
    been described.
    """
    async with AsyncClient(process.grpc, timeout_s=_TIMEOUT_S) as client:
        await _for_all(settings.names, client.mailboxes.create)
    details = await _restarts(process, settings, "empty", messages=0)
    await _fill(process, settings)
    details["rss_bytes_filled"] = process.rss_bytes()
    details |= await _restarts(process, settings, "filled", messages=settings.messages)
    for end in ("stopped", "killed"):
        for what in ("ready", "loaded"):
            ours, empty = (details[f"{what}_after_{state}_{end}_s"] for state in ("filled", "empty"))
            details[f"{what}_{end}_filled_to_empty"] = ours / empty
    return Report(
        name="mailbox restart",
        settings={"mailboxes": settings.mailboxes, "messages": settings.messages, "size": settings.size},
        server_rss_bytes=process.peak_rss_bytes(),
        details=details,
    )


async def _restarts(
    process: ServerProcess, settings: RestartSettings, state: str, *, messages: int
) -> dict[str, float]:
    """Return the seconds until the server is ready, and until all mailboxes are loaded with ``messages`` each."""
    details: dict[str, float] = {}
    for end, stop in (("stopped", process.stop), ("killed", process.kill)):
        await asyncio.to_thread(stop)
        begin_s = time.perf_counter()
        details[f"ready_after_{state}_{end}_s"] = await asyncio.to_thread(process.start)
        await _describe_all(process, settings, messages)
        details[f"loaded_after_{state}_{end}_s"] = time.perf_counter() - begin_s
    details[f"rss_bytes_{state}_restarted"] = process.rss_bytes()
    return details


async def _describe_all(process: ServerProcess, settings: RestartSettings, messages: int) -> None:
    """Describe all mailboxes. Raises RuntimeError if one does not have ``messages`` available ones."""
    async with AsyncClient(process.grpc, timeout_s=_TIMEOUT_S) as client:

        async def describe(name: str) -> None:
            counts = (await client.mailboxes.describe(name)).counts
            if counts is None or counts.available != messages:
                raise RuntimeError(f"mailbox {name} has {counts}, expected {messages} available messages")

        await _for_all(settings.names, describe)


async def _fill(process: ServerProcess, settings: RestartSettings) -> None:
    payloads = distinct_payloads(settings.size)
    async with grpc.aio.insecure_channel(process.grpc) as channel:
        make_stub: Any = mailbox_service_pb2_grpc.MailboxServiceStub
        stub = make_stub(channel)

        async def fill(name: str) -> None:
            for begin in range(0, settings.messages, _PER_SEND):
                bodies = payloads[: min(_PER_SEND, settings.messages - begin)]
                await stub.Send(pb.SendRequest(mailbox=name, bodies=bodies))

        await _for_all(settings.names, fill)


async def _for_all(names: list[str], call: Callable[[str], Awaitable[object]]) -> None:
    """Make a call for each name, _AT_ONCE at a time."""
    for begin in range(0, len(names), _AT_ONCE):
        await asyncio.gather(*map(call, names[begin : begin + _AT_ONCE]))
