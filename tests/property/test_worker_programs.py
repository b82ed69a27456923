"""A worker confirms no message whose processing did not end without an error, whatever program uses it.

Method: random programs on a real server: loops, iterators and calls on the worker itself, in tasks and in threads of a
pool, with bodies that raise, leave their loop, are cancelled or time out. After the worker has closed, the messages
that are gone are compared with the bodies that ended, and all others can be fetched. ``TIDELOG_HYPOTHESIS=nightly``
runs 2,000 programs of each kind.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import (
    AsyncClient,
    AsyncDelivery,
    AsyncMailboxWorker,
    Client,
    Delivery,
    MailboxWorker,
    UnsettledDeliveriesError,
)
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog.testing import start_server

_NAMES = itertools.count()
# Of a call for the next delivery; a consumer that waits longer ends.
_WAIT_S = 0.03


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    running = start_server()
    yield running.endpoint
    running.stop()


class BodyError(Exception):
    """Raised by the body of a loop."""


@dataclass
class Book:
    """Which messages a worker may have confirmed, and which it must have confirmed."""

    may: set[int] = field(default_factory=set)
    must: set[int] = field(default_factory=set)

    def body_ended(self, delivery: DeliveryFields) -> None:
        """Its iterator is asked for the next one."""
        self.may.add(delivery.id)

    def next_came(self, delivery: DeliveryFields) -> None:
        """The call for the next one has returned."""
        self.must.add(delivery.id)

    def check(self, sent: set[int], left: set[int]) -> None:
        """Compare with what was sent, and what can be fetched after the end."""
        confirmed = sent - left
        assert confirmed <= self.may, "confirmed without the end of a body"
        assert self.must <= confirmed, "not confirmed"


# What a body does: ends, raises, leaves its loop, acknowledges, or does so and raises, or is cancelled by a timeout.
FATES = ("end", "end", "end", "raise", "leave", "ack", "ack and raise", "hang")
fates = st.lists(st.sampled_from(FATES), min_size=1, max_size=4)


def programs(ways: tuple[str, ...]) -> "st.SearchStrategy[list[tuple[str, list[str]]]]":
    return st.lists(st.tuples(st.sampled_from(ways), fates), min_size=1, max_size=5)


# -- Tasks ---------------------------------------------------------------------------------------------------


async def _in_task(asked: Awaitable[AsyncDelivery]) -> AsyncDelivery:
    async def ask() -> AsyncDelivery:
        return await asked

    return await asyncio.create_task(ask())


async def _waited(asked: Awaitable[AsyncDelivery]) -> AsyncDelivery:
    task = asyncio.ensure_future(asked)
    done, _ = await asyncio.wait({task}, timeout=_WAIT_S)
    if not done:
        task.cancel()
    return await task


async def _gathered(asked: Awaitable[AsyncDelivery]) -> AsyncDelivery:
    [delivery, _] = await asyncio.gather(asked, asyncio.sleep(0))
    return delivery


WRAPPERS: dict[str, Callable[[Awaitable[AsyncDelivery]], Awaitable[AsyncDelivery]]] = {
    "await": lambda asked: asked,
    "wait_for": lambda asked: asyncio.wait_for(asked, _WAIT_S / 2),
    "create_task": _in_task,
    "wait": _waited,
    "gather": _gathered,
}
WAYS = ("loop", *(f"{on} {wrapper}" for on in ("iterator", "worker") for wrapper in WRAPPERS))


async def _body(delivery: AsyncDelivery, fate: str, book: Book) -> None:
    await asyncio.sleep(0)
    if fate.startswith("ack"):
        book.may.add(delivery.id)
        await delivery.ack()
        book.must.add(delivery.id)
    if fate.endswith("raise"):
        raise BodyError
    if fate == "hang":
        await asyncio.sleep(60)


async def _loop(worker: AsyncMailboxWorker, todo: list[str], book: Book) -> None:
    last: AsyncDelivery | None = None
    async for delivery in worker:
        if last is not None:
            book.next_came(last)
        fate = todo.pop()
        await _body(delivery, fate, book)
        if fate == "leave" or not todo:
            return
        last = delivery
        book.body_ended(delivery)


async def _iterator(deliveries: AsyncIterator[AsyncDelivery], wrapper: str, todo: list[str], book: Book) -> None:
    last: AsyncDelivery | None = None
    while todo:
        delivery = await WRAPPERS[wrapper](anext(deliveries))
        if last is not None:
            book.next_came(last)
        fate = todo.pop()
        await _body(delivery, fate, book)
        if fate == "leave":
            return
        last = delivery
        if todo:
            book.body_ended(delivery)


async def _on_worker(worker: AsyncMailboxWorker, wrapper: str, todo: list[str], book: Book) -> None:
    while todo:
        delivery = await WRAPPERS[wrapper](anext(worker))
        await _body(delivery, todo.pop(), book)


async def _consume(worker: AsyncMailboxWorker, way: str, todo: list[str], book: Book) -> None:
    """Let each body do what it shall; after an error, begin again."""
    on, _, wrapper = way.partition(" ")
    while todo:
        try:
            async with asyncio.timeout(_WAIT_S):
                if on == "loop":
                    await _loop(worker, todo, book)
                elif on == "iterator":
                    await _iterator(aiter(worker), wrapper, todo, book)
                else:
                    await _on_worker(worker, wrapper, todo, book)
        except (TimeoutError, UnsettledDeliveriesError):
            return
        except BodyError:
            continue


async def _run_tasks(endpoint: str, program: list[tuple[str, list[str]]], concurrency: int, prefetch: int) -> None:
    book = Book()
    async with AsyncClient(endpoint) as client:
        name = f"tasks-{next(_NAMES)}"
        await client.mailboxes.create(name)
        mailbox = client.mailbox(name)
        sent = {each.id for each in await mailbox.send_many([b"%d" % number for number in range(6)])}
        async with mailbox.worker(concurrency=concurrency, prefetch=prefetch) as worker:
            consumers = [asyncio.create_task(_consume(worker, way, list(todo), book)) for way, todo in program]
            await asyncio.gather(*consumers)
        await _check(client, name, sent, book)


async def _check(client: AsyncClient, name: str, sent: set[int], book: Book) -> None:
    mailbox = client.mailbox(name)
    async with asyncio.timeout(10):
        # A fetch that was under way when the worker closed returns its messages in the background.
        while (await mailbox.counts()).leased:
            await asyncio.sleep(0.001)
    left = {each.id for each in await mailbox.fetch(10)}
    book.check(sent, left)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """Provide one event loop for all examples: gRPC's poller keeps each loop that a process has had."""
    with asyncio.Runner() as runner:
        yield runner


@given(programs(WAYS), st.integers(1, 4), st.integers(0, 2))
def test_tasks_confirm_only_what_was_processed(
    endpoint: str, runner: asyncio.Runner, program: list[tuple[str, list[str]]], concurrency: int, prefetch: int
) -> None:
    runner.run(_run_tasks(endpoint, program, concurrency, prefetch))


# -- Threads -------------------------------------------------------------------------------------------------


def _thread_body(delivery: Delivery, fate: str, book: Book) -> None:
    if fate.startswith("ack"):
        book.may.add(delivery.id)
        delivery.ack()
        book.must.add(delivery.id)
    if fate.endswith("raise"):
        raise BodyError


def _thread_loop(worker: MailboxWorker[Delivery], todo: list[str], book: Book) -> None:
    last: Delivery | None = None
    for delivery in worker:
        if last is not None:
            book.next_came(last)
        fate = todo.pop()
        _thread_body(delivery, fate, book)
        if fate == "leave" or not todo:
            return
        last = delivery
        book.body_ended(delivery)


def _thread_consume(worker: MailboxWorker[Delivery], way: str, todo: list[str], book: Book) -> None:
    while todo:
        with suppress(BodyError):
            if way == "loop":
                _thread_loop(worker, todo, book)
            elif (delivery := next(worker, None)) is None:
                return
            else:
                _thread_body(delivery, todo.pop(), book)
            if worker.feed().is_stopping:
                return


@given(
    st.lists(st.tuples(st.sampled_from(("loop", "worker")), fates), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(0, 2),
    st.integers(1, 3),
)
def test_threads_of_a_pool_confirm_only_what_was_processed(
    endpoint: str, program: list[tuple[str, list[str]]], concurrency: int, prefetch: int, threads: int
) -> None:
    book = Book()
    with Client(endpoint) as client, ThreadPoolExecutor(threads) as pool:
        name = f"threads-{next(_NAMES)}"
        client.mailboxes.create(name)
        mailbox = client.mailbox(name)
        sent = {each.id for each in mailbox.send_many([b"%d" % number for number in range(6)])}
        with mailbox.worker(concurrency=concurrency, prefetch=prefetch) as worker:
            running = [pool.submit(_thread_consume, worker, way, list(todo), book) for way, todo in program]
            wait(running, timeout=_WAIT_S)
            worker.stop()
            for each in running:
                with suppress(UnsettledDeliveriesError):
                    each.result()

    async def check() -> None:
        async with AsyncClient(endpoint) as checking:
            await _check(checking, name, sent, book)

    asyncio.run(check())
