"""Streams over a log that gives each message a tick: positions are ticks."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.msgstream._backends.log import Delivered, LogBackend, Place, Reader
from tidelog.msgstream._base_stream import BaseStream, StreamTools
from tidelog.msgstream._errors import BadPositionError, MsgStreamError
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._position import MsgPosition, PositionSource
from tidelog.tick import MAX_TICK, Tick

_ID_BYTES: Final = 8


class LogStream(BaseStream[Place, int, Sequence[Delivered]]):
    """A stream over a log, without a definition of packs."""

    def __init__(self, backend: LogBackend, tools: StreamTools[int]) -> None:
        super().__init__(backend, tools)
        self._log = backend
        self._log_reader: Reader | None = None
        self._sources: dict[str, _Channel] = {}

    @property
    def _earliest(self) -> Place:
        return Place.earliest()

    async def _latest(self, channels: Iterable[str]) -> Mapping[str, Place]:
        return dict.fromkeys(channels, Place.after(await self._log.present()))

    def _place_of(self, mark: int) -> Place:
        return Place.after(mark)

    def _mark_of(self, place: Place) -> int:
        return place.after_tick

    def _open(self, places: Mapping[str, Place]) -> Reader:
        self._sources = {name: _Channel(name, self.sub_name) for name in places}
        self._reset(places)
        reader = self._log_reader = self._log.reader(places, self.settings.watermark_interval_s)
        return reader

    def _take(self, delivery: Sequence[Delivered]) -> None:
        assert self._log_reader is not None
        self._take_batches(delivery, self._log_reader.watermark)

    @abstractmethod
    def _reset(self, places: Mapping[str, Place]) -> None:
        """Discard what was received, and begin at these places."""

    @abstractmethod
    def _take_batches(self, batches: Sequence[Delivered], watermark: int) -> None:
        """Add a delivery."""

    def _message(self, batch: Delivered, index: int) -> TsMsg:
        """Return a decoded message. Raises UnknownMsgTypeError, MalformedMessageError."""
        tick, source = batch.ticks[index], self._sources[batch.vchannel]
        try:
            message = self.dispatcher.unmarshal(batch.payloads[index], batch.types[index])
        except MsgStreamError as error:
            error.add_note(f"It is the message at tick {tick} of {batch.vchannel}; seek to error.position to skip it.")
            error.position = source.position_of(tick, tick)
            raise
        message.received(source, tick, tick)
        return message


class _Channel(PositionSource[int]):
    """A channel; its ids are ticks."""

    def __init__(self, name: str, sub_name: str) -> None:
        self._name = name
        self._sub_name = sub_name

    def position_of(self, found: int, time: int) -> MsgPosition:
        return MsgPosition(self._name, Tick(found).message_id, self._sub_name, Tick(time))


def tick_of_id(position: MsgPosition, present: int) -> int:
    """Return the tick that the id of a position represents.

    Raises:
        BadPositionError: The id is invalid, or the position lies in the future.
    """
    # Untyped, because callers build positions from stored values.
    message_id: object = position.msg_id
    tick = -1
    if isinstance(message_id, bytes) and len(message_id) == _ID_BYTES:
        tick = int.from_bytes(message_id, "big")
    if not 0 <= tick <= MAX_TICK:
        raise BadPositionError(
            f"the id {message_id!r} of the position on {position.channel_name} is invalid: expected {_ID_BYTES} bytes, "
            "as the positions of packs and messages have"
        )
    if max(tick, position.timestamp) > present or position.timestamp < 0:
        raise BadPositionError(
            f"the position on {position.channel_name} is at tick {tick}, with timestamp {position.timestamp}, expected "
            f"0 to {present}, the present: take positions from packs and messages of these channels"
        )
    return tick
