"""The owner of background tasks notices the death of each, whatever its form, and a start ends with it."""

import asyncio
from collections.abc import Coroutine

import pytest

from tidelog_server.runtime.tasks import GuardingTasks, TaskFailedError, TaskOwner, run_unless


async def _raise() -> None:
    raise AssertionError("a bug")


async def _cancel_what_it_awaits() -> None:
    awaited = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(awaited.cancel)
    await awaited


async def _return() -> None:
    pass


async def _deaths_of(coroutine: Coroutine[None, None, None], *, is_kept: bool) -> list[tuple[str, str]]:
    deaths: list[tuple[str, str]] = []
    owner = TaskOwner(lambda name, cause: deaths.append((name, str(cause))))
    (owner.keep if is_kept else owner.start)("x", coroutine)
    for _ in range(10):
        await asyncio.sleep(0)
    await owner.close()
    return deaths


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_task_that_raises_or_is_cancelled_is_reported(is_kept: bool) -> None:
    assert await _deaths_of(_raise(), is_kept=is_kept) == [("x", "a bug")]
    assert await _deaths_of(_cancel_what_it_awaits(), is_kept=is_kept) == [("x", "it was cancelled")]


async def test_a_task_that_returns_is_reported_if_it_must_not() -> None:
    assert await _deaths_of(_return(), is_kept=True) == [("x", "it returned")]
    assert await _deaths_of(_return(), is_kept=False) == []


async def test_close_ends_tasks_without_a_report() -> None:
    for is_kept in (False, True):
        assert await _deaths_of(asyncio.sleep(3_600), is_kept=is_kept) == []


async def test_what_runs_ends_with_the_failure_that_stops_it() -> None:
    stopped: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    asyncio.get_running_loop().call_soon(stopped.set_result, TaskFailedError("lease", "a bug"))
    with pytest.raises(TaskFailedError, match="the background task 'lease' failed: a bug"):
        await run_unless(stopped, wait_for_ever())
    assert ended.is_set()


async def test_what_runs_raises_its_own_error_and_returns_without_one() -> None:
    stopped: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    with pytest.raises(AssertionError, match="a bug"):
        await run_unless(stopped, _raise())
    await run_unless(stopped, _return())
    assert not stopped.done()


async def test_the_first_failure_beside_it_ends_what_runs() -> None:
    failures: list[str] = []
    tasks = GuardingTasks(lambda name, _: failures.append(name))
    assert await tasks.run(_answer()) == 7
    tasks.start("lease", _raise())
    with pytest.raises(AssertionError, match="a bug"):
        await tasks.run(asyncio.sleep(3_600))
    tasks.fail("probes", OSError("later"))
    assert failures == ["lease"]
    await tasks.close()


async def test_a_task_that_is_kept_and_returns_ends_what_runs() -> None:
    tasks = GuardingTasks()
    tasks.keep("renewal", _return())
    with pytest.raises(RuntimeError, match="it returned"):
        await tasks.run(asyncio.sleep(3_600))
    await tasks.close()


async def _answer() -> int:
    return 7
