"""Streams under the names of Milvus's constructors, for code that is ported from there. All are synchronous.

A factory does the same, and has asynchronous streams and all settings.
"""

from tidelog.msgstream._backends.pulsar.backend import PulsarBackend
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.pulsar.positions import PulsarSubscriptions
from tidelog.msgstream._dispatcher import ProtoUDFactory
from tidelog.msgstream._factories import AsyncRmqMsgStreamFactory
from tidelog.msgstream._pulsar.plain_stream import AsyncPulsarMsgStream
from tidelog.msgstream._pulsar.stream import PulsarTools
from tidelog.msgstream._pulsar.sync_streams import PulsarMsgStream, PulsarTtMsgStream
from tidelog.msgstream._pulsar.tt_stream import AsyncPulsarTtMsgStream
from tidelog.msgstream._settings import DEFAULT_BUFFER_SIZE, StreamSettings
from tidelog.msgstream._sync_stream import MsgStream
from tidelog.sync.client import Client


class RmqMsgStream(MsgStream):
    """A plain stream on a Tidelog server; see ``AsyncPlainMsgStream``."""


class RmqTtMsgStream(MsgStream):
    """A time-tick stream on a Tidelog server; see ``AsyncTtMsgStream``."""


def new_pulsar_msg_stream(address: str, buffer_size: int = DEFAULT_BUFFER_SIZE) -> PulsarMsgStream:
    """Return a plain stream on the Pulsar broker at ``address``. Does no I/O.

    Args:
        address: Address of the broker, such as ``pulsar://127.0.0.1:6650``.
        buffer_size: Messages of a topic that may be received before they are consumed.

    Raises:
        ValueError: ``buffer_size`` is less than 1.
    """
    return PulsarMsgStream(AsyncPulsarMsgStream(*_pulsar(address, buffer_size), owns_broker=True))


def new_pulsar_tt_msg_stream(address: str, buffer_size: int = DEFAULT_BUFFER_SIZE) -> PulsarTtMsgStream:
    """Return a time-tick stream on the Pulsar broker at ``address``. See ``new_pulsar_msg_stream``."""
    return PulsarTtMsgStream(AsyncPulsarTtMsgStream(*_pulsar(address, buffer_size), owns_broker=True))


def new_rmq_msg_stream(client: Client) -> RmqMsgStream:
    """Return a plain stream on a Tidelog server. Does no I/O."""
    return RmqMsgStream(_rmq(client).new_msg_stream())


def new_rmq_tt_msg_stream(client: Client) -> RmqTtMsgStream:
    """Return a time-tick stream on a Tidelog server. Does no I/O."""
    return RmqTtMsgStream(_rmq(client).new_tt_msg_stream())


def _rmq(client: Client) -> AsyncRmqMsgStreamFactory:
    return AsyncRmqMsgStreamFactory(client._client)  # noqa: SLF001 - the streams are a part of the client


def _pulsar(address: str, buffer_size: int) -> tuple[PulsarBackend, PulsarTools]:
    broker = PulsarBroker(address)
    settings, dispatcher = StreamSettings(buffer_size=buffer_size), ProtoUDFactory().new_unmarshal_dispatcher()
    tools = PulsarTools(settings, dispatcher, PulsarSubscriptions(broker))
    return PulsarBackend(broker, settings.pulsar_pack_bytes), tools
