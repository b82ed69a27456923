"""The synchronous client, and forks. Method: real processes and threads against a server in a process of its own.

Why its own process: a server in this one would have gRPC open at every fork.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import grpc
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


def in_a_forked_child(work: Callable[[], object]) -> str:
    """Return what ``work`` returns, or the name of the error that it raises, in a child made by ``os.fork``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException as error:  # noqa: BLE001 - it is the answer
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


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
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(tail)

        client.append("orders/0", b"still there")
        assert next(tail).payloads == [b"still there"]


def test_a_client_goes_on_in_a_forked_child_and_in_its_parent(client: Client) -> None:
    client.append("orders/0", b"before")

    answer = in_a_forked_child(lambda: client.append("orders/0", b"child").durability)

    assert answer == "'sync'"
    assert client.append("orders/0", b"after").first_tick
    stored = [payload for batch in client.scan("orders/0") for payload in batch.payloads]
    assert stored == [b"before", b"child", b"after"]


def test_a_client_that_is_used_right_before_a_fork_goes_on_in_every_child(client: Client) -> None:
    for _ in range(20):
        client.append("orders/0", b"before")
        assert in_a_forked_child(lambda: client.append("orders/0", b"child").durability) == "'sync'"


def test_a_child_forked_while_others_used_grpc_is_told_so_at_once(client: Client) -> None:
    with grpc.insecure_channel(client.endpoint) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        begin_s = time.monotonic()

        answer = in_a_forked_child(lambda: client.append("orders/0", b"child"))

        assert answer == "ForkError"
        assert time.monotonic() - begin_s < 10
        assert client.append("orders/0", b"parent").first_tick
    del channel
    assert in_a_forked_child(lambda: client.append("orders/0", b"child").durability) == "'sync'"


def test_a_child_forked_while_a_stream_was_open_is_told_so_and_the_parent_goes_on(client: Client) -> None:
    with client.tail("orders/0") as tail:
        answer = in_a_forked_child(lambda: client.append("orders/0", b"child"))

        client.append("orders/0", b"parent")
        assert next(tail).payloads == [b"parent"]
    assert answer == "ForkError"
