"""Message streams: packs of typed messages over several channels, one message or one interval of time at a time.

A factory creates streams on a broker: ``AsyncRmqMsgStreamFactory`` on a Tidelog server, ``AsyncPulsarMsgStreamFactory``
on Apache Pulsar, ``AsyncMemMsgStreamFactory`` in memory; the same names without Async are their synchronous twins.
docs/guides/msgstream.md
has an example, the semantics, and a mapping for users of Milvus's ``MsgStream``.
"""

from tidelog.msgstream._backends.group_subscriptions import GroupSubscriptionStore
from tidelog.msgstream._backends.mem_broker import MemBroker
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._backends.subscriptions import MemSubscriptionStore, SubscriptionStore
from tidelog.msgstream._dispatcher import (
    MemUDFactory,
    ProtoUDFactory,
    UnmarshalDispatcher,
    UnmarshalDispatcherFactory,
    UnmarshalFunc,
)
from tidelog.msgstream._errors import (
    BadPositionError,
    BrokerFullError,
    EmptyPackError,
    MalformedMessageError,
    MessageTooLargeError,
    MsgStreamError,
    NotSubscribedError,
    PackTooLargeError,
    PartialProduceError,
    RepackError,
    StreamFencedError,
    StreamStateError,
    UnknownMsgTypeError,
)
from tidelog.msgstream._factories import (
    AsyncMemMsgStreamFactory,
    AsyncMsgStreamFactory,
    AsyncRmqMsgStreamFactory,
    Capabilities,
)
from tidelog.msgstream._interface import AsyncMsgStream, SubscriptionPosition
from tidelog.msgstream._log.plain_stream import AsyncPlainMsgStream
from tidelog.msgstream._log.tt_stream import AsyncTtMsgStream
from tidelog.msgstream._messages import (
    AliasMsg,
    CollectionMsg,
    DeleteMsg,
    FlushMsg,
    GeneralMsg,
    IndexMsg,
    InsertMsg,
    PartitionMsg,
    ProtoMsg,
    QueryMsg,
    QueryResultMsg,
    SegmentMsg,
    StatisticsMsg,
    TimeTickMsg,
    TsMsg,
    WatchMsg,
    class_of_type,
)
from tidelog.msgstream._msg_type import SEED_NAMES, MsgType, msg_type_of
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._pulsar.factories import AsyncPulsarMsgStreamFactory
from tidelog.msgstream._pulsar.plain_stream import AsyncPulsarMsgStream
from tidelog.msgstream._pulsar.sync_streams import PulsarMsgStream, PulsarTtMsgStream
from tidelog.msgstream._pulsar.sync_ticker import TimeTicker
from tidelog.msgstream._pulsar.ticker import AsyncTimeTicker
from tidelog.msgstream._pulsar.tt_stream import AsyncPulsarTtMsgStream, TickStatus
from tidelog.msgstream._repack import RepackFunc, compute_produce_channel_indexes
from tidelog.msgstream._seed_names import (
    RmqMsgStream,
    RmqTtMsgStream,
    new_pulsar_msg_stream,
    new_pulsar_tt_msg_stream,
    new_rmq_msg_stream,
    new_rmq_tt_msg_stream,
)
from tidelog.msgstream._settings import StreamSettings
from tidelog.msgstream._sync_factories import (
    MemMsgStreamFactory,
    MsgStreamFactory,
    PulsarMsgStreamFactory,
    RmqMsgStreamFactory,
)
from tidelog.msgstream._sync_stream import MsgStream

__all__ = [
    "SEED_NAMES",
    "AliasMsg",
    "AsyncMemMsgStreamFactory",
    "AsyncMsgStream",
    "AsyncMsgStreamFactory",
    "AsyncPlainMsgStream",
    "AsyncPulsarMsgStream",
    "AsyncPulsarMsgStreamFactory",
    "AsyncPulsarTtMsgStream",
    "AsyncRmqMsgStreamFactory",
    "AsyncTimeTicker",
    "AsyncTtMsgStream",
    "BadPositionError",
    "BrokerFullError",
    "Capabilities",
    "CollectionMsg",
    "DeleteMsg",
    "EmptyPackError",
    "FlushMsg",
    "GeneralMsg",
    "GroupSubscriptionStore",
    "IndexMsg",
    "InsertMsg",
    "MalformedMessageError",
    "MemBroker",
    "MemMsgStreamFactory",
    "MemSubscriptionStore",
    "MemUDFactory",
    "MessageTooLargeError",
    "MsgPack",
    "MsgPosition",
    "MsgStream",
    "MsgStreamError",
    "MsgStreamFactory",
    "MsgType",
    "NotSubscribedError",
    "PackTooLargeError",
    "PartialProduceError",
    "PartitionMsg",
    "ProtoMsg",
    "ProtoUDFactory",
    "PulsarBroker",
    "PulsarMsgStream",
    "PulsarMsgStreamFactory",
    "PulsarTtMsgStream",
    "QueryMsg",
    "QueryResultMsg",
    "RepackError",
    "RepackFunc",
    "RmqMsgStream",
    "RmqMsgStreamFactory",
    "RmqTtMsgStream",
    "SegmentMsg",
    "StatisticsMsg",
    "StreamFencedError",
    "StreamSettings",
    "StreamStateError",
    "SubscriptionPosition",
    "SubscriptionStore",
    "TickStatus",
    "TimeTickMsg",
    "TimeTicker",
    "TsMsg",
    "UnknownMsgTypeError",
    "UnmarshalDispatcher",
    "UnmarshalDispatcherFactory",
    "UnmarshalFunc",
    "WatchMsg",
    "class_of_type",
    "compute_produce_channel_indexes",
    "msg_type_of",
    "new_pulsar_msg_stream",
    "new_pulsar_tt_msg_stream",
    "new_rmq_msg_stream",
    "new_rmq_tt_msg_stream",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        # Show the public import path in messages and documentation.
        globals()[_name].__module__ = __name__
del _name
