"""What readers report and log of their connection, and how long they wait. Method: real servers that stop or refuse.

That readers of every kind continue after an outage is shown by ``test_outages``.
"""

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, At, Client, ReaderEvent, Retry
from tidelog.client import DEFAULT_CONNECT_TIMEOUT_S
from tidelog.read.reader_events import WAITING_AFTER_S
from tidelog.rocksmq import AsyncRocksMQ
from tidelog.testing import server, start_server
from tidelog_testing.documents.examples import output_of
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.servers.secured import secured_server

IN_TIME_S = 20
NOWHERE = "127.0.0.1:1"


class Events:
    """Notes the events of a reader."""

    def __init__(self) -> None:
        self.noted: list[ReaderEvent] = []
        self._changed = asyncio.Event()

    def __call__(self, event: ReaderEvent) -> None:
        self.noted.append(event)
        self._changed.set()

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.noted]

    async def has(self, state: str) -> ReaderEvent:
        """Wait for an event, and return it."""
        async with asyncio.timeout(IN_TIME_S):
            while state not in self.states:
                self._changed.clear()
                await self._changed.wait()
        return next(event for event in self.noted if event.state == state)


async def test_a_scan_reports_and_logs_that_it_waits_and_that_it_is_connected_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog")
    events = Events()
    with InterruptedServer(tmp_path / "log") as interrupted:
        async with AsyncClient(interrupted.grpc) as client:
            await client.create_channel("orders")
            async with client.tail("orders", on_event=events) as tail:
                reading = asyncio.create_task(anext(tail))
                await interrupted.away(2 * WAITING_AFTER_S)
                await client.append("orders", b"again")
                await reading

    assert events.states == ["connected", "waiting", "connected"]
    waiting, connected = events.noted[1:]
    assert (waiting.vchannels, type(waiting.error)) == (("orders/0",), tidelog.UnavailableError)
    assert connected.waited_s >= WAITING_AFTER_S
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert all("orders/0" in record.getMessage() for record in caplog.records)


async def test_a_reader_that_is_asked_for_moments_only_waits_and_reports_as_well(tmp_path: Path) -> None:
    events = Events()
    with InterruptedServer(tmp_path / "log") as interrupted:
        async with AsyncClient(interrupted.grpc) as client:
            await client.create_channel("orders")
            async with client.tail("orders", on_event=events) as tail:
                away = asyncio.create_task(interrupted.away(2 * WAITING_AFTER_S))
                found: list[bytes] = []
                async with asyncio.timeout(IN_TIME_S):
                    while not found:
                        if away.done() and events.states[-1] == "connected":
                            await client.append("orders", b"again")
                        with suppress(TimeoutError):
                            found += (await asyncio.wait_for(anext(tail), 0.1)).payloads
                await away

    assert found[0] == b"again"
    assert events.states == ["connected", "waiting", "connected"]


async def test_a_fork_does_not_close_the_connection_of_a_reader_that_waits_for_its_server() -> None:
    events = Events()
    async with AsyncClient(NOWHERE) as client:
        reading = asyncio.create_task(anext(client.scan("orders/0", on_event=events)))
        await events.has("waiting")
        assert not await client.pause()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert await client.pause()


async def test_the_readers_of_a_client_log_one_warning_together(caplog: pytest.LogCaptureFixture) -> None:
    events = [Events() for _ in range(5)]
    running = await asyncio.to_thread(start_server)
    async with AsyncClient(running.endpoint) as client:
        await client.create_channel("orders")
        tails = [client.tail("orders", on_event=each) for each in events]
        for tail in tails:
            await tail.__aenter__()
        reading = [asyncio.create_task(anext(tail)) for tail in tails]
        await asyncio.to_thread(running.stop)
        for each in events:
            await each.has("waiting")
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_callback_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: ReaderEvent) -> None:
        raise LookupError("a defect of the caller")

    async with server() as client:
        await client.create_channel("orders")
        await client.append("orders", b"a")
        async with client.scan("orders", on_event=fail) as scan:
            assert (await anext(scan)).payloads == [b"a"]

    [record] = caplog.records
    assert "a defect of the caller" in (record.exc_text or "")


async def test_every_reader_waits_for_give_up_s_and_not_for_the_time_of_a_connection() -> None:
    retry = Retry(base_s=0.01, cap_s=0.05, give_up_s=1.0)
    running = await asyncio.to_thread(start_server)
    async with AsyncClient(running.endpoint, retry=retry, connect_timeout_s=0.1) as client:
        await client.create_channel("orders")
        await client.create_group("billing", "orders")
        tail = client.tail("orders")
        await tail.__aenter__()
        scanner = client.wal().read("orders", message_handler=print)
        consumer = client.consumer("members", "orders")
        await consumer.join()
        # One each, for a call that has no answer is left to the next one.
        consuming, waiting = AsyncRocksMQ(client), AsyncRocksMQ(client)
        await asyncio.to_thread(running.stop)
        begun_s = time.monotonic()
        reads = [
            anext(tail),
            anext(consumer),
            consuming.consume("billing", "orders", 1),
            waiting.wait("billing", "orders"),
        ]

        found = await asyncio.gather(*reads, scanner.done.wait(), return_exceptions=True)

        assert time.monotonic() - begun_s > 0.9
        errors = [*found[:-1], scanner.error]
        assert [isinstance(error, tidelog.UnavailableError) for error in errors] == [True] * 5, errors
        await consumer.aclose()


async def test_a_wait_that_is_shorter_than_give_up_s_ends_in_time() -> None:
    running = await asyncio.to_thread(start_server)
    async with AsyncClient(running.endpoint, connect_timeout_s=0.1) as client:
        await client.create_channel("orders")
        await client.create_group("billing", "orders")
        await asyncio.to_thread(running.stop)

        async with asyncio.timeout(IN_TIME_S):
            with pytest.raises(tidelog.UnavailableError):
                await AsyncRocksMQ(client).wait("billing", "orders", 0.5)


async def test_a_reader_that_begins_while_the_server_is_away_waits_too(tmp_path: Path) -> None:
    with InterruptedServer(tmp_path / "log") as interrupted:
        async with (
            AsyncClient(interrupted.grpc) as client,
            AsyncClient(interrupted.grpc, connect_timeout_s=0.2) as late,
        ):
            await client.create_channel("orders")
            await client.append("orders", b"a")

            async def read() -> None:
                async with late.consumer("group", "orders") as consumer, late.channel("orders").scan() as scan:
                    assert (await anext(scan)).payloads == (await anext(consumer)).payloads == [b"a"]

            away = asyncio.create_task(interrupted.away(1))
            await asyncio.sleep(0)
            reading = asyncio.create_task(read())
            await away
            async with asyncio.timeout(IN_TIME_S):
                await reading


async def test_closing_the_client_ends_readers_that_wait_for_the_server() -> None:
    events = Events()
    async with AsyncClient(NOWHERE) as client:
        scan = client.scan("orders/0", on_event=events)
        reading = asyncio.create_task(anext(scan))
        scanner = client.wal().read("orders/0", message_handler=print)
        await events.has("waiting")
        begun_s = time.monotonic()
    with pytest.raises(tidelog.ClosedError):
        await reading
    await scanner.done.wait()

    assert isinstance(scanner.error, tidelog.ClosedError)
    # Sooner than a try to connect ends by itself.
    assert time.monotonic() - begun_s < DEFAULT_CONNECT_TIMEOUT_S - 1


def test_closing_a_synchronous_scan_ends_its_wait_for_the_server() -> None:
    events: list[ReaderEvent] = []
    with Client(NOWHERE, retry=Retry(give_up_s=2)) as client, client.scan("orders/0", on_event=events.append) as scan:
        with pytest.raises(tidelog.UnavailableError, match="Connection refused"):
            next(scan)

    assert [event.state for event in events] == ["waiting"]
    assert events[0].vchannels == ()


IN_VAIN = """
import asyncio

import tidelog
from tidelog import AsyncClient, Client, Retry


async def wait_in_vain():
    async with AsyncClient("127.0.0.1:1", retry=Retry(give_up_s=0.05), connect_timeout_s=0.05) as client:
        try:
            await anext(client.scan("orders/0"))
        except tidelog.UnavailableError:
            return


with Client("127.0.0.1:7420") as other:
    for _ in range(30):
        asyncio.run(wait_in_vain())
        print(other.wal_name())
"""


@pytest.mark.not_on_engine(reason="its program prints the kind of the store")
def test_a_reader_that_gave_up_leaves_nothing_to_the_event_loops_of_other_clients(tmp_path: Path) -> None:
    with start_server() as running:
        assert output_of(IN_VAIN, running.endpoint, tmp_path).split() == ["memory"] * 30


async def test_a_read_of_the_wal_is_resumed_after_its_error() -> None:
    got: list[bytes] = []

    def handle(batch: tidelog.Batch) -> None:
        if batch.payloads == [b"bad"] and b"bad" not in got:
            got.append(b"bad")
            raise LookupError("not now")
        got.extend(batch.payloads)

    async with server() as client:
        await client.create_channel("orders")
        wal = client.wal()
        for payload in (b"good", b"bad", b"last"):
            await wal.append("orders", payload)
        scanner = wal.read("orders", message_handler=handle)
        await scanner.done.wait()
        again = wal.read("orders", message_handler=handle, deliver_policy=scanner.resume_policy, until=At.watermark())
        await again.done.wait()

    assert isinstance(scanner.error, LookupError)
    assert scanner.positions == {"orders/0": scanner.position}
    assert got == [b"good", b"bad", b"bad", b"last"]


async def test_a_read_of_the_wal_that_never_reached_its_server_is_resumed_as_it_was_begun() -> None:
    async with AsyncClient(NOWHERE, retry=Retry(give_up_s=0.1), connect_timeout_s=0.1) as client:
        scanner = client.wal().read("orders/0", message_handler=print, deliver_policy=At.latest())
        await scanner.done.wait()

    assert isinstance(scanner.error, tidelog.UnavailableError)
    assert (scanner.positions, scanner.resume_policy) == ({}, At.latest())


async def test_a_reader_whose_credentials_are_not_accepted_is_fenced(tmp_path: Path) -> None:
    events = Events()
    async with secured_server(tmp_path) as secured, secured.client() as admin:
        await admin.create_channel("orders")
        made = await admin.create_token("a reader", ["read:orders"], lifetime_s=600)
        async with secured.client(made.token) as client, client.tail("orders/0", on_event=events) as tail:
            reading = asyncio.create_task(anext(tail))
            await admin.revoke_token(made.description.token_id)
            with pytest.raises(tidelog.UnauthenticatedError):
                await reading

    assert events.states == ["connected", "fenced"]
    assert isinstance(events.noted[-1].error, tidelog.UnauthenticatedError)


async def test_a_consumer_that_another_replaces_is_fenced() -> None:
    events = Events()
    async with server() as client:
        await client.create_channel("orders")
        async with client.consumer("group", "orders", member_id="m", on_event=events) as first:
            waiting = asyncio.create_task(anext(first))
            async with client.consumer("group", "orders", member_id="m"):
                with pytest.raises(tidelog.GroupFencedError):
                    await waiting

    fenced = await events.has("fenced")
    assert isinstance(fenced.error, tidelog.GroupFencedError)


async def test_a_consumer_whose_position_was_moved_is_fenced_there_and_connected_again() -> None:
    events = Events()
    async with server() as client:
        await client.create_channel("orders", vchannels=2)
        await client.append("orders/1", b"a")
        async with client.consumer("group", "orders", on_event=events) as consumer:
            await anext(consumer)
            await client.seek_group("group", At.earliest(), ["orders/1"])
            await anext(consumer)
            fenced = await events.has("fenced")

    assert fenced.vchannels == ("orders/1",)
    assert events.states == ["connected", "fenced", "connected"]
