"""A duration that no call could keep is refused by the name of its argument, before anything is sent.

Method: every argument of the client that is a duration, with values that are no numbers, not finite, negative or too
long; no server is needed.
"""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, Client, Cluster, Retry, gazette
from tidelog.pandora.http_client import HttpClient
from tidelog.rocksmq import AsyncRocksMQ
from tidelog.wire.durations import MAX_SECONDS, check_seconds

CLIENT = AsyncClient("127.0.0.1:1")
SYNC = Client("127.0.0.1:1")

CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "client": ("timeout_s", lambda bad: AsyncClient(timeout_s=bad)),
    "connecting": ("connect_timeout_s", lambda bad: AsyncClient(connect_timeout_s=bad)),
    "synchronous client": ("timeout_s", lambda bad: Client(timeout_s=bad)),
    "cluster": ("timeout_s", lambda bad: AsyncCluster(timeout_s=bad)),
    "synchronous cluster": ("timeout_s", lambda bad: Cluster(timeout_s=bad)),
    "first pause": ("base_s", lambda bad: Retry(base_s=bad)),
    "longest pause": ("cap_s", lambda bad: Retry(cap_s=bad)),
    "giving up": ("give_up_s", lambda bad: Retry(give_up_s=bad)),
    "append": ("timeout_s", lambda bad: CLIENT.append("orders", b"x", timeout_s=bad)),
    "synchronous append": ("timeout_s", lambda bad: SYNC.append("orders", b"x", timeout_s=bad)),
    "producer": ("linger_s", lambda bad: CLIENT.producer("orders", linger_s=bad)),
    "transaction": ("timeout_s", lambda bad: CLIENT.txn(timeout_s=bad)),
    "keepalive": ("keepalive_s", lambda bad: CLIENT.txn(keepalive_s=bad)),
    "prepared transaction": ("keepalive_s", lambda bad: CLIENT.txn().prepare("app", keepalive_s=bad)),
    "commit of prepared": ("timeout_s", lambda bad: CLIENT.commit_prepared([], "app", 1, timeout_s=bad)),
    "broadcast": ("timeout_s", lambda bad: CLIENT.broadcast("orders", b"x", timeout_s=bad)),
    "keys of a broadcast": ("wait_s", lambda bad: CLIENT.broadcast("orders", b"x", wait_s=bad)),
    "acknowledgements": ("timeout_s", lambda bad: CLIENT.wait_acked(1, timeout_s=bad)),
    "checkpoint": ("timeout_s", lambda bad: CLIENT.create_checkpoint(timeout_s=bad)),
    "lease of a checkpoint": ("lease_s", lambda bad: CLIENT.create_checkpoint(lease_s=bad)),
    "token": ("lifetime_s", lambda bad: CLIENT.create_token("t", [], lifetime_s=bad)),
    "reach": ("timeout_s", CLIENT.reach),
    "watermarks": ("watermark_interval_s", lambda bad: CLIENT.scan("orders", watermark_interval_s=bad)),
    "consumer's lease": ("lease_s", lambda bad: CLIENT.consumer("g", "orders", lease_s=bad)),
    "release": ("release_within_s", lambda bad: CLIENT.consumer("g", "orders", release_within_s=bad)),
    "commits": ("auto_commit_s", lambda bad: CLIENT.consumer("g", "orders", auto_commit_s=bad)),
    "poll": ("timeout_s", lambda bad: CLIENT.consumer("g", "orders").poll(bad)),
    "rebalance": ("timeout_s", lambda bad: CLIENT.consumer("g", "orders").wait_rebalance(bad)),
    "consume": ("wait_s", lambda bad: CLIENT.consume("g", "orders/0", wait_s=bad)),
    "fetch": ("wait", lambda bad: CLIENT.mailbox("jobs").fetch(wait=bad)),
    "lease": ("lease", lambda bad: CLIENT.mailbox("jobs").fetch(lease=bad)),
    "worker": ("lease", lambda bad: CLIENT.mailbox("jobs").worker(lease=bad)),
    "delay": ("delay", lambda bad: tidelog.OutgoingMessage(b"", delay=bad).to_wire()),
    "ttl": ("ttl", lambda bad: tidelog.OutgoingMessage(b"", ttl=bad).to_wire()),
    "polled list": ("interval_s", lambda bad: gazette.AsyncPolledList(CLIENT, bad, gazette.ListRequest())),
    "producers to forget": ("prune_horizon_s", lambda bad: gazette.Sequencer().producer_states(bad)),
    "queue": ("wait_s", lambda bad: AsyncRocksMQ(CLIENT).consume("g", "orders", 1, wait_s=bad)),
    "wait for a queue": ("timeout_s", lambda bad: AsyncRocksMQ(CLIENT).wait("g", "orders", bad)),
    "lock of a store": ("lock_timeout_s", lambda bad: gazette.SqliteCheckpointStore("x.db", "c", lock_timeout_s=bad)),
    "pandora": ("timeout", lambda bad: HttpClient("http://127.0.0.1:1", timeout=bad)),
}
# A mailbox's server judges negative ones: a message may be due in the past.
MAY_BE_NEGATIVE = {"fetch", "lease", "worker", "delay", "ttl"}
BAD = [math.nan, math.inf, -math.inf, 1e300, True, "5", timedelta.max]


@pytest.mark.parametrize("bad", [*BAD, -1, -0.001], ids=repr)
@pytest.mark.parametrize("name", CALLS)
async def test_an_impossible_duration_is_refused_by_its_name(name: str, bad: object) -> None:
    argument, call = CALLS[name]
    if name in MAY_BE_NEGATIVE and bad in (-1, -0.001):
        return

    with pytest.raises((ValueError, TypeError), match=f"^(messages.*: )?{argument} is "):
        result = call(bad)
        await result


def test_a_timedelta_is_a_number_of_seconds() -> None:
    assert check_seconds("wait_s", timedelta(minutes=1, milliseconds=5)) == 60.005
    assert AsyncClient(timeout_s=timedelta(seconds=5)).timeout_s == 5.0
    assert Cluster(timeout_s=timedelta(seconds=5)).timeout_s == 5.0
    assert Retry(give_up_s=timedelta(seconds=5)) == Retry(give_up_s=5.0)  # type: ignore[arg-type]  # it becomes a number
    with pytest.raises(ValueError, match=r"wait_s is -86400\.0, expected 0 or more"):
        check_seconds("wait_s", timedelta(days=-1))


def test_bounds_are_part_of_a_duration() -> None:
    assert check_seconds("wait_s", 0) == 0
    assert check_seconds("wait_s", MAX_SECONDS) == MAX_SECONDS
    with pytest.raises(ValueError, match=r"wait_s is 0, expected more than 0, at most 60 seconds"):
        check_seconds("wait_s", 0, maximum=60, may_be_minimum=False)
    with pytest.raises(ValueError, match=r"wait_s is 61, expected 1 or more, at most 60 seconds"):
        check_seconds("wait_s", 61, minimum=1, maximum=60)
