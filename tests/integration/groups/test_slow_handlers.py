"""A consumer whose caller is slow reports it before it loses vchannels, and a paused one delivers nothing.

Method: two members of a group on a real server; the first one does not request its next batch.
"""

import asyncio
import logging
import threading

import pytest

from tidelog import AsyncClient, Client, ReaderEvent
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.waiting import until

client = client_with(orders=2)
RELEASE_WITHIN_S = 2.0


async def test_a_slow_handler_is_reported_before_its_vchannel_is_lost(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.append("orders/0", b"a")
    await client.append("orders/1", b"b")
    events: list[ReaderEvent] = []
    async with client.consumer(
        "billing", "orders", release_within_s=RELEASE_WITHIN_S, on_event=events.append, auto_commit=False
    ) as slow:
        await anext(slow)
        async with client.consumer("billing", "orders") as other:
            with caplog.at_level(logging.WARNING, "tidelog"):
                await until(lambda: any(event.state == "slow" for event in events))
            (event,) = (event for event in events if event.state == "slow")
            (lost,) = event.vchannels
            assert lost in slow.assignment
            assert 0 < event.lost_in_s <= RELEASE_WITHIN_S / 2
            assert event.handling_s >= RELEASE_WITHIN_S / 2
            assert event.error is None
            assert f"another member waits for {lost}" in caplog.text
            # The other one gets it, with what was not committed.
            batch = await anext(other)
            assert batch.vchannel == lost
            await slow.wait_rebalance(10)
            assert slow.assignment == tuple({"orders/0", "orders/1"} - {lost})
            assert [event.state for event in events] == ["connected", "slow", "fenced"]
            assert events[-1].vchannels == (lost,)


async def test_a_handler_that_requests_in_time_is_not_reported(client: AsyncClient) -> None:
    await client.append("orders/0", b"a")
    events: list[ReaderEvent] = []
    async with client.consumer("billing", "orders", release_within_s=RELEASE_WITHIN_S, on_event=events.append) as quick:
        await anext(quick)
        async with client.consumer("billing", "orders") as other:
            while len(other.assignment) + len(quick.assignment) != 2 or not other.assignment:
                await asyncio.gather(quick.wait_rebalance(0.1), other.wait_rebalance(0.1))
            # Longer than half of the time: the timer of the revocation must be gone.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(quick), RELEASE_WITHIN_S)
    assert [event.state for event in events] == ["connected"]


async def test_a_paused_consumer_delivers_nothing_and_stays_in_the_group(client: AsyncClient) -> None:
    await client.append("orders/0", b"a")
    async with client.consumer("billing", "orders", auto_commit_s=0) as consumer:
        assert (await anext(consumer)).payloads == [b"a"]
        states = [consumer.is_paused]
        consumer.pause()
        states.append(consumer.is_paused)
        await client.append("orders/0", b"b")
        assert await consumer.poll(0.3) == []
        await consumer.wait_rebalance(0.1)
        # What was delivered is not processed yet, so it is not committed.
        group = await client.describe_group("billing")
        assert (group.lag_messages, len(group.members)) == (2, 1)
        waiting = asyncio.create_task(anext(consumer))
        async with client.consumer("billing", "orders") as other:
            # A paused member releases what another one waits for; it is in the call that waits.
            await until(lambda: len(consumer.assignment) == 1)
            await other.wait_rebalance(10)
            assert set(consumer.assignment) | set(other.assignment) == {"orders/0", "orders/1"}
            assert not waiting.done()
        consumer.resume()
        consumer.resume()
        batch = await waiting
        assert batch.payloads[-1] == b"b"
        assert [*states, consumer.is_paused] == [False, True, False]
        while (await client.describe_group("billing")).lag_messages:
            await consumer.poll(0.1)


async def test_a_commit_counts_what_a_paused_consumer_has_delivered(client: AsyncClient) -> None:
    await client.append("orders/0", b"a")
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        await anext(consumer)
        consumer.pause()
        await consumer.poll(0)
        await consumer.commit()
        assert (await client.describe_group("billing")).lag_messages == 0


def test_a_thread_resumes_a_synchronous_consumer(tidelog_client: Client) -> None:
    tidelog_client.create_channel("films", vchannels=2)
    tidelog_client.append("films/0", b"a")
    events: list[ReaderEvent] = []
    with tidelog_client.consumer(
        "viewers", "films", on_event=events.append, release_within_s=RELEASE_WITHIN_S
    ) as consumer:
        consumer.pause()
        assert consumer.poll(0.2) == []
        timer = threading.Timer(0.2, consumer.resume)
        timer.start()
        assert next(consumer).payloads == [b"a"]
        timer.join()
        # The caller's thread is busy; the client's own thread reports it.
        with tidelog_client.consumer("viewers", "films") as other:
            found = threading.Event()
            while not found.wait(0.05):
                if any(event.state == "slow" for event in events):
                    found.set()
            other.wait_rebalance(10)
            assert len(other.assignment) == 1
