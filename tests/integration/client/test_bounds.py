"""Every public method of the client that waits for its server ends within its bound, whatever the server does.

Method: one row for each method of the asynchronous classes, found by introspection, so that a method without a row
fails the test. A server serves a client and then stops answering, in one of four ways; all rows run at once, on the
handles that were in use and on a client that was never connected. ``test_bounds_sync`` has the synchronous twins.

Of a server that answers each request within the timeout, but late, calls with many requests are asked one by one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tidelog import AsyncClient, AsyncCluster, AsyncDelivery, MailboxSettings, Retention, TidelogError
from tidelog_testing.faults.bounds import (
    CASES,
    CLASSES,
    INTERNAL,
    LATE_S,
    WAITS_FOR_NO_SERVER,
    late,
    measured_async,
    methods_of,
)
from tidelog_testing.faults.broken_servers import WAYS, Way, breakable_server
from tidelog_testing.parts.soaks import in_core


def test_every_public_method_has_a_row() -> None:
    found = {name for kind in CLASSES for name in methods_of(kind)}
    excused = {f"{kind}.{name}" for kind, names in WAITS_FOR_NO_SERVER.items() for name in names.split()}

    assert found - excused - INTERNAL == CASES.keys()


@pytest.mark.parametrize("way", in_core(["silent"], WAYS))
def test_every_call_ends_within_its_bound(tmp_path: Path, way: Way) -> None:
    with breakable_server(tmp_path / "data") as broken:
        found = asyncio.run(measured_async(broken.endpoint, lambda: broken.break_off(way), way))

    assert late(found, LATE_S) == {}, f"a second late: {late(found, 1.0)}"


CALL_S: Final = 1.5
"""Timeout of a call; a request takes 0.8 s."""
NAMES: Final = [f"absent-{i}" for i in range(5_000)]
MANY_REQUESTS: Final[dict[str, Callable[[AsyncClient, AsyncDelivery], Awaitable[object]]]] = {
    "create_channels": lambda client, _: client.create_channels(number=5_000),
    "alter_channels": lambda client, _: client.alter_channels(["jobs"] * 5_000, retention=Retention()),
    "describe_channels": lambda client, _: client.describe_channels(NAMES, ignore_missing=True),
    "destroy_channels": lambda client, _: client.destroy_channels(NAMES, ignore_missing=True),
    "locate_channels": lambda client, _: client.locate_channels(NAMES),
    "send_many": lambda client, _: client.mailbox("jobs").send_many([b"x" * (65 << 10)] * 65),
    "ack_many": lambda client, delivery: client.mailbox("jobs").ack_many([delivery] * 20_000),
}


async def late_s(call: Awaitable[object]) -> float:
    """Return by how much a call, which must fail, ends after its timeout."""
    begin_s = time.monotonic()
    with pytest.raises(TidelogError):
        await call
    return time.monotonic() - begin_s - CALL_S


async def test_the_requests_of_a_call_share_its_timeout(tmp_path: Path) -> None:
    with breakable_server(tmp_path / "data") as broken:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(AsyncClient(broken.endpoint, timeout_s=CALL_S)) for _ in MANY_REQUESTS
            ]
            await clients[0].mailboxes.create("jobs")
            await clients[0].mailbox("jobs").send(b"job")
            for client in clients:
                await client.mailbox("jobs").counts()
            [delivery] = await clients[0].mailbox("jobs").fetch()
            broken.break_off("slow")
            calls = [call(client, delivery) for call, client in zip(MANY_REQUESTS.values(), clients, strict=True)]
            late_by_s = await asyncio.gather(*map(late_s, calls))

    found = dict(zip(MANY_REQUESTS, late_by_s, strict=True))
    assert late(found, LATE_S) == {}, f"a second late: {late(found, 1.0)}"


CLUSTER_CALLS: Final[dict[str, Callable[[AsyncCluster], Awaitable[object]]]] = {
    "ensure_channel": lambda cluster: cluster.ensure_channel("orders"),
    "destroy_channels": lambda cluster: cluster.destroy_channels(NAMES[:2], ignore_missing=True),
    "describe_channels": lambda cluster: cluster.describe_channels(["orders"]),
    "mailboxes.describe": lambda cluster: cluster.mailboxes.describe("jobs"),
    "mailboxes.configure": lambda cluster: cluster.mailboxes.configure("jobs", MailboxSettings(delay_ms=1)),
    "mailbox.counts": lambda cluster: cluster.mailbox("jobs").counts(),
    "mailbox.send": lambda cluster: cluster.mailbox("jobs").send(b"x"),
    "journals.watch": lambda cluster: anext(cluster.journals.watch()),
}


async def test_the_requests_of_a_call_of_a_cluster_share_its_timeout(tmp_path: Path) -> None:
    """To find the owner takes one request, and the call another."""
    with breakable_server(tmp_path / "data") as broken:
        async with AsyncExitStack() as stack:
            clusters = [
                await stack.enter_async_context(AsyncCluster(broken.endpoint, timeout_s=CALL_S)) for _ in CLUSTER_CALLS
            ]
            await clusters[0].create_channel("orders")
            await clusters[0].mailboxes.create("jobs")
            await clusters[0].pause()
            for cluster in clusters:
                await cluster.allocate_ticks()
            broken.break_off("slow")
            calls = [call(cluster) for call, cluster in zip(CLUSTER_CALLS.values(), clusters, strict=True)]
            late_by_s = await asyncio.gather(*map(late_s, calls))

    found = dict(zip(CLUSTER_CALLS, late_by_s, strict=True))
    assert late(found, LATE_S) == {}, f"a second late: {late(found, 1.0)}"


async def test_the_requests_of_a_transaction_share_its_timeout(tmp_path: Path) -> None:
    """Begin, stage and prepare or commit take 0.8 s each. Nothing of a commit that had no time was sent."""
    with breakable_server(tmp_path / "data") as broken:
        async with AsyncClient(broken.endpoint) as client:
            await client.create_channel("orders")
            broken.break_off("slow")
            prepared, committed = client.txn(timeout_s=CALL_S), client.txn(timeout_s=CALL_S)
            await prepared.append("orders", b"x")
            await committed.append("orders", b"x", barrier_tick=1)
            refusals = await asyncio.gather(prepared.prepare("app"), committed.commit(), return_exceptions=True)
            broken.mend()
            retried = await prepared.prepare("app")
            await committed.commit()

    assert all(isinstance(error, TidelogError) and error.effect == "none" for error in refusals), refusals
    assert retried is not None
    assert len(committed.result.results) == 1
