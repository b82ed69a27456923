"""Operations on mailboxes whose answers are lost: repeated where that is safe, else unknown.

Method: a real server behind a proxy that holds back answers, then closes the connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import tidelog
from tidelog import AsyncMailbox, MailboxCounts
from tidelog_testing.faults.cut_proxy import Proxy, cut_off_client
from tidelog_testing.parts.waiting import eventually


@asynccontextmanager
async def cut_off_mailbox() -> AsyncIterator[tuple[AsyncMailbox, Proxy, AsyncMailbox]]:
    """Yield a mailbox behind a proxy, the proxy, and the same mailbox with a direct connection."""
    async with cut_off_client() as (client, proxy, direct):
        await direct.mailboxes.create("jobs")
        yield client.mailbox("jobs"), proxy, direct.mailbox("jobs")


async def with_lost_answer(
    proxy: Proxy, call: Awaitable[object], direct: AsyncMailbox, holds: Callable[[MailboxCounts], bool]
) -> object:
    """Make ``call``, and break the connection once it had its effect and before its answer arrives."""
    proxy.answers_pass.clear()
    task = asyncio.ensure_future(call)
    await eventually(direct.counts, holds)
    proxy.cut()
    return await asyncio.wait_for(task, 30)


async def test_an_acknowledgement_is_repeated_and_counts_once() -> None:
    async with cut_off_mailbox() as (jobs, proxy, direct):
        await jobs.send_many([b"a", b"b"])
        first, second = await jobs.fetch(2)
        await with_lost_answer(proxy, first.ack(), direct, lambda counts: counts.leased == 1)
        assert first.is_settled

        await with_lost_answer(proxy, second.reject(delay=60), direct, lambda counts: counts.delayed == 1)
        # The second acknowledgement of a caller is still an error.
        with pytest.raises(tidelog.AlreadyAcknowledgedError):
            await first.ack()


async def test_a_send_without_keys_is_unknown_and_not_repeated() -> None:
    async with cut_off_mailbox() as (jobs, proxy, direct):
        await jobs.send(b"first")
        with pytest.raises(tidelog.AppendUnknownError) as error:
            await with_lost_answer(proxy, jobs.send(b"a"), direct, lambda counts: counts.available == 2)

        assert error.value.effect == "unknown"
        # The client continues.
        await jobs.send(b"b")
        assert (await direct.counts()).available == 3


async def test_a_fetch_is_repeated_and_messages_of_the_lost_answer_come_back() -> None:
    async with cut_off_mailbox() as (jobs, proxy, direct):
        await jobs.send(b"a")
        fetching = jobs.fetch(lease=0.5, wait=20)
        fetched = await with_lost_answer(proxy, fetching, direct, lambda counts: counts.leased == 1)

        assert isinstance(fetched, list)
        [delivery] = fetched
        assert (delivery.body, delivery.delivery_count) == (b"a", 2)
