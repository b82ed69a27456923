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
from tidelog._columns import Columns
from tidelog._deliver_filters import DeliverFilter
from tidelog._errors import (
    AppendUnknownError,
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
    ClosedError,
    DataLossError,
    DeadlineError,
    DiskFullError,
    FencedError,
    ForkError,
    InvalidRequestError,
    LastTickMismatchError,
    OverloadedError,
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
    TransactionError,
    TransactionExpiredError,
    TransactionForeignError,
    TransactionNotFoundError,
    TransactionStateError,
    TransactionTooLargeError,
    UnavailableError,
)
from tidelog._message import Message, StoredMessage
from tidelog._message_handler import MessageHandler
from tidelog._positions import At, End, Start
from tidelog._producer import AsyncProducer, AsyncTicket, ProducerOptions
from tidelog._retry import Retry
from tidelog._scan import AsyncScan
from tidelog._scan_plan import ScanOptions
from tidelog._sizes import Appendable
from tidelog._sync_client import Client, Scan
from tidelog._sync_handles import Channel, Vchannel
from tidelog._sync_producer import Producer, Ticket
from tidelog._sync_transaction import Transaction
from tidelog._sync_wal import Wal, WalBroadcast, WalTransaction
from tidelog._sync_wal_scanner import WalScanner
from tidelog._tick import Tick
from tidelog._transaction import AsyncTransaction, TransactionOptions
from tidelog._types import (
    AppendResult,
    ChannelDescription,
    Durability,
    OwnerDescription,
    Plan,
    ProducerPosition,
    ProducerSequence,
    Split,
    TransactionDescription,
    TransactionResult,
    TransactionState,
    VchannelDescription,
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
    "Client",
    "ClosedError",
    "Columns",
    "DataLossError",
    "DeadlineError",
    "DeliverFilter",
    "DiskFullError",
    "Durability",
    "End",
    "FencedError",
    "ForkError",
    "InvalidRequestError",
    "LastTickMismatchError",
    "Message",
    "MessageHandler",
    "OverloadedError",
    "OwnerDescription",
    "Plan",
    "PositionBeyondEndError",
    "PositionTrimmedError",
    "Producer",
    "ProducerFencedError",
    "ProducerOptions",
    "ProducerPosition",
    "ProducerSequence",
    "ProducerStoppedError",
    "ResourceAcquiredError",
    "ResourceKey",
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
    "To",
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
