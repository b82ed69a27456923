"""Reads of the synchronous WAL accessor. Method: handlers on their own threads, against a server in its own process."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog import At, Batch, Client, DeliverFilter, Message
from tidelog_testing.servers.processes import ServerProcess

IN_TIME_S = 20


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "log") as process:
        yield process


@pytest.fixture
def client(process: ServerProcess) -> Iterator[Client]:
    with Client(process.grpc) as client:
        client.create_channel("orders", vchannels=2)
        yield client
        client.destroy_channels(["orders"])


class Notes:
    """A handler that records what it receives; a test may make it wait."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.threads: set[threading.Thread] = set()
        self.closed = 0
        self.is_busy = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.changed = threading.Condition()

    def handle(self, batch: Batch) -> None:
        self.is_busy.set()
        assert self.may_go_on.wait(IN_TIME_S)
        self.is_busy.clear()
        with self.changed:
            self.threads.add(threading.current_thread())
            self.payloads += batch.payloads
            self.changed.notify_all()

    def close(self) -> None:
        self.closed += 1

    def has(self, messages: int) -> list[bytes]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.payloads) >= messages, IN_TIME_S)
            return self.payloads


def test_a_read_follows_on_a_thread_of_its_own_until_it_is_closed(client: Client) -> None:
    wal, notes = client.wal(), Notes()
    wal.append("orders/0", [Message(b"a", type=1), Message(b"b", type=2)])
    scanner = wal.read("orders/0", message_handler=notes, deliver_filters=[DeliverFilter.message_types(1)])
    wal.append("orders/0", Message(b"c", type=1))

    assert notes.has(2) == [b"a", b"c"]
    assert not scanner.done.is_set()
    scanner.close()
    scanner.close()

    assert (scanner.done.is_set(), scanner.error, notes.closed) == (True, None, 1)
    [thread] = notes.threads
    assert thread.daemon
    thread.join(IN_TIME_S)
    assert not thread.is_alive()
    assert scanner.position > 0


def test_one_that_was_entered_misses_nothing_from_then_on(client: Client) -> None:
    wal, notes = client.wal(), Notes()
    wal.append("orders/0", b"before")
    with wal.read("orders/0", message_handler=notes, deliver_policy=At.latest()) as scanner:
        wal.append("orders/0", b"after")
        assert notes.has(1) == [b"after"]
    assert scanner.done.is_set()


def test_the_handler_may_use_the_client_and_close_its_scanner(client: Client) -> None:
    wal = client.wal()
    wal.append("orders/0", b"a")

    def copy(batch: Batch) -> None:
        wal.append("orders/1", batch.payloads)
        scanner.close()

    scanner = wal.read("orders/0", message_handler=copy)
    assert scanner.done.wait(IN_TIME_S)

    assert scanner.error is None
    assert [payload for batch in client.scan("orders/1") for payload in batch.payloads] == [b"a"]


def test_a_close_waits_for_the_batch_that_the_handler_has(client: Client) -> None:
    wal, notes = client.wal(), Notes()
    notes.may_go_on.clear()
    wal.append("orders/0", b"a")
    scanner = wal.read("orders/0", message_handler=notes)
    assert notes.is_busy.wait(IN_TIME_S)
    closing = threading.Thread(target=scanner.close)
    closing.start()
    wal.append("orders/0", b"b")
    assert not scanner.done.is_set()

    notes.may_go_on.set()
    closing.join(IN_TIME_S)

    assert (scanner.done.is_set(), notes.payloads, notes.closed) == (True, [b"a"], 1)


def test_what_a_handler_raises_ends_its_read_and_nothing_else(client: Client) -> None:
    wal = client.wal()
    wal.append("orders/0", b"a")

    def fail(_: Batch) -> None:
        raise LookupError

    async def wrong(_: Batch) -> None:
        raise AssertionError

    def leave(_: Batch) -> None:
        sys.exit(3)

    errors = []
    for handler in (fail, wrong, leave):
        scanner = wal.read("orders/0", message_handler=handler)
        assert scanner.done.wait(IN_TIME_S)
        errors.append(type(scanner.error))

    assert errors == [LookupError, TypeError, RuntimeError]
    assert wal.wal_name() == "rocksdb"


def test_what_is_no_handler_is_refused_and_leaves_no_thread(client: Client) -> None:
    before = threading.active_count()
    with pytest.raises(TypeError, match="handler"):
        client.wal().read("orders/0", message_handler=7)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="position"):
        client.wal().read("orders/0", message_handler=print, deliver_policy=7)  # type: ignore[arg-type]  # the point of the test

    for thread in threading.enumerate():
        if thread.name == "tidelog-scanner":
            thread.join(IN_TIME_S)
    assert threading.active_count() <= before


def test_a_position_that_was_trimmed_and_a_closed_client_end_reads(process: ServerProcess, client: Client) -> None:
    with Client(process.grpc) as other:
        wal = other.wal()
        first = wal.append("orders/0", b"a")
        client.trim("orders/0", everything=True)
        scanner = wal.read("orders/0", message_handler=print, deliver_policy=At.tick(first.first_tick))
        assert scanner.done.wait(IN_TIME_S)
        assert isinstance(scanner.error, tidelog.PositionTrimmedError)
        notes = Notes()
        following = wal.read("orders/1", message_handler=notes)
        wal.append("orders/1", b"b")
        notes.has(1)
    assert following.done.wait(IN_TIME_S)
    assert isinstance(following.error, tidelog.ClosedError)
    assert notes.closed == 1


def test_a_forked_child_has_nothing_to_close(client: Client) -> None:
    wal, notes = client.wal(), Notes()
    with wal.read("orders/0", message_handler=notes) as scanner:
        wal.append("orders/0", b"a")
        notes.has(1)
        child = os.fork()
        if child == 0:
            # A child that hangs is killed, and the test fails.
            signal.alarm(IN_TIME_S)
            code = 1
            try:
                scanner.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        wal.append("orders/0", b"b")
        assert notes.has(2) == [b"a", b"b"]


def test_a_program_ends_though_a_handler_never_does(process: ServerProcess, client: Client, tmp_path: Path) -> None:
    client.append("orders/0", b"a")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, threading, tidelog\n"
        "client, has_one = tidelog.Client(sys.argv[1]), threading.Event()\n"
        "def stay(batch):\n"
        "    has_one.set()\n"
        "    threading.Event().wait()\n"
        "client.wal().read('orders/0', message_handler=stay)\n"
        "assert has_one.wait(20)\n"
    )

    code = os.spawnve(
        os.P_WAIT, sys.executable, [sys.executable, str(program), process.grpc],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip

    assert code == 0
