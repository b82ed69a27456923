"""The deadline of a wait for a server. Method: an event loop that a callback holds up, as a paused program does."""

import asyncio
import time

import pytest

from tidelog.transport.patience_scope import LATE_S, answer_by


async def test_a_wait_ends_at_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    begin_s = loop.time()

    with pytest.raises(TimeoutError):
        async with answer_by(begin_s + 0.05):
            await asyncio.Event().wait()

    assert 0.05 <= loop.time() - begin_s < LATE_S


async def test_an_answer_that_arrived_while_the_program_was_paused_is_received() -> None:
    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    deadline_s = loop.time() + 0.05
    loop.call_later(0.01, time.sleep, LATE_S + 0.5)
    # Due later than the deadline, but both are due once the pause is over.
    loop.call_later(0.1, answered.set)

    async with answer_by(deadline_s):
        await answered.wait()


async def test_a_wait_without_an_answer_ends_after_a_pause_too() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, time.sleep, LATE_S + 0.5)

    with pytest.raises(TimeoutError):
        async with answer_by(loop.time() + 0.05) as scope:
            await asyncio.Event().wait()

    assert scope.expired()
