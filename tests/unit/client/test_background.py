"""Blocking calls on the loop of the synchronous clients."""

import asyncio
import concurrent.futures
import contextvars
import gc
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

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
