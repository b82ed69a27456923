"""Writes the synchronous twins of asynchronous classes: ``make sync`` runs it, a test proves that its output is fresh.

There are three kinds. A *caller* has an asynchronous object and runs each of its coroutines on the background event
loop. A *handle* holds a synchronous object; its body is that of the asynchronous handle without ``await``. One with
``wrapped`` holds an asynchronous object, and runs what the body awaits: its calls pass no other twin. A *protocol* has
only the signatures of a class. Signatures, types and docstrings are those of the asynchronous class, with the names of
the synchronous classes.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CLIENT: Final = ROOT / "client"
_SYNC: Final = "tidelog.sync.generated"
_GAZETTE: Final = "tidelog.gazette.generated"
# Where the names are that generated code uses, other than those that its source imports.
IMPORTS: Final = {
    "BlobStore": "tidelog.pandora._generated_stores",
    "Channel": f"{_SYNC}.handles",
    "CheckpointStore": "tidelog.gazette.stores._generated_interface",
    "Client": "tidelog.sync.client",
    "ClientCalls": f"{_SYNC}.client_calls",
    "Connection": "psycopg",
    "Consumer": "tidelog.sync.consumer",
    "Delivery": "tidelog.sync.mailbox",
    "Handler": "tidelog.gazette.consumers.handlers",
    "Iterator": "collections.abc",
    "JournalClient": "tidelog.gazette.sync_append",
    "Mailbox": "tidelog.sync.mailbox",
    "MessageStore": "tidelog.pandora._generated_stores",
    "MsgStream": "tidelog.msgstream._sync_stream",
    "Pages": "tidelog.gazette.consumers.sync_pages",
    "Producer": "tidelog.sync.producer",
    "Protocol": "typing",
    "Publisher": "tidelog.gazette.publisher",
    "RocksMQCalls": "tidelog.rocksmq._generated_rocksmq",
    "Scan": "tidelog.sync.scan",
    "Transaction": "tidelog.sync.transaction",
    "Vchannel": f"{_SYNC}.handles",
    "abstractmethod": "abc",
    "background": "tidelog.transport.background",
    "sync_lookup": "tidelog.gazette.sync_append",
}
_CONTEXT: Final = frozenset(("__aenter__", "__aexit__"))


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
        wrapped: As ``made``, for objects that are made in the caller's thread.
        handles: Methods that return a handle, by its synchronous class.
        rewritten: Methods that call others of the twin: their body is that of the source, without ``await``.
        also: Special methods of the twin.
        fields: Declarations of further attributes.
        attribute: Attribute of the twin that holds the asynchronous object.
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
    attribute: str = "_client"
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
        wrapped: If the handles hold an asynchronous object: methods that return another one, by the synchronous class
            that wraps it.
        imports: Where names are that other generated code has from another module.
    """

    source: str
    target: str
    classes: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    attribute: str = ""
    wrapped: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


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
        "tidelog.client", "AsyncClient", "ClientBase", f"{_SYNC}.client",
        bases={
            "ChannelCalls": f"{_SYNC}.channels", "TransactionCalls": f"{_SYNC}.transactions",
            "BroadcastCalls": f"{_SYNC}.broadcasts", "GroupCalls": f"{_SYNC}.groups", "NodeCalls": f"{_SYNC}.nodes",
            "TokenCalls": f"{_SYNC}.tokens", "CheckpointCalls": f"{_SYNC}.checkpoints",
        },
        left_out=frozenset({"append_numbered", "pause", "scan_one", "wal"}),
        wrapped={"producer": "Producer", "txn": "Transaction", "scan": "Scan", "mailbox": "Mailbox"},
        handles={"channel": "Channel", "vchannel": "Vchannel"},
        rewritten=frozenset({"ensure_channel", "tail"}) | _CONTEXT, fields=("timeout_s: float",),
    ),
    Caller("tidelog.admin.channels", "AsyncChannelCalls", "ChannelCalls", f"{_SYNC}.channels"),
    Caller("tidelog.admin.broadcasts", "AsyncBroadcastCalls", "BroadcastCalls", f"{_SYNC}.broadcasts"),
    Caller(
        "tidelog.admin.nodes", "AsyncNodeCalls", "NodeCalls", f"{_SYNC}.nodes",
        left_out=frozenset({"reach", "owners_feed", "within"}),
    ),
    Caller("tidelog.admin.tokens", "AsyncTokenCalls", "TokenCalls", f"{_SYNC}.tokens"),
    Caller("tidelog.admin.checkpoints", "AsyncCheckpointCalls", "CheckpointCalls", f"{_SYNC}.checkpoints"),
    Caller(
        "tidelog.admin.journals", "AsyncJournalCalls", "JournalCallsBase", f"{_SYNC}.journals", attribute="_journals"
    ),
    Caller(
        "tidelog.admin.mailboxes", "AsyncMailboxCalls", "MailboxCallsBase", f"{_SYNC}.mailboxes",
        left_out=frozenset({"channel_of"}), attribute="_mailboxes",
    ),
    Caller(
        "tidelog.mailboxes.mailbox", "AsyncMailbox", "MailboxBase", f"{_SYNC}.mailbox",
        left_out=frozenset({"fetch", "fetch_response", "worker", "work"}), attribute="_mailbox",
    ),
    Caller("tidelog.admin.blobs", "AsyncBlobCalls", "BlobCallsBase", f"{_SYNC}.blobs", attribute="_blobs"),
    Caller("tidelog.groups.calls", "AsyncGroupCalls", "GroupCalls", f"{_SYNC}.groups", made={"consumer": "Consumer"}),
    Caller("tidelog.txn.calls", "AsyncTransactionCalls", "TransactionCalls", f"{_SYNC}.transactions"),
    Caller(
        "tidelog.txn.transaction", "AsyncTransaction", "TransactionBase", f"{_SYNC}.transaction",
        left_out=frozenset({"append", "add", "stage"}), rewritten=frozenset({"__aenter__"}),
        also=frozenset({"__aexit__"}), attribute="_transaction", lock="_lock",
    ),
    Caller(
        "tidelog.groups.consumer", "AsyncConsumer", "ConsumerBase", f"{_SYNC}.consumer",
        left_out=frozenset({"commit_soon", "take_ready"}), also=frozenset({"__aexit__"}), attribute="_consumer",
    ),
    Caller(
        "tidelog.cluster", "AsyncCluster", "ClusterBase", f"{_SYNC}.cluster", left_out=frozenset({"pause"}),
        by_hand=frozenset({"client_of", "client_with", "aclose"}), wrapped={"mailbox": "Mailbox"},
        rewritten=frozenset({"channel", "vchannel", "ensure_channel"}) | _CONTEXT, attribute="_cluster",
    ),
    Caller(
        "tidelog.rocksmq._async_rocksmq", "AsyncRocksMQ", "RocksMQCalls", "tidelog.rocksmq._generated_rocksmq",
        left_out=frozenset({"register_consumer"}), by_hand=frozenset({"aclose"}), rewritten=_CONTEXT, attribute="_mq",
    ),
    Caller(
        "tidelog.msgstream._interface", "AsyncMsgStream", "MsgStreamCalls", "tidelog.msgstream._generated_stream",
        left_out=frozenset({"chan"}), by_hand=frozenset({"close"}), rewritten=_CONTEXT, attribute="_stream",
    ),
    Caller(
        "tidelog.msgstream._factories", "AsyncMsgStreamFactory", "MsgStreamFactoryCalls",
        "tidelog.msgstream._generated_factory",
        wrapped={"new_msg_stream": "MsgStream", "new_tt_msg_stream": "MsgStream"}, attribute="_factory",
    ),
    Caller(
        "tidelog.gazette.consumers.pages", "AsyncPages", "PagesCalls", "tidelog.gazette.consumers._generated_pages",
        attribute="_pages",
    ),
    Caller(
        "tidelog.gazette.append_driver", "JournalAppends", "JournalCalls", f"{_GAZETTE}.appends",
        bases={"Generic[Handle]": "typing"}, rewritten=frozenset({"__aenter__"}), also=frozenset({"__aexit__"}),
        attribute="_appends",
    ),
    Caller(
        "tidelog.gazette.readers", "AsyncRetryReader", "ReaderCalls", f"{_GAZETTE}.reader",
        left_out=frozenset({"part"}), attribute="source",
    ),
    Caller(
        "tidelog.gazette.polled_list", "AsyncPolledList", "ListCalls", f"{_GAZETTE}.polled_list",
        left_out=frozenset({"wait_changed", "start"}), also=frozenset({"__aexit__"}), attribute="_list",
    ),
    Caller(
        "tidelog.gazette.publishing", "PublisherCore", "PublisherCalls", f"{_GAZETTE}.publisher",
        bases={"Generic[Handle]": "typing"}, attribute="_core", lock="_lock",
    ),
)  # fmt: skip
HANDLES: Final = (
    Handles(
        "tidelog.handles", f"{_SYNC}.handles", wrapped={"producer": "Producer", "scan": "Scan", "tail": "Scan"},
        imports={"ClientCalls": "tidelog.client_calls"},
    ),
    Handles(
        "tidelog.wal.accessor", f"{_SYNC}.wal",
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
    Handles("tidelog.gazette.stores.interface", "tidelog.gazette.stores._generated_interface"),
    Handles(
        "tidelog.gazette.stores.on_tidelog", "tidelog.gazette.stores._generated_on_tidelog",
        names={"lookup": "sync_lookup"},
    ),
    Handles("tidelog.gazette.stores._postgres", "tidelog.gazette.stores._generated_postgres"),
    Handles("tidelog.pandora.stores", "tidelog.pandora._generated_stores"),
    Handles("tidelog.pandora.memory", "tidelog.pandora._generated_memory"),
    Handles("tidelog.pandora.server", "tidelog.pandora._generated_server"),
    Handles("tidelog.pandora.on_tidelog", "tidelog.pandora._generated_on_tidelog"),
)  # fmt: skip
PROTOCOLS: Final = (
    ClientProtocol("tidelog.client_calls", _CALLS_OF_HANDLES, is_async=True),
    ClientProtocol(f"{_SYNC}.client_calls", _CALLS_OF_WAL, is_async=False),
)

_NOTE: Final = "Generated by `make sync` from ``{source}``: change that, and run `make sync`."
_PROSE: Final = (
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
    (re.compile(r"\baclose\b"), "close"),
    (re.compile(r"__a(?=enter__|exit__)"), "__"),
    (re.compile(r"``async with``"), "``with``"),
    (re.compile(r"\bawait (?=[a-z])"), ""),
)


def synchronous(text: str) -> str:
    """Return a name or prose with the names of the synchronous classes."""
    for pattern, instead in _PROSE:
        text = pattern.sub(instead, text)
    return text


class Module:
    """An asynchronous module: its classes, and where its names come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = CLIENT / Path(*name.split(".")).with_suffix(".py")
        self.tree = ast.parse(path.read_text(), filename=str(path))
        self.origins = dict(self._origins())

    def _origins(self) -> Iterator[tuple[str, str]]:
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from ((alias.asname or alias.name, node.module) for alias in node.names)
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield node.name, self.name
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from ((target.id, self.name) for target in targets if isinstance(target, ast.Name))

    def class_named(self, name: str) -> ast.ClassDef:
        """Return a class of the module."""
        return next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def classes(self) -> list[ast.ClassDef]:
        """Return the classes of the module, in order."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]


def imports(
    code: str, origins: Mapping[str, str], defined: Iterable[str], own: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the imports that generated code needs: those of its sources, of synchronous classes, and its ``own``."""
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)} - set(defined)
    known = {**origins, **IMPORTS, **own}
    return "\n".join(f"from {known[name]} import {name}" for name in sorted(names) if name in known)


def functions_of(source: ast.ClassDef) -> list[ast.AsyncFunctionDef | ast.FunctionDef]:
    """Return the methods of a class, in order."""
    return [node for node in source.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]


def docstring_of(node: ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef, indent: str) -> str:
    """Return a docstring as it is written in the twin."""
    text = synchronous(ast.get_docstring(node, clean=True) or "")
    assert text, f"{node.name} has no docstring"
    assert "\\" not in text
    lines = [line and f"{indent}{line}" for line in text.splitlines()]
    ending = "" if len(lines) == 1 else f"\n{indent}"
    return f'{indent}"""' + "\n".join(lines).lstrip() + f'{ending}"""'


def passed(arguments: ast.arguments) -> str:
    """Return the arguments with which a method calls its twin."""
    given = [each.arg for each in (*arguments.posonlyargs, *arguments.args) if each.arg != "self"]
    assert arguments.vararg is None
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(given)


def method_of(node: ast.AsyncFunctionDef | ast.FunctionDef, caller: Caller) -> str:
    """Return the method of the twin for one of the asynchronous class."""
    if node.name in caller.rewritten:
        return _indented(_with_docstrings(_WithoutAwait().visit(node)))
    returns = ast.unparse(node.returns) if node.returns else "None"
    head = f"    def {synchronous(node.name)}({ast.unparse(node.args)}) -> "
    doc = f"{docstring_of(node, ' ' * 8)}\n" if ast.get_docstring(node) else ""
    if node.name in caller.by_hand:
        return f"    @abstractmethod\n{head}{synchronous(returns)}:\n{doc}"
    if "property" in map(ast.unparse, node.decorator_list):
        return f"    @property\n{head}{returns}:\n{doc}        return self.{caller.attribute}.{node.name}\n"
    call = f"self.{caller.attribute}.{node.name}({passed(node.args)})"
    items = re.fullmatch(r"AsyncIterator\[(.*)\]|AsyncGenerator\[(.*), None\]", returns)
    if node.name in caller.made:
        returns = caller.made[node.name]
        body = f"async def make() -> {returns}: return {returns}({call})\n        return background.run(make())"
    elif node.name in caller.wrapped:
        returns = caller.wrapped[node.name]
        body = f"return {returns}({call})"
    elif node.name in caller.handles:
        returns = caller.handles[node.name]
        body = f"return {returns}(self.{caller.attribute}, {passed(node.args)})"
    elif items:
        returns = f"Iterator[{items[1] or items[2]}]"
        body = f"return background.iterate({call})"
    else:
        body = call if isinstance(node, ast.FunctionDef) else f"background.run({call})"
        body = body if returns == "None" else f"return {body}"
    if caller.lock:
        body = f"with self.{caller.lock}: {body}"
    return f"{head}{returns}:\n{doc}        {body}\n"


def caller_module(caller: Caller) -> str:
    """Return the text of a module with the twin of one class, unformatted."""
    module = Module(caller.source)
    special = caller.rewritten | caller.also
    methods = [
        method_of(node, caller)
        for node in functions_of(module.class_named(caller.name))
        if node.name in special or not (node.name.startswith("_") or node.name in caller.left_out)
    ]
    is_async = any(isinstance(node, ast.AsyncFunctionDef) for node in functions_of(module.class_named(caller.name)))
    where = "run on the background event loop" if is_async else "under a lock"
    parameters = "".join(base.removeprefix("Generic") for base in caller.bases if base.startswith("Generic["))
    fields = [
        f"{caller.attribute}: {caller.name}{parameters}",
        *caller.fields,
        *([f"{caller.lock}: AbstractContextManager[Any]"] if caller.lock else []),
    ]
    bases = [*caller.bases, *(["ABC"] if caller.by_hand else [])]
    code = (
        f"class {caller.twin}({', '.join(bases)}):\n"
        f'    """Calls of ``{caller.name}``, {where}."""\n\n'
        + _indented("\n".join(fields)) + "\n" + "\n".join(methods)
    )  # fmt: skip
    origins = {**module.origins, **caller.bases, "ABC": "abc", "AbstractContextManager": "contextlib", "Any": "typing"}
    note = _NOTE.format(source=caller.source)
    return f'"""{note}"""\n\n{imports(code, origins, [caller.twin])}\n\n\n{code}'


def protocol_module(protocol: ClientProtocol) -> str:
    """Return the text of a module with a protocol of the client, unformatted."""
    origins: dict[str, str] = {}
    texts = []
    for (source, name), wanted in protocol.methods.items():
        module = Module(source)
        origins |= module.origins
        methods = {node.name: node for node in functions_of(module.class_named(name))}
        for method in wanted:
            node = methods[method]
            node.body = [ast.Expr(ast.Constant(f"See ``AsyncClient.{method}``."))]
            texts.append(
                ast.unparse(ast.fix_missing_locations(node if protocol.is_async else _WithoutAwait().visit(node)))
            )
    code = (
        'class ClientCalls(Protocol):\n    """The calls that code below the client makes."""\n\n'
        "    timeout_s: float\n\n" + "\n\n".join(map(_indented, texts))
    )  # fmt: skip
    sources = "``, ``".join(dict.fromkeys(source for source, _ in protocol.methods))
    note = f"Generated by `make sync`: change the sources, and run `make sync`.\n\nThe sources are ``{sources}``.\n"
    return f'"""{note}"""\n\n{imports(code, origins, ["ClientCalls"])}\n\n\n{code}\n'


def _indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True)) + "\n"


class _WithoutAwait(ast.NodeTransformer):
    """Rewrites the classes of a module of handles."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}

    def _visited(self, node: ast.AST) -> ast.AST:
        visited = self.visit(node)
        assert isinstance(visited, ast.AST)
        return visited

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        fields = {name: getattr(node, name) for name in ast.FunctionDef._fields if hasattr(node, name)}
        return self._visited(ast.copy_location(ast.FunctionDef(**fields), node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = synchronous(node.name)
        if isinstance(node.returns, ast.Constant) and isinstance(node.returns.value, str):
            node.returns = ast.Constant(synchronous(node.returns.value))
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = synchronous(node.attr)
        return self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self._visited(ast.copy_location(ast.For(node.target, node.iter, node.body, node.orelse), node))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self._visited(ast.copy_location(ast.With(node.items, node.body), node))

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self._visited(node.value)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self._names.get(node.id) or synchronous(node.id), node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        # A method that returns a coroutine instead of being one.
        if isinstance(node.value, ast.Name) and node.value.id == "Coroutine":
            assert isinstance(node.slice, ast.Tuple)
            return self._visited(node.slice.elts[-1])
        return self.generic_visit(node)


class _WithBackground(_WithoutAwait):
    """Rewrites handles of an asynchronous object: what they await runs on the background event loop."""

    def __init__(self, wrapped: Mapping[str, str]) -> None:
        super().__init__()
        self._wrapped = wrapped

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        returns = ast.unparse(node.returns) if node.returns else ""
        call = "background.run" if returns.startswith("Coroutine[") else self._wrapped.get(node.name)
        last = node.body[-1]
        if call and isinstance(last, ast.Return) and last.value is not None:
            last.value = _called(call, last.value)
        return super().visit_FunctionDef(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return _called("background.run", super().visit_Await(node))


def _called(name: str, argument: ast.AST) -> ast.Call:
    assert isinstance(argument, ast.expr)
    return ast.Call(ast.parse(name, mode="eval").body, [argument], [])


def handles_module(handles: Handles) -> str:
    """Return the text of a module of handles, unformatted."""
    module = Module(handles.source)
    twins = handles.classes or {source.name: synchronous(source.name) for source in module.classes()}
    texts = []
    for name, twin in twins.items():
        source = module.class_named(name)
        caller = Caller(handles.source, name, twin, handles.target, attribute=handles.attribute)
        run = [method_of(node, caller) for node in functions_of(source) if f"{name}.{node.name}" in handles.run]
        gone = handles.left_out | handles.run
        source.body = [node for node in source.body if f"{name}.{getattr(node, 'name', '')}" not in gone]
        rewriting = _WithBackground(handles.wrapped) if handles.wrapped else _WithoutAwait(handles.names)
        rewritten = rewriting.visit(source)
        rewritten.name = twin
        if run:
            head = f'"""Calls of ``{name}``, with a synchronous client."""\n{handles.attribute}: {name}'
            rewritten.body[:1] = ast.parse(head).body
        texts.append("\n\n".join([_with_docstrings(rewritten), *run]))
    code = "\n\n\n".join(texts)
    note = _NOTE.format(source=handles.source)
    needed = imports(code, module.origins, twins.values(), handles.imports)
    return f'"""{note}"""\n\n{needed}\n\n\n{code}\n'


def _with_docstrings(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return a definition as text, with docstrings in several lines; ``ast.unparse`` writes them as literals."""
    depth = int(isinstance(node, ast.ClassDef))
    docs: dict[str, str] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(each):
            indent = "    " if each is node else "    " * (depth + 1)
            mark = f"docstring {len(docs)}"
            docs[mark] = docstring_of(each, indent)
            first = each.body[0]
            assert isinstance(first, ast.Expr)
            first.value = ast.Constant(mark)
    text = ast.unparse(ast.fix_missing_locations(node))
    for mark, doc in docs.items():
        text = re.sub(rf'^ *"""{mark}"""$', lambda _, doc=doc: doc, text, flags=re.MULTILINE)  # type: ignore[misc]  # the default binds it
    return text


def write(folder: Path) -> list[Path]:
    """Write all generated modules below ``folder``, which stands for the client's folder; return their paths."""
    texts = {caller.target: caller_module(caller) for caller in CALLERS}
    texts |= {handles.target: handles_module(handles) for handles in HANDLES}
    texts |= {protocol.target: protocol_module(protocol) for protocol in PROTOCOLS}
    for package in (_SYNC, _GAZETTE):
        texts[f"{package}.__init__"] = '"""Synchronous twins, generated by `make sync`."""\n'
    paths = []
    for name, text in texts.items():
        path = folder / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    options = ["--config", str(ROOT / "pyproject.toml"), "--quiet", *map(str, paths)]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--select", "I,UP034", "--fix-only", *options], check=True)
    subprocess.run([*ruff, "format", *options], check=True)
    return paths


if __name__ == "__main__":
    write(CLIENT)
