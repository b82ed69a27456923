"""The synchronous twins that ``make sync`` writes: their sources, what differs, and where names come from.

There are three kinds. A *caller* has an asynchronous object and runs each of its coroutines on the background event
loop. A *handle* holds a synchronous object; its body is that of the asynchronous handle without ``await``. One with
``runs`` or ``wrapped`` holds an asynchronous object, and runs what the body awaits: its calls pass no other twin. A
*protocol* has only the signatures of a class. Signatures, types and docstrings are those of the asynchronous class,
with the names of the synchronous classes. In the other direction, a class whose calls block has a twin with coroutines.
"""

from dataclasses import dataclass, field
from typing import Final

SYNC: Final = "tidelog.sync.generated"
GAZETTE: Final = "tidelog.gazette.generated"
# Where the names are that generated code uses, other than those that its source imports.
IMPORTS: Final = {
    "BlobStore": "tidelog.pandora._generated_stores",
    "Callable": "collections.abc",
    "Channel": f"{SYNC}.handles",
    "CheckpointStore": "tidelog.gazette.stores._generated_interface",
    "Client": "tidelog.sync.client",
    "ClientCalls": f"{SYNC}.client_calls",
    "Cluster": "tidelog.sync.cluster",
    "Connection": "psycopg",
    "Consumer": "tidelog.sync.consumer",
    "Delivery": "tidelog.mailboxes._generated_deliveries",
    "Handler": "tidelog.gazette.consumers.consumer",
    "Iterator": "collections.abc",
    "JournalClient": "tidelog.gazette.sync_append",
    "Mailbox": "tidelog.sync.mailbox",
    "MessageStore": "tidelog.pandora._generated_stores",
    "MsgStream": "tidelog.msgstream._generated_stream",
    "Pages": "tidelog.gazette.consumers._generated_pages",
    "Producer": "tidelog.sync.producer",
    "Protocol": "typing",
    "Publisher": "tidelog.gazette.publisher",
    "PulsarMsgStream": "tidelog.msgstream._pulsar.sync_streams",
    "PulsarTtMsgStream": "tidelog.msgstream._pulsar.sync_streams",
    "RetryReader": f"{GAZETTE}.reader",
    "RocksMQCalls": "tidelog.rocksmq._generated_rocksmq",
    "Self": "typing",
    "Scan": "tidelog.sync.scan",
    "Transaction": "tidelog.sync.transaction",
    "Vchannel": f"{SYNC}.handles",
    "abstractmethod": "abc",
    "check_seconds": "tidelog.wire.durations",
    "background": "tidelog.transport.background",
    "inner_of": "tidelog.sync.cluster",
    "to_thread": "asyncio",
    "sync_finder": "tidelog.gazette.sync_append",
}
_CONTEXT: Final = frozenset(("__aenter__", "__aexit__"))
_CLOSING: Final = {"Closing": "tidelog._closing"}


@dataclass(frozen=True)
class Caller:
    """A class that runs the calls of an asynchronous class; a class written by hand derives from it.

    Attributes:
        source: Module of the asynchronous class.
        name: The asynchronous class.
        twin: The generated class.
        target: The generated module.
        bases: Base classes of the twin, by their modules.
        left_out: Public methods that the twin does not have, or whose shape differs.
        by_hand: Methods that the derived class implements and other methods of the twin call.
        made: Methods that return an asynchronous object, by the synchronous class that wraps it; it is made on the
            event loop.
        wrapped: As ``made``, for objects that are made in the caller's thread; or a method of the twin that wraps it.
        handles: Methods that return a handle, by its synchronous class.
        rewritten: Methods that call others of the twin: their body is that of the source, without ``await``.
        also: Special methods of the twin. Its constructor passes the asynchronous object to ``_wrap``.
        fields: Declarations of further attributes.
        properties: Attributes of the asynchronous object that its docstring describes, by their types.
        attribute: Attribute of the twin that holds the asynchronous object.
        held: Class of that object, of the same module, if it has the calls of the asynchronous class inside.
        is_whole: Whether the twin needs no derived class: it has the docstring of the asynchronous class, and a
            constructor that takes the object.
        takes: If the twin makes the object, with the arguments of its class: those that are passed as another
            expression.
        keeps: Attributes of the twin: arguments, or attributes of the object that it takes.
        pauses: Whether forks pause the object; only with a constructor.
        ready: Methods whose result another one returns without waiting, if it is there.
        timed: Methods that may be given up: they take ``timeout_s`` too.
        lock: Attribute with a lock that all methods hold; empty if the asynchronous object needs none.
    """

    source: str
    name: str
    twin: str
    target: str
    bases: dict[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    by_hand: frozenset[str] = frozenset()
    made: dict[str, str] = field(default_factory=dict)
    wrapped: dict[str, str] = field(default_factory=dict)
    handles: dict[str, str] = field(default_factory=dict)
    rewritten: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    fields: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    attribute: str = "_client"
    held: str = ""
    is_whole: bool = False
    takes: dict[str, str] | None = None
    keeps: tuple[str, ...] = ()
    pauses: bool = False
    ready: dict[str, str] = field(default_factory=dict)
    timed: frozenset[str] = frozenset()
    lock: str = ""


@dataclass(frozen=True)
class Handles:
    """A module whose classes are rewritten without ``await``.

    Attributes:
        source: The asynchronous module.
        target: The generated module.
        classes: Classes to rewrite, by the names of their twins; empty for all, without the prefix ``Async``.
        names: Names of other asynchronous classes, by those to use instead; without the prefix ``Async`` for the rest.
        left_out: Methods that the twins do not have, or that a derived class implements, as ``Class.method``.
        run: Methods that run that of the asynchronous object instead, as ``Class.method``.
        attribute: Attribute with the asynchronous object, which a derived class sets; only for ``run``.
        runs: Whether the twins hold an asynchronous object: what the source awaits runs on the background event loop.
        wrapped: The same; methods that return another asynchronous object, by the synchronous class that wraps it.
        takes: Arguments of constructors that are passed as another expression; only with ``runs``.
        imports: Where names are that other generated code has from another module.
    """

    source: str
    target: str
    classes: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    attribute: str = ""
    runs: bool = False
    wrapped: dict[str, str] = field(default_factory=dict)
    takes: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocking:
    """A class with a whole asynchronous twin, whose coroutines make its calls.

    Attributes:
        source: Module of the class.
        name: The class.
        target: The generated module.
        text: What the docstring of the twin states besides the reference to the class.
        attribute: Attribute of the twin that holds the object.
        renamed: Methods with another name in the twin.
        on_thread: Whether calls run on a thread, because they wait.
    """

    source: str
    name: str
    target: str
    text: str
    attribute: str = "_store"
    renamed: dict[str, str] = field(default_factory=dict)
    on_thread: bool = False


@dataclass(frozen=True)
class ClientProtocol:
    """The calls of the client that code below it makes, as the protocol ``ClientCalls``.

    Attributes:
        target: The generated module.
        methods: The calls, by modules and classes that define them.
        is_async: Whether it is that of the asynchronous client.
    """

    target: str
    methods: dict[tuple[str, str], tuple[str, ...]]
    is_async: bool


_CALLS_OF_WAL: Final = {
    ("tidelog.admin.channels", "AsyncChannelCalls"): ("describe_channels",),
    ("tidelog.admin.broadcasts", "AsyncBroadcastCalls"): ("broadcast", "ack", "ack_batch", "wait_acked"),
    ("tidelog.client", "AsyncClient"): ("check_open", "wal_name", "latest_mvcc_tick", "append", "txn"),
}
_CALLS_OF_HANDLES: Final = {
    ("tidelog.admin.channels", "AsyncChannelCalls"): (
        "create_channel", "alter_channels", "destroy_channels", "describe_channels",
    ),
    ("tidelog.admin.broadcasts", "AsyncBroadcastCalls"): ("broadcast", "ack", "ack_batch", "wait_acked"),
    ("tidelog.client", "AsyncClient"): (
        "check_open", "wal_name", "latest_mvcc_tick", "open_producer", "fence", "trim", "append", "producer", "txn",
        "scan", "scan_one",
    ),
}  # fmt: skip

CALLERS: Final = (
    Caller(
        "tidelog.client", "AsyncClient", "ClientBase", f"{SYNC}.client",
        bases={
            "ChannelCalls": f"{SYNC}.channels", "TransactionCalls": f"{SYNC}.transactions",
            "BroadcastCalls": f"{SYNC}.broadcasts", "GroupCalls": f"{SYNC}.groups", "NodeCalls": f"{SYNC}.nodes",
            "TokenCalls": f"{SYNC}.tokens", "CheckpointCalls": f"{SYNC}.checkpoints", **_CLOSING,
        },
        left_out=frozenset({"append_numbered", "from_context", "pause", "scan_core", "scan_one", "wal"}),
        wrapped={"producer": "Producer", "txn": "Transaction", "scan": "Scan", "mailbox": "Mailbox"},
        handles={"channel": "Channel", "vchannel": "Vchannel"},
        rewritten=frozenset({"ensure_channel", "tail"}), also=frozenset({"__init__"}),
        fields=("timeout_s: float", "_wrap: Callable[[AsyncClient], None]"),
    ),
    Caller("tidelog.admin.channels", "AsyncChannelCalls", "ChannelCalls", f"{SYNC}.channels"),
    Caller("tidelog.admin.broadcasts", "AsyncBroadcastCalls", "BroadcastCalls", f"{SYNC}.broadcasts"),
    Caller(
        "tidelog.admin.nodes", "AsyncNodeCalls", "NodeCalls", f"{SYNC}.nodes",
        left_out=frozenset({"reach", "owners_feed", "within"}),
    ),
    Caller("tidelog.admin.tokens", "AsyncTokenCalls", "TokenCalls", f"{SYNC}.tokens"),
    Caller("tidelog.admin.checkpoints", "AsyncCheckpointCalls", "CheckpointCalls", f"{SYNC}.checkpoints"),
    Caller(
        "tidelog.journals.calls", "AsyncJournalCalls", "JournalCalls", f"{SYNC}.journals", attribute="_journals",
        is_whole=True,
    ),
    Caller(
        "tidelog.admin.mailboxes", "AsyncMailboxCalls", "MailboxCalls", f"{SYNC}.mailboxes",
        left_out=frozenset({"channel_of"}), attribute="_mailboxes", is_whole=True,
    ),
    Caller(
        "tidelog.mailboxes.mailbox", "AsyncMailbox", "MailboxBase", f"{SYNC}.mailbox",
        left_out=frozenset({"fetch", "fetch_response", "worker", "work"}), attribute="_mailbox",
    ),
    Caller(
        "tidelog.admin.blobs", "AsyncBlobCalls", "BlobCalls", f"{SYNC}.blobs", attribute="_blobs", is_whole=True
    ),
    Caller("tidelog.groups.calls", "AsyncGroupCalls", "GroupCalls", f"{SYNC}.groups", made={"consumer": "Consumer"}),
    Caller(
        "tidelog.read.scan", "AsyncScan", "ScanCalls", f"{SYNC}.scan", bases=_CLOSING, attribute="_core",
        held="Scanned", left_out=frozenset({"to_arrow", "to_pandas", "to_polars"}),
        rewritten=frozenset({"__aiter__"}),
    ),
    Caller("tidelog.txn.calls", "AsyncTransactionCalls", "TransactionCalls", f"{SYNC}.transactions"),
    Caller(
        "tidelog.txn.transaction", "AsyncTransaction", "TransactionBase", f"{SYNC}.transaction",
        left_out=frozenset({"append", "add", "stage"}), rewritten=frozenset({"__aenter__"}),
        also=frozenset({"__aexit__"}), attribute="_transaction", lock="_lock",
    ),
    Caller(
        "tidelog.groups.consumer", "AsyncConsumer", "ConsumerBase", f"{SYNC}.consumer",
        left_out=frozenset({"commit_soon", "resume", "take_ready"}), rewritten=frozenset({"__aiter__"}),
        also=_CONTEXT, attribute="_consumer",
    ),
    Caller(
        "tidelog.cluster", "AsyncCluster", "ClusterBase", f"{SYNC}.cluster",
        left_out=frozenset({"from_context", "pause"}),
        bases=_CLOSING, attribute="_cluster", also=frozenset({"__init__"}),
        fields=("_twin_of: Callable[[AsyncClient], Client]", "_wrap: Callable[[AsyncCluster], None]"),
        wrapped={
            "mailbox": "Mailbox", "scan": "Scan",
            **dict.fromkeys(("client_for", "client_of", "client_with"), "self._twin_of"),
        },
        rewritten=frozenset({"channel", "vchannel", "ensure_channel", "tail"}),
    ),
    Caller(
        "tidelog.rocksmq._async_rocksmq", "AsyncRocksMQ", "RocksMQCalls", "tidelog.rocksmq._generated_rocksmq",
        bases=_CLOSING, left_out=frozenset({"register_consumer"}), by_hand=frozenset({"aclose"}), attribute="_mq",
    ),
    Caller(
        "tidelog.rocksmq._async_id_allocator", "AsyncIDAllocator", "IDAllocator",
        "tidelog.rocksmq._generated_id_allocator", left_out=frozenset({"take_ready"}),
        rewritten=frozenset({"alloc_one"}), attribute="_allocator", takes={"client": "inner_of(client)"},
        keeps=("client",), ready={"alloc": "take_ready"},
    ),
    Caller(
        "tidelog.msgstream._interface", "AsyncMsgStream", "MsgStream", "tidelog.msgstream._generated_stream",
        left_out=frozenset({"pause"}), rewritten=_CONTEXT, keeps=("dispatcher",),
        attribute="_stream", is_whole=True, pauses=True,
    ),
    Caller(
        "tidelog.msgstream._factories", "AsyncMsgStreamFactory", "MsgStreamFactory",
        "tidelog.msgstream._generated_factory",
        wrapped={"new_msg_stream": "MsgStream", "new_tt_msg_stream": "MsgStream"},
        properties={"capabilities": "Capabilities"}, attribute="_factory", is_whole=True,
    ),
    Caller(
        "tidelog.msgstream._factories", "AsyncRmqMsgStreamFactory", "RmqMsgStreamFactory",
        "tidelog.msgstream._generated_factory", bases={"MsgStreamFactory": ""}, attribute="_factory",
        takes={"client": "inner_of(client)"},
    ),
    Caller(
        "tidelog.msgstream._factories", "AsyncMemMsgStreamFactory", "MemMsgStreamFactory",
        "tidelog.msgstream._generated_factory", bases={"MsgStreamFactory": ""}, attribute="_factory", takes={},
    ),
    Caller(
        "tidelog.msgstream._pulsar.factories", "AsyncPulsarMsgStreamFactory", "PulsarMsgStreamFactory",
        "tidelog.msgstream._pulsar._generated_factory",
        bases={"MsgStreamFactory": "tidelog.msgstream._generated_factory"},
        left_out=frozenset({"set_params", "dispose"}),
        wrapped={"new_msg_stream": "PulsarMsgStream", "new_tt_msg_stream": "PulsarTtMsgStream"}, attribute="_factory",
        takes={},
    ),
    Caller(
        "tidelog.msgstream._pulsar.ticker", "AsyncTimeTicker", "TimeTicker",
        "tidelog.msgstream._pulsar._generated_ticker", properties={"last_tick": "int"},
        left_out=frozenset({"is_running", "pause"}), rewritten=_CONTEXT, attribute="_ticker", takes={}, pauses=True,
    ),
    Caller(
        "tidelog.gazette.consumers.pages", "AsyncPages", "Pages", "tidelog.gazette.consumers._generated_pages",
        attribute="_pages", takes={"journals": "journals.source"},
    ),
    Caller(
        "tidelog.gazette.append_driver", "JournalAppends", "AppendCalls", f"{GAZETTE}.appends",
        bases={"Generic[Handle]": "typing"}, rewritten=frozenset({"__aenter__"}), also=frozenset({"__aexit__"}),
        attribute="_appends",
    ),
    Caller(
        "tidelog.gazette.readers", "AsyncRetryReader", "RetryReader", f"{GAZETTE}.reader",
        left_out=frozenset({"part"}), properties={"request": "ReadRequest", "offset": "Offset"}, attribute="source",
        takes={"journals": "journals.source"},
    ),
    Caller(
        "tidelog.gazette.polled_list", "AsyncPolledList", "PolledList", f"{GAZETTE}.polled_list",
        bases=_CLOSING, left_out=frozenset({"start"}), also=frozenset({"__aenter__"}), attribute="_list",
        takes={"client": "inner_of(client)"}, timed=frozenset({"wait_changed"}),
    ),
    Caller(
        "tidelog.gazette.publishing", "PublisherCore", "PublisherCalls", f"{GAZETTE}.publisher",
        bases={"Generic[Handle]": "typing"}, attribute="_core", lock="_lock",
    ),
)  # fmt: skip
HANDLES: Final = (
    Handles(
        "tidelog.handles", f"{SYNC}.handles", wrapped={"producer": "Producer", "scan": "Scan", "tail": "Scan"},
        imports={"ClientCalls": "tidelog.admin._generated_client_calls"},
    ),
    Handles(
        "tidelog.mailboxes.deliveries", "tidelog.mailboxes._generated_deliveries",
        classes={"DeliveryCalls": "DeliveryCalls", "AsyncDelivery": "Delivery"},
    ),
    Handles(
        "tidelog.wal.accessor", f"{SYNC}.wal",
        classes={
            "AsyncWal": "WalBase", "AsyncWalTransaction": "WalTransaction", "AsyncWalBroadcast": "WalBroadcast",
        },
        left_out=frozenset({"AsyncWal.read", "AsyncWal.scanner_core", "AsyncWal._append_group"}),
        run=frozenset({"AsyncWal.append_messages"}), attribute="_wal",
    ),
    Handles(
        "tidelog.rocksmq._async_rocksmq", "tidelog.rocksmq._generated_consumer",
        classes={"AsyncRocksMQConsumer": "RocksMQConsumer"}, names={"AsyncRocksMQ": "RocksMQCalls"},
    ),
    Handles(
        "tidelog.gazette.consumers.consumer", "tidelog.gazette.consumers._generated_consumer",
        classes={"AsyncConsumerRun": "ConsumerRun", "AsyncConsumer": "Consumer"},
    ),
    Handles(
        "tidelog.gazette.iterators", f"{GAZETTE}.iterators",
        classes={
            "AsyncIteratorOfMessages": "Iterator", "AsyncMessages": "Messages",
            "AsyncReadUncommittedIter": "ReadUncommittedIter", "AsyncReadCommittedIter": "ReadCommittedIter",
        },
        names={"AsyncIterator": "PythonIterator"}, runs=True, takes={"reader": "reader.source"},
    ),
    Handles("tidelog.gazette.stores.interface", "tidelog.gazette.stores._generated_interface"),
    Handles(
        "tidelog.gazette.stores.on_tidelog", "tidelog.gazette.stores._generated_on_tidelog",
        names={"finder": "sync_finder"},
    ),
    Handles("tidelog.gazette.stores._postgres", "tidelog.gazette.stores._generated_postgres"),
    Handles("tidelog.pandora.stores", "tidelog.pandora._generated_stores"),
    Handles("tidelog.pandora.server", "tidelog.pandora._generated_server"),
    Handles("tidelog.pandora.on_tidelog", "tidelog.pandora._generated_on_tidelog"),
)  # fmt: skip
BLOCKING: Final = (
    Blocking(
        "tidelog.pandora.memory", "MemoryBlobStore", "tidelog.pandora._generated_memory", "Data in memory. Thread-safe."
    ),
    Blocking(
        "tidelog.pandora.memory", "MemoryMessageStore", "tidelog.pandora._generated_memory",
        "Mailboxes in memory. Thread-safe.",
    ),
    Blocking(
        "tidelog.pandora.http_client", "HttpClient", "tidelog.pandora._generated_http_client",
        "Sends, fetches and acknowledges messages by HTTP, on threads. A cancelled call may still take place.",
        attribute="_client", on_thread=True,
    ),
    Blocking(
        "tidelog.gazette.stores.sqlite", "SqliteCheckpointStore", "tidelog.gazette.stores._generated_sqlite",
        "A consumer's checkpoint in a SQLite database: calls that wait for the disk run on threads, one at a time.\n\n"
        "    The handler gets the ``sqlite3.Connection``. Its statements run on the event loop, so keep them short.",
        renamed={"close": "aclose"}, on_thread=True,
    ),
)  # fmt: skip
PROTOCOLS: Final = (
    ClientProtocol("tidelog.admin._generated_client_calls", _CALLS_OF_HANDLES, is_async=True),
    ClientProtocol(f"{SYNC}.client_calls", _CALLS_OF_WAL, is_async=False),
)
