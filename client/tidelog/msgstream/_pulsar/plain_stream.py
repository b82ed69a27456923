"""The plain variant on Pulsar: one pack per message."""

from collections import deque
from collections.abc import Mapping

from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.feeds import PulsarPlace
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, key_of_bytes
from tidelog.msgstream._backends.pulsar.readers import Received
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._pulsar.stream import Arrived, PulsarStream, PulsarTools, sought_key


class AsyncPulsarMsgStream(PulsarStream):
    """Delivers messages one by one, in the order of each topic, as soon as they arrive.

    Created by ``AsyncPulsarMsgStreamFactory``. Times and positions of a pack are those of its message.
    """

    def __init__(self, backend: PulsarBackend, tools: PulsarTools, *, owns_broker: bool = False) -> None:
        super().__init__(backend, tools, owns_broker=owns_broker)
        self._received: deque[Arrived] = deque()

    def _reset(self, places: Mapping[str, PulsarPlace]) -> None:
        self._received.clear()

    def _take(self, delivery: Received) -> None:
        for topic, messages in delivery.items():
            for each in messages:
                self._received.extend(self._arrived(topic, each))

    def _has_next(self) -> bool:
        return bool(self._received)

    async def _take_next(self) -> MsgPack | None:
        arrived = self._received[0]
        message = self._decoded(arrived)
        # Removed only now, so that a message that cannot be decoded is returned again.
        self._received.popleft()
        position = message.position
        assert position is not None
        self._progress.handed_out({position.channel_name: PulsarPlace(key_of_bytes(position.msg_id), must_exist=True)})
        return MsgPack(position.timestamp, position.timestamp, [message], [position], [position])

    def _sought_place(self, position: MsgPosition, latest: PulsarPlace, *, include_message: bool) -> PulsarPlace:
        key = sought_key(position, latest.key)
        return PulsarPlace(key, is_after=not include_message or key == EARLIEST, must_exist=key > EARLIEST)
