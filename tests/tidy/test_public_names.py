"""The public names of the client are these and no others: adding or losing one is a decision, not an accident.

Method: `tidelog.__all__` against the list below, and what a user sees of each name.
"""

import tidelog

PUBLIC_NAMES = [
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


def test_public_names_are_the_pinned_ones() -> None:
    assert list(tidelog.__all__) == PUBLIC_NAMES


def test_public_names_exist_and_say_where_they_belong() -> None:
    homes = {name: getattr(getattr(tidelog, name), "__module__", "tidelog") for name in PUBLIC_NAMES}
    classes = {name: home for name, home in homes.items() if isinstance(getattr(tidelog, name), type)}
    assert {name: home for name, home in classes.items() if home != "tidelog"} == {}


def test_every_other_module_of_the_client_is_private_or_an_extra() -> None:
    # pytest itself leaves names in the modules of its plugins; they are no identifiers.
    public = {name for name in vars(tidelog) if name.isidentifier() and not name.startswith("_")}
    assert public - set(PUBLIC_NAMES) <= {"spark", "testing", "v1"}
