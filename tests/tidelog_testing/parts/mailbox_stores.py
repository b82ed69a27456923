"""Stores of mailboxes for the conformance suite: how a test makes each kind, and lets time pass in it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, cast

from tidelog import AsyncClient, Client
from tidelog.pandora import (
    AsyncBlobStore,
    AsyncMemoryBlobStore,
    AsyncMemoryMessageStore,
    AsyncMessageStore,
    AsyncServer,
    AsyncTidelogBlobStore,
    AsyncTidelogMessageStore,
    MemoryBlobStore,
    MemoryMessageStore,
    Server,
    TidelogBlobStore,
    TidelogMessageStore,
)
from tidelog.tick import time_of
from tidelog_server.app import Server as RunningServer
from tidelog_testing.parts.clocks import SetClock
from tidelog_testing.parts.grpc_calls import running_server

_NUMBERS: Final = itertools.count()
_GRACE_PERIOD: Final = timedelta(minutes=10)


class MailboxKind(Protocol):
    """One kind of stores, with a server over them.

    Attributes:
        blobs: The blob store.
        messages: The message store.
        server: A server over both.
        unit: A duration in which the stores certainly answer: tests wait for multiples of it.
        grace_period: How long the blob store keeps data without references.
    """

    blobs: AsyncBlobStore
    messages: AsyncMessageStore
    server: AsyncServer
    unit: timedelta
    grace_period: timedelta

    def now(self) -> datetime:
        """Return the time of the stores' clock."""
        ...

    async def pass_time(self, duration: timedelta) -> None:
        """Return when the stores' clock has passed ``duration`` from now."""
        ...


class OnThread:
    """A synchronous object under its asynchronous interface: each call runs on a thread."""

    def __init__(self, synchronous: object) -> None:
        self._synchronous = synchronous

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._synchronous, name)

        async def call(*values: object, **options: object) -> Any:
            return await asyncio.to_thread(method, *values, **options)

        return call


class MemoryMailboxes:
    """Stores in memory, with a clock that moves only when a test moves it."""

    def __init__(self, *, is_synchronous: bool) -> None:
        self._now = datetime(2026, 3, 1, tzinfo=UTC)
        self.unit = timedelta(minutes=1)
        self.grace_period = timedelta(minutes=10)
        if is_synchronous:
            blobs = MemoryBlobStore(clock=self.now, grace_period=self.grace_period)
            messages = MemoryMessageStore(clock=self.now)
            self.blobs = cast("AsyncBlobStore", OnThread(blobs))
            self.messages = cast("AsyncMessageStore", OnThread(messages))
            self.server = cast("AsyncServer", OnThread(Server(blobs, messages)))
        else:
            self.blobs = AsyncMemoryBlobStore(clock=self.now, grace_period=self.grace_period)
            self.messages = AsyncMemoryMessageStore(clock=self.now)
            self.server = AsyncServer(self.blobs, self.messages)

    def now(self) -> datetime:
        return self._now

    async def pass_time(self, duration: timedelta) -> None:
        self._now += duration + timedelta(microseconds=1)


@asynccontextmanager
async def memory_mailboxes(*, is_synchronous: bool) -> AsyncIterator[MailboxKind]:
    """Yield stores in memory."""
    yield MemoryMailboxes(is_synchronous=is_synchronous)


class TidelogMailboxes:
    """Stores on a server whose clock moves only when a test moves it."""

    def __init__(self, server: RunningServer, clock: SetClock, client: AsyncClient | Client) -> None:
        self._server = server
        self._clock = clock
        self.unit = timedelta(minutes=1)
        self.grace_period = _GRACE_PERIOD
        if isinstance(client, Client):
            blobs, messages = TidelogBlobStore(client), TidelogMessageStore(client)
            self.blobs = cast("AsyncBlobStore", OnThread(blobs))
            self.messages = cast("AsyncMessageStore", OnThread(messages))
            self.server = cast("AsyncServer", OnThread(Server(blobs, messages)))
        else:
            self.blobs = AsyncTidelogBlobStore(client)
            self.messages = AsyncTidelogMessageStore(client)
            self.server = AsyncServer(self.blobs, self.messages)

    def now(self) -> datetime:
        return time_of(self._clock.now_ms)

    async def pass_time(self, duration: timedelta) -> None:
        self._clock.now_ms += duration // timedelta(milliseconds=1) + 1
        opened = self._server._node.opened_mailboxes
        assert opened is not None
        # What the server does once in a while.
        await opened.blobs.keep()


@asynccontextmanager
async def tidelog_mailboxes(*, is_synchronous: bool) -> AsyncIterator[MailboxKind]:
    """Yield stores on a server of their own."""
    clock = SetClock()
    grace_s = _GRACE_PERIOD.total_seconds()
    async with running_server(clock=clock, mailboxes__blob_grace_s=grace_s) as server:
        if is_synchronous:
            client = Client(server.grpc_endpoint)
            try:
                yield TidelogMailboxes(server, clock, client)
            finally:
                await asyncio.to_thread(client.close)
        else:
            async with AsyncClient(server.grpc_endpoint) as asynchronous:
                yield TidelogMailboxes(server, clock, asynchronous)


def new_mailbox(of: str = "inbox") -> str:
    """Return the name of a mailbox that no other test uses."""
    return f"{of}{next(_NUMBERS)}@remote"
