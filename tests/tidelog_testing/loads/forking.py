"""A program that uses the synchronous client and forks: ``python -m tidelog_testing.loads.forking <endpoint> <case>``.

It prints the children's answers and the parent's, as one JSON value. It runs in its own process, because any earlier
use of gRPC in a process affects its children.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tidelog import ChannelNotFoundError, Client, Cluster
from tidelog.rocksmq import IDAllocator
from tidelog.transport.background import background


def in_a_child(work: Callable[[], object]) -> str:
    """Return what ``work`` returns, or the name of the error that it raises, in a child made by ``os.fork``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(work())
        except BaseException as error:  # noqa: BLE001 - it is the result
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    code = os.waitpid(child, 0)[1]
    return answer if code == 0 else f"ended with {code}"


def append(client: Client, payload: bytes) -> str:
    """Append and return the durability."""
    return client.append("orders/0", payload, timeout_s=20).durability


def paused(client: Client) -> list[str]:
    """Fork right after a call, several times."""
    answers = []
    for _ in range(10):
        append(client, b"before")
        answers += [in_a_child(lambda: append(client, b"child")), append(client, b"after")]
    return answers


def streaming(client: Client) -> list[str]:
    """Fork while a stream is open."""
    with client.tail("orders/0") as tail:
        answer = in_a_child(lambda: append(client, b"child"))
        append(client, b"parent")
        return [answer, next(tail).payloads[0].decode()]


def others(client: Client) -> list[str]:
    """Fork while another client uses gRPC, and after that."""
    # If it were imported first, gRPC would install its own fork handlers.
    import grpc

    with grpc.insecure_channel(client.endpoint) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        answers = [in_a_child(lambda: append(client, b"child")), append(client, b"parent")]
    del channel
    return [*answers, in_a_child(lambda: append(client, b"child"))]


def busy(client: Client) -> list[str]:
    """Fork while another thread makes one call after another."""
    has_ended = threading.Event()

    def calls() -> int:
        number = 0
        while not has_ended.is_set():
            append(client, b"thread")
            number += 1
        return number

    with ThreadPoolExecutor() as pool:
        others = pool.submit(calls)
        children = {in_a_child(lambda: append(client, b"child")) for _ in range(40)}
        has_ended.set()
        has_called = others.result() > 0
    return [str(has_called), *sorted(children - {"sync", "ForkError"})]


def ids(client: Client) -> list[str]:
    """Fork while prefetched ids are available."""
    allocator = IDAllocator(client)
    first = allocator.alloc_one()
    child = in_a_child(allocator.alloc_one)
    return [str(first), child, str(allocator.alloc_one())]


def mailboxes(client: Client) -> list[str]:
    """Fork after calls on a mailbox, and while a fetch waits."""
    client.mailboxes.create("jobs")
    jobs = client.mailbox("jobs")
    answers = [str(jobs.send(b"before").duplicate)]
    answers += [in_a_child(lambda: jobs.send(b"child").duplicate), str(jobs.send(b"after").duplicate)]
    with ThreadPoolExecutor() as pool:
        bodies = sorted(each.body.decode() for each in jobs.fetch(5))
        waiting = pool.submit(jobs.fetch, wait=60)
        # Before the fetch has begun, a child would send a message.
        while not background.is_busy:
            time.sleep(0.001)
        answers += [*bodies, in_a_child(lambda: jobs.send(b"child"))]
        jobs.send(b"last")
        answers += [each.body.decode() for each in waiting.result()]
    return answers


def scanning(client: Client) -> list[str]:
    """Fork after a scan was refused, and read on with it."""
    answers = []
    scan = client.scan("later/0")
    try:
        next(scan)
    except ChannelNotFoundError:
        answers.append("refused")
    client.create_channel("later")
    client.append("later/0", b"later")

    def read() -> str:
        return next(scan).payloads[0].decode()

    return [*answers, in_a_child(read), read()]


def cluster(client: Client) -> list[str]:
    """Fork after calls of a cluster's client, one of which has made a client of the owner."""
    with Cluster(client.endpoint) as nodes:
        vchannel = nodes.vchannel("orders/0")

        def work(payload: bytes) -> str:
            vchannel.append(payload)
            return nodes.describe_channels(["orders"])[0].name

        return [work(b"before"), in_a_child(lambda: work(b"child")), work(b"parent")]


_CASES = {case.__name__: case for case in (paused, streaming, others, busy, ids, mailboxes, scanning, cluster)}


def main() -> None:
    """Run a case."""
    endpoint, case = sys.argv[1:]
    with Client(endpoint) as client:
        client.create_channel("orders")
        answers = _CASES[case](client)
        stored = [payload.decode() for batch in client.scan("orders/0") for payload in batch.payloads]
    sys.stdout.write(json.dumps({"answers": answers, "stored": stored}))


if __name__ == "__main__":
    main()
