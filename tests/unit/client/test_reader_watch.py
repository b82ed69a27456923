"""The state of a reader: lagging or not. Method: ticks of chosen times, without a server."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tidelog import OwnershipLostError, ReaderEvent, Retry, Tick, UnavailableError
from tidelog.read.reader_events import LAGGING_AFTER_S, WAITING_AFTER_S
from tidelog.read.reader_watch import ReaderWatch
from tidelog.tick import LOGICAL_BITS
from tidelog.transport.transport import Transport


class Reader:
    """A reader that is connected.

    Attributes:
        events: The events that it reported since it connected.
    """

    def __init__(self) -> None:
        self.events: list[ReaderEvent] = []
        self.watch = ReaderWatch(self.events.append)
        self.watch.reads(["orders/0"])
        self.watch.answered(self)
        self.events.clear()

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.events]


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    transport = Transport("127.0.0.1:1", client_id="test", connect_timeout_s=1.0, retry=Retry())
    yield transport
    await transport.aclose()


def ago(seconds: float) -> Tick:
    return Tick(int(time.time() * 1_000 - seconds * 1_000) << LOGICAL_BITS)


def test_a_reader_of_old_messages_lags_until_it_has_caught_up() -> None:
    reader = Reader()
    for age_s in (60, 30, LAGGING_AFTER_S + 1):
        reader.watch.reached(reader, ago(age_s), 0)
    assert reader.states == ["lagging"]
    assert reader.events[0].lag_s == pytest.approx(60, abs=1)
    assert reader.events[0].vchannels == ("orders/0",)

    reader.watch.reached(reader, ago(LAGGING_AFTER_S - 1), 0)
    reader.watch.reached(reader, 0, ago(0))
    assert reader.states == ["lagging", "connected"]


def test_a_reader_that_keeps_up_does_not_lag_whatever_its_clock_says() -> None:
    reader = Reader()
    reader.watch.reached(reader, 0, ago(3_600))
    for _ in range(3):
        reader.watch.reached(reader, ago(3_600), 0)
        reader.watch.reached(reader, 0, ago(3_600))
    assert reader.states == []

    reader.watch.reached(reader, ago(3_600 + 2 * LAGGING_AFTER_S), 0)
    assert reader.states == ["lagging"]


def test_a_reader_lags_while_one_of_its_links_does() -> None:
    reader, other = Reader(), object()
    reader.watch.reached(reader, ago(60), 0)
    # The other one keeps up, again and again: that is no news.
    for _ in range(3):
        reader.watch.reached(other, 0, ago(0))
        reader.watch.reached(reader, ago(60), 0)
    assert reader.states == ["lagging"]
    reader.watch.closed(reader)
    reader.watch.reached(other, 0, ago(0))
    assert reader.states == ["lagging", "connected"]


def test_an_answer_without_messages_and_watermark_changes_nothing() -> None:
    reader = Reader()
    reader.watch.reached(reader, 0, 0)
    assert reader.states == []


async def test_a_loss_is_reported_after_a_second_and_not_before(transport: Transport) -> None:
    reader, now_s = Reader(), asyncio.get_running_loop().time()
    for _ in range(3):
        reader.watch.lost(reader, UnavailableError("away"), transport, now_s)
        assert reader.watch._timer is not None
        assert reader.watch._timer.when() == now_s + WAITING_AFTER_S
        reader.watch.answered(reader)
    assert (reader.states, reader.watch._timer) == ([], None)

    reader.watch.lost(reader, UnavailableError("away"), transport, now_s)
    reader.watch.closed(reader)
    assert (reader.states, reader.watch._timer) == ([], None)

    reader.watch.lost(reader, UnavailableError("away"), transport, now_s - WAITING_AFTER_S)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.states == ["waiting"]


async def test_a_reader_that_gave_up_and_is_asked_again_is_connected_again(transport: Transport) -> None:
    reader, since_s = Reader(), asyncio.get_running_loop().time() - WAITING_AFTER_S
    error = UnavailableError("away")
    reader.watch.lost(reader, error, transport, since_s)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reader.watch.failed(reader, error)

    reader.watch.answered(reader)
    reader.watch.answered(reader)
    assert reader.states == ["waiting", "connected"]


async def test_a_reader_waits_while_one_of_its_links_does(transport: Transport) -> None:
    reader, since_s = Reader(), asyncio.get_running_loop().time() - WAITING_AFTER_S
    for link in ("scan", "member"):
        reader.watch.lost(link, UnavailableError("away"), transport, since_s)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    reader.watch.answered("scan")
    assert reader.states == ["waiting"]
    reader.watch.answered("member")
    assert reader.states == ["waiting", "connected"]
    assert reader.events[-1].waited_s >= WAITING_AFTER_S


async def test_a_node_that_has_lost_its_channel_is_reported_at_once(transport: Transport) -> None:
    reader, now_s = Reader(), asyncio.get_running_loop().time()
    for _ in range(2):
        reader.watch.lost(reader, OwnershipLostError("the lease is over"), transport, now_s)
    reader.watch.answered(reader)
    assert reader.states == ["fenced", "connected"]
    assert reader.events[-1].waited_s == 0
