"""The factory of streams on Pulsar."""

from collections.abc import Iterable, Mapping

from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.positions import PulsarSubscriptions
from tidelog.msgstream._dispatcher import ProtoUDFactory, UnmarshalDispatcherFactory
from tidelog.msgstream._factories import AsyncMsgStreamFactory, Capabilities
from tidelog.msgstream._pulsar.plain_stream import AsyncPulsarMsgStream
from tidelog.msgstream._pulsar.stream import PulsarTools
from tidelog.msgstream._pulsar.tt_stream import AsyncPulsarTtMsgStream
from tidelog.msgstream._settings import StreamSettings


class AsyncPulsarMsgStreamFactory(AsyncMsgStreamFactory):
    """Creates streams on Apache Pulsar, without a Tidelog server. Channels are topics.

    Production to several topics is not atomic: if a part of it fails, PartialProduceError states which topics have it.
    """

    capabilities = Capabilities(atomic_produce=False, log_ticks=False)
    # Whether a stream closes the broker.
    _owns_broker = False

    def __init__(self, broker: PulsarBroker, *, unmarshal_factory: UnmarshalDispatcherFactory | None = None) -> None:
        self._broker = broker
        self._unmarshal_factory = unmarshal_factory or ProtoUDFactory()
        self._settings = StreamSettings()

    def set_params(self, params: Mapping[str, object]) -> None:
        self._settings = self._settings.with_params(params)

    def new_msg_stream(self) -> AsyncPulsarMsgStream:
        return AsyncPulsarMsgStream(self._backend(), self._tools(), owns_broker=self._owns_broker)

    def new_tt_msg_stream(self) -> AsyncPulsarTtMsgStream:
        return AsyncPulsarTtMsgStream(self._backend(), self._tools(), owns_broker=self._owns_broker)

    async def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        topics = [self._broker.topic(name) for name in channels]
        await PulsarSubscriptions(self._broker).delete(sub_name, topics)
        if destroys_channels:
            await PulsarBackend(self._broker).destroy(topics)

    def _backend(self) -> PulsarBackend:
        return PulsarBackend(self._broker, self._settings.pulsar_pack_bytes)

    def _tools(self) -> PulsarTools:
        dispatcher = self._unmarshal_factory.new_unmarshal_dispatcher()
        return PulsarTools(self._settings, dispatcher, PulsarSubscriptions(self._broker))
