"""Workers on threads: handlers, signals and iterators. Method: a program in a process of its own, and threads here."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

import tidelog
from tidelog import Client, Delivery, MailboxSettings
from tidelog.testing import start_server
from tidelog_cli.child_environment import child_environment

PROGRAM = """
import sys, threading
from tidelog import Client

done = []
has_two = threading.Event()
may_end = threading.Event()

def handle(delivery):
    done.append(delivery.body)
    if len(done) == 2:
        print("ready", flush=True)
    sys.stdin.readline() if len(done) == 2 else may_end.wait()
    may_end.set()

with Client(sys.argv[1]) as client:
    try:
        client.mailbox("jobs").work(handle, concurrency=2, lease=5, prefetch=3)
        print("returned", len(done))
    except KeyboardInterrupt:
        print("interrupted", len(done))
"""


@pytest.fixture
def client() -> Iterator[Client]:
    with start_server() as running, Client(running.endpoint) as client:
        client.mailboxes.create("jobs", MailboxSettings(backoff_ms=(50,)))
        yield client


@pytest.mark.parametrize(("number", "end"), [(signal.SIGTERM, "returned 2"), (signal.SIGINT, "interrupted 2")])
def test_a_signal_drains(client: Client, number: signal.Signals, end: str) -> None:
    jobs = client.mailbox("jobs")
    jobs.send_many([b"%d" % each for each in range(10)])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, client.endpoint],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        # What waited for a handler is returned while handlers still run.
        while jobs.counts().leased != 2:
            assert program.poll() is None
        program.stdin.write("\n")
        output, _ = program.communicate(timeout=30)

    assert (output.strip(), program.returncode) == (end, 0)
    counts = jobs.counts()
    assert (counts.available, counts.leased) == (8, 0)


def test_an_exception_of_a_handler_rejects_and_a_missing_mailbox_ends_the_work(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = client.mailbox("jobs")
    jobs.send_many([b"%d" % number for number in range(20)])
    done: list[bytes] = []
    is_done = threading.Event()

    def handle(delivery: Delivery) -> None:
        if delivery.body == b"7" and delivery.delivery_count == 1:
            raise KeyError("seven")
        done.append(delivery.body)
        if len(done) == 20:
            is_done.set()

    def work() -> None:
        with pytest.raises(tidelog.MailboxNotFoundError):
            jobs.work(handle, concurrency=3)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert is_done.wait(20)
    assert sorted(map(int, done)) == list(range(20))
    assert "seven" in caplog.text
    with pytest.raises(tidelog.MailboxNotFoundError):
        client.mailbox("missing").work(handle)
    # The mailbox of the first worker ends with its messages, and the worker with its mailbox.
    client.mailboxes.delete("jobs")
    worker.join(30)
    assert not worker.is_alive()


async def test_threads_share_an_iterator(client: Client) -> None:
    jobs = client.mailbox("jobs")
    jobs.send_many([b"%d" % number for number in range(40)])
    done: list[bytes] = []

    def consume(worker: tidelog.MailboxWorker[Delivery]) -> None:
        for delivery in worker:
            done.append(delivery.body)
            if len(done) == 40:
                worker.stop()

    def work() -> None:
        with jobs.worker(concurrency=3) as worker:
            threads = [threading.Thread(target=consume, args=(worker,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await asyncio.to_thread(work)
    assert sorted(map(int, done)) == list(range(40))
    assert (jobs.counts().available, jobs.counts().leased) == (0, 0)


def test_a_loop_that_was_left_returns_its_message_at_once(client: Client) -> None:
    jobs = client.mailbox("jobs")
    jobs.send(b"a")
    counts: list[int] = []
    with pytest.raises(KeyError), jobs.worker() as worker:
        for delivery in worker:
            counts.append(delivery.delivery_count)
            raise KeyError("a")
    assert jobs.counts().available == 1
    with jobs.worker(concurrency=1) as worker:
        for delivery in worker:
            counts.append(delivery.delivery_count)
            break
        for delivery in worker:
            counts.append(delivery.delivery_count)
            delivery.ack()
            break

    assert counts == [1, 2, 3]
    assert (jobs.counts().available, jobs.counts().leased) == (0, 0)
    with pytest.raises(tidelog.ClosedError):
        closed = jobs.worker()
        closed.close()
        next(closed)


def test_threads_of_a_pool_take_from_the_worker_and_only_they_confirm(client: Client) -> None:
    jobs = client.mailbox("jobs")
    jobs.send_many([b"%d" % number for number in range(6)])
    with jobs.worker(concurrency=4) as worker, ThreadPoolExecutor(1) as pool:
        # One thread takes all of them, and has ended each call before.
        held = [pool.submit(next, worker).result() for _ in range(4)]
        assert jobs.counts().leased == 4
        with pytest.raises(tidelog.UnsettledDeliveriesError, match=r"ack\(\)"):
            pool.submit(next, worker).result()
        for delivery in held[:2]:
            pool.submit(delivery.ack).result()
        assert pool.submit(next, worker).result().body == b"4"

    # Neither the end of the threads nor that of the worker has confirmed any of the others.
    assert sorted(each.body for each in jobs.fetch(6)) == [b"2", b"3", b"4", b"5"]


# Python reports and ignores what a handler raises inside a callback of a weak reference: that call is not interrupted.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_a_call_that_a_signal_handler_interrupts_confirms_nothing_that_it_did_not_return(client: Client) -> None:
    jobs = client.mailbox("jobs")

    def interrupt(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    seen: list[bytes] = []
    try:
        with jobs.worker(concurrency=1) as worker:
            deliveries = iter(worker)
            jobs.send_many([b"%d" % number for number in range(20)])
            attempts = 0
            while len(seen) < 20:
                attempts += 1
                try:
                    # Some calls end before it, some are interrupted, at any point.
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 * (1 + attempts % 20))
                    body = next(deliveries).body
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    seen.append(body)
                except TimeoutError:
                    continue
            worker.stop()
            assert next(deliveries, None) is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert {int(body) for body in seen} == set(range(20))


def test_an_asynchronous_handler_is_refused(client: Client) -> None:
    async def handle(_: object) -> None: ...

    with pytest.raises(TypeError, match="is asynchronous: use AsyncClient"):
        client.mailbox("jobs").work(cast("Any", handle))
