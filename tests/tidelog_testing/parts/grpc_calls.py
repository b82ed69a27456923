"""A server on the test's event loop, and raw gRPC calls to it: with messages, or with arbitrary bytes."""

from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import grpc
import grpc.aio
import pytest

from tidelog.v1 import (
    blob_service_pb2_grpc,
    broadcast_service_pb2_grpc,
    channel_service_pb2,
    channel_service_pb2_grpc,
    error_pb2,
    group_service_pb2_grpc,
    mailbox_service_pb2_grpc,
    message_pb2,
    transaction_service_pb2,
    transaction_service_pb2_grpc,
    wal_service_pb2,
    wal_service_pb2_grpc,
)
from tidelog_server.app import Server
from tidelog_server.config import load_config
from tidelog_server.opening import Opened
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.storage.log_store import LogStore
from tidelog_testing.loads.workload import detail_of
from tidelog_testing.parts.batches import Message, a_columns

WAL: Final = "/tidelog.v1.WalService"
TRANSACTIONS: Final = "/tidelog.v1.TransactionService"
CHANNELS: Final = "/tidelog.v1.ChannelService"


@asynccontextmanager
async def running_server(
    folder: Path | None = None, *, store: LogStore | None = None, clock: Clock | None = None, **settings: object
) -> AsyncIterator[Server]:
    """Run a server on free loopback ports: in memory, in ``folder``, or on the test's own store.

    Write settings as ``limits__max_batch_bytes=1000``.
    """
    flags = {
        "server.grpc_port": "0",
        "server.http_port": "0",
        # A test closes its clients before the server, so there are few calls to refuse.
        "server.shutdown_grace_s": "2",
        "log.level": "error",
        "limits.min_free_disk_bytes": "0",
        **({"storage.data_dir": str(folder)} if folder else {"storage.kind": "memory"}),
        **{name.replace("__", "."): str(value) for name, value in settings.items()},
    }
    config = load_config(None, {}, flags)
    if store is None:
        server = await Server.start(config, clock)
    else:
        server = Server(Opened(config, store), clock or SystemClock(), 0.0)
        await server._open()
        await server._serve()
    try:
        yield server
    finally:
        await server.stop()


@dataclass(frozen=True)
class Refusal:
    """A refusal by the server, of a call or of one batch of a stream."""

    code: int
    reason: int
    effect: int
    values: dict[str, str]
    text: str


def named(client_id: str | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata that identifies a client."""
    return () if client_id is None else (("tidelog-client-id", client_id),)


class Client:
    """Stubs on one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.wal: Any = wal_service_pb2_grpc.WalServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        self.transactions: Any = transaction_service_pb2_grpc.TransactionServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        self.channels: Any = channel_service_pb2_grpc.ChannelServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        self.mailboxes: Any = mailbox_service_pb2_grpc.MailboxServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        self.blobs: Any = blob_service_pb2_grpc.BlobServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        self.broadcasts: Any = broadcast_service_pb2_grpc.BroadcastServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        self.groups: Any = group_service_pb2_grpc.GroupServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.

    async def create(self, *names: str, vchannels: int = 1) -> None:
        """Create channels."""
        await self.channels.CreateChannels(channel_service_pb2.CreateChannelsRequest(names=names, vchannels=vchannels))

    async def append(self, vchannel: str, *payloads: bytes, **options: Any) -> wal_service_pb2.AppendResult:
        """Append a batch in row form."""
        response = await self.wal.Append(
            wal_service_pb2.AppendRequest(
                vchannel=vchannel,
                messages=[message_pb2.Message(payload=payload) for payload in payloads],
                options=wal_service_pb2.AppendOptions(**options),
            )
        )
        result: wal_service_pb2.AppendResult = response.result
        return result

    async def begin(self, *vchannels: str, keepalive_us: int = 0, client_id: str | None = None) -> int:
        """Begin a transaction and return its id."""
        request = transaction_service_pb2.BeginTxnRequest(vchannels=vchannels, keepalive_us=keepalive_us)
        response = await self.transactions.BeginTxn(request, metadata=named(client_id))
        txn_id: int = response.txn_id
        return txn_id

    async def commit(self, txn_id: int, **fields: Any) -> wal_service_pb2.TransactionResult:
        """Commit a transaction."""
        request = transaction_service_pb2.CommitTxnRequest(txn_id=txn_id, **fields)
        result: wal_service_pb2.TransactionResult = (await self.transactions.CommitTxn(request)).result
        return result

    async def roll_back(self, txn_id: int) -> None:
        """Roll a transaction back."""
        await self.transactions.RollbackTxn(transaction_service_pb2.RollbackTxnRequest(txn_id=txn_id))

    async def append_all(
        self, requests: Iterable[wal_service_pb2.AppendStreamRequest]
    ) -> list[wal_service_pb2.AppendStreamResponse]:
        """Send a complete AppendStream and return its answers."""
        return [answer async for answer in self.wal.AppendStream(iter(list(requests)))]

    async def scan(self, *vchannels: str, **fields: Any) -> list[wal_service_pb2.ScanResponse]:
        """Return all responses of a bounded scan."""
        sources = [wal_service_pb2.ScanSource(vchannel=name) for name in vchannels]
        return [page async for page in self.wal.Scan(wal_service_pb2.ScanRequest(sources=sources, **fields))]

    async def rows(self, *vchannels: str, **fields: Any) -> list[tuple[str, int, bytes]]:
        """Return vchannel, tick and payload of all messages of a bounded scan."""
        return [
            (row.vchannel, row.tick, row.message.payload)
            for response in await self.scan(*vchannels, **fields)
            for row in response.rows
        ]

    def raw_unary(self, method: str, encoded: bytes) -> Awaitable[bytes]:
        """Call a method with arbitrary bytes as its request."""
        stub: Any = self.channel.unary_unary(method)
        return cast("Awaitable[bytes]", stub(encoded))

    def raw_server_stream(self, method: str, encoded: bytes) -> AsyncIterator[bytes]:
        """Call a streaming method with arbitrary bytes as its request."""
        stub: Any = self.channel.unary_stream(method)
        return cast("AsyncIterator[bytes]", stub(encoded))

    def raw_append_stream(self, requests: Any = None) -> Any:
        """Open an AppendStream of bytes."""
        return self.channel.stream_stream(f"{WAL}/AppendStream")(requests)


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[Client]:
    """Connect to ``server``; write gRPC's options as ``max_metadata_size=1``."""
    arguments = [(f"grpc.{name}", value) for name, value in options.items()]
    async with grpc.aio.insecure_channel(server.grpc_endpoint, options=arguments) as channel:
        yield Client(channel)


@asynccontextmanager
async def refused() -> AsyncIterator[list[Refusal]]:
    """Expect the server itself to refuse a call; the refusal is added to the list."""
    found: list[Refusal] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield found
    error = caught.value
    detail = detail_of(error)
    assert detail is not None, f"the transport refused, not the server: {error.code()} {error.details()}"
    found.append(
        Refusal(error.code().value[0], detail.reason, detail.effect, dict(detail.values), error.details() or "")
    )


async def refusal_of(call: Awaitable[object]) -> Refusal:
    """Return the server's refusal of a call."""
    async with refused() as found:
        await call
    return found[0]


def refusal_in(answer: wal_service_pb2.AppendStreamResponse) -> Refusal:
    """Return the refusal of one batch of a stream."""
    assert answer.WhichOneof("answer") == "error"
    error = answer.error
    return Refusal(error.code, error.detail.reason, error.detail.effect, dict(error.detail.values), error.message)


def a_request(
    vchannel: str, *messages: Message | bytes, request_id: int = 0, **options: Any
) -> wal_service_pb2.AppendStreamRequest:
    """Return one request of an AppendStream."""
    return wal_service_pb2.AppendStreamRequest(
        request_id=request_id,
        vchannel=vchannel,
        columns=a_columns(messages or [b"payload"]),
        options=wal_service_pb2.AppendOptions(**options) if options else None,
    )


def with_columns(vchannel: str, columns: message_pb2.Columns) -> wal_service_pb2.AppendStreamRequest:
    """Return one request of an AppendStream with these columns, unchanged."""
    return wal_service_pb2.AppendStreamRequest(vchannel=vchannel, columns=columns)


def names_of(reasons: Sequence[int]) -> list[str]:
    """Return reasons by name."""
    return [error_pb2.Reason.Name(reason) for reason in reasons]
