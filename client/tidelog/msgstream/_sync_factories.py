"""Synchronous twins of factories."""

from tidelog.msgstream._backends.mem_broker import MemBroker
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.subscriptions import SubscriptionStore
from tidelog.msgstream._dispatcher import UnmarshalDispatcherFactory
from tidelog.msgstream._factories import (
    AsyncMemMsgStreamFactory,
    AsyncMsgStreamFactory,
    AsyncRmqMsgStreamFactory,
    Capabilities,
)
from tidelog.msgstream._generated_factory import MsgStreamFactoryCalls
from tidelog.msgstream._pulsar.factories import AsyncPulsarMsgStreamFactory
from tidelog.msgstream._pulsar.sync_streams import PulsarMsgStream, PulsarTtMsgStream
from tidelog.read.reader_events import OnEvent
from tidelog.sync.client import Client


class MsgStreamFactory(MsgStreamFactoryCalls):
    """Creates streams on one broker; the twin of ``AsyncMsgStreamFactory``."""

    def __init__(self, factory: AsyncMsgStreamFactory) -> None:
        self._factory = factory

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do."""
        return self._factory.capabilities


class RmqMsgStreamFactory(MsgStreamFactory):
    """Creates streams on a Tidelog server. See ``AsyncRmqMsgStreamFactory``."""

    def __init__(
        self,
        client: Client,
        *,
        subscriptions: SubscriptionStore | None = None,
        unmarshal_factory: UnmarshalDispatcherFactory | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        inner = client._client  # noqa: SLF001 - the streams are a part of the client
        super().__init__(
            AsyncRmqMsgStreamFactory(
                inner, subscriptions=subscriptions, unmarshal_factory=unmarshal_factory, on_event=on_event
            )
        )


class MemMsgStreamFactory(MsgStreamFactory):
    """Creates streams on a broker in memory. See ``AsyncMemMsgStreamFactory``."""

    def __init__(self, broker: MemBroker, *, unmarshal_factory: UnmarshalDispatcherFactory | None = None) -> None:
        super().__init__(AsyncMemMsgStreamFactory(broker, unmarshal_factory=unmarshal_factory))


class PulsarMsgStreamFactory(MsgStreamFactory):
    """Creates streams on Apache Pulsar. See ``AsyncPulsarMsgStreamFactory``."""

    def __init__(self, broker: PulsarBroker, *, unmarshal_factory: UnmarshalDispatcherFactory | None = None) -> None:
        super().__init__(AsyncPulsarMsgStreamFactory(broker, unmarshal_factory=unmarshal_factory))

    def new_msg_stream(self) -> PulsarMsgStream:
        """Return a stream with one pack per message. Does no I/O."""
        return PulsarMsgStream(self._factory.new_msg_stream())

    def new_tt_msg_stream(self) -> PulsarTtMsgStream:
        """Return a stream with one pack for each interval between ticks. Does no I/O."""
        return PulsarTtMsgStream(self._factory.new_tt_msg_stream())
