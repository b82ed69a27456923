"""The public names of the client are exactly these: adding or removing one is a decision, not an accident.

Method: `tidelog.__all__` against the list below, and the displayed module of each name.
"""

import tidelog
from tidelog import wal
from tidy.tree import ROOT, files, python_files

CLIENT = ROOT / "client" / "tidelog"

# Packages whose `__init__` exports public names, and a module that other programs of the project use.
PUBLIC_PACKAGES = {"gazette", "json_text", "msgstream", "rocksmq", "spark", "testing", "tracing", "v1", "wal"}

PRIVATE_MODULES = {
    "admin",
    "append",
    "client",
    "client_calls",
    "cluster",
    "errors",
    "groups",
    "handles",
    "message",
    "read",
    "routes",
    "sync",
    "tick",
    "transport",
    "txn",
    "types",
    "wire",
}

PUBLIC_NAMES = [
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
    "JournalRevisionError",
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


def test_public_names_are_the_pinned_ones() -> None:
    assert list(tidelog.__all__) == PUBLIC_NAMES


def test_public_names_exist_and_say_where_they_belong() -> None:
    homes = {name: getattr(getattr(tidelog, name), "__module__", "tidelog") for name in PUBLIC_NAMES}
    classes = {name: home for name, home in homes.items() if isinstance(getattr(tidelog, name), type)}
    assert {name: home for name, home in classes.items() if home != "tidelog"} == {}


def test_every_other_name_is_a_package_or_a_private_module() -> None:
    # pytest itself adds names to the modules of its plugins; they are not identifiers.
    public = {name for name in vars(tidelog) if name.isidentifier() and not name.startswith("_")}
    assert public - set(PUBLIC_NAMES) <= PUBLIC_PACKAGES | PRIVATE_MODULES


def test_each_module_of_the_client_is_listed_as_public_or_private() -> None:
    modules = {path.stem for path in python_files() if path.parent == CLIENT}
    packages = {path.parent.name for path in files(".py") if path.parent.parent == CLIENT}
    assert {name for name in modules | packages if not name.startswith("_")} == PUBLIC_PACKAGES | PRIVATE_MODULES


def test_the_wal_accessor_is_exported_by_a_package_of_its_own() -> None:
    assert all(getattr(wal, name) is getattr(tidelog, name) for name in wal.__all__)
    assert [name for name in PUBLIC_NAMES if "Wal" in name] == [name for name in wal.__all__ if "Wal" in name]
