"""The time-tick variant on Pulsar: a pack ends when every topic has a tick at or above its end."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.feeds import PulsarPlace
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, key_of_bytes
from tidelog.msgstream._backends.pulsar.packs import Origin
from tidelog.msgstream._backends.pulsar.readers import Received
from tidelog.msgstream._errors import MsgStreamError, PackTooLargeError
from tidelog.msgstream._generated_types import MsgType
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._msg_type import DML_TYPES
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._pulsar.assembler import TickAssembler, TickedChannel, TickedPack
from tidelog.msgstream._pulsar.stream import Arrived, PulsarStream, PulsarTools, Undecoded, sought_key
from tidelog.msgstream._pursuit import Pursuit
from tidelog.transport.measures import LATE_MESSAGES, TICK_WAIT, Measure, measures

WAITING_AFTER_S: Final = 10.0
"""A stream logs a warning after this time without a tick of a topic, and again after each such time."""
_TICK: Final = int(MsgType.TIME_TICK)
_ENDS_PACK: Final = int(MsgType.DROP_COLLECTION)
_log: Final = logging.getLogger("tidelog")


@dataclass(frozen=True, slots=True)
class TickStatus:
    """The state of a time-tick stream on Pulsar.

    Attributes:
        late_messages: Messages that broke the promise of a tick, since the stream began; each was delivered.
        waits_for: Topics without the tick that the next pack needs; empty while none is missing.
        waits_since_s: When the stream began to wait for them, in seconds of ``time.time``; 0 without any.
    """

    late_messages: int
    waits_for: tuple[str, ...]
    waits_since_s: float


# What cannot be decoded is an error only when its pack is complete.
_Item = TsMsg | Undecoded
# Where a message came from, and its number there. Not the position of the message: a template of the application may
# return the same message for several.
_Place = tuple[Origin, int]


class AsyncPulsarTtMsgStream(PulsarStream):
    """Delivers the messages of all topics up to a tick, once every topic has that tick or a later one.

    Created by ``AsyncPulsarMsgStreamFactory``. Messages of type TIME_TICK are the ticks; ``TimeTicker`` writes them. A
    topic without ticks holds all packs back: ``status`` names it, a warning is logged, and the metrics of
    ``tidelog.tracing.enable_metrics`` have it. See ``assembler``.
    """

    # Messages before it in its topic may be in no pack yet, and a seek would skip them.
    _can_skip = False
    _advice = "add a template with dispatcher.add_msg_template that decodes or replaces it"

    def __init__(self, backend: PulsarBackend, tools: PulsarTools, *, owns_broker: bool = False) -> None:
        super().__init__(backend, tools, owns_broker=owns_broker)
        self._assembler: TickAssembler[_Item, _Place] | None = None
        self._pursuit = Pursuit[TickedPack[_Item, _Place]]()
        # Complete but not handed out, because its messages could not be decoded yet.
        self._ready: TickedPack[_Item, _Place] | None = None
        self._positions: dict[str, MsgPosition] = {}
        self._late = 0
        self._waits_for: tuple[str, ...] = ()
        self._waits_since_s = 0.0
        self._warned_s = 0.0

    @property
    def status(self) -> TickStatus:
        """The late messages so far, and the topics that hold the next pack back."""
        missing = self._waits_for
        return TickStatus(self._late, missing, self._waits_since_s if missing else 0.0)

    def measures(self) -> Iterable[Measure]:
        """Return how long each topic has held packs back; see ``tidelog.tracing.enable_metrics``."""
        missing, since_s = self._waits_for, self._waits_since_s
        return [Measure(TICK_WAIT, time.time() - since_s, (*self._attributes(), _topic(each))) for each in missing]

    async def close(self) -> None:
        self._waits_for = ()
        await super().close()

    async def consume(self) -> MsgPack:
        warning = asyncio.create_task(self._warn(), name="tidelog-pulsar-warning")
        try:
            return await super().consume()
        finally:
            warning.cancel()

    def _reset(self, places: Mapping[str, PulsarPlace]) -> None:
        self._assembler = TickAssembler({topic: place.time for topic, place in places.items()})
        self._pursuit = Pursuit(is_on=self.settings.pursuit_mode)
        self._ready = None
        self._waits_for = ()
        self._waits_since_s = time.time()
        measures.add(self)
        self._positions = {
            topic: MsgPosition(topic, place.key.to_bytes(), self.sub_name, max(0, place.time))
            for topic, place in places.items()
        }

    def _take(self, delivery: Received) -> None:
        assert self._assembler is not None
        for topic, messages in delivery.items():
            channel = self._assembler.channels[topic]
            for each in messages:
                for arrived in self._arrived(topic, each):
                    self._add(channel, arrived)

    def _has_next(self) -> bool:
        assert self._assembler is not None
        assert self._topics is not None
        self._ready = self._ready or self._pursuit.next_pack(self._assembler.next_pack, time.time_ns() // 1_000_000)
        self._waits_for = ()
        if self._ready is None:
            self._topics.wanted = self._assembler.behind()
            self._waits_for = tuple(self._topics.wanted)
            for topic in self._topics.wanted:
                self._check_size(topic)
        return self._ready is not None

    async def _take_next(self) -> MsgPack | None:
        raw, reader = self._ready, self._reading.reader
        assert raw is not None
        messages = await self._messages(raw)
        # Another task took it meanwhile, or a seek changed the position.
        if self._ready is not raw or self._reading.reader is not reader:
            return None
        self._ready = None
        self._late += raw.late
        if raw.late:
            measures.count(LATE_MESSAGES, self._attributes(), raw.late)
        self._waits_since_s = time.time()
        begin = list(self._positions.values())
        places = {}
        for topic, (origin, number) in raw.resume.items():
            # A topic whose position is after the pack keeps it.
            if self._positions[topic].timestamp <= raw.end_tick:
                position = self._positions[topic] = origin.position_of(number, raw.end_tick)
                key = key_of_bytes(position.msg_id)
                places[topic] = PulsarPlace(key, is_after=False, must_exist=True, time=raw.end_tick)
        self._progress.handed_out(places)
        return MsgPack(max(0, raw.begin_tick), raw.end_tick, messages, begin, list(self._positions.values()))

    def _sought_place(self, position: MsgPosition, latest: PulsarPlace, *, include_message: bool) -> PulsarPlace:
        key = sought_key(position, latest.key)
        place = PulsarPlace(key, is_after=key == EARLIEST, must_exist=key > EARLIEST, time=position.timestamp or -1)
        return replace(place, time=place.time - 1) if include_message and place.time > 0 else place

    def _add(self, channel: TickedChannel[_Item, _Place], arrived: Arrived) -> None:
        origin, number, msg_type, time, body = arrived
        if msg_type == _TICK:
            channel.add_tick((origin, number), time)
            return
        item: _Item
        # Now, while the library receives more.
        try:
            item = self._decoded(arrived)
        except MsgStreamError:
            item = Undecoded._make(arrived)
        channel.add(item, (origin, number), time, len(body), ends_pack=msg_type == _ENDS_PACK)

    def _attributes(self) -> tuple[tuple[str, str], ...]:
        return (("messaging.system", "pulsar"), ("messaging.consumer.group.name", self.sub_name))

    def _check_size(self, topic: str) -> None:
        assert self._assembler is not None
        size_bytes, max_bytes = self._assembler.channels[topic].size_bytes, self.settings.max_pack_bytes
        if size_bytes > max_bytes:
            raise PackTooLargeError(
                f"{topic} has {size_bytes} bytes between two ticks, expected at most {max_bytes}: write ticks more "
                "often, or raise max_pack_bytes for a new stream",
                values={"max_bytes": str(max_bytes)},
            )

    async def _messages(self, raw: TickedPack[_Item, _Place]) -> list[TsMsg]:
        """Return the messages of a pack, without repeated inserts and deletes."""
        messages: list[TsMsg] = []
        for items in raw.messages.values():
            decoded = [each if isinstance(each, TsMsg) else self._decoded(each) for each in items]
            messages += _without_repeats(decoded)
            await asyncio.sleep(0)
        return messages

    async def _warn(self) -> None:
        """Log a warning while a topic holds the next pack back."""
        while True:
            await asyncio.sleep(max(0.1, max(self._waits_since_s, self._warned_s) + WAITING_AFTER_S - time.time()))
            if time.time() - max(self._waits_since_s, self._warned_s) < WAITING_AFTER_S:
                continue
            if missing := self._waits_for:
                self._warned_s = time.time()
                _log.warning(
                    "no pack for %.0f s: no tick came on %s; does its TimeTicker run?",
                    self._warned_s - self._waits_since_s, ", ".join(missing),
                )  # fmt: skip


def _topic(name: str) -> tuple[str, str]:
    return "messaging.destination.name", name


def _without_repeats(messages: list[TsMsg]) -> list[TsMsg]:
    """Return the messages of a topic in a pack without inserts and deletes that repeat an earlier id and source."""
    # Almost always, the ids differ.
    if len({each.id for each in messages}) == len(messages):
        return messages
    first: dict[tuple[int, int, int], TsMsg] = {}
    for each in messages:
        first.setdefault((each.source_id, each.id, int(each.type)), each)
    return [
        each for each in messages
        if not each.id or each.type not in DML_TYPES or first[each.source_id, each.id, int(each.type)] is each
    ]  # fmt: skip
