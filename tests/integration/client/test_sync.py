"""The synchronous client. Method: real threads, and a server in another process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import tidelog
from tidelog import Client

SERVER = """
import sys
from tidelog.testing import start_server
with start_server() as running:
    print(running.endpoint, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


@pytest.fixture
def client(endpoint: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(endpoint) as client:
        client.create_channel("orders", vchannels=2)
        yield client
        client.destroy_channels(["orders"])


def test_calls_do_without_await_what_their_twins_do(client: Client) -> None:
    result = client.append("orders/0", [b"a", b"b"])
    orders = client.channel("orders")

    assert [payload for batch in orders.scan() for payload in batch.payloads] == [b"a", b"b"]
    assert [channel.name for channel in client.list_channels("ord")] == ["orders"]
    assert client.latest_mvcc_tick("orders/0") >= result.last_tick
    assert orders.vchannel(0).trim(everything=True) > result.last_tick


def test_a_tail_is_an_iterator_that_knows_when_it_caught_up(client: Client) -> None:
    with client.tail("orders/0") as tail:
        client.append("orders/0", b"live")

        assert next(tail).payloads == [b"live"]
        assert tail.positions["orders/0"] == tail.positions["orders/0"]


def test_a_producer_keeps_the_order_of_the_calls_and_hands_out_positions(client: Client) -> None:
    messages = [b"%d" % i for i in range(2_000)]
    with client.producer("orders/0") as producer:
        tickets = [producer.send(message) for message in messages]
        producer.send_many([b"x", b"y"])
        producer.send_nowait(b"z")
        first_ticks = [ticket.result(10).first_tick for ticket in tickets[::500]]
        producer.flush()
        assert all(ticket.done() for ticket in tickets)

    stored = [payload for batch in client.scan("orders/0") for payload in batch.payloads]
    assert stored == [*messages, b"x", b"y", b"z"]
    assert first_ticks == sorted(first_ticks)


def test_a_producer_tells_its_failure(client: Client) -> None:
    producer = client.producer("nowhere")
    ticket = producer.send(b"a")

    with pytest.raises(tidelog.ChannelNotFoundError):
        ticket.result(10)
    with pytest.raises(tidelog.ChannelNotFoundError):
        producer.flush()


def test_many_threads_share_a_client(client: Client) -> None:
    ticks: list[int] = []

    def append() -> None:
        ticks.extend(client.append("orders/0", b"x").first_tick for _ in range(20))

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(ticks)) == 160


def test_ctrl_c_ends_a_call_that_waits(client: Client) -> None:
    with client.tail("orders/0") as tail:
        # To this thread: the kernel may deliver a process's signal to another thread, and this one would keep waiting.
        threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(tail)

        client.append("orders/0", b"still there")
        assert next(tail).payloads == [b"still there"]
