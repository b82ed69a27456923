"""Streams on Pulsar: positions are message ids, and the time of a message is its producer's."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, repeat
from typing import Any, Final, NamedTuple

from tidelog.errors import TidelogError
from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.feeds import PulsarPlace
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, MessageKey, key_of, key_of_bytes
from tidelog.msgstream._backends.pulsar.packs import Origin, contents_of
from tidelog.msgstream._backends.pulsar.positions import PulsarSubscriptions
from tidelog.msgstream._backends.pulsar.readers import PulsarReader, Received
from tidelog.msgstream._base_stream import BaseStream, MessageIds, StreamTools
from tidelog.msgstream._errors import BadPositionError, MsgStreamError
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._repack import encoded

_ID_FORM: Final = "a serialized id of Pulsar, as the positions of packs and messages have"


@dataclass(frozen=True, slots=True)
class PulsarTools(StreamTools[PulsarPlace]):
    """What a factory passes to each of its streams; the subscriptions are of that stream alone."""

    subscriptions: PulsarSubscriptions


Arrived = tuple[Origin, int, int, int, bytes]
"""The fields of an Undecoded; a plain tuple takes a fifth of its time."""


class Undecoded(NamedTuple):
    """A message of a stream that is not decoded.

    Attributes:
        origin: Where it came from.
        number: Its number there.
        type, time, body: Number of its type, its time, and its content.
    """

    origin: Origin
    number: int
    type: int
    time: int
    body: bytes

    @property
    def position(self) -> MsgPosition:
        """Its position."""
        return self.origin.position_of(self.number, self.time)


class PulsarStream(BaseStream[PulsarPlace, PulsarPlace, Received]):
    """A stream on Pulsar, without a definition of packs. It closes its producers, and its broker if it owns one."""

    # Whether a seek can skip one message, and what to do about one that cannot be decoded.
    _can_skip = True
    _advice = "seek to error.position to skip it"

    def __init__(self, backend: PulsarBackend, tools: PulsarTools, *, owns_broker: bool = False) -> None:
        super().__init__(backend, tools)
        self._pulsar = backend
        self._owns_broker = owns_broker
        self._topics: PulsarReader | None = None
        # Topics whose first message is a pack of which some were handed out before.
        self._begun: dict[str, PulsarPlace] = {}
        self._cursors = tools.subscriptions
        self._cursors.on_error = self._fail_reading

    async def pause(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            try:
                await self._pulsar.aclose()
            finally:
                if self._owns_broker:
                    await self._pulsar.broker.aclose()

    async def _append(self, packs: Mapping[str, MsgPack]) -> MessageIds:
        parts = encoded(packs, self.settings.max_message_bytes)
        times = {topic: [msg.end_ts for msg in pack.msgs] for topic, pack in packs.items()}
        return await self._pulsar.append(parts, times) if parts else {}

    async def _release(self, sub_name: str, channels: Sequence[str]) -> None:
        await self._cursors.release(sub_name, channels)

    @property
    def _earliest(self) -> PulsarPlace:
        return PulsarPlace()

    async def _latest(self, channels: Iterable[str]) -> Mapping[str, PulsarPlace]:
        return {topic: PulsarPlace(await self._pulsar.last_key(topic)) for topic in channels}

    def _place_of(self, mark: PulsarPlace) -> PulsarPlace:
        return mark

    def _mark_of(self, place: PulsarPlace) -> PulsarPlace:
        return place

    def _open(self, places: Mapping[str, PulsarPlace]) -> PulsarReader:
        self._begun = {topic: place for topic, place in places.items() if place.key.number >= 0}
        whole = {topic: replace(place, key=place.key.whole, is_after=False) for topic, place in self._begun.items()}
        self._reset(places)
        reader = self._topics = PulsarReader(self._pulsar.broker, {**places, **whole}, self.settings.buffer_size)
        return reader

    def _subscribed(self, position: MsgPosition) -> str:
        return super()._subscribed(
            MsgPosition(self._pulsar.broker.topic(position.channel_name), position.msg_id, timestamp=position.timestamp)
        )

    def _fail_reading(self, error: TidelogError) -> bool:
        """Let a consumer get the error of a position that could not be stored; return whether there is a reader."""
        if self._topics is None or self._is_closed:
            return False
        self._topics.fail(error)
        return True

    @abstractmethod
    def _reset(self, places: Mapping[str, PulsarPlace]) -> None:
        """Discard what was received, and begin at these places."""

    def _arrived(self, topic: str, message: Any) -> Iterator[Arrived]:
        """Return the messages of a message of the library that were not handed out before."""
        contents = contents_of(message)
        origin = Origin(topic, message.message_id(), self.sub_name, is_pack=contents.is_pack)
        arrived = zip(repeat(origin), count(), contents.types, contents.times, contents.bodies)
        begun = self._begun.pop(topic, None)
        if begun is not None and key_of(message.message_id()) == begun.key.whole:
            return islice(arrived, begun.key.number + begun.is_after, None)
        return arrived

    def _decoded(self, arrived: Arrived) -> TsMsg:
        """Return a decoded message. Raises UnknownMsgTypeError, MalformedMessageError."""
        origin, number, msg_type, time, body = arrived
        try:
            message = self.dispatcher.unmarshal(body, msg_type)
        except MsgStreamError as error:
            position = Undecoded._make(arrived).position
            key = key_of_bytes(position.msg_id)
            error.add_note(f"It is the message {key} of {position.channel_name}; {self._advice}.")
            error.position = position if self._can_skip else None
            raise
        message.received(origin, number, time)
        return message


def sought_key(position: MsgPosition, last: MessageKey) -> MessageKey:
    """Return the key of a position. Raises BadPositionError."""
    # Untyped, because callers build positions from stored values.
    message_id: object = position.msg_id
    try:
        if not isinstance(message_id, bytes):
            raise ValueError(f"it is {type(message_id).__name__}")
        key = key_of_bytes(message_id)
    except ValueError as error:
        raise BadPositionError(
            f"the id {message_id!r} of the position on {position.channel_name} is invalid ({error}): expected "
            f"{_ID_FORM}"
        ) from error
    if position.timestamp < 0:
        raise BadPositionError(
            f"the position on {position.channel_name} is at {key}, with timestamp {position.timestamp}, expected 0 or "
            "more: take positions from packs and messages of this topic"
        )
    if key > last and key > EARLIEST:
        raise BadPositionError(
            f"the position on {position.channel_name} is at {key}, after the last message, {last}: take positions from "
            "packs and messages of this topic"
        )
    return key
