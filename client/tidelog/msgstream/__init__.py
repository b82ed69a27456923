"""Message streams: packs of typed messages over several channels, one message or one interval of time at a time.

A factory creates streams on a broker: ``AsyncRmqMsgStreamFactory`` on a Tidelog server, ``AsyncPulsarMsgStreamFactory``
on Apache Pulsar, ``AsyncMemMsgStreamFactory`` in memory; the same names without Async are their synchronous twins.
docs/guides/msgstream.md
has an example, the semantics, and a mapping for users of Milvus's ``MsgStream``.
"""

from tidelog import _export
from tidelog.msgstream._backends.group_subscriptions import GroupSubscriptionStore as GroupSubscriptionStore
from tidelog.msgstream._backends.mem_broker import MemBroker as MemBroker
from tidelog.msgstream._backends.pulsar.broker import PulsarBroker as PulsarBroker
from tidelog.msgstream._backends.subscriptions import MemSubscriptionStore as MemSubscriptionStore
from tidelog.msgstream._backends.subscriptions import SubscriptionStore as SubscriptionStore
from tidelog.msgstream._dispatcher import MemUDFactory as MemUDFactory
from tidelog.msgstream._dispatcher import ProtoUDFactory as ProtoUDFactory
from tidelog.msgstream._dispatcher import UnmarshalDispatcher as UnmarshalDispatcher
from tidelog.msgstream._dispatcher import UnmarshalDispatcherFactory as UnmarshalDispatcherFactory
from tidelog.msgstream._dispatcher import UnmarshalFunc as UnmarshalFunc
from tidelog.msgstream._dispatcher import class_of_type as class_of_type
from tidelog.msgstream._errors import BadPositionError as BadPositionError
from tidelog.msgstream._errors import BrokerFullError as BrokerFullError
from tidelog.msgstream._errors import EmptyPackError as EmptyPackError
from tidelog.msgstream._errors import MalformedMessageError as MalformedMessageError
from tidelog.msgstream._errors import MessageTooLargeError as MessageTooLargeError
from tidelog.msgstream._errors import MsgStreamError as MsgStreamError
from tidelog.msgstream._errors import NotSubscribedError as NotSubscribedError
from tidelog.msgstream._errors import PackTooLargeError as PackTooLargeError
from tidelog.msgstream._errors import PartialProduceError as PartialProduceError
from tidelog.msgstream._errors import RepackError as RepackError
from tidelog.msgstream._errors import StreamFencedError as StreamFencedError
from tidelog.msgstream._errors import StreamStateError as StreamStateError
from tidelog.msgstream._errors import UnknownMsgTypeError as UnknownMsgTypeError
from tidelog.msgstream._factories import AsyncMemMsgStreamFactory as AsyncMemMsgStreamFactory
from tidelog.msgstream._factories import AsyncMsgStreamFactory as AsyncMsgStreamFactory
from tidelog.msgstream._factories import AsyncRmqMsgStreamFactory as AsyncRmqMsgStreamFactory
from tidelog.msgstream._factories import Capabilities as Capabilities
from tidelog.msgstream._generated_factory import MemMsgStreamFactory as MemMsgStreamFactory
from tidelog.msgstream._generated_factory import MsgStreamFactory as MsgStreamFactory
from tidelog.msgstream._generated_factory import RmqMsgStreamFactory as RmqMsgStreamFactory
from tidelog.msgstream._generated_messages import AliasMsg as AliasMsg
from tidelog.msgstream._generated_messages import CollectionMsg as CollectionMsg
from tidelog.msgstream._generated_messages import DeleteMsg as DeleteMsg
from tidelog.msgstream._generated_messages import FlushMsg as FlushMsg
from tidelog.msgstream._generated_messages import GeneralMsg as GeneralMsg
from tidelog.msgstream._generated_messages import IndexMsg as IndexMsg
from tidelog.msgstream._generated_messages import InsertMsg as InsertMsg
from tidelog.msgstream._generated_messages import PartitionMsg as PartitionMsg
from tidelog.msgstream._generated_messages import QueryMsg as QueryMsg
from tidelog.msgstream._generated_messages import QueryResultMsg as QueryResultMsg
from tidelog.msgstream._generated_messages import SegmentMsg as SegmentMsg
from tidelog.msgstream._generated_messages import StatisticsMsg as StatisticsMsg
from tidelog.msgstream._generated_messages import TimeTickMsg as TimeTickMsg
from tidelog.msgstream._generated_messages import WatchMsg as WatchMsg
from tidelog.msgstream._generated_stream import MsgStream as MsgStream
from tidelog.msgstream._generated_types import MsgType as MsgType
from tidelog.msgstream._interface import AsyncMsgStream as AsyncMsgStream
from tidelog.msgstream._interface import SubscriptionPosition as SubscriptionPosition
from tidelog.msgstream._log.plain_stream import AsyncPlainMsgStream as AsyncPlainMsgStream
from tidelog.msgstream._log.tt_stream import AsyncTtMsgStream as AsyncTtMsgStream
from tidelog.msgstream._messages import ProtoMsg as ProtoMsg
from tidelog.msgstream._messages import TsMsg as TsMsg
from tidelog.msgstream._msg_type import SEED_NAMES as SEED_NAMES
from tidelog.msgstream._msg_type import msg_type_of as msg_type_of
from tidelog.msgstream._pack import MsgPack as MsgPack
from tidelog.msgstream._position import MsgPosition as MsgPosition
from tidelog.msgstream._pulsar._generated_factory import PulsarMsgStreamFactory as PulsarMsgStreamFactory
from tidelog.msgstream._pulsar._generated_ticker import TimeTicker as TimeTicker
from tidelog.msgstream._pulsar.factories import AsyncPulsarMsgStreamFactory as AsyncPulsarMsgStreamFactory
from tidelog.msgstream._pulsar.plain_stream import AsyncPulsarMsgStream as AsyncPulsarMsgStream
from tidelog.msgstream._pulsar.sync_streams import PulsarMsgStream as PulsarMsgStream
from tidelog.msgstream._pulsar.sync_streams import PulsarTtMsgStream as PulsarTtMsgStream
from tidelog.msgstream._pulsar.ticker import AsyncTimeTicker as AsyncTimeTicker
from tidelog.msgstream._pulsar.tt_stream import AsyncPulsarTtMsgStream as AsyncPulsarTtMsgStream
from tidelog.msgstream._pulsar.tt_stream import TickStatus as TickStatus
from tidelog.msgstream._repack import RepackFunc as RepackFunc
from tidelog.msgstream._repack import compute_produce_channel_indexes as compute_produce_channel_indexes
from tidelog.msgstream._seed_names import RmqMsgStream as RmqMsgStream
from tidelog.msgstream._seed_names import RmqTtMsgStream as RmqTtMsgStream
from tidelog.msgstream._seed_names import new_pulsar_msg_stream as new_pulsar_msg_stream
from tidelog.msgstream._seed_names import new_pulsar_tt_msg_stream as new_pulsar_tt_msg_stream
from tidelog.msgstream._seed_names import new_rmq_msg_stream as new_rmq_msg_stream
from tidelog.msgstream._seed_names import new_rmq_tt_msg_stream as new_rmq_tt_msg_stream
from tidelog.msgstream._settings import StreamSettings as StreamSettings

_export(globals(), __name__)
