"""``benchmarks steps``: the longest step of the event loop that a request causes, for each RPC and HTTP route.

Method: a server with TLS and tokens has a share of what the documented limits allow: channels, journals with labels,
groups, one of them with many positions and one with many members, mailboxes, one of them with many messages, tokens and
broadcasts. Each RPC gets the largest requests that the transport takes, and requests at the limits, from a token that
permits nothing but a name that nothing has, and from one that permits everything. The server reports the greatest CPU
time of a step.
"""

import asyncio
import http.client
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf import descriptor_pool

from benchmarks import step_probe
from benchmarks.step_members import StepMembers
from benchmarks.step_probe import LongestStep
from benchmarks.step_requests import (
    AT_LIMITS,
    BEYOND_LIMITS,
    BUSY_GROUP,
    MAILBOX,
    NAME,
    WIDE_CHANNELS,
    WIDE_GROUP,
    StepRequest,
    http_requests,
    journal_changes,
    largest,
)
from tidelog import AsyncClient, TlsOptions
from tidelog.v1 import mailbox_service_pb2 as mailboxes
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import ServerProcess
from tidelog_server.core.limits import MAX_MAILBOX_BATCH
from tidelog_server.security.grants import NAMELESS, Verb
from tidelog_server.security.permissions import ROWS
from tidelog_testing.servers.certificates import self_signed

LIMIT_MS: Final = 50.0
"""No request may hold the event loop for longer."""
_WEAK: Final = [f"read:{NAME}"]
_STRONG: Final = [verb.value if verb in NAMELESS else f"{verb.value}:*" for verb in Verb]
_WITHIN_S: Final = 20.0
# A quarter of the limit of a group: they join one after the other, and each join moves vchannels.
_MEMBERS: Final = 64
_QUIET_S: Final = 0.05
# Calls that would stop the measurement, or are made by nodes of a cluster.
_LEFT_OUT: Final = ("grpc.channelz.v1.Channelz", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")


class StepSettings(NamedTuple):
    """What a run measures.

    Attributes:
        share: Share of the documented limits that the server has.
        only: Names of RPCs or parts of paths; empty for all.
    """

    share: float = 1.0
    only: Sequence[str] = ()

    def includes(self, name: str) -> bool:
        """Return whether a request is made."""
        return not self.only or any(each in name for each in self.only)


class Measured(NamedTuple):
    """The longest step during a request, in milliseconds."""

    what: str
    ms: float


def measure_steps(folder: Path, settings: StepSettings) -> list[Report]:
    """Return the longest steps for callers without permissions and for those with all."""
    return asyncio.run(_measure(folder, settings))


async def _measure(folder: Path, settings: StepSettings) -> list[Report]:
    file = folder / "steps"
    longest = LongestStep(file)
    os.environ[step_probe.FILE_VARIABLE] = str(file)
    certificate, key = self_signed(folder)
    flags = {
        "tls.cert": str(certificate), "tls.key": str(key), "auth.kind": "on", "mailboxes.http_prefix": "/pandora",
        "quota.requests_per_s": "0", "quota.shared_calls_per_s": "0", "server.shutdown_grace_s": "1",
    }  # fmt: skip
    process = await asyncio.to_thread(ServerProcess, folder / "data", flags, module="benchmarks.step_probe")
    try:
        tls = TlsOptions(certificate)
        first = (folder / "data" / "bootstrap-token").read_text().strip()
        async with AsyncClient(process.grpc, tls=tls, token=first) as client:
            weak = (await client.create_token("weak", _WEAK)).token
            # The first administrator ends the token that the server made.
            strong = (await client.create_token("strong", _STRONG)).token
        async with AsyncClient(process.grpc, tls=tls, token=strong, timeout_s=120) as client:
            await _fill(client, settings.share)
        run = _Run(process, longest, certificate)
        return [
            await run.report("steps, a token that permits nothing", weak, settings),
            await run.report("steps, a token that permits everything", strong, settings),
        ]
    finally:
        await asyncio.to_thread(process.stop)


async def _fill(client: AsyncClient, share: float) -> None:
    """Give the server a share of what the limits allow one tenant."""
    transport = client._transport()
    for first in range(0, round(2_500 * share), 100):
        await client.create_channels([f"{NAME}.{number:05}" for number in range(first, first + 100)])
    await client.create_channel(NAME, vchannels=round(1_024 * share) or 1)
    journals: Any = transport.services.journals
    for first in range(0, round(1_500 * share), 30):
        await journals.ApplyJournals(journal_changes(first, 30, 10), metadata=transport.metadata())
    for first in range(90_000, 90_000 + round(120 * share), 3):
        await journals.ApplyJournals(journal_changes(first, 3, 1_000), metadata=transport.metadata())
    for number in range(round(500 * share)):
        await client.create_group(f"{NAME}.{number:05}", [f"{NAME}.00000"])
        await client.mailboxes.create(f"{NAME}/{number:05}")
        await client.create_token(f"token {number}", ["read:a"])
        await client.broadcast([f"{NAME}.00000", f"{NAME}.00001"], b"x")
    await client.create_group(BUSY_GROUP, [NAME])
    for name in WIDE_CHANNELS:
        await client.create_channel(name, vchannels=round(1_024 * share) or 1)
    await client.create_group(WIDE_GROUP, WIDE_CHANNELS)
    await client.mailboxes.create(MAILBOX)
    stub: Any = transport.services.mailboxes
    request = mailboxes.SendRequest(mailbox=MAILBOX, bodies=[b"x"] * MAX_MAILBOX_BATCH)
    for _ in range(round(1_000_000 * share / MAX_MAILBOX_BATCH) - 5):
        await stub.Send(request, metadata=transport.metadata())


class _Run:
    """Requests to one server, one after the other."""

    def __init__(self, process: ServerProcess, longest: LongestStep, certificate: Path) -> None:
        self._process = process
        self._longest = longest
        self._tls = ssl.create_default_context(cafile=str(certificate))
        self._credentials = grpc.ssl_channel_credentials(certificate.read_bytes())

    async def report(self, name: str, token: str, settings: StepSettings) -> Report:
        """Return the longest steps of all requests with a token, the longest first."""
        found: list[Measured] = []
        async with grpc.aio.secure_channel(
            self._process.grpc, self._credentials, [("grpc.max_receive_message_length", -1)]
        ) as channel:
            for request in _grpc_requests():
                if settings.includes(request.method.name):
                    what = f"{request.method.name}: {request.what}"
                    found.append(Measured(what, await self._measured(_call(channel, request, token))))
            if settings.includes("JoinGroup"):
                found += await self._rebalances(channel, token, max(2, round(_MEMBERS * settings.share)))
        for verb, path, what, content, content_type in http_requests():
            if settings.includes(path):
                call = asyncio.to_thread(self._http, verb, path, content, content_type, token)
                found.append(Measured(f"{verb} {path}: {what}", await self._measured(call)))
        found.sort(key=lambda each: -each.ms)
        details = {f"{each.what}, ms": each.ms for each in found if each.ms >= 1.0 or each is found[0]}
        too_long = sum(each.ms > LIMIT_MS for each in found)
        return Report(
            name=name,
            settings={"share": settings.share, "requests": len(found), "limit_ms": LIMIT_MS, "above": too_long},
            details=details,
            server_rss_bytes=self._process.peak_rss_bytes(),
        )

    async def _rebalances(self, channel: grpc.aio.Channel, token: str, number: int) -> list[Measured]:
        """Return the longest steps while a group with many vchannels gets members, one more, and loses one."""
        members = StepMembers(channel, token)
        first = await self._measured(members.join(number - 1))
        more = await self._measured(members.join(1))
        less = await self._measured(members.leave(1))
        await members.leave(len(members))
        return [
            Measured(f"JoinGroup: {number - 1} members join", first),
            Measured(f"JoinGroup: one more than {number - 1} members", more),
            Measured(f"JoinGroup: one of {number} members leaves", less),
        ]

    async def _measured(self, call: Any) -> float:
        """Return the milliseconds of the longest step during a call and shortly after it."""
        self._longest.ns = 0
        await call
        await asyncio.sleep(_QUIET_S)
        return self._longest.ns / 1e6

    def _http(self, verb: str, path: str, content: bytes, content_type: str, token: str) -> None:
        connection = http.client.HTTPSConnection(self._process.http, context=self._tls, timeout=_WITHIN_S)
        headers = {"Authorization": f"Bearer {token}", **({"Content-Type": content_type} if content_type else {})}
        try:
            connection.request(verb, path, content or None, headers)
            connection.getresponse().read()
        except OSError:
            # It was refused before it was read to its end.
            return
        finally:
            connection.close()


def _grpc_requests() -> Iterator[StepRequest]:
    methods = {}
    for full_name in ROWS:
        service, _, name = full_name.partition("/")
        if service not in _LEFT_OUT:
            methods[name] = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    for method in methods.values():
        yield from largest(method)
    at_limits = [(name, "at the limits", request) for name, request in AT_LIMITS.items()]
    for name, what, request in (*at_limits, *BEYOND_LIMITS):
        yield StepRequest(what, methods[name], request().SerializeToString())


async def _call(channel: grpc.aio.Channel, request: StepRequest, token: str) -> None:
    method, metadata = request.method, (("authorization", f"Bearer {token}"),)
    path = f"/{method.containing_service.full_name}/{method.name}"
    end_s = time.monotonic() + (_WITHIN_S if not method.server_streaming else 2.0)
    try:
        if method.client_streaming:
            both: Any = channel.stream_stream(path)(metadata=metadata, timeout=end_s - time.monotonic())
            await both.write(request.encoded)
            await both.done_writing()
            while await both.read() is not grpc.aio.EOF:
                pass
        elif method.server_streaming:
            stream: Any = channel.unary_stream(path)
            async for _ in stream(request.encoded, metadata=metadata, timeout=end_s - time.monotonic()):
                pass
        else:
            unary: Any = channel.unary_unary(path)
            await unary(request.encoded, metadata=metadata, timeout=_WITHIN_S)
    except grpc.aio.AioRpcError:
        # Most are refused; what that costs is what is measured.
        return
