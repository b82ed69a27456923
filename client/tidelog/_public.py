"""The public names of the client, collected from the modules that define them; ``tidelog`` re-exports them."""

# Ordering: first, because it affects how grpc is imported.
from tidelog.transport import fork as _fork  # noqa: F401 - imported for its effect

# isort: split
from tidelog.admin.broadcast_types import (
    AckMode,
    BroadcastDescription,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    ResourceKey,
)
from tidelog.admin.channel_types import (
    ChannelDescription,
    OwnerDescription,
    Retention,
    RetentionChange,
    RetentionCut,
    VchannelDescription,
)
from tidelog.admin.checkpoints import CheckpointDescription
from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription, NodeDescription
from tidelog.admin.tokens import NewToken, TokenDescription
from tidelog.append.producer import AsyncProducer, AsyncTicket, ProducerOptions
from tidelog.append.sizes import Appendable
from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import (
    AppCommitMismatchError,
    AppendUnknownError,
    ApplicationForgottenError,
    AppVersionPassedError,
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
    CheckpointNotFoundError,
    CheckpointUnsupportedError,
    ClosedError,
    ConsumeForgottenError,
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
    ProducerForgottenError,
    ProducerStoppedError,
    ResourceAcquiredError,
    SequenceError,
    SequenceForgottenError,
    SequenceGapError,
    SequenceReusedError,
    ServerError,
    ShutdownError,
    StorageFailedError,
    StorageUnreadableError,
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
from tidelog.groups.consumer import AsyncConsumer, ConsumerOptions
from tidelog.groups.types import Consumed, GroupDescription, GroupMember, GroupPosition, GroupSummary
from tidelog.handles import AsyncChannel, AsyncVchannel
from tidelog.message import Message, StoredMessage
from tidelog.read.positions import At, End, Positions, Start
from tidelog.read.reader_events import OnEvent, ReaderEvent, ReaderState
from tidelog.read.scan import AsyncScan
from tidelog.read.scan_plan import ScanOptions
from tidelog.sync.client import Client
from tidelog.sync.cluster import Cluster
from tidelog.sync.consumer import Consumer
from tidelog.sync.generated.handles import Channel, Vchannel
from tidelog.sync.generated.wal import WalBroadcast, WalTransaction
from tidelog.sync.producer import Producer, Ticket
from tidelog.sync.scan import Scan
from tidelog.sync.transaction import Transaction
from tidelog.sync.wal import Wal, WalScanner
from tidelog.tick import Tick
from tidelog.transport.credentials import TlsOptions, TokenFile, TokenSource
from tidelog.transport.retry import Retry
from tidelog.txn.options import TransactionOptions
from tidelog.txn.transaction import AsyncTransaction
from tidelog.types import (
    AppendResult,
    Durability,
    Plan,
    PositionCommit,
    PreparedCommit,
    PreparedTransaction,
    ProducerPosition,
    ProducerSequence,
    Split,
    TransactionDescription,
    TransactionResult,
    TransactionState,
)
from tidelog.wal.accessor import AsyncWal, AsyncWalBroadcast, AsyncWalTransaction
from tidelog.wal.deliver_filters import DeliverFilter
from tidelog.wal.message_handler import MessageHandler
from tidelog.wal.responses import AppendResponse, AppendResponses, To
from tidelog.wal.scanner import AsyncWalScanner
from tidelog.wire.batch import Batch, columns_from_arrow
from tidelog.wire.columns import Columns

__all__ = [
    "AckMode",
    "AppCommitMismatchError",
    "AppVersionPassedError",
    "AppendResponse",
    "AppendResponses",
    "AppendResult",
    "AppendUnknownError",
    "Appendable",
    "ApplicationForgottenError",
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
    "CheckpointDescription",
    "CheckpointError",
    "CheckpointNotFoundError",
    "CheckpointUnsupportedError",
    "Client",
    "ClosedError",
    "Cluster",
    "ClusterDescription",
    "Columns",
    "ConsumeForgottenError",
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
    "OnEvent",
    "OverloadedError",
    "OwnerDescription",
    "OwnershipLostError",
    "PermissionDeniedError",
    "Plan",
    "PositionBeyondEndError",
    "PositionCommit",
    "PositionTrimmedError",
    "Positions",
    "PreparedCommit",
    "PreparedTransaction",
    "Producer",
    "ProducerFencedError",
    "ProducerForgottenError",
    "ProducerOptions",
    "ProducerPosition",
    "ProducerSequence",
    "ProducerStoppedError",
    "ReaderEvent",
    "ReaderState",
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
    "StorageUnreadableError",
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
    "columns_from_arrow",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        # Tracebacks and pickles show `tidelog.Tick`, whichever private module defines it.
        globals()[_name].__module__ = "tidelog"
del _name
