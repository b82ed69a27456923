"""A watch whose server falls silent ends; a quiet one does not, and its heartbeats are no answers for the caller.

Method: servers that stop answering in four ways after the first answer; and one of a version without heartbeats.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from tidelog import AsyncClient, AsyncCluster, Retry, UnavailableError
from tidelog.journals.types import JournalUpsert
from tidelog.testing import start_server
from tidelog.v1 import journal_service_pb2 as pb
from tidelog.v1 import journal_service_pb2_grpc
from tidelog_testing.faults.bounds import LATE_S
from tidelog_testing.faults.broken_servers import WAYS, Way, breakable_server
from tidelog_testing.parts.soaks import in_core

GIVE_UP_S: Final = 1.5
# The client asks for six heartbeats in that time.
BOUND_S: Final = GIVE_UP_S + GIVE_UP_S / 6
RETRY: Final = Retry(base_s=0.05, cap_s=0.5, give_up_s=GIVE_UP_S)
Watch = Callable[[AsyncClient, AsyncCluster], AsyncGenerator[Any, None]]
WATCHES: Final[dict[str, Watch]] = {
    "journals": lambda client, _: client.journals.watch(),
    "journals of a cluster": lambda _, cluster: cluster.journals.watch(),
    "owners": lambda client, _: client.owners_feed(),
}


async def ended_after_s(watched: AsyncGenerator[Any, None]) -> float:
    begin_s = time.monotonic()
    with pytest.raises(UnavailableError, match="stopped answering") as ended:
        await anext(watched)
    assert ended.value.effect == "none"
    return time.monotonic() - begin_s


@pytest.mark.parametrize("way", in_core(["silent"], WAYS))
async def test_a_watch_of_a_server_that_falls_silent_ends_within_its_bound(tmp_path: Path, way: Way) -> None:
    """A server that answers late sends its heartbeats late, and the watch continues."""
    with breakable_server(tmp_path / "data") as broken:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(AsyncClient(broken.endpoint, retry=RETRY))
            cluster = await stack.enter_async_context(AsyncCluster(broken.endpoint, retry=RETRY))
            several = [await stack.enter_async_context(aclosing(each(client, cluster))) for each in WATCHES.values()]
            for each in several:
                await anext(each)
            broken.break_off(way)
            if way == "slow":
                nexts = [asyncio.ensure_future(anext(each)) for each in several]
                done, _ = await asyncio.wait(nexts, timeout=2 * BOUND_S)
                assert not done
                await client.journals.apply([JournalUpsert("some/journal")])
                assert len((await nexts[0]).journals) == len((await nexts[1]).journals) == 1
                await nexts[2]
            else:
                async with asyncio.timeout(BOUND_S + LATE_S):
                    ended = await asyncio.gather(*map(ended_after_s, several))
                assert min(ended) >= GIVE_UP_S - 0.1


@pytest.mark.parametrize("name", WATCHES)
async def test_a_quiet_watch_yields_nothing_and_continues(name: str) -> None:
    with start_server() as server:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(AsyncClient(server.endpoint, retry=RETRY))
            cluster = await stack.enter_async_context(AsyncCluster(server.endpoint, retry=RETRY))
            watched = await stack.enter_async_context(aclosing(WATCHES[name](client, cluster)))
            await anext(watched)
            following = asyncio.ensure_future(anext(watched))
            # Without heartbeats it would have ended.
            done, _ = await asyncio.wait([following], timeout=1.5 * BOUND_S)
            assert not done
            (journal,) = await client.journals.apply([JournalUpsert("some/journal")])
            change = await following
            if name == "owners":
                assert list(change.owners) == [journal.channel]
            else:
                assert change.journals == (journal,)


class EarlierServer(journal_service_pb2_grpc.JournalServiceServicer):
    """Answers a watch as servers did that know no heartbeats."""

    def __init__(self) -> None:
        self.may_change = asyncio.Event()

    async def WatchJournals(self, request: Any, context: Any) -> AsyncGenerator[pb.WatchJournalsResponse, None]:
        yield pb.WatchJournalsResponse(is_complete=True)
        await self.may_change.wait()
        yield pb.WatchJournalsResponse(is_complete=True, journals=[pb.JournalSpec(name="some/journal")])


async def test_the_silence_of_a_server_without_heartbeats_is_no_loss() -> None:
    server, service = grpc.aio.server(), EarlierServer()
    # Generated code has no annotations.
    add: Any = journal_service_pb2_grpc.add_JournalServiceServicer_to_server
    add(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with (
            AsyncClient(f"127.0.0.1:{port}", retry=RETRY) as client,
            aclosing(client.journals.watch()) as watched,
        ):
            await anext(watched)
            following = asyncio.ensure_future(anext(watched))
            done, _ = await asyncio.wait([following], timeout=1.5 * BOUND_S)
            assert not done
            service.may_change.set()
            assert [each.name for each in (await following).journals] == ["some/journal"]
    finally:
        await server.stop(None)
