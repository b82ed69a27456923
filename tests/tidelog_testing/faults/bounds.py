"""The rows of the bounds: a call of each public method of the client, and how long it may wait for a server.

``measured_async`` and ``measured_sync`` run all rows at once on a server that stops answering once each handle has been
used, and return what each exceeded its bound by.
"""

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

import tidelog
from tidelog import (
    AsyncClient,
    AsyncCluster,
    At,
    BroadcastState,
    Client,
    Cluster,
    Message,
    ResourceKey,
    Retention,
    Retry,
)
from tidelog.admin.blobs import AsyncBlobCalls
from tidelog.admin.mailboxes import AsyncClusterMailboxCalls, AsyncMailboxCalls
from tidelog.errors import TidelogError
from tidelog.journals.calls import AsyncClusterJournalCalls, AsyncJournalCalls
from tidelog_testing.faults.broken_servers import Way

TIMEOUT_S: Final = 2.0
GIVE_UP_S: Final = 2.5
LATE_S: Final = 10.0
"""What a bound may be exceeded by here, on a machine that is shared."""
CLASSES: Final = (
    AsyncClient, AsyncCluster, tidelog.AsyncChannel, tidelog.AsyncVchannel, tidelog.AsyncMailbox, tidelog.AsyncDelivery,
    tidelog.AsyncMailboxWorker, tidelog.AsyncConsumer, tidelog.AsyncProducer, tidelog.AsyncTransaction,
    tidelog.AsyncScan, tidelog.AsyncWal, tidelog.AsyncWalTransaction, tidelog.AsyncWalBroadcast,
    tidelog.AsyncWalScanner, AsyncBlobCalls, AsyncJournalCalls, AsyncMailboxCalls,
    AsyncClusterJournalCalls, AsyncClusterMailboxCalls,
)  # fmt: skip
# A close waits for calls under way, at most the timeout, then a second for each of its streams to end.
CLOSE_S: Final = TIMEOUT_S + 2.0
# Leaving a group takes at most two seconds more than the timeout of a commit.
LEAVE_S: Final = GIVE_UP_S + 2.0

Handles = Any


class Steps:
    """Calls of a row, one after the other: what the generator yields is awaited, if it can be, and sent back."""

    def __init__(self, calls: Generator[Any, Any, None]) -> None:
        self.calls = calls


def exhausted(h: Handles, items: Any) -> Generator[Any, Any, None]:
    while True:
        yield h.next(items)


def flushed(producer: Any, end: Callable[[Any], Any] | None = None) -> Generator[Any, Any, None]:
    producer.send_nowait(b"x")
    yield producer.flush() if end is None else end(producer)


def sent(h: Handles, producer: Any) -> Generator[Any, Any, None]:
    ticket = yield producer.send(b"x")
    yield h.outcome(ticket)


Case = tuple[Callable[[Handles], Any], float]


def rows(bound_s: float, **calls: Callable[[Handles], Any]) -> dict[str, Case]:
    return {name.replace("__", "."): (call, bound_s) for name, call in calls.items()}


FIRST: Final = tidelog.PositionCommit("readers", "orders/0", 1)
SETTINGS: Final = tidelog.MailboxSettings(delay_ms=1)
LARGE: Final = [b"x" * (1 << 19)] * 4

CASES: Final[dict[str, Case]] = {
    **rows(
        TIMEOUT_S,
        AsyncClient__ensure_channel=lambda h: h.client.ensure_channel("orders"),
        AsyncClient__wal_name=lambda h: h.client.wal_name(),
        AsyncClient__allocate_ticks=lambda h: h.client.allocate_ticks(),
        AsyncClient__latest_mvcc_tick=lambda h: h.client.latest_mvcc_tick("orders"),
        AsyncClient__vchannels_of=lambda h: h.client.vchannels_of(["orders"]),
        AsyncClient__plan_scan=lambda h: h.client.plan_scan("orders/0"),
        AsyncClient__trim=lambda h: h.client.trim("orders", At.tick(1)),
        AsyncClient__open_producer=lambda h: h.client.open_producer("orders", "p"),
        AsyncClient__fence=lambda h: h.client.fence("orders", 1),
        AsyncClient__append=lambda h: h.client.append("orders", b"x"),
        AsyncClient__create_channel=lambda h: h.client.create_channel("new"),
        AsyncClient__create_channels=lambda h: h.client.create_channels(["new"]),
        AsyncClient__alter_channels=lambda h: h.client.alter_channels(["orders"], retention=Retention()),
        AsyncClient__destroy_channels=lambda h: h.client.destroy_channels(["gone"]),
        AsyncClient__describe_channels=lambda h: h.client.describe_channels(["orders"]),
        AsyncClient__list_channels=lambda h: h.client.list_channels(),
        AsyncClient__commit_prepared=lambda h: h.client.commit_prepared([h.prepared], "app", 1),
        AsyncClient__roll_back_prepared=lambda h: h.client.roll_back_prepared([h.prepared]),
        AsyncClient__list_txns=lambda h: h.client.list_txns(),
        AsyncClient__describe_txn=lambda h: h.client.describe_txn(1),
        AsyncClient__abort_txn=lambda h: h.client.abort_txn(1, "why"),
        AsyncClient__broadcast=lambda h: h.client.broadcast("orders", b"x"),
        AsyncClient__ack=lambda h: h.client.ack(1, "orders/0"),
        AsyncClient__ack_batch=lambda h: h.client.ack_batch(h.broadcast_batch),
        AsyncClient__list_broadcasts=lambda h: h.client.list_broadcasts([BroadcastState.PENDING]),
        AsyncClient__describe_broadcast=lambda h: h.client.describe_broadcast(1),
        AsyncClient__abort_broadcast=lambda h: h.client.abort_broadcast(1, "why"),
        AsyncClient__create_group=lambda h: h.client.create_group("new"),
        AsyncClient__destroy_group=lambda h: h.client.destroy_group("gone"),
        AsyncClient__subscribe_group=lambda h: h.client.subscribe_group("readers", "orders"),
        AsyncClient__unsubscribe_group=lambda h: h.client.unsubscribe_group("readers", "orders"),
        AsyncClient__describe_group=lambda h: h.client.describe_group("readers"),
        AsyncClient__list_groups=lambda h: h.client.list_groups(),
        AsyncClient__commit_positions=lambda h: h.client.commit_positions([FIRST]),
        AsyncClient__seek_group=lambda h: h.client.seek_group("readers", At.earliest(), vchannels="orders/0"),
        AsyncClient__describe_cluster=lambda h: h.client.describe_cluster(),
        AsyncClient__metrics_text=lambda h: h.client.metrics_text(),
        AsyncClient__locate_channels=lambda h: h.client.locate_channels(["orders"]),
        AsyncClient__create_token=lambda h: h.client.create_token("t", ["append:*"]),
        AsyncClient__list_tokens=lambda h: h.client.list_tokens(),
        AsyncClient__revoke_token=lambda h: h.client.revoke_token("t"),
        AsyncClient__create_checkpoint=lambda h: h.client.create_checkpoint(timeout_s=TIMEOUT_S),
        AsyncClient__keep_checkpoint=lambda h: h.client.keep_checkpoint("c"),
        AsyncClient__release_checkpoint=lambda h: h.client.release_checkpoint("c"),
        AsyncClient__list_checkpoints=lambda h: h.client.list_checkpoints(),
        AsyncCluster__describe=lambda h: h.cluster.describe(),
        AsyncCluster__vchannels_of=lambda h: h.cluster.vchannels_of(["orders"]),
        AsyncCluster__owner_of=lambda h: h.cluster.owner_of("gone"),
        AsyncCluster__client_of=lambda h: h.cluster.client_of("gone"),
        AsyncCluster__channel=lambda h: h.cluster.channel("gone"),
        AsyncCluster__vchannel=lambda h: h.cluster.vchannel("gone/0"),
        AsyncCluster__create_channel=lambda h: h.cluster.create_channel("new"),
        AsyncCluster__create_channels=lambda h: h.cluster.create_channels(["new"]),
        AsyncCluster__ensure_channel=lambda h: h.cluster.ensure_channel("orders"),
        AsyncCluster__alter_channels=lambda h: h.cluster.alter_channels(["orders"], retention=Retention()),
        AsyncCluster__destroy_channels=lambda h: h.cluster.destroy_channels(["gone"]),
        AsyncCluster__describe_channels=lambda h: h.cluster.describe_channels(["orders"]),
        AsyncCluster__list_channels=lambda h: h.cluster.list_channels(),
        AsyncCluster__allocate_ticks=lambda h: h.cluster.allocate_ticks(),
        AsyncVchannel__append=lambda h: h.vchannel.append(Message(b"x", key=b"k")),
        AsyncVchannel__latest_mvcc_tick=lambda h: h.vchannel.latest_mvcc_tick(),
        AsyncVchannel__open_producer=lambda h: h.vchannel.open_producer("p"),
        AsyncVchannel__fence=lambda h: h.vchannel.fence(1),
        AsyncVchannel__trim=lambda h: h.vchannel.trim(At.tick(1)),
        AsyncChannel__create=lambda h: h.channel.create(if_not_exists=True),
        AsyncChannel__alter=lambda h: h.channel.alter(retention=Retention()),
        AsyncChannel__destroy=lambda h: h.client.channel("gone").destroy(),
        AsyncChannel__describe=lambda h: h.channel.describe(),
        AsyncChannel__open_producer=lambda h: h.channel.open_producer("p"),
        AsyncChannel__append=lambda h: h.channel.append(b"x"),
        AsyncMailbox__send=lambda h: h.mailbox.send(b"x"),
        AsyncMailbox__send_many=lambda h: h.mailbox.send_many([b"x"]),
        AsyncMailbox__fetch=lambda h: h.mailbox.fetch(),
        AsyncMailbox__ack_many=lambda h: h.mailbox.ack_many(h.deliveries[:1]),
        AsyncMailbox__reject_many=lambda h: h.mailbox.reject_many(h.deliveries[1:2]),
        AsyncMailbox__extend_many=lambda h: h.mailbox.extend_many(h.deliveries[2:3]),
        AsyncMailbox__headers=lambda h: h.mailbox.headers(),
        AsyncMailbox__peek=lambda h: h.mailbox.peek(),
        AsyncMailbox__counts=lambda h: h.mailbox.counts(),
        AsyncMailbox__purge=lambda h: h.mailbox.purge(),
        AsyncMailbox__pause=lambda h: h.mailbox.pause(),
        AsyncMailbox__resume=lambda h: h.mailbox.resume(),
        AsyncMailbox__reenqueue=lambda h: h.mailbox.reenqueue(),
        AsyncMailbox__redrive=lambda h: h.mailbox.redrive(),
        AsyncDelivery__ack=lambda h: h.deliveries[3].ack(),
        AsyncDelivery__reject=lambda h: h.deliveries[4].reject(),
        AsyncDelivery__extend=lambda h: h.deliveries[5].extend(),
        AsyncTransaction__append=lambda h: h.txns[0].append("orders", LARGE),
        AsyncTransaction__append_columns=lambda h: h.txns[1].append_columns("orders/0", h.columns),
        AsyncTransaction__prepare=lambda h: h.txns[2].prepare("app"),
        AsyncTransaction__commit=lambda h: h.txns[3].commit(),
        AsyncTransaction__rollback=lambda h: h.staged.rollback(),
        AsyncWal__wal_name=lambda h: h.wal.wal_name(),
        AsyncWal__latest_mvcc_tick=lambda h: h.wal.latest_mvcc_tick("orders"),
        AsyncWal__append=lambda h: h.wal.append("orders", b"x"),
        AsyncWal__append_messages=lambda h: h.wal.append_messages([("orders", b"x")]),
        AsyncWalTransaction__append=lambda h: h.wal_txns[0].append(LARGE),
        AsyncWalTransaction__commit=lambda h: h.wal_txns[1].commit(),
        AsyncWalTransaction__rollback=lambda h: h.wal_txns[2].rollback(),
        AsyncWalBroadcast__append=lambda h: h.wal.broadcast().append("orders", b"x"),
        AsyncWalBroadcast__ack=lambda h: h.wal.broadcast().ack(1, "orders/0"),
        AsyncBlobCalls__put=lambda h: h.client.blobs.put(b"y" * (1 << 20)),
        AsyncBlobCalls__get=lambda h: h.client.blobs.get(h.blob),
        AsyncBlobCalls__update_ref_count=lambda h: h.client.blobs.update_ref_count(h.blob, 1),
        AsyncBlobCalls__describe=lambda h: h.client.blobs.describe(h.blob),
        AsyncJournalCalls__apply=lambda h: h.client.journals.apply([]),
        AsyncJournalCalls__list=lambda h: h.client.journals.list(),
        AsyncJournalCalls__watch=lambda h: h.client.journals.watch(),
        AsyncMailboxCalls__create=lambda h: h.client.mailboxes.create("new"),
        AsyncMailboxCalls__configure=lambda h: h.client.mailboxes.configure("jobs", SETTINGS),
        AsyncMailboxCalls__describe=lambda h: h.client.mailboxes.describe("jobs"),
        AsyncMailboxCalls__list=lambda h: h.client.mailboxes.list(),
        AsyncMailboxCalls__delete=lambda h: h.client.mailboxes.delete("gone"),
        AsyncClusterJournalCalls__apply=lambda h: h.cluster.journals.apply([]),
        AsyncClusterJournalCalls__list=lambda h: h.cluster.journals.list(),
        AsyncClusterJournalCalls__watch=lambda h: h.cluster.journals.watch(),
        AsyncClusterMailboxCalls__create=lambda h: h.cluster.mailboxes.create("new"),
        AsyncClusterMailboxCalls__configure=lambda h: h.cluster.mailboxes.configure("jobs", SETTINGS),
        AsyncClusterMailboxCalls__describe=lambda h: h.cluster.mailboxes.describe("jobs"),
        AsyncClusterMailboxCalls__list=lambda h: h.cluster.mailboxes.list(),
        AsyncClusterMailboxCalls__delete=lambda h: h.cluster.mailboxes.delete("gone"),
    ),
    # Beyond the wait that the caller asks for, an answer has a second more.
    **rows(
        TIMEOUT_S + 1.0,
        AsyncClient__consume=lambda h: h.client.consume("readers", "orders/0"),
        AsyncClient__wait_acked=lambda h: h.client.wait_acked(1),
        AsyncWalBroadcast__block_until_resource_key_ack_once=lambda h: (
            h.wal.broadcast().block_until_resource_key_ack_once(ResourceKey("d", "k"))
        ),
        AsyncWalBroadcast__block_until_resource_key_ack_all=lambda h: (
            h.wal.broadcast().block_until_resource_key_ack_all(ResourceKey("d", "k"))
        ),
    ),
    **rows(
        GIVE_UP_S,
        AsyncClient__scan=lambda h: h.client.scan("orders"),
        AsyncClient__tail=lambda h: h.client.tail("orders"),
        AsyncCluster__scan=lambda h: h.cluster.scan("orders"),
        AsyncCluster__tail=lambda h: h.cluster.tail("orders"),
        AsyncVchannel__scan=lambda h: h.vchannel.scan(),
        AsyncVchannel__tail=lambda h: h.vchannel.tail(),
        AsyncChannel__scan=lambda h: h.channel.scan(),
        AsyncChannel__tail=lambda h: h.channel.tail(),
        AsyncScan__anext=lambda h: Steps(exhausted(h, h.scan)),
        AsyncScan__to_arrow=lambda h: h.client.scan("orders").to_arrow(),
        AsyncScan__to_pandas=lambda h: h.client.scan("orders").to_pandas(),
        AsyncScan__to_polars=lambda h: h.client.scan("orders").to_polars(),
        AsyncProducer__flush=lambda h: Steps(flushed(h.producers[0])),
        AsyncProducer__send=lambda h: Steps(sent(h, h.producers[1])),
        AsyncProducer__send_many=lambda h: h.producers[2].send_many([b"x" * 10_000] * 2_000),
        AsyncProducer__aclose=lambda h: Steps(flushed(h.producers[3], h.end)),
        AsyncConsumer__join=lambda h: h.client.consumer("others", "orders").join(),
        AsyncConsumer__commit=lambda h: h.consumers[0].commit(),
        AsyncConsumer__anext=lambda h: Steps(exhausted(h, h.consumers[1])),
        AsyncMailboxWorker__anext=lambda h: Steps(exhausted(h, h.worker)),
        AsyncMailbox__work=lambda h: h.mailbox.work(h.handle),
        AsyncWal__read=lambda h: h.wal.read("orders/0", message_handler=h.handle).done.wait(),
    ),
    # The caller's own limits.
    **rows(0.5, AsyncConsumer__poll=lambda h: h.consumers[2].poll(0.5)),
    **rows(
        LEAVE_S,
        AsyncConsumer__aclose=lambda h: h.end(h.consumers[3]),
        AsyncConsumer__wait_rebalance=lambda h: h.consumers[2].wait_rebalance(0.1),
    ),
    **rows(
        CLOSE_S,
        AsyncClient__aclose=lambda h: h.end(h.busy_client),
        AsyncCluster__aclose=lambda h: h.end(h.busy_cluster),
        AsyncScan__aclose=lambda h: h.end(h.client.scan("orders")),
        AsyncMailboxWorker__aclose=lambda h: h.end(h.idle_worker),
        AsyncWalScanner__close=lambda h: h.wal_scanner.close(),
    ),
}  # fmt: skip
WAITS_FOR_NO_SERVER: Final = {
    "AsyncClient": "channel vchannel mailbox wal producer txn consumer check_open pause scan_one",
    "AsyncCluster": "client_for mailbox pause",
    "AsyncChannel": "vchannel producer",
    "AsyncVchannel": "producer",
    "AsyncMailbox": "worker",
    "AsyncDelivery": "note_extended",
    "AsyncMailboxWorker": "stop feed",
    "AsyncConsumer": "commits note_committed rewind commit_soon take_ready pause resume",
    "AsyncProducer": "send_nowait put",
    "AsyncTransaction": "add commit_positions send ack",
    "AsyncWal": "txn scanner_core broadcast",
}
# On a server that answers late they wait for messages, as they should.
READERS: Final = {
    "AsyncClient.tail", "AsyncCluster.tail", "AsyncVchannel.tail", "AsyncChannel.tail", "AsyncScan.anext",
    "AsyncConsumer.anext", "AsyncMailboxWorker.anext", "AsyncMailbox.work", "AsyncWal.read",
}  # fmt: skip
# Internal to the client; what calls them has a row.
INTERNAL: Final = {
    "AsyncClient.append_numbered", "AsyncClient.owners_feed", "AsyncClient.reach", "AsyncClient.scan_core",
    "AsyncClient.within", "AsyncProducer.found",
    "AsyncCluster.client_with", "AsyncMailbox.fetch_response", "AsyncTransaction.stage", "AsyncMailboxWorker.settle",
    "AsyncMailboxCalls.channel_of", "AsyncClusterMailboxCalls.channel_of", "AsyncClusterMailboxCalls.at_owner",
}  # fmt: skip


def methods_of(kind: type) -> Iterator[str]:
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield f"{kind.__name__}.{name}"
    if hasattr(kind, "__anext__"):
        yield f"{kind.__name__}.anext"


def opened(h: Handles) -> Generator[Any, Any, None]:
    """Use a handle of each kind on a server that works."""
    client = h.client
    yield client.create_channel("orders")
    yield client.create_channel("gone")
    yield client.append("orders", [b"first", b"second"])
    yield client.create_group("readers", "orders")
    yield client.mailboxes.create("jobs")
    h.vchannel, h.channel = client.vchannel("orders/0"), client.channel("orders")
    h.mailbox, h.wal = client.mailbox("jobs"), client.wal()
    h.scan = client.scan("orders", until=At.follow())
    h.columns = (yield h.next(h.scan)).columns
    yield client.broadcast("orders", b"all", resource_keys=[ResourceKey("d", "k")])
    h.broadcast_batch = yield h.next(h.scan)
    h.blob = yield client.blobs.put(b"z" * 1_000)
    yield h.mailbox.send_many([b"job"] * 8)
    h.deliveries = yield h.mailbox.fetch(6)
    h.worker, h.idle_worker = h.mailbox.worker(), h.mailbox.worker()
    # A producer waits after the last answer to its client: each has one of its own.
    h.producers = [each.producer("orders", max_in_flight_bytes=2 << 20) for each in h.producing_clients]
    for producer in h.producers:
        yield producer.send(b"p")
        yield producer.flush()
    h.txns, h.wal_txns = [client.txn() for _ in range(4)], [h.wal.txn("orders/0") for _ in range(3)]
    for txn in h.txns:
        yield txn.append("orders", b"t")
    for txn in h.wal_txns:
        yield txn.append(b"t")
    h.staged = client.txn()
    yield h.staged.append("orders", LARGE)
    prepared = client.txn()
    yield prepared.append("orders", b"t")
    h.prepared = yield prepared.prepare("app")
    h.consumers = [client.consumer(f"g{i}", "orders", auto_commit=False) for i in range(4)]
    for consumer in h.consumers:
        yield consumer.join()
        yield h.next(consumer)
    yield h.busy_client.append("orders", b"x")
    for cluster in (h.cluster, h.busy_cluster):
        yield cluster.describe_channels(["orders"])
    h.wal_scanner = h.wal.read("orders/0", message_handler=h.handle)


def copy_of(h: Handles, client: Any, cluster: Any) -> Handles:
    """Return the handles of another client."""
    copy = SimpleNamespace(**vars(h))
    copy.client, copy.vchannel, copy.channel = client, client.vchannel("orders/0"), client.channel("orders")
    copy.mailbox, copy.wal, copy.cluster = client.mailbox("jobs"), client.wal(), cluster
    return copy


def with_copies(h: Handles, fresh: Handles) -> dict[str, tuple[Case, Handles]]:
    """Return the rows to run, each with its handles."""
    found = {name: (case, h) for name, case in CASES.items()}
    of_handles = (
        "AsyncClient.aclose", "AsyncCluster.aclose", "AsyncScan.", "AsyncConsumer.", "AsyncProducer.",
        "AsyncTransaction.", "AsyncWalTransaction.", "AsyncDelivery.", "AsyncMailboxWorker.", "AsyncWalScanner.",
    )  # fmt: skip
    return found | {
        f"{name} of a client that was never connected": (case, fresh)
        for name, case in CASES.items()
        if not name.startswith(of_handles)
    }


def settings(endpoint: str) -> dict[str, Any]:
    retry = Retry(base_s=0.05, cap_s=1.0, give_up_s=GIVE_UP_S)
    return {"endpoint": endpoint, "timeout_s": TIMEOUT_S, "connect_timeout_s": TIMEOUT_S, "retry": retry}


def cluster_settings(endpoint: str) -> dict[str, Any]:
    return {"endpoints" if name == "endpoint" else name: value for name, value in settings(endpoint).items()}


async def driven(calls: Generator[Any, Any, None]) -> None:
    value = None
    with suppress(StopIteration):
        while True:
            item = calls.send(value)
            value = await item if inspect.isawaitable(item) else item


async def finished(result: Any) -> None:
    if isinstance(result, Steps):
        await driven(result.calls)
    elif inspect.isawaitable(result):
        await result
    elif hasattr(result, "__anext__"):
        await anext(result)


async def measured(name: str, case: Case, h: Handles) -> tuple[str, float]:
    """Return what the row exceeded its bound by, in seconds; infinity if it did not end."""
    call, bound_s = case
    begin_s = time.monotonic()
    scope = asyncio.timeout(bound_s + LATE_S)
    try:
        async with scope:
            await finished(call(h))
    except (TidelogError, StopAsyncIteration):
        pass
    except TimeoutError:
        if scope.expired():
            return name, math.inf
    except Exception as error:
        raise AssertionError(f"the row {name} is wrong: {error!r}") from error
    return name, time.monotonic() - begin_s - bound_s


async def measured_async(endpoint: str, break_off: Callable[[], None], way: Way) -> dict[str, float]:
    async def handle(_: object) -> None:
        return None

    clients = [AsyncClient(**settings(endpoint)) for _ in range(7)]
    clusters = [AsyncCluster(**cluster_settings(endpoint)) for _ in range(3)]
    h = SimpleNamespace(
        client=clients[0], busy_client=clients[1], producing_clients=clients[3:], cluster=clusters[0],
        busy_cluster=clusters[1], next=anext,
        outcome=lambda ticket: ticket,
        end=lambda each: each.aclose(), handle=handle,
    )  # fmt: skip
    await driven(opened(h))
    break_off()
    cases = with_copies(h, copy_of(h, clients[2], clusters[2]))
    rows = (measured(name, case, handles) for name, (case, handles) in cases.items() if not is_left_out(name, way))
    found = await asyncio.gather(*rows)
    begin_s = time.monotonic()
    await asyncio.gather(*(client.aclose() for client in clients), *(cluster.aclose() for cluster in clusters))
    return dict(found) | {"AsyncClient.aclose after all": time.monotonic() - begin_s - CLOSE_S}


def is_left_out(name: str, way: Way) -> bool:
    return way == "slow" and name.partition(" ")[0] in READERS


class Thread(threading.Thread):
    """A row of the synchronous client. As a daemon, so that one that does not end does not hold up the others."""

    def __init__(self, name: str, case: Case, h: Handles) -> None:
        super().__init__(name=name, daemon=True)
        self.case, self.h = case, h
        self.begin_s = time.monotonic()
        self.late_s = math.inf
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        call, bound_s = self.case
        try:
            result = call(self.h)
            if isinstance(result, Steps):
                driven_here(result.calls)
            elif hasattr(result, "__next__"):
                next(result)
        except (TidelogError, StopIteration, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - raised by ``measured``
            self.error = error
        self.late_s = time.monotonic() - self.begin_s - bound_s

    def measured(self) -> tuple[str, float]:
        """Wait for the end; return as ``measured`` does."""
        self.join(max(0.0, self.begin_s + self.case[1] + LATE_S - time.monotonic()))
        if self.error is not None:
            raise AssertionError(f"the row {self.name} is wrong: {self.error!r}") from self.error
        return self.name, self.late_s


def driven_here(calls: Generator[Any, Any, None]) -> None:
    value = None
    with suppress(StopIteration):
        while True:
            value = calls.send(value)


def measured_sync(endpoint: str, break_off: Callable[[], None], way: Way) -> dict[str, float]:
    clients = [Client(**settings(endpoint)) for _ in range(7)]
    clusters = [Cluster(**cluster_settings(endpoint)) for _ in range(3)]
    h = SimpleNamespace(
        client=clients[0], busy_client=clients[1], producing_clients=clients[3:], cluster=clusters[0],
        busy_cluster=clusters[1], next=next,
        outcome=lambda ticket: ticket.result(),
        end=lambda each: each.close(), handle=lambda _: None,
    )  # fmt: skip
    driven_here(opened(h))
    break_off()
    cases = with_copies(h, copy_of(h, clients[2], clusters[2]))
    threads = [Thread(name, case, of) for name, (case, of) in cases.items() if not is_left_out(name, way)]
    found = dict(thread.measured() for thread in threads)
    ends = [
        Thread(f"Client.close after all {i}", (lambda client: client.close(), CLOSE_S), client)
        for i, client in enumerate((*clients, *clusters))
    ]
    return found | dict(thread.measured() for thread in ends)


def late(found: dict[str, float], by_s: float) -> dict[str, float]:
    return {name: round(late_s, 2) for name, late_s in found.items() if late_s >= by_s}
