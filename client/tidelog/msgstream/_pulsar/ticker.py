"""Writes the ticks of time-tick streams on Pulsar."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, Self

from tidelog.errors import ChannelNotFoundError, ClosedError, TidelogError, UnavailableError
from tidelog.message import Message
from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.exclusive import ExclusiveTopic
from tidelog.msgstream._backends.pulsar.names import ticks_topic
from tidelog.msgstream._errors import PartialProduceError
from tidelog.msgstream._generated_messages import TimeTickMsg
from tidelog.msgstream._settings import MAX_TICK_INTERVAL_MS, MIN_TICK_INTERVAL_MS
from tidelog.tick import LOGICAL_BITS

DEFAULT_TICK_INTERVAL_MS: Final = 200
# A broker that is away, or a topic that was deleted and may be created again.
_TRANSIENT: Final = (UnavailableError, PartialProduceError, TimeoutError, ChannelNotFoundError, ClosedError)
_log: Final = logging.getLogger("tidelog")


def present() -> int:
    """Return the present as a tick."""
    return time.time_ns() // 1_000_000 << LOGICAL_BITS


class AsyncTimeTicker:
    """Writes a tick to each of several topics at an interval: no message with that time or a smaller one follows.

    One ticker for all topics of a consumer gives one pack for each interval. A ticker that is started later, on the
    same topics, fences an earlier one, which then stops: its ``wait`` raises StreamFencedError. Its ticks continue
    above those of the earlier one.
    While the broker is away, or a topic is missing, the ticker retries at each interval.

    Attributes:
        last_tick: The last tick that was written.
    """

    def __init__(
        self,
        broker: PulsarBroker,
        topics: Iterable[str],
        *,
        interval_ms: int = DEFAULT_TICK_INTERVAL_MS,
        safe_time: Callable[[], int] = present,
    ) -> None:
        """Create a ticker; does no I/O.

        Args:
            broker: The broker.
            topics: Topics that get ticks.
            interval_ms: Time between ticks, 10 to 60,000.
            safe_time: Returns a time, as a tick, that every message sent from now on exceeds; by default the present.
                It runs on the event loop, so it must not block.

        Raises:
            ValueError: ``interval_ms`` is out of range, or there is no topic.
        """
        names = list(topics)
        if not MIN_TICK_INTERVAL_MS <= interval_ms <= MAX_TICK_INTERVAL_MS:
            raise ValueError(f"interval_ms is {interval_ms}, expected {MIN_TICK_INTERVAL_MS} to {MAX_TICK_INTERVAL_MS}")
        if not names:
            raise ValueError("there is no topic, expected at least one")
        self.last_tick = 0
        self._names = names
        self._interval_s = interval_ms / 1_000
        self._safe_time = safe_time
        self._broker = broker
        self._backend = PulsarBackend(broker)
        self._held: Mapping[str, ExclusiveTopic] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether ticks are written."""
        return self._task is not None and not self._task.done()

    async def pause(self) -> bool:
        """Return whether a fork may stop the event loop: while no ticks are written."""
        return not self.is_running

    async def start(self) -> None:
        """Take the topics over, and begin to write ticks.

        Raises:
            ChannelNotFoundError: A topic does not exist.
            ClosedError: The ticker was closed.
        """
        if self._task is not None:
            raise ClosedError("the ticker was started before: create a new one")
        topics = await self._backend.resolve(self._names)
        self._held = {topic: ExclusiveTopic(self._broker, ticks_topic(topic)) for topic in topics}
        try:
            await asyncio.gather(*(self._take_over(each) for each in self._held.values()))
        except BaseException:
            await self.close()
            raise
        self._task = asyncio.create_task(self._run(), name="tidelog-time-ticker")

    async def wait(self) -> None:
        """Wait until the ticker ends. Raises the error that ended it, such as StreamFencedError."""
        if self._task is None:
            raise ClosedError("the ticker was not started: call start, or use it with async with")
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise

    async def close(self) -> None:
        """Stop. Idempotent."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))
        held, self._held = self._held, {}
        await asyncio.gather(*(self._broker.run_once(each.close, "closing", each.topic) for each in held.values()))
        await self._backend.aclose()

    async def _take_over(self, held: ExclusiveTopic) -> None:
        found = await self._broker.run(held.take_over, "taking the ticks over", held.topic)
        if found is not None:
            self.last_tick = max(self.last_tick, int(found))

    async def _run(self) -> None:
        is_failing = False
        while True:
            begin_s = time.monotonic()
            tick = max(self._safe_time(), self.last_tick + 1)
            try:
                await self._write(tick)
            except _TRANSIENT as error:
                if not is_failing:
                    _log.warning("a tick could not be written, the ticker tries again at each interval: %s", error)
                is_failing = True
            except TidelogError as error:
                _log.warning("the ticker of %s has ended: %s", ", ".join(self._names), error)
                raise
            else:
                if is_failing:
                    _log.info("ticks are written again")
                is_failing = False
            self.last_tick = tick
            await asyncio.sleep(max(0.0, begin_s + self._interval_s - time.monotonic()))

    async def _write(self, tick: int) -> None:
        """Write a tick to the topics that hold the last one, which proves that this ticker owns them, and to all."""
        content = b"%d" % tick
        writes = (
            self._broker.run_once(partial(each.write, content), "recording a tick", each.topic)
            for each in self._held.values()
        )
        await asyncio.gather(*writes)
        parts = {
            topic: [Message(TimeTickMsg(begin_ts=tick, end_ts=tick, channel_name=topic).marshal(), type=1200)]
            for topic in self._held
        }
        await self._backend.append(parts, {topic: [tick] for topic in parts})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
