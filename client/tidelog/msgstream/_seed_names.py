"""Streams under the names of Milvus's constructors, for code that is ported from there. All are synchronous.

A factory does the same, and has asynchronous streams and all settings.
"""

from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._factories import AsyncRmqMsgStreamFactory
from tidelog.msgstream._generated_stream import MsgStream
from tidelog.msgstream._pulsar.factories import AsyncPulsarMsgStreamFactory
from tidelog.msgstream._pulsar.sync_streams import PulsarMsgStream, PulsarTtMsgStream
from tidelog.msgstream._settings import DEFAULT_BUFFER_SIZE
from tidelog.sync.client import Client
from tidelog.sync.cluster import inner_of


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
    return PulsarMsgStream(_pulsar(address, buffer_size).new_msg_stream())


def new_pulsar_tt_msg_stream(address: str, buffer_size: int = DEFAULT_BUFFER_SIZE) -> PulsarTtMsgStream:
    """Return a time-tick stream on the Pulsar broker at ``address``. See ``new_pulsar_msg_stream``."""
    return PulsarTtMsgStream(_pulsar(address, buffer_size).new_tt_msg_stream())


def new_rmq_msg_stream(client: Client) -> RmqMsgStream:
    """Return a plain stream on a Tidelog server. Does no I/O."""
    return RmqMsgStream(AsyncRmqMsgStreamFactory(inner_of(client)).new_msg_stream())


def new_rmq_tt_msg_stream(client: Client) -> RmqTtMsgStream:
    """Return a time-tick stream on a Tidelog server. Does no I/O."""
    return RmqTtMsgStream(AsyncRmqMsgStreamFactory(inner_of(client)).new_tt_msg_stream())


class _OwningFactory(AsyncPulsarMsgStreamFactory):
    _owns_broker = True


def _pulsar(address: str, buffer_size: int) -> AsyncPulsarMsgStreamFactory:
    factory = _OwningFactory(PulsarBroker(address))
    factory.set_params({"buffer_size": buffer_size})
    return factory
