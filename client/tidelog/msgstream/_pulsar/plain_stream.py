"""The plain variant on Pulsar: one pack per message."""

from collections import deque
from collections.abc import Mapping, Sequence

from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.feeds import PulsarPlace, Received
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, MessageKey
from tidelog.msgstream._base_stream import StreamTools
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._pulsar.stream import PulsarStream


class AsyncPulsarMsgStream(PulsarStream):
    """Delivers messages one by one, in the order of each topic, as soon as they arrive.

    Created by ``AsyncPulsarMsgStreamFactory``. Times and positions of a pack are those of its message.
    """

    def __init__(self, backend: PulsarBackend, tools: StreamTools[PulsarPlace], *, owns_broker: bool = False) -> None:
        super().__init__(backend, tools, owns_broker=owns_broker)
        self._received: deque[Received] = deque()

    def _reset(self, places: Mapping[str, PulsarPlace]) -> None:
        self._received.clear()

    def _take(self, delivery: Sequence[Received]) -> None:
        self._received.extend(delivery)

    def _has_next(self) -> bool:
        return bool(self._received)

    async def _take_next(self) -> MsgPack | None:
        received = self._received[0]
        message = self._message(received)
        # Removed only now, so that a message that cannot be decoded is returned again.
        self._received.popleft()
        position = message.position
        assert position is not None
        self._handed_out({received.channel: PulsarPlace(received.key, must_exist=True)})
        return MsgPack(received.time, received.time, [message], [position], [position])

    def _sought_place(self, key: MessageKey, position: MsgPosition, *, include_message: bool) -> PulsarPlace:
        return PulsarPlace(key, is_after=not include_message or key == EARLIEST, must_exist=key > EARLIEST)
