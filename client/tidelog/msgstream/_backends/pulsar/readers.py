"""Reads several topics."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tidelog.errors import ClosedError, TidelogError
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.feeds import PulsarPlace, TopicFeed
from tidelog.msgstream._backends.pulsar.ids import key_of
from tidelog.msgstream._backends.pulsar.library import TRANSIENT
from tidelog.transport.retry import DEFAULT_RETRY

_log = logging.getLogger("tidelog")

# What a step takes of one topic, one message more at most: a few milliseconds of the event loop.
_MAX_TAKEN = 500
_MAX_TAKEN_BYTES = 64 << 10
# Time for which messages gather while they arrive one after another.
_GATHER_S = 0.002

Received = Mapping[str, list[Any]]
"""Messages of the library, by topic, in the order of each topic."""


class PulsarReader:
    """Reads several topics, each in the background; see ``StepReader``.

    Attributes:
        wanted: Topics from which a step takes messages; None for all.
    """

    def __init__(self, broker: PulsarBroker, places: Mapping[str, PulsarPlace], queue_size: int) -> None:
        self.wanted: Collection[str] | None = None
        self._broker = broker
        self._queue_size = queue_size
        self._places = dict(places)
        self._feeds: dict[str, TopicFeed] = {}
        self._failed: list[TopicFeed] = []
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._taken_s = 0.0
        self._error: TidelogError | None = None
        self._is_closed = False

    async def step(self) -> Received:
        """Wait until a wanted topic has messages, and return some; also while the broker is away.

        Raises:
            TidelogError: The topics cannot be read. The next call reads again.
        """
        pauses_s = DEFAULT_RETRY.pauses_s()
        while True:
            try:
                return await self._received()
            except TRANSIENT as error:
                _log.warning("reading waits for the broker: %s", error)
                await asyncio.sleep(next(pauses_s))

    async def _received(self) -> Received:
        while True:
            await self._open()
            self._news.clear()
            error, self._error = self._error, None
            if error is not None:
                raise error
            received: dict[str, list[Any]] = {}
            for topic in self._places if self.wanted is None else self.wanted:
                try:
                    if taken := self._take(topic):
                        received[topic] = taken
                except TidelogError as failure:
                    if not received:
                        raise
                    # What other topics have delivered comes first.
                    self._error = failure
                    break
            if received:
                self._taken_s = self._loop.time()
                return received
            await self._news.wait()
            if self._loop.time() - self._taken_s < _GATHER_S:
                # Messages arrive as fast as they are taken: a wakeup for each costs more than the message.
                await asyncio.sleep(_GATHER_S)
            if self._is_closed:
                raise ClosedError("the reader is closed")

    def fail(self, error: TidelogError) -> None:
        """Let the next step raise ``error``, also one that waits."""
        self._error = error
        self._news.set()

    async def aclose(self) -> None:
        """Stop reading."""
        self._is_closed = True
        self._news.set()
        feeds = [*self._feeds.values(), *self._failed]
        self._feeds.clear()
        self._failed.clear()
        await asyncio.gather(*(each.close() for each in feeds))

    def _take(self, topic: str) -> list[Any]:
        feed = self._feeds[topic]
        try:
            taken = feed.take(_MAX_TAKEN, _MAX_TAKEN_BYTES)
        except TidelogError:
            # The next step opens it again.
            self._failed.append(self._feeds.pop(topic))
            raise
        if taken:
            key = key_of(taken[-1].message_id())
            self._places[topic] = replace(self._places[topic], key=key, is_after=True, must_exist=False)
        return taken

    async def _open(self) -> None:
        """Start the feeds that are missing."""
        if len(self._feeds) == len(self._places):
            return
        failed, self._failed = self._failed, []
        for each in failed:
            await each.close()
        for topic, place in self._places.items():
            if topic not in self._feeds:
                self._feeds[topic] = TopicFeed(self._broker, topic, place, self._queue_size, self._news.set)
