"""The list of journals that follows a selector, on a real server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from tidelog import AsyncClient, Client
from tidelog.errors import ClosedError
from tidelog.gazette.errors import GazetteError
from tidelog.gazette.generated.polled_list import PolledList
from tidelog.gazette.polled_list import AsyncPolledList
from tidelog.journals.labels import LabelSet
from tidelog.journals.selectors import parse_label_selector
from tidelog.journals.types import JournalDelete, JournalUpsert, ListRequest, ListResponse
from tidelog.testing import server, start_server

CLICKS = ListRequest(parse_label_selector("topic=clicks"))


def upsert(name: str, topic: str = "clicks") -> JournalUpsert:
    return JournalUpsert(name, LabelSet.of({"topic": topic}))


def names(listed: ListResponse) -> list[str]:
    return [spec.name for spec in listed.journals]


def _setting(event: asyncio.Event) -> Callable[[logging.LogRecord], bool]:
    """Return a filter that sets ``event`` at each record."""

    def passes(_: logging.LogRecord) -> bool:
        event.set()
        return True

    return passes


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with server() as client:
        await client.journals.apply([upsert("clicks/0"), upsert("views/0", "views")])
        yield client


async def test_the_list_is_the_same_object_until_it_changes(client: AsyncClient) -> None:
    async with AsyncPolledList(client, 3_600, CLICKS) as partitions:
        first = partitions.list()
        assert names(first) == ["clicks/0"]
        await client.journals.apply([upsert("views/1", "views")])
        await partitions.refresh()
        assert partitions.list() is first

        await client.journals.apply([upsert("clicks/1")])
        await partitions.refresh()
        assert names(partitions.list()) == ["clicks/0", "clicks/1"]


async def test_changes_appear_by_themselves(client: AsyncClient) -> None:
    async with AsyncPolledList(client, 0.01, CLICKS) as partitions:
        await client.journals.apply([upsert("clicks/1")])
        grown = await partitions.wait_changed(partitions.list()) if len(partitions.list().journals) == 1 else None
        assert names(grown or partitions.list()) == ["clicks/0", "clicks/1"]
        known = partitions.list()
        await client.journals.apply([JournalDelete("clicks/0")])
        assert names(await partitions.wait_changed(known)) == ["clicks/1"]


async def test_a_failed_poll_is_logged_and_the_last_list_remains(caplog: pytest.LogCaptureFixture) -> None:
    running = await asyncio.to_thread(start_server)
    logged = asyncio.Event()
    async with AsyncClient(running.endpoint, timeout_s=0.2, connect_timeout_s=0.1) as client:
        await client.journals.apply([upsert("clicks/0")])
        with caplog.at_level(logging.WARNING):
            async with AsyncPolledList(client, 0.01, CLICKS) as partitions:
                caplog.handler.addFilter(_setting(logged))
                await asyncio.to_thread(running.stop)
                await logged.wait()
                assert names(partitions.list()) == ["clicks/0"]

    assert "the last list remains in use" in caplog.text


async def test_closing_the_list_wakes_its_waiters(client: AsyncClient) -> None:
    async with AsyncPolledList(client, 3_600, CLICKS) as partitions:
        known = partitions.list()
        waiting = asyncio.ensure_future(partitions.wait_changed(known))
        await asyncio.wait([waiting], timeout=0)
    with pytest.raises(ClosedError, match="the polled list is closed"):
        await asyncio.wait_for(waiting, 10)
    with pytest.raises(ClosedError, match="the polled list is closed"):
        await asyncio.wait_for(partitions.wait_changed(known), 10)

    assert partitions.list() is known
    async with partitions:
        await client.journals.apply([upsert("clicks/1")])
        await partitions.refresh()
        assert names(await partitions.wait_changed(known)) == ["clicks/0", "clicks/1"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_unexpected_end_of_polling_is_raised(client: AsyncClient, *, is_cancelled: bool) -> None:
    request = ListRequest(parse_label_selector("topic=clicks"))
    partitions = AsyncPolledList(client, 0.01, request)
    await partitions.start()
    waiting = asyncio.ensure_future(partitions.wait_changed(partitions.list()))
    await asyncio.wait([waiting], timeout=0)
    if is_cancelled:
        (polling,) = [task for task in asyncio.all_tasks() if task.get_name() == "tidelog-polled-list"]
        polling.cancel()
    else:
        object.__setattr__(request, "selector", "not a selector")

    match = "CancelledError" if is_cancelled else "AttributeError"
    with pytest.raises(GazetteError, match=match) as caught:
        await asyncio.wait_for(waiting, 10)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError if is_cancelled else AttributeError)
    for _ in range(2):
        with pytest.raises(GazetteError, match=match):
            partitions.list()
    await partitions.aclose()


async def test_a_list_whose_client_is_closed_ends() -> None:
    async with server() as other, AsyncClient(other.endpoint) as client:
        partitions = AsyncPolledList(client, 0.01, CLICKS)
        await partitions.start()
        known = partitions.list()
        await client.aclose()
        with pytest.raises(ClosedError, match="is not polled any more"):
            await asyncio.wait_for(partitions.wait_changed(known), 10)
        with pytest.raises(ClosedError, match="is not polled any more"):
            partitions.list()
        await partitions.aclose()


async def test_a_list_must_be_fetched_first_and_polled_at_a_positive_interval(client: AsyncClient) -> None:
    with pytest.raises(RuntimeError, match="the journals are not fetched yet"):
        AsyncPolledList(client, 1, CLICKS).list()
    with pytest.raises(ValueError, match="interval_s is 0, expected more than 0"):
        AsyncPolledList(client, 0, CLICKS)


def test_the_synchronous_twin_polls_too() -> None:
    with start_server() as running, Client(running.endpoint) as client:
        client.journals.apply([upsert("clicks/0")])
        with PolledList(client, 0.01, CLICKS) as partitions:
            known = partitions.list()
            assert names(known) == ["clicks/0"]
            client.journals.apply([upsert("clicks/1")])
            assert names(partitions.wait_changed(known)) == ["clicks/0", "clicks/1"]
            with pytest.raises(TimeoutError):
                partitions.wait_changed(partitions.list(), timeout_s=0.05)
            partitions.refresh()
