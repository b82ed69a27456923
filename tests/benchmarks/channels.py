"""``benchmarks channels``: operations on single channels and groups among many, and a server's memory and restarts.

The operations are a table, to which new ones are added.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient, PositionCommit, Retention
from tidelog_server.commands.bench.report import Report, percentiles
from tidelog_server.commands.bench.server_process import ServerProcess

_TEN: Final = 10
_HUNDRED: Final = 100
_PAGE: Final = 1_000
# Repetitions of operations that can be repeated any number of times.
_REPETITIONS: Final = 300
_APPENDS_AT_ONCE: Final = 512
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ChannelsSettings:
    """Settings of ``benchmarks channels``.

    Attributes:
        channels: Number of channels.
        messages: Messages per channel, each a batch, that are appended before the second restarts.
    """

    channels: int
    messages: int

    @property
    def names(self) -> list[str]:
        """The names of all channels, in order of creation."""
        return [f"bench-{number:05}" for number in range(self.channels)]


_Operation = Callable[[AsyncClient, ChannelsSettings], AsyncIterator[Awaitable[object]]]
"""Yields the awaitables to measure, one call each."""


async def _create_hundreds(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    """Create the first half of the channels."""
    names = settings.names[: settings.channels // 2]
    for begin in range(0, len(names), _HUNDRED):
        yield client.create_channels(names[begin : begin + _HUNDRED])


async def _create_ones(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    """Create the second half."""
    for name in settings.names[settings.channels // 2 :]:
        yield client.create_channel(name)


async def _describe_ones(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    for _ in range(_REPETITIONS):
        yield client.describe_channels([random.choice(settings.names)])


async def _describe_hundreds(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    for _ in range(_REPETITIONS):
        yield client.describe_channels(random.sample(settings.names, _HUNDRED))


async def _alter_ones(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    """Set limits that are never exceeded, so that retention must check the channels from then on."""
    for name in random.sample(settings.names, min(_REPETITIONS, settings.channels)):
        yield client.alter_channels([name], retention=Retention.of(age="30d", bytes="1GiB"))


async def _pages(listed: Callable[[], AsyncIterator[object]], count: int) -> AsyncIterator[Awaitable[object]]:
    """List all ``count`` objects repeatedly; the first object of a page takes the time of the page."""
    pages = 0
    while pages < _REPETITIONS // 10:
        every = listed()
        for number in range(count):
            if number % _PAGE == 0:
                pages += 1
                yield anext(every)
            else:
                await anext(every)
        await anext(every, None)


def _list_pages(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    return _pages(client.list_channels, settings.channels)


async def _list_by_prefix(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    """List ten of all channels, by a prefix."""

    async def ten(prefix: str) -> None:
        assert len([channel async for channel in client.list_channels(prefix)]) == _TEN

    for _ in range(_REPETITIONS):
        yield ten(random.choice(settings.names)[:-1])


async def _create_groups(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    """Create as many groups as channels, each subscribed to one."""
    for name in settings.names:
        yield client.create_group(name, name)


async def _describe_groups(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    for _ in range(_REPETITIONS):
        yield client.describe_group(random.choice(settings.names))


async def _commit_groups(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    for name in random.sample(settings.names, min(_REPETITIONS, settings.channels)):
        yield client.commit_positions([PositionCommit(name, name, 1)])


def _list_group_pages(client: AsyncClient, settings: ChannelsSettings) -> AsyncIterator[Awaitable[object]]:
    return _pages(client.list_groups, settings.channels)


OPERATIONS: Final[dict[str, _Operation]] = {
    "create_100": _create_hundreds,
    "create_1": _create_ones,
    "describe_1": _describe_ones,
    "describe_100": _describe_hundreds,
    "alter_1": _alter_ones,
    "list_page": _list_pages,
    "list_prefix": _list_by_prefix,
    "create_group": _create_groups,
    "describe_group": _describe_groups,
    "commit_position": _commit_groups,
    "list_group_page": _list_group_pages,
}
"""The operations, in the order in which they run on the same channels."""


async def measure_channels(process: ServerProcess, settings: ChannelsSettings) -> Report:
    """Run each operation, then restart the server without and with messages in the channels."""
    details: dict[str, float] = {}
    async with AsyncClient(process.grpc, timeout_s=_TIMEOUT_S) as client:
        for name, operation in OPERATIONS.items():
            durations_s = await _timed(operation(client, settings))
            figures = percentiles(durations_s)
            details |= {f"{name}_{share}_ms": figures[share] / 1e3 for share in ("p50", "p99")}
    details["rss_bytes_of_channels"] = process.rss_bytes()
    details |= await _restarts(process, "empty")
    if settings.messages:
        async with AsyncClient(process.grpc, timeout_s=_TIMEOUT_S) as client:
            await _fill(client, settings)
        details["rss_bytes_with_messages"] = process.rss_bytes()
        details |= await _restarts(process, "filled")
    return Report(
        name="channels",
        settings={"channels": settings.channels, "messages": settings.messages},
        server_rss_bytes=process.peak_rss_bytes(),
        details=details,
    )


async def _timed(calls: AsyncIterator[Awaitable[object]]) -> Sequence[float]:
    durations_s = []
    async for call in calls:
        start = time.perf_counter()
        await call
        durations_s.append(time.perf_counter() - start)
    return durations_s


async def _restarts(process: ServerProcess, what: str) -> dict[str, float]:
    """Restart after SIGKILL and after a clean stop."""
    process.kill()
    killed_s = await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.stop)
    return {
        f"restart_{what}_killed_s": killed_s,
        f"restart_{what}_stopped_s": await asyncio.to_thread(process.start),
        f"rss_bytes_{what}_restarted": process.rss_bytes(),
    }


async def _fill(client: AsyncClient, settings: ChannelsSettings) -> None:
    """Append single messages to the channels in turn, so that each message is an entry."""
    names = settings.names
    for _ in range(settings.messages):
        for begin in range(0, len(names), _APPENDS_AT_ONCE):
            await asyncio.gather(*(client.append(name, b"x" * 100) for name in names[begin : begin + _APPENDS_AT_ONCE]))
