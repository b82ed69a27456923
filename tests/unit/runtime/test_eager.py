"""An Eager behaves like its coroutine, except that it begins sooner."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from tidelog_server.runtime.eager import Eager


class Steps:
    """A coroutine that records its steps: it waits ``waits`` times, and then returns or raises ``end``."""

    def __init__(self, waits: int, end: BaseException | str) -> None:
        self.log: list[str] = []
        self.gates = [asyncio.Event() for _ in range(waits)]
        self._end = end

    async def run(self) -> str:
        for number, gate in enumerate(self.gates):
            self.log.append(f"waits {number}")
            try:
                await gate.wait()
            except asyncio.CancelledError:
                self.log.append("cancelled")
                raise
        if isinstance(self._end, BaseException):
            raise self._end
        return self._end


@pytest.mark.parametrize("waits", [0, 1, 3])
@pytest.mark.parametrize("end", ["done", ValueError("failed"), SystemExit(3)])
async def test_it_ends_as_its_coroutine_does(waits: int, end: BaseException | str) -> None:
    steps = Steps(waits, end)
    eager = Eager(steps.run())
    assert steps.log == ["waits 0"][:waits]
    for gate in steps.gates:
        gate.set()
    if isinstance(end, str):
        assert await eager == end
    else:
        with pytest.raises(type(end)) as raised:
            await eager
        assert raised.value is end


async def test_what_it_waits_for_may_come_before_anybody_awaits_it() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait() -> int:
        return await future

    eager = Eager(wait())
    future.set_result(7)
    await asyncio.sleep(0)
    assert await eager == 7


async def test_a_failure_of_what_it_waits_for_is_raised() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait() -> int:
        return await future

    eager = Eager(wait())
    future.set_exception(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        await eager


async def test_cancelling_who_awaits_cancels_the_coroutine() -> None:
    steps = Steps(1, "done")
    task = asyncio.create_task(_await(Eager(steps.run())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps.log == ["waits 0", "cancelled"]


@pytest.mark.parametrize("begin", [Eager, asyncio.ensure_future])
async def test_a_coroutine_may_ignore_a_cancellation_and_go_on(begin: Callable[..., Awaitable[str]]) -> None:
    gate = asyncio.Event()

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await gate.wait()
        return "went on"

    inner = begin(stubborn())
    task = asyncio.create_task(_await(inner))
    await asyncio.sleep(0)
    (inner if isinstance(inner, asyncio.Task) else task).cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await task == "went on"


async def test_cancelling_it_ends_the_coroutine_where_it_waits() -> None:
    steps = Steps(1, "done")
    ended: list[str] = []

    async def run() -> str:
        try:
            return await steps.run()
        finally:
            ended.append("ended")

    eager = Eager(run())
    eager.cancel()
    eager.cancel()
    assert ended == ["ended"]
    with pytest.raises(asyncio.CancelledError):
        await eager


async def test_what_a_cancelled_one_waited_for_is_cancelled() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait() -> int:
        return await future

    Eager(wait()).cancel()
    assert future.cancelled()


@pytest.mark.parametrize("waits", [0, 1])
async def test_a_failed_one_leaves_nothing_to_the_garbage_collector(waits: int) -> None:
    class Kept:
        pass

    kept = Kept()
    alive = weakref.ref(kept)

    async def fail(_: Kept) -> None:
        for _wait in range(waits):
            await asyncio.sleep(0)
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            await Eager(fail(kept))
        del kept
        assert alive() is None
    finally:
        gc.enable()


async def _await(awaitable: Awaitable[str]) -> str:
    return await awaitable
