"""What every stream machine of the client promises: one suite for appends, transactions, mailboxes, journals, members.

Method: a real server, and proxies that cut connections or withhold bytes; the outcome of each item is compared with
what the server has. See ``stream_machines`` for the machines. ``test_bounds`` has the bounds of all other calls.

Promises of docs/reference/guarantees.md: G10, G13.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tidelog import AsyncClient, InvalidRequestError, TidelogError
from tidelog.testing import start_server
from tidelog_testing.faults.broken_servers import Way, breakable_server
from tidelog_testing.faults.cut_proxy import Proxy, proxied_server
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.parts.soaks import in_core
from tidelog_testing.parts.stream_machines import MACHINES, Commits, Machine, Outcome
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.processes import ServerProcess

LATE_S = 10.0
every_machine = pytest.mark.parametrize("kind", MACHINES)
some_machines = pytest.mark.parametrize("kind", in_core(MACHINES[:2], MACHINES))


@asynccontextmanager
async def behind_proxy(kind: type[Machine]) -> AsyncIterator[tuple[Machine, Proxy, AsyncClient]]:
    """Yield a machine behind a proxy that cuts, the proxy, and a client with a direct connection."""
    async with proxied_server() as (endpoint, proxy, direct):
        await kind.prepare(direct)
        async with kind(endpoint) as machine:
            yield machine, proxy, direct


async def put(machine: Machine, numbers: Sequence[int]) -> list[Outcome]:
    """Put items, each in a turn of the event loop of its own."""
    outcomes = []
    for number in numbers:
        outcomes.append(await machine.put(number))
        await asyncio.sleep(0)
    return outcomes


async def until_stored(machine: Machine, direct: AsyncClient, count: int) -> None:
    await eventually(lambda: machine.stored(direct), lambda found: len(found) >= count)


@every_machine
async def test_items_keep_their_order_and_count_once_however_often_the_connection_breaks(kind: type[Machine]) -> None:
    async with asyncio.timeout(60), behind_proxy(kind) as (machine, proxy, direct):
        for begin in range(0, 60, 10):
            await asyncio.gather(*await put(machine, [begin]))
            # Some are stored and their answers are lost; the others wait, or are on their way.
            proxy.answers_pass.clear()
            outcomes = await put(machine, range(begin + 1, begin + 10))
            await until_stored(machine, direct, begin + 2)
            proxy.cut()
            await asyncio.gather(*outcomes)

        assert await machine.stored(direct) == list(range(60))


@every_machine
async def test_a_caller_that_leaves_harms_no_other(kind: type[Machine]) -> None:
    async with asyncio.timeout(60), behind_proxy(kind) as (machine, proxy, direct):
        await asyncio.gather(*await put(machine, [0]))
        proxy.passes.clear()
        outcomes = await put(machine, range(1, 21))
        for outcome in outcomes[::2]:
            outcome.cancel()
        proxy.passes.set()
        await asyncio.gather(*outcomes[1::2], *await put(machine, [21]))

        stored = await machine.stored(direct)
        assert stored == sorted(set(stored))
        assert set(stored) >= {0, *range(2, 21, 2), 21}
        assert all(outcome.cancelled() for outcome in outcomes[::2])


@every_machine
async def test_a_close_waits_for_what_is_under_way(kind: type[Machine]) -> None:
    with start_server() as server:
        async with asyncio.timeout(60), AsyncClient(server.endpoint) as direct:
            await kind.prepare(direct)
            async with FaultProxy(server.endpoint, delay_s=0.02) as proxy, kind(proxy.endpoint) as machine:
                await asyncio.gather(*await put(machine, [0]))
                outcomes = await put(machine, range(1, 21))
                await machine.close()
                await asyncio.gather(*outcomes)

            assert await machine.stored(direct) == list(range(21))


@every_machine
async def test_a_close_of_the_client_tells_what_the_server_has(kind: type[Machine]) -> None:
    with start_server() as server:
        async with asyncio.timeout(60), AsyncClient(server.endpoint) as direct:
            await kind.prepare(direct)
            async with FaultProxy(server.endpoint, delay_s=0.02) as proxy, kind(proxy.endpoint) as machine:
                await asyncio.gather(*await put(machine, [0]))
                outcomes = await put(machine, range(1, 21))
                await machine.close_client()
                ends = await asyncio.gather(*outcomes, return_exceptions=True)

            stored = await machine.stored(direct)
    assert stored == sorted(set(stored))
    for number, end in enumerate(ends, 1):
        assert not isinstance(end, BaseException) or isinstance(end, TidelogError), end
        if not isinstance(end, TidelogError):
            assert number in stored
        elif kind is not Commits:
            # A later commit covers an earlier one.
            assert end.effect == "unknown" or number not in stored


@pytest.mark.parametrize("way", in_core(["silent"], ["stopped", "silent"]))
async def test_silence_ends_an_item_at_its_bound_which_counts_from_the_call(tmp_path: Path, way: Way) -> None:
    """Before the call, each machine is idle for longer than its bound."""
    bound_s = 2.0

    async def ended_s(machine: Machine) -> float:
        begin_s = time.monotonic()
        outcome = await machine.put(1)
        with pytest.raises(TidelogError) as error:
            await outcome
        # A commit is idempotent: its caller repeats it.
        assert error.value.effect == "unknown" or isinstance(machine, Commits)
        return time.monotonic() - begin_s

    with breakable_server(tmp_path / "data") as broken:
        async with AsyncExitStack() as stack:
            machines = []
            direct = await stack.enter_async_context(AsyncClient(broken.endpoint))
            for kind in MACHINES:
                await kind.prepare(direct)
                bounds = {"give_up_s": bound_s} if kind.ends_at_give_up else {"timeout_s": bound_s}
                machine = await stack.enter_async_context(kind(broken.endpoint, **bounds))
                machines.append(machine)
            for machine in machines:
                await asyncio.gather(*await put(machine, [0]))
            await asyncio.sleep(bound_s + 0.5)
            broken.break_off(way)
            found = await asyncio.gather(*map(ended_s, machines))
            broken.mend()

    assert [each for each in found if not bound_s - 0.1 <= each <= bound_s + LATE_S] == []


@pytest.mark.parametrize("kind", [each for each in MACHINES if each is not Commits])
async def test_items_put_while_the_server_is_away_are_sent_once_it_is_back(tmp_path: Path, kind: type[Machine]) -> None:
    """A killed server has lost its memory. Members of groups get other epochs: see ``groups``."""
    with InterruptedServer(tmp_path / "data") as server:
        async with asyncio.timeout(60), AsyncClient(server.grpc) as direct, kind(server.grpc) as machine:
            await kind.prepare(direct)
            await asyncio.gather(*await put(machine, range(5)))
            away = asyncio.create_task(server.away(0.5))
            # The first ones meet the broken stream, the others no server.
            outcomes = await put(machine, range(5, 10))
            await asyncio.sleep(0.2)
            outcomes += await put(machine, range(10, 15))
            await away
            await asyncio.gather(*outcomes)

            assert await machine.stored(direct) == list(range(15))


@some_machines
async def test_a_server_that_pauses_for_less_than_the_bound_loses_nothing(tmp_path: Path, kind: type[Machine]) -> None:
    with breakable_server(tmp_path / "data") as broken:
        async with asyncio.timeout(60), AsyncClient(broken.endpoint) as direct, kind(broken.endpoint) as machine:
            await kind.prepare(direct)
            await asyncio.gather(*await put(machine, [0]))
            broken.break_off("stopped")
            outcomes = await put(machine, range(1, 21))
            await asyncio.sleep(1.0)
            broken.mend()
            await asyncio.gather(*outcomes)

            assert await machine.stored(direct) == list(range(21))


@pytest.mark.parametrize("kind", [each for each in MACHINES if each is not Commits])
async def test_an_item_that_the_server_does_not_take_fails_alone(kind: type[Machine]) -> None:
    """It ends the stream, on which others are under way."""
    with start_server() as server:
        async with asyncio.timeout(60), AsyncClient(server.endpoint) as direct, kind(server.endpoint) as machine:
            await kind.prepare(direct)
            outcomes = await put(machine, range(10))
            large = await machine.put_large()
            outcomes += await put(machine, range(10, 20))
            await asyncio.gather(*outcomes)
            with pytest.raises(InvalidRequestError, match=r"8\d{6} bytes") as refused:
                await large

            assert refused.value.effect == "none"
            assert await machine.stored(direct) == list(range(20))


@some_machines
async def test_refused_streams_are_opened_again_with_pauses(tmp_path: Path, kind: type[Machine]) -> None:
    """Method: the server has as many open streams as it takes, and counts those that it refuses."""
    settings = {"limits.max_open_streams_per_principal": STREAMS}
    with ServerProcess(tmp_path / "data", settings) as server:
        async with asyncio.timeout(60), AsyncClient(server.grpc) as direct:
            await kind.prepare(direct)
        async with asyncio.timeout(60), AsyncClient(server.grpc) as direct, kind(server.grpc) as machine:
            begin_s = time.monotonic()
            async with hogged_streams(server):
                first = asyncio.create_task(put(machine, range(5)))
                await asyncio.sleep(2.5)
                refused = await asyncio.to_thread(server.metric, "tidelog_throttled_total", reason="open_streams")
            # The first attempt is repeated at once, each further one after the second that the server asks for.
            assert 2 <= refused <= 2 + time.monotonic() - begin_s
            await asyncio.gather(*await first)

            assert await machine.stored(direct) == list(range(5))


STREAMS = 4


@asynccontextmanager
async def hogged_streams(server: ServerProcess) -> AsyncIterator[None]:
    """Hold all open streams that the server grants to one address."""
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        method: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
        calls = [method() for _ in range(STREAMS)]
        while await asyncio.to_thread(server.metric, "tidelog_open_streams") < STREAMS:
            await asyncio.sleep(0.01)
        yield
        for call in calls:
            call.cancel()
