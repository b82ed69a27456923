"""The synchronous queues. Method: real threads against a server in this process."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tidelog
from tidelog import Client, Tick
from tidelog.rocksmq import IDAllocator, RocksMQ, new_rocksmq
from tidelog.testing import start_server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with start_server() as running:
        yield running.endpoint


@pytest.fixture
def mq(endpoint: str) -> Iterator[RocksMQ]:
    with RocksMQ(endpoint, name="shop") as mq:
        mq.create_channel("orders")
        mq.create_consumer_group("billing", "orders")
        yield mq
        mq.destroy_channel("orders")
        mq.destroy_consumer_group("billing")


def test_every_call_works(mq: RocksMQ) -> None:
    ids = mq.produce("orders", [b"a", b"", b"c"])
    consumer = mq.register_consumer("billing", "orders")

    mq.check_topic_valid("orders")
    assert (mq.get_latest_msg("orders"), mq.exist_consumer_group("billing", "orders")) == (ids[-1], True)
    assert [message.payload for message in mq.consume("billing", "orders", 2)] == [b"a", b""]
    assert consumer.wait(5)
    assert mq.wait("billing", "orders")
    assert [message.msg_id for message in consumer.consume(9)] == ids[2:]
    mq.seek("billing", "orders", ids[1])
    assert consumer.consume(1, wait_s=5)[0].payload == b""
    mq.force_seek("billing", "orders", 0)
    mq.seek_to_latest("billing", "orders")
    mq.notify("billing", "orders")
    assert not consumer.wait()
    consumer.notify()
    assert mq.consume("billing", "orders", 1, wait_s=60) == []
    mq.destroy_consumer_group("billing", "orders")
    assert not mq.exist_consumer_group("billing")


def test_each_message_goes_to_one_of_four_threads(mq: RocksMQ) -> None:
    ids = mq.produce("orders", [b"%d" % number for number in range(1_000)])

    def drain(_: int) -> list[Tick]:
        taken: list[Tick] = []
        while messages := mq.consume("billing", "orders", 9):
            taken += [message.msg_id for message in messages]
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(drain, range(4)))

    assert sorted(msg_id for each in taken for msg_id in each) == ids


def test_a_thread_that_waits_is_woken_by_a_message(mq: RocksMQ) -> None:
    waits, found = threading.Event(), []

    def wait() -> None:
        waits.set()
        found.extend(mq.consume("billing", "orders", 1, wait_s=60))

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(10)
    mq.produce("orders", [b"a"])
    thread.join(20)

    assert [message.payload for message in found] == [b"a"]


def test_closing_the_queues_closes_their_own_client_only(endpoint: str) -> None:
    with Client(endpoint) as client:
        with RocksMQ(client) as mq:
            mq.create_channel("kept")
        assert client.wal_name() == "memory"
        with pytest.raises(tidelog.ClosedError):
            mq.create_channel("kept")
    with RocksMQ(endpoint) as own:
        own.destroy_channel("kept")
    with pytest.raises(tidelog.ClosedError):
        own.client.wal_name()


def test_threads_get_different_ids(endpoint: str) -> None:
    with Client(endpoint) as client:
        allocator = IDAllocator(client, prefetch=50)
        with ThreadPoolExecutor(4) as threads:
            ids = list(threads.map(lambda _: allocator.alloc_one(), range(1_000)))
        before = allocator.alloc(3)[1]
        allocator.update_id()

        assert len(set(ids)) == 1_000
        assert before < allocator.alloc_one()
        assert isinstance(new_rocksmq("shop", allocator), RocksMQ)
