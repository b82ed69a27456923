"""The public names of the client are exactly these: adding or removing one is a decision, not an accident.

Method: `tidelog.__all__` against the list below and the classes of errors, and the displayed module of each name.
"""

import tidelog
from tidelog import wal
from tidelog.errors import _generated_classes
from tidelog_testing.documents.exports import exported_names
from tidy.tree import ROOT, files, python_files

CLIENT = ROOT / "client" / "tidelog"

# Packages whose `__init__` exports public names, and a module that other programs of the project use.
PUBLIC_PACKAGES = {
    "gazette",
    "json_text",
    "msgstream",
    "pandora",
    "rocksmq",
    "spark",
    "testing",
    "tracing",
    "v1",
    "wal",
}

PRIVATE_MODULES = {
    "admin",
    "append",
    "client",
    "cluster",
    "errors",
    "finding",
    "groups",
    "handles",
    "journals",
    "mailboxes",
    "message",
    "read",
    "routes",
    "session",
    "settings",
    "sync",
    "tick",
    "transport",
    "txn",
    "types",
    "pandora_formats",
    "wire",
}

PINNED_NAMES = [
    "AckMode",
    "AppendPart",
    "AppendPartlyDoneError",
    "AppendResponse",
    "AppendResponses",
    "AppendResult",
    "Appendable",
    "ArrowData",
    "AsyncChannel",
    "AsyncClient",
    "AsyncCluster",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncMailbox",
    "AsyncMailboxWorker",
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
    "Batch",
    "BlobDescription",
    "BroadcastDescription",
    "BroadcastResult",
    "BroadcastState",
    "BroadcastSummary",
    "BufferFullError",
    "Channel",
    "ChannelDescription",
    "ChannelGrowth",
    "ChannelOwner",
    "ChannelPattern",
    "ChannelsPartlyDoneError",
    "CheckpointDescription",
    "Client",
    "ClosedError",
    "Cluster",
    "ClusterDescription",
    "Columns",
    "Consumed",
    "Consumer",
    "ConsumerOptions",
    "DeadLetter",
    "DeadlineError",
    "DeliverFilter",
    "DeliveriesRefusedError",
    "Delivery",
    "DeliveryStatus",
    "Durability",
    "End",
    "FailedPart",
    "FollowedNode",
    "ForkError",
    "FrameTooLargeError",
    "GroupDescription",
    "GroupMember",
    "GroupPosition",
    "GroupSummary",
    "Mailbox",
    "MailboxCounts",
    "MailboxDescription",
    "MailboxSettings",
    "MailboxWorker",
    "Message",
    "MessageHandler",
    "MessageHeader",
    "MessageState",
    "NewToken",
    "NodeDescription",
    "OnEvent",
    "OutgoingMessage",
    "OwnerDescription",
    "Partitioner",
    "PeekedMessage",
    "Plan",
    "PositionCommit",
    "Positions",
    "PreparedCommit",
    "PreparedTransaction",
    "Producer",
    "ProducerOptions",
    "ProducerPosition",
    "ProducerSequence",
    "ProducerStoppedError",
    "ReaderEvent",
    "ReaderState",
    "RedriveProgress",
    "ResourceKey",
    "Retention",
    "RetentionChange",
    "RetentionCut",
    "Retry",
    "Scan",
    "ScanOptions",
    "SendResult",
    "Split",
    "StandbyDescription",
    "Start",
    "StoredMessage",
    "Tick",
    "Ticket",
    "TidelogError",
    "TlsOptions",
    "To",
    "TokenDescription",
    "TokenFile",
    "TokenSource",
    "Transaction",
    "TransactionDescription",
    "TransactionOptions",
    "TransactionResult",
    "TransactionState",
    "UnsettledDeliveriesError",
    "Vchannel",
    "VchannelDescription",
    "VchannelTotal",
    "Wal",
    "WalBroadcast",
    "WalScanner",
    "WalTransaction",
    "WorkerOptions",
    "arrow_from_batches",
    "arrow_schema",
    "columns_from_arrow",
    "partition_keys",
]

# A class of errors is public by its declaration in error.proto; `test_errors` pins those of before.
PUBLIC_NAMES = sorted([*PINNED_NAMES, *_generated_classes.__all__])


def test_public_names_are_the_pinned_ones() -> None:
    assert exported_names(tidelog) == PUBLIC_NAMES


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
