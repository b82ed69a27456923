"""Positions of subscriptions on Pulsar.

A subscription on a topic has two parts. Its position is the value of a topic of its own, with an exclusive writer: a
later stream fences an earlier one, and the broker has the position once the write is acknowledged. Its cursor, a
durable subscription of the same name, retains the messages from the position on; Pulsar writes cursors with a delay,
so the cursor alone would repeat messages after a crash of the broker.
"""

import asyncio
import base64
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidelog.errors import ChannelNotFoundError, TidelogError
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.exclusive import ExclusiveTopic, subscribed
from tidelog.msgstream._backends.pulsar.feeds import PulsarPlace
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, key_of_bytes
from tidelog.msgstream._backends.pulsar.library import TRANSIENT, pulsar
from tidelog.msgstream._backends.pulsar.names import positions_topic
from tidelog.transport.retry import DEFAULT_RETRY

_log = logging.getLogger("tidelog")


class PulsarSubscriptions:
    """Stores the place of each subscription on each topic; for one stream."""

    def __init__(self, broker: PulsarBroker) -> None:
        self._broker = broker
        self._cursors: dict[tuple[str, str], _Cursor] = {}
        # Called with the error of a store in the background; returns whether a caller gets it.
        self.on_error: Callable[[TidelogError], bool] = lambda _: False

    async def load(self, sub_name: str, channels: Iterable[str]) -> Mapping[str, PulsarPlace]:
        """Return the places of those topics that have one; earlier streams of the subscription are fenced there."""
        topics = list(channels)
        found = await asyncio.gather(*(self._cursor(sub_name, topic).load() for topic in topics))
        return {topic: place for topic, place in zip(topics, found, strict=True) if place is not None}

    async def begin(self, sub_name: str, places: Mapping[str, PulsarPlace]) -> None:
        """Record where the subscription begins, and retain the messages from there on."""
        await asyncio.gather(*(self._cursor(sub_name, topic).save(place) for topic, place in places.items()))

    async def save(self, sub_name: str, places: Mapping[str, PulsarPlace]) -> None:
        """Store these places soon. Raises the error of an earlier attempt, after which they are stored again."""
        for topic, place in places.items():
            self._cursor(sub_name, topic).save_soon(place)

    async def flush(self, sub_name: str) -> None:
        """Return once everything saved is stored, and release the subscription."""
        for result in await self._close([each for each in self._cursors if each[0] == sub_name]):
            if isinstance(result, BaseException):
                raise result

    async def release(self, sub_name: str, channels: Collection[str]) -> None:
        """Release the subscription on these topics. An error is that of the broker that the caller has already met."""
        await self._close([each for each in self._cursors if each[0] == sub_name and each[1] in channels])

    async def delete(self, sub_name: str, channels: Iterable[str]) -> None:
        """Delete the subscription on these topics, if there is one."""
        await asyncio.gather(*(self._delete(sub_name, topic) for topic in channels))

    async def _close(self, several: Sequence[tuple[str, str]]) -> Sequence[BaseException | None]:
        """Close cursors, and forget those without an error."""
        results = await asyncio.gather(*(self._cursors[each].close() for each in several), return_exceptions=True)
        for each, result in zip(several, results, strict=True):
            if result is None:
                self._cursors.pop(each, None)
        return results

    def _cursor(self, sub_name: str, topic: str) -> "_Cursor":
        return self._cursors.setdefault((sub_name, topic), _Cursor(self, self._broker, sub_name, topic))

    async def _delete(self, sub_name: str, topic: str) -> None:
        stored = ExclusiveTopic(self._broker, positions_topic(topic, sub_name))

        def unsubscribe() -> None:
            consumer = subscribed(self._broker.client(), topic, sub_name)
            try:
                consumer.unsubscribe()
            finally:
                consumer.close()

        # Without the topic, its positions may exist.
        with suppress(ChannelNotFoundError):
            await self._broker.run(unsubscribe, "deleting a subscription", topic)
        await self._broker.run(stored.delete, "deleting a position", stored.topic)


class _Cursor:
    """One subscription on one topic. The latest place wins; at most one write is in progress."""

    def __init__(self, owner: PulsarSubscriptions, broker: PulsarBroker, sub_name: str, topic: str) -> None:
        self._owner = owner
        self._broker = broker
        self._sub_name = sub_name
        self._topic = topic
        self._positions = ExclusiveTopic(broker, positions_topic(topic, sub_name))
        self._turn = asyncio.Lock()
        # A call whose caller was cancelled continues on its thread.
        self._lock = threading.Lock()
        self._retaining: Any = None
        self._stored: PulsarPlace | None = None
        self._wanted: PulsarPlace | None = None
        self._saving: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self._error: TidelogError | None = None

    async def load(self) -> PulsarPlace | None:
        """Return the stored place; None without one."""
        async with self._turn:
            return await self._broker.run(self._load, "reading a position", self._positions.topic)

    async def save(self, place: PulsarPlace) -> None:
        """Store a place; return once the broker has it."""
        await self._save(place, self._broker.run)

    def save_soon(self, place: PulsarPlace) -> None:
        """Store a place in the background. Raises the error of an earlier attempt."""
        self._wanted = place
        error, self._error = self._error, None
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_wanted(), name="tidelog-pulsar-position")
        if error is not None:
            raise error

    async def close(self) -> None:
        """Store what is left, and disconnect. Raises the error of the last attempt."""
        self._is_closing.set()
        try:
            if self._saving is not None:
                await self._saving
            if (place := self._wanted) is not None:
                await self.save(place)
        finally:
            await self._broker.run_once(self._disconnect, "closing a position", self._positions.topic)
            self._is_closing.clear()

    async def _save_wanted(self) -> None:
        """Store the latest place; while the broker is away, try again until ``close`` makes the last attempt."""
        pauses_s = DEFAULT_RETRY.pauses_s()
        while (place := self._wanted) is not None:
            try:
                await self._save(place, self._broker.run_once)
            except TRANSIENT as error:
                _log.warning("storing a position waits for the broker: %s", error)
                if await self._is_closing_within(next(pauses_s)):
                    return
                continue
            except TidelogError as error:
                self._error = None if self._owner.on_error(error) else error
                return
            if self._wanted is place:
                self._wanted = None

    async def _save(self, place: PulsarPlace, run: Callable[[Callable[[], None], str, str], Awaitable[None]]) -> None:
        async with self._turn:
            await run(lambda: self._write(place), "storing a position", self._positions.topic)

    async def _is_closing_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()
        return self._is_closing.is_set()

    def _load(self) -> PulsarPlace | None:
        with self._lock:
            found = self._positions.take_over()
            if found is None:
                return None
            self._open()
            self._stored = _place_of(found)
            return self._stored

    def _open(self) -> None:
        self._positions.open()
        if self._retaining is None:
            self._retaining = subscribed(self._broker.client(), self._topic, self._sub_name)

    def _write(self, place: PulsarPlace) -> None:
        with self._lock:
            self._open()
            self._positions.write(_bytes_of(place))
            # The message at which reading begins must exist, so the cursor stays before its entry, as a whole.
            if self._stored is not None and EARLIEST[:2] < self._stored.key[:2] < place.key[:2]:
                entry = self._stored.key._replace(batch_index=-1)
                self._retaining.acknowledge_cumulative(pulsar().MessageId.deserialize(entry.to_bytes()))
            self._stored = place

    def _disconnect(self) -> None:
        with self._lock:
            self._positions.close()
            if self._retaining is not None:
                self._retaining.close()
                self._retaining = None


def _bytes_of(place: PulsarPlace) -> bytes:
    key = base64.b64encode(place.key.to_bytes()).decode()
    return json.dumps({"id": key, "after": place.is_after, "exists": place.must_exist, "time": place.time}).encode()


def _place_of(content: bytes) -> PulsarPlace:
    found = json.loads(content)
    key = key_of_bytes(base64.b64decode(found["id"]))
    return PulsarPlace(key, bool(found["after"]), bool(found["exists"]), int(found["time"]))
