"""Tidelog's client: durable channels, one time order, and reads that resume.

Start with ``Client`` (synchronous) or ``AsyncClient``::

    async with tidelog.AsyncClient() as client:
        orders = await client.ensure_channel("orders")
        result = await orders.append(b"one order")
        async for batch in orders.scan(start=result.first_tick):
            print(batch.ticks, batch.payloads)
"""

from tidelog._append_responses import AppendResponse, AppendResponses, To
from tidelog._async_client import AsyncClient
from tidelog._async_cluster import AsyncCluster
from tidelog._async_handles import AsyncChannel, AsyncVchannel
from tidelog._async_wal import AsyncWal, AsyncWalBroadcast, AsyncWalTransaction
from tidelog._batch import Batch
from tidelog._broadcast_types import (
    AckMode,
    BroadcastDescription,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    ResourceKey,
)
from tidelog._channel_types import (
    ChannelDescription,
    OwnerDescription,
    Retention,
    RetentionChange,
    RetentionCut,
    VchannelDescription,
)
from tidelog._cluster_types import ChannelOwner, ClusterDescription, NodeDescription
from tidelog._columns import Columns
from tidelog._consumer import AsyncConsumer, ConsumerOptions
from tidelog._credentials import TlsOptions, TokenFile, TokenSource
from tidelog._deliver_filters import DeliverFilter
from tidelog._errors import (
    AppendUnknownError,
    AuditFailedError,
    BarrierNotReachedError,
    BroadcastAbortedError,
    BroadcastError,
    BroadcastForgottenError,
    BroadcastNotFoundError,
    BroadcastReusedError,
    BroadcastVchannelError,
    BufferFullError,
    ChannelAlreadyExistsError,
    ChannelNotFoundError,
    ChannelsPartlyDoneError,
    CheckpointError,
    ClosedError,
    CredentialsExpiredError,
    DataLossError,
    DeadlineError,
    DiskFullError,
    FencedError,
    ForkError,
    GroupAlreadyExistsError,
    GroupError,
    GroupFencedError,
    GroupInUseError,
    GroupNotFoundError,
    GroupNotSubscribedError,
    GroupPositionMovedError,
    InvalidRequestError,
    LastTickMismatchError,
    NotOwnerError,
    OverloadedError,
    OwnershipLostError,
    PermissionDeniedError,
    PositionBeyondEndError,
    PositionTrimmedError,
    ProducerFencedError,
    ProducerStoppedError,
    ResourceAcquiredError,
    SequenceError,
    SequenceForgottenError,
    SequenceGapError,
    SequenceReusedError,
    ServerError,
    ShutdownError,
    StorageFailedError,
    TidelogError,
    TokenNotFoundError,
    TransactionError,
    TransactionExpiredError,
    TransactionForeignError,
    TransactionNotFoundError,
    TransactionStateError,
    TransactionTooLargeError,
    UnauthenticatedError,
    UnavailableError,
)
from tidelog._group_types import Consumed, GroupDescription, GroupMember, GroupPosition, GroupSummary
from tidelog._message import Message, StoredMessage
from tidelog._message_handler import MessageHandler
from tidelog._positions import At, End, Start
from tidelog._producer import AsyncProducer, AsyncTicket, ProducerOptions
from tidelog._retry import Retry
from tidelog._scan import AsyncScan
from tidelog._scan_plan import ScanOptions
from tidelog._sizes import Appendable
from tidelog._sync_client import Client, Scan
from tidelog._sync_cluster import Cluster
from tidelog._sync_consumer import Consumer
from tidelog._sync_handles import Channel, Vchannel
from tidelog._sync_producer import Producer, Ticket
from tidelog._sync_transaction import Transaction
from tidelog._sync_wal import Wal, WalBroadcast, WalTransaction
from tidelog._sync_wal_scanner import WalScanner
from tidelog._tick import Tick
from tidelog._token_types import NewToken, TokenDescription
from tidelog._transaction import AsyncTransaction, TransactionOptions
from tidelog._types import (
    AppendResult,
    Durability,
    Plan,
    PositionCommit,
    ProducerPosition,
    ProducerSequence,
    Split,
    TransactionDescription,
    TransactionResult,
    TransactionState,
)
from tidelog._wal_scanner import AsyncWalScanner

__all__ = [
    "AckMode",
    "AppendResponse",
    "AppendResponses",
    "AppendResult",
    "AppendUnknownError",
    "Appendable",
    "AsyncChannel",
    "AsyncClient",
    "AsyncCluster",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncScan",
    "AsyncTicket",
    "AsyncTransaction",
    "AsyncVchannel",
    "AsyncWal",
    "AsyncWalBroadcast",
    "AsyncWalScanner",
    "AsyncWalTransaction",
    "At",
    "AuditFailedError",
    "BarrierNotReachedError",
    "Batch",
    "BroadcastAbortedError",
    "BroadcastDescription",
    "BroadcastError",
    "BroadcastForgottenError",
    "BroadcastNotFoundError",
    "BroadcastResult",
    "BroadcastReusedError",
    "BroadcastState",
    "BroadcastSummary",
    "BroadcastVchannelError",
    "BufferFullError",
    "Channel",
    "ChannelAlreadyExistsError",
    "ChannelDescription",
    "ChannelNotFoundError",
    "ChannelOwner",
    "ChannelsPartlyDoneError",
    "CheckpointError",
    "Client",
    "ClosedError",
    "Cluster",
    "ClusterDescription",
    "Columns",
    "Consumed",
    "Consumer",
    "ConsumerOptions",
    "CredentialsExpiredError",
    "DataLossError",
    "DeadlineError",
    "DeliverFilter",
    "DiskFullError",
    "Durability",
    "End",
    "FencedError",
    "ForkError",
    "GroupAlreadyExistsError",
    "GroupDescription",
    "GroupError",
    "GroupFencedError",
    "GroupInUseError",
    "GroupMember",
    "GroupNotFoundError",
    "GroupNotSubscribedError",
    "GroupPosition",
    "GroupPositionMovedError",
    "GroupSummary",
    "InvalidRequestError",
    "LastTickMismatchError",
    "Message",
    "MessageHandler",
    "NewToken",
    "NodeDescription",
    "NotOwnerError",
    "OverloadedError",
    "OwnerDescription",
    "OwnershipLostError",
    "PermissionDeniedError",
    "Plan",
    "PositionBeyondEndError",
    "PositionCommit",
    "PositionTrimmedError",
    "Producer",
    "ProducerFencedError",
    "ProducerOptions",
    "ProducerPosition",
    "ProducerSequence",
    "ProducerStoppedError",
    "ResourceAcquiredError",
    "ResourceKey",
    "Retention",
    "RetentionChange",
    "RetentionCut",
    "Retry",
    "Scan",
    "ScanOptions",
    "SequenceError",
    "SequenceForgottenError",
    "SequenceGapError",
    "SequenceReusedError",
    "ServerError",
    "ShutdownError",
    "Split",
    "Start",
    "StorageFailedError",
    "StoredMessage",
    "Tick",
    "Ticket",
    "TidelogError",
    "TlsOptions",
    "To",
    "TokenDescription",
    "TokenFile",
    "TokenNotFoundError",
    "TokenSource",
    "Transaction",
    "TransactionDescription",
    "TransactionError",
    "TransactionExpiredError",
    "TransactionForeignError",
    "TransactionNotFoundError",
    "TransactionOptions",
    "TransactionResult",
    "TransactionState",
    "TransactionStateError",
    "TransactionTooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "Vchannel",
    "VchannelDescription",
    "Wal",
    "WalBroadcast",
    "WalScanner",
    "WalTransaction",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        # People see `tidelog.Tick`, in error reports and in pickles, wherever it is written down.
        globals()[_name].__module__ = __name__
del _name
