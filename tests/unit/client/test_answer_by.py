"""The deadline of a wait for a server. Method: an event loop that a callback holds up, as a paused program does."""

import asyncio
import time
from typing import Any

import pytest

from tidelog.errors import DeadlineError, UnavailableError
from tidelog.transport.deadline import Deadline
from tidelog.transport.patience_scope import LATE_S, Alarm, answer_by


def silence() -> UnavailableError:
    return UnavailableError("silent")


async def test_a_wait_ends_at_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    begin_s = loop.time()

    with pytest.raises(UnavailableError, match="silent"):
        async with answer_by(begin_s + 0.05, silence):
            await asyncio.Event().wait()

    assert 0.05 <= loop.time() - begin_s < LATE_S


async def test_an_answer_that_arrived_while_the_program_was_paused_is_received() -> None:
    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    deadline_s = loop.time() + 0.05
    loop.call_later(0.01, time.sleep, LATE_S + 0.5)
    # Due later than the deadline, but both are due once the pause is over.
    loop.call_later(0.1, answered.set)

    async with answer_by(deadline_s, silence):
        await answered.wait()


async def test_a_wait_without_an_answer_ends_after_a_pause_too() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, time.sleep, LATE_S + 0.5)

    with pytest.raises(UnavailableError, match="silent"):
        async with answer_by(loop.time() + 0.05, silence):
            await asyncio.Event().wait()


async def test_a_request_that_waits_to_be_sent_has_time_after_a_pause_of_the_program() -> None:
    loop, has_room, deadline = asyncio.get_running_loop(), asyncio.Event(), Deadline(0.05)
    loop.call_later(0.01, time.sleep, LATE_S + 0.5)
    loop.call_later(0.1, has_room.set)

    async with deadline.bounded("the batch"):
        await has_room.wait()
    with pytest.raises(DeadlineError, match=r"the batch was not sent within 0\.1 s"):
        async with deadline.bounded("the batch"):
            await asyncio.Event().wait()


@pytest.mark.parametrize("error", [TimeoutError("of a caller"), DeadlineError("of a call")])
async def test_a_timeout_within_a_wait_is_not_its_end(error: TimeoutError) -> None:
    with pytest.raises(type(error), match="of a"):
        async with answer_by(asyncio.get_running_loop().time() + 60, silence):
            raise error


async def test_an_alarm_rings_at_the_deadline_that_was_set_last() -> None:
    loop, alarm, rung = asyncio.get_running_loop(), Alarm(), asyncio.Event()
    begin_s = loop.time()
    alarm.set(begin_s + 60.0, rung.set)
    alarm.set(begin_s + 0.02, rung.set)
    alarm.set(begin_s + 0.1, rung.set)

    await rung.wait()

    assert 0.1 <= loop.time() - begin_s + 1e-3 < 0.1 + LATE_S


async def test_an_alarm_that_was_cleared_or_stopped_does_not_ring() -> None:
    loop, cleared, stopped, after = asyncio.get_running_loop(), Alarm(), Alarm(), asyncio.Event()
    rung: list[str] = []
    cleared.set(loop.time() + 0.01, lambda: rung.append("cleared"))
    stopped.set(loop.time() + 0.01, lambda: rung.append("stopped"))
    cleared.clear()
    stopped.stop()
    loop.call_later(0.05, after.set)

    await after.wait()

    assert rung == []


async def test_a_thousand_waits_that_end_in_time_take_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, alarm = asyncio.get_running_loop(), Alarm()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when_s: float, *rest: Any) -> asyncio.TimerHandle:
        timers.append(when_s)
        return call_at(when_s, *rest)

    monkeypatch.setattr(loop, "call_at", counted)
    for number in range(1_000):
        alarm.set(loop.time() + 60.0 + number, alarm.clear)
        alarm.clear()
    alarm.stop()

    assert len(timers) == 1


async def test_an_alarm_gives_an_answer_time_after_a_pause_of_the_program() -> None:
    loop, alarm, answered = asyncio.get_running_loop(), Alarm(), asyncio.Event()
    was_answered: asyncio.Future[bool] = loop.create_future()
    alarm.set(loop.time() + 0.05, lambda: was_answered.set_result(answered.is_set()))
    loop.call_later(0.01, time.sleep, LATE_S + 0.5)
    loop.call_later(0.1, answered.set)

    assert await was_answered
