"""Blocking calls on the loop of the synchronous clients."""

import asyncio
import concurrent.futures
import contextvars
import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from functools import partial

import pytest

from tidelog import AsyncClient, Client, ClosedError
from tidelog.transport.background import background

IN_TIME_S = 30.0


def waiting_work(ended: threading.Event, begin: Callable[[], object] = lambda: None) -> Coroutine[None, None, None]:
    """Return work that calls ``begin``, and waits until it is cancelled; then it sets ``ended``."""

    async def work() -> None:
        begin()
        try:
            await asyncio.sleep(IN_TIME_S)
        except asyncio.CancelledError:
            ended.set()
            raise

    return work()


class SomeError(Exception):
    """An error of the work."""


async def test_a_call_returns_the_result_of_its_work_from_the_thread_of_the_loop() -> None:
    async def work() -> str:
        return threading.current_thread().name

    assert background.run(work()) == "tidelog"


def test_a_call_raises_the_error_of_its_work_and_leaves_no_cycle() -> None:
    errors: list[weakref.ref[SomeError]] = []

    async def work() -> None:
        await asyncio.sleep(0)
        error = SomeError("x")
        errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(SomeError) as raised:
            background.run(work())
        assert raised.value is errors[0]()
        del raised
        assert errors[0]() is None
    finally:
        gc.enable()


def test_work_that_was_cancelled_on_the_loop_does_not_cancel_the_task_of_the_caller() -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(IN_TIME_S)

    with pytest.raises(concurrent.futures.CancelledError):
        background.run(work())


@pytest.mark.parametrize("timeout_s", [0.01, 0.0, -1.0])
def test_a_timeout_ends_the_wait_and_cancels_the_work(timeout_s: float) -> None:
    ended = threading.Event()

    with pytest.raises(TimeoutError):
        background.run(waiting_work(ended), timeout_s)
    # Work that was cancelled before its first step has nothing to end.
    assert timeout_s <= 0 or ended.wait(IN_TIME_S)
    assert not background.is_busy


def test_an_interrupt_ends_the_wait_and_cancels_the_work() -> None:
    main = threading.main_thread()
    assert threading.current_thread() is main
    assert main.ident is not None
    ended = threading.Event()

    interrupt = partial(signal.pthread_kill, main.ident, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        background.run(waiting_work(ended, interrupt))
    assert ended.wait(IN_TIME_S)


def test_work_sees_the_context_of_its_caller() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def work() -> str:
        return variable.get()

    variable.set("the caller's")
    assert background.run(work()) == "the caller's"


def test_calls_of_several_threads_overlap() -> None:
    meeting = asyncio.Event()

    async def first() -> str:
        await meeting.wait()
        return "first"

    async def second() -> str:
        meeting.set()
        return "second"

    with concurrent.futures.ThreadPoolExecutor() as threads:
        waiting = threads.submit(background.run, first())
        assert background.run(second()) == "second"
        assert waiting.result(IN_TIME_S) == "first"


def collect_on_the_loop(abandon: Callable[[], None]) -> None:
    """Free what ``abandon`` leaves, cycles included, on the thread of the loop; wait until the loop is idle."""

    async def collect() -> None:
        gc.collect()

    gc.collect()
    gc.disable()
    try:
        abandon()
        background.run(collect())
    finally:
        gc.enable()
    give_up_s = time.monotonic() + IN_TIME_S
    while background.is_busy:
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def leave_in_a_cycle(unfinished: Iterator[object]) -> None:
    """Begin an iterator, and leave it to the garbage collector."""
    next(unfinished)
    cycle: list[object] = [unfinished]
    cycle.append(cycle)


@pytest.mark.extended
def test_a_generator_that_is_freed_on_the_thread_of_the_loop_closes_its_client() -> None:
    used: list[AsyncClient] = []

    def using_a_client() -> Iterator[None]:
        with Client() as client, closing(client.producer("orders/0")), client.txn(), client.scan("orders/0"):
            used.append(client._client)
            yield

    collect_on_the_loop(lambda: leave_in_a_cycle(using_a_client()))
    with pytest.raises(ClosedError):
        used[0].check_open()


def test_the_exception_handler_of_the_loop_gets_the_failure_of_a_close_that_nobody_waits_for() -> None:
    failures: list[object] = []

    class Failing:
        def __del__(self) -> None:
            background.close(self._aclose())

        @staticmethod
        async def _aclose() -> None:
            raise SomeError

    loop = background.loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    try:
        collect_on_the_loop(lambda: leave_in_a_cycle(iter([Failing()])))
    finally:
        loop.set_exception_handler(None)
    assert [type(failure) for failure in failures] == [SomeError]


def test_another_blocking_call_on_the_thread_of_the_loop_is_an_error() -> None:
    async def work() -> None:
        background.run(asyncio.sleep(0))

    with pytest.raises(AssertionError, match="a blocking call on the client's own event loop"):
        background.run(work())
