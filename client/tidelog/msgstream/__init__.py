"""Message streams: packs of typed messages over several channels, one message or one interval of time at a time.

A factory creates streams on a broker: ``AsyncRmqMsgStreamFactory`` on a Tidelog server, ``AsyncMemMsgStreamFactory``
in memory; ``RmqMsgStreamFactory`` and ``MemMsgStreamFactory`` are their synchronous twins. docs/guides/msgstream.md
has an example, the semantics, and a mapping for users of Milvus's ``MsgStream``.
"""

from tidelog.msgstream._backends.group_subscriptions import GroupSubscriptionStore
from tidelog.msgstream._backends.mem_broker import MemBroker
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
    RepackError,
    StreamStateError,
    UnknownMsgTypeError,
)
from tidelog.msgstream._factories import AsyncMemMsgStreamFactory, AsyncMsgStreamFactory, AsyncRmqMsgStreamFactory
from tidelog.msgstream._interface import AsyncMsgStream, SubscriptionPosition
from tidelog.msgstream._messages import (
    AliasMsg,
    CollectionMsg,
    DeleteMsg,
    FlushMsg,
    GeneralMsg,
    IndexMsg,
    InsertMsg,
    MsgPosition,
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
from tidelog.msgstream._plain_stream import AsyncPlainMsgStream
from tidelog.msgstream._repack import RepackFunc, compute_produce_channel_indexes
from tidelog.msgstream._settings import StreamSettings
from tidelog.msgstream._sync_factories import MemMsgStreamFactory, MsgStreamFactory, RmqMsgStreamFactory
from tidelog.msgstream._sync_stream import MsgStream
from tidelog.msgstream._tt_stream import AsyncTtMsgStream

__all__ = [
    "SEED_NAMES",
    "AliasMsg",
    "AsyncMemMsgStreamFactory",
    "AsyncMsgStream",
    "AsyncMsgStreamFactory",
    "AsyncPlainMsgStream",
    "AsyncRmqMsgStreamFactory",
    "AsyncTtMsgStream",
    "BadPositionError",
    "BrokerFullError",
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
    "PartitionMsg",
    "ProtoMsg",
    "ProtoUDFactory",
    "QueryMsg",
    "QueryResultMsg",
    "RepackError",
    "RepackFunc",
    "RmqMsgStreamFactory",
    "SegmentMsg",
    "StatisticsMsg",
    "StreamSettings",
    "StreamStateError",
    "SubscriptionPosition",
    "SubscriptionStore",
    "TimeTickMsg",
    "TsMsg",
    "UnknownMsgTypeError",
    "UnmarshalDispatcher",
    "UnmarshalDispatcherFactory",
    "UnmarshalFunc",
    "WatchMsg",
    "class_of_type",
    "compute_produce_channel_indexes",
    "msg_type_of",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        # Show the public import path in messages and documentation.
        globals()[_name].__module__ = __name__
del _name
