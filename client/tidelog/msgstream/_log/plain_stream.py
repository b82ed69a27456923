"""The plain variant: one pack per message."""

from collections import deque
from collections.abc import Mapping, Sequence

from tidelog.msgstream._backends.log import Delivered, LogBackend, Place
from tidelog.msgstream._base_stream import StreamTools
from tidelog.msgstream._log.stream import LogStream, tick_of_id
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.read.positions import At


class AsyncPlainMsgStream(LogStream):
    """Delivers messages one by one, in tick order over all channels, as soon as they arrive.

    Created by a factory. Times and positions of a pack are those of its message.
    """

    def __init__(self, backend: LogBackend, tools: StreamTools[int]) -> None:
        super().__init__(backend, tools)
        self._received: deque[tuple[Delivered, int]] = deque()
        self._after: Mapping[str, int] = {}

    def _reset(self, places: Mapping[str, Place]) -> None:
        self._received.clear()
        self._after = {channel: place.after_tick for channel, place in places.items()}

    def _take_batches(self, batches: Sequence[Delivered], watermark: int) -> None:
        for batch in batches:
            after = self._after[batch.vchannel]
            self._received.extend((batch, index) for index, tick in enumerate(batch.ticks) if tick > after)

    def _has_next(self) -> bool:
        return bool(self._received)

    async def _take_next(self) -> MsgPack | None:
        batch, index = self._received[0]
        message = self._message(batch, index)
        # Removed only now, so that a message that cannot be decoded is returned again.
        self._received.popleft()
        tick = batch.ticks[index]
        position = message.position
        assert position is not None
        self._progress.handed_out({batch.vchannel: Place.after(tick)})
        return MsgPack(tick, tick, [message], [position], [position])

    def _sought_place(self, position: MsgPosition, latest: Place, *, include_message: bool) -> Place:
        tick = tick_of_id(position, latest.after_tick)
        # No message has tick 0: it stands for the first message, with or without include_message.
        return Place(At.tick(tick), max(0, tick - 1)) if include_message else Place.after(tick)
