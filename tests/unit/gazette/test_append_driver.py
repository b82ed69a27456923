"""Every append is settled, whatever is raised between the queue and the answer. Method: functions of the caller."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidelog import AsyncClient, Tick
from tidelog.append.sender import ProducerBatch
from tidelog.errors import AppendUnknownError, ProducerStoppedError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.journals.types import JournalSpec
from tidelog.types import AppendResult


async def find(journal: str) -> JournalSpec:
    return JournalSpec(journal, channel="channel")


class Owner:
    """What a caller's `owner_of` returns: producers that pass batches on with a function."""

    def __init__(self, put: Callable[[ProducerBatch], None]) -> None:
        self.put = put

    def producer(self, vchannel: str, *, linger_s: float) -> "Owner":
        return self

    async def found(self) -> None:
        pass


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
    def put(_: ProducerBatch) -> None:
        raise ValueError("not encodable")

    cause = await expect_stopped(journals_of(Owner(put)), "was not sent, because sending failed: ValueError")

    assert isinstance(cause, ValueError)


async def test_an_unexpected_error_of_opening_is_reported() -> None:
    await expect_stopped(journals_of(None), "AttributeError.*producer")


async def test_a_cancelled_lookup_is_reported() -> None:
    async def cancelled(_: str) -> JournalSpec:
        raise asyncio.CancelledError

    await expect_stopped(AsyncJournalClient(AsyncClient(), find=cancelled), "CancelledError")


async def test_a_batch_without_an_answer_stops_the_journal_with_an_unknown_outcome() -> None:
    batches: list[ProducerBatch] = []
    journals = journals_of(Owner(batches.append))
    append = journals.append("a/journal", b"frame")
    while not batches:
        await asyncio.sleep(0)
    batches[0].is_sent = True
    unsent = journals.append("a/journal", b"next", dependencies=())

    batches[0].fail(AppendUnknownError("lost", effect="unknown"))

    with pytest.raises(AppendUnknownError, match="lost") as caught:
        await asyncio.wait_for(append, 10)
    assert caught.value.effect == "unknown"
    with pytest.raises(ProducerStoppedError, match=r"appends to a/journal stopped .* \(lost"):
        await asyncio.wait_for(unsent, 10)
    with pytest.raises(AppendUnknownError):
        await asyncio.wait_for(journals.flush(), 10)


async def test_a_caller_that_cancels_the_shared_future_harms_nothing_behind_it() -> None:
    batches: list[ProducerBatch] = []
    journals = journals_of(Owner(batches.append))
    first = journals.append("a/journal", b"1")
    first.future.cancel()
    behind = journals.append("a/journal", b"2", dependencies=())
    while len(batches) < 2:
        await asyncio.sleep(0)
    result = AppendResult(Tick(5), Tick(5), "os")
    for batch in batches:
        batch.succeed(result)

    assert await asyncio.wait_for(behind, 10) is result
    await asyncio.wait_for(journals.answered(), 10)


async def test_a_dependency_that_is_no_future_is_refused_and_adds_nothing() -> None:
    journals = journals_of(None)
    not_a_future: Any = object()
    with pytest.raises(AttributeError, match="add_done_callback"):
        journals.append("a/journal", b"ack", dependencies=[not_a_future])
    await asyncio.wait_for(journals.flush(), 10)
