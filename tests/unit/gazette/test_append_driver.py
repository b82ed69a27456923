"""Every append is settled, whatever is raised between the queue and the answer. Method: functions of the caller."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidelog import AsyncClient, Tick
from tidelog.admin.journal_types import JournalSpec
from tidelog.errors import AppendUnknownError, ProducerStoppedError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.types import AppendResult

Answer = asyncio.Future[AppendResult]


async def find(journal: str) -> JournalSpec:
    return JournalSpec(journal, channel="channel")


class Owner:
    """What a caller's `owner_of` returns: producers that send batches with a function."""

    def __init__(self, send: Callable[[list[bytes]], Answer]) -> None:
        self.send_batch = send

    def producer(self, vchannel: str, *, linger_s: float) -> "Owner":
        return self


def journals_of(owner: Any) -> AsyncJournalClient:
    async def owner_of(_: str) -> Any:
        return owner

    return AsyncJournalClient(AsyncClient(), find=find, owner_of=owner_of)


async def expect_stopped(journals: AsyncJournalClient, match: str) -> BaseException | None:
    """Append, expect that this append fails and stops the journal, and return the cause."""
    append = journals.append("a/journal", b"frame")
    with pytest.raises(ProducerStoppedError, match=match) as failed:
        await asyncio.wait_for(append, 10)
    with pytest.raises(ProducerStoppedError, match="create another journal client"):
        journals.append("a/journal", b"next")
    with pytest.raises(ProducerStoppedError, match=match):
        await asyncio.wait_for(journals.flush(), 10)
    await asyncio.wait_for(journals.room(), 10)
    return failed.value.__cause__


async def test_an_unexpected_error_of_sending_is_reported() -> None:
    def send(_: list[bytes]) -> Answer:
        raise ValueError("not encodable")

    cause = await expect_stopped(journals_of(Owner(send)), "was not sent, because sending failed: ValueError")

    assert isinstance(cause, ValueError)


async def test_an_unexpected_error_of_opening_is_reported() -> None:
    await expect_stopped(journals_of(None), "AttributeError.*producer")


async def test_a_cancelled_lookup_is_reported() -> None:
    async def cancelled(_: str) -> JournalSpec:
        raise asyncio.CancelledError

    await expect_stopped(AsyncJournalClient(AsyncClient(), find=cancelled), "CancelledError")


@pytest.mark.parametrize("error", [None, ValueError("malformed")])
async def test_an_answer_that_is_cancelled_or_unexpected_leaves_the_outcome_unknown(error: ValueError | None) -> None:
    answers: list[Answer] = []

    def send(_: list[bytes]) -> Answer:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    journals = journals_of(Owner(send))
    append = journals.append("a/journal", b"frame")
    while not answers:
        await asyncio.sleep(0)
    if error is None:
        answers[0].cancel()
    else:
        answers[0].set_exception(error)

    with pytest.raises(AppendUnknownError, match=r"outcome of an append to a/journal is unknown") as caught:
        await asyncio.wait_for(append, 10)
    assert caught.value.effect == "unknown"
    with pytest.raises(AppendUnknownError):
        await asyncio.wait_for(journals.flush(), 10)


async def test_a_caller_that_cancels_the_shared_future_harms_nothing_behind_it() -> None:
    answers: list[Answer] = []

    def send(_: list[bytes]) -> Answer:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    journals = journals_of(Owner(send))
    first = journals.append("a/journal", b"1")
    first.future.cancel()
    behind = journals.append("a/journal", b"2", dependencies=())
    while len(answers) < 2:
        await asyncio.sleep(0)
    result = AppendResult(Tick(5), Tick(5), "os")
    for answer in answers:
        answer.set_result(result)

    assert await asyncio.wait_for(behind, 10) is result


async def test_a_dependency_that_is_no_future_is_refused_and_adds_nothing() -> None:
    journals = journals_of(None)
    not_a_future: Any = object()
    with pytest.raises(AttributeError, match="add_done_callback"):
        journals.append("a/journal", b"ack", dependencies=[not_a_future])
    await asyncio.wait_for(journals.flush(), 10)
