"""Load on a real server, through the raw protocol, with every intent and outcome in a ``History``.

Why not the client package: it retries and resumes, but a crash test must know the outcome of each single request.
"""

import asyncio
from array import array
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import Message

from tidelog.v1 import (
    channel_service_pb2,
    error_pb2,
    message_pb2,
    transaction_service_pb2,
    transaction_service_pb2_grpc,
    wal_service_pb2,
    wal_service_pb2_grpc,
)
from tidelog.wire.columns import encode_payloads
from tidelog_testing.oracles.history import Append, Following, History, Row

MAX_BATCH: Final = 50
_IN_FLIGHT: Final = 16
# Probability that a further batch is put into a message that has one.
_SHARE_OF_SHARED: Final = 0.5
_PAUSE_S: Final = 0.02
_WAL: Final = "/tidelog.v1.WalService"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_NOT_CONNECTED: Final = "Connection refused"
_OPTIONS: Final = [("grpc.max_receive_message_length", 64 << 20), ("grpc.use_local_subchannel_pool", 1)]


def connect(endpoint: str) -> grpc.aio.Channel:
    """Return a separate connection to a server; an asynchronous context manager."""
    return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)


@dataclass(slots=True)
class Load:
    """Producers and followers, to run against successive incarnations of a server.

    Attributes:
        history: Receives intents and outcomes.
        vchannels: Targets of the appends; every producer writes to all of them.
        random: Chooses vchannels and sizes of batches.
        streams, unaries: Number of producers that use AppendStream and Append.
        followed: What the followers receive.
        padding: Appended to each payload after a space, to fill disks.
        pause_s: How long each producer waits between two requests, so that a log stays short.
        answer_within_s: How long a call waits for its answer, and the end of the load for the followers.
        name: Begin of the names of its producers. Loads that run at a time have different ones.
        acknowledged: Set at the first acknowledgement.
        stopping: When set, the producers finish what they have in flight and end.
        refusals: Number of refusals, by reason.
    """

    history: History
    vchannels: Sequence[str]
    random: Random
    streams: int = 4
    unaries: int = 2
    followed: Sequence[Following] = ()
    padding: bytes = b""
    pause_s: float = 0.0
    answer_within_s: float = 30.0
    name: str = ""
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    refusals: Counter[int] = field(default_factory=Counter)

    async def run(self, endpoint: str) -> None:
        """Append and follow until the server is gone, or has answered everything after ``stopping`` is set."""
        async with connect(endpoint) as channel, asyncio.TaskGroup() as group:
            following = [group.create_task(self._follow(channel, each)) for each in self.followed]
            async with asyncio.TaskGroup() as producers:
                for number in range(self.streams):
                    producers.create_task(_StreamProducer(self, f"{self.name}stream{number}").run(channel))
                for number in range(self.unaries):
                    producers.create_task(self._append(channel, f"{self.name}unary{number}"))
            if self.stopping.is_set():
                # They end with the server, if it does.
                await until(
                    lambda: self._is_everything_seen() or all(task.done() for task in following),
                    self.answer_within_s, "the followers have seen everything",
                )  # fmt: skip
                for task in following:
                    task.cancel()

    def intend(self, producer: str) -> Append:
        """Record the next append of a producer."""
        return self.history.intend(producer, self.random.choice(self.vchannels), self.random.randint(1, MAX_BATCH))

    def payloads(self, append: Append) -> list[bytes]:
        """Return the messages of an append."""
        return [value.encode() + self.padding for value in append.values()]

    def accept(self, append: Append, result: wal_service_pb2.AppendResult) -> None:
        """Record an acknowledgement."""
        append.acknowledge(result.first_tick)
        self.acknowledged.set()

    def refuse(self, append: Append, detail: error_pb2.ErrorDetail) -> None:
        """Record a refusal or an unknown outcome."""
        self.refusals[detail.reason] += 1
        if detail.effect == error_pb2.EFFECT_NONE:
            append.refuse()

    def _is_everything_seen(self) -> bool:
        last_tick = max((append.first_tick for append in self.history.appends), default=0)
        return all(following.reached > last_tick + MAX_BATCH for following in self.followed)

    async def _append(self, channel: grpc.aio.Channel, producer: str) -> None:
        call = channel.unary_unary(
            f"{_WAL}/Append",
            wal_service_pb2.AppendRequest.SerializeToString,
            wal_service_pb2.AppendResponse.FromString,
        )
        while not self.stopping.is_set():
            append = self.intend(producer)
            messages = [message_pb2.Message(payload=payload) for payload in self.payloads(append)]
            request = wal_service_pb2.AppendRequest(vchannel=append.vchannel, messages=messages)
            try:
                self.accept(append, (await call(request, timeout=self.answer_within_s)).result)
                await asyncio.sleep(self.pause_s)
            except grpc.aio.AioRpcError as error:
                detail = detail_of(error)
                if detail is None:
                    check_is_gone(error)
                    if _NOT_CONNECTED in (error.details() or ""):
                        # gRPC reports this only if the call was on no connection that the server has read.
                        append.refuse()
                    return
                self.refuse(append, detail)
                if detail.reason == error_pb2.REASON_ON_SHUTDOWN:
                    return
                # An append refused for lack of disk space would be refused again at once.
                await asyncio.sleep(_PAUSE_S)

    async def _follow(self, channel: grpc.aio.Channel, following: Following) -> None:
        # Exact over several vchannels: no broadcast is sent, so no two messages have a tick in common.
        policy = wal_service_pb2.DeliverPolicy(from_tick=following.reached + 1)
        end = wal_service_pb2.ScanEnd(follow=wal_service_pb2.ScanEndFollow())
        try:
            async for response in scan(channel, following.vchannels, policy, end):
                for vchannel, tick, value in rows_of(response, following.vchannels):
                    following.saw(vchannel, tick, value)
                following.told(response.watermark)
        except grpc.aio.AioRpcError as error:
            if detail_of(error) is None:
                check_is_gone(error)
            elif error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise


@dataclass(slots=True)
class _StreamProducer:
    """One AppendStream with several batches in flight, some of which share a message."""

    load: Load
    name: str
    in_flight: deque[Append] = field(default_factory=deque)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_IN_FLIGHT))
    is_refused: bool = False
    is_over: bool = False

    async def run(self, channel: grpc.aio.Channel) -> None:
        """Append until the server is gone, or everything is answered after ``stopping`` is set."""
        call = channel.stream_stream(
            f"{_WAL}/AppendStream",
            wal_service_pb2.AppendStreamRequest.SerializeToString,
            wal_service_pb2.AppendStreamResponse.FromString,
        )()
        writer = asyncio.ensure_future(self._write(call))
        try:
            while isinstance(answer := await call.read(), wal_service_pb2.AppendStreamResponse):
                for each in (answer, *answer.more):
                    self._settle(each)
            assert not self.in_flight, "a stream that ends with OK has answered everything"
        except grpc.aio.AioRpcError as error:
            self._ended(error)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, call: "grpc.aio.StreamStreamCall[Message, wal_service_pb2.AppendStreamResponse]") -> None:
        while not self.load.stopping.is_set():
            await self.room.acquire()
            if self.is_refused:
                await asyncio.sleep(_PAUSE_S)
            if self.is_over:
                break
            request = self._next()
            while not self.room.locked() and self.load.random.random() < _SHARE_OF_SHARED:
                await self.room.acquire()
                request.more.append(self._next())
            await call.write(request)
            if self.load.pause_s:
                await asyncio.sleep(self.load.pause_s)
        await call.done_writing()

    def _next(self) -> wal_service_pb2.AppendStreamRequest:
        append = self.load.intend(self.name)
        self.in_flight.append(append)
        return wal_service_pb2.AppendStreamRequest(
            request_id=append.first, vchannel=append.vchannel, columns=columns_of(self.load.payloads(append))
        )

    def _settle(self, answer: wal_service_pb2.AppendStreamResponse) -> None:
        append = self.in_flight.popleft()
        assert answer.request_id == append.first, "answers come in the order of the requests"
        self.is_refused = answer.HasField("error")
        if self.is_refused:
            self.load.refuse(append, answer.error.detail)
            self.is_over = self.is_over or answer.error.detail.reason == error_pb2.REASON_ON_SHUTDOWN
        else:
            self.load.accept(append, answer.result)
        self.room.release()

    def _ended(self, error: grpc.aio.AioRpcError) -> None:
        detail = detail_of(error)
        if detail is None:
            check_is_gone(error)
            return
        # The server has answered everything that it processed: the rest certainly had no effect, if it reports that.
        for append in self.in_flight:
            self.load.refuse(append, detail)


def columns_of(payloads: Sequence[bytes]) -> message_pb2.Columns:
    """Return a batch in its wire format."""
    columns = encode_payloads(payloads)
    return message_pb2.Columns(
        count=columns.count,
        payload_offsets=columns.payload_offsets,
        payloads=bytes(columns.payloads),
        crc32c=columns.crc32c,
    )


def rows_of(response: wal_service_pb2.ScanResponse, vchannels: Sequence[str]) -> Iterable[tuple[str, int, str]]:
    """Yield vchannel, tick and value of each message of a response in columns."""
    for entry in response.entries:
        assert not entry.tick_deltas
        payloads, offsets = entry.columns.payloads, array("i", entry.columns.payload_offsets)
        for index in range(entry.columns.count):
            payload = payloads[offsets[index] : offsets[index + 1]]
            yield vchannels[entry.source], entry.base_tick + index, payload.partition(b" ")[0].decode()


async def scan(
    channel: grpc.aio.Channel,
    vchannels: Sequence[str],
    policy: wal_service_pb2.DeliverPolicy,
    end: wal_service_pb2.ScanEnd,
) -> AsyncIterator[wal_service_pb2.ScanResponse]:
    """Yield the responses of a scan in columns."""
    request = wal_service_pb2.ScanRequest(
        sources=[wal_service_pb2.ScanSource(vchannel=name) for name in vchannels],
        policy=policy,
        end=end,
        format=wal_service_pb2.SCAN_FORMAT_COLUMNS,
    )
    call = channel.unary_stream(
        f"{_WAL}/Scan", wal_service_pb2.ScanRequest.SerializeToString, wal_service_pb2.ScanResponse.FromString
    )
    async for response in call(request):
        yield response


async def read_all(endpoint: str, vchannels: Sequence[str]) -> dict[str, list[Row]]:
    """Return everything in ``vchannels``, each read by its own scan from a new connection."""
    log: dict[str, list[Row]] = {name: [] for name in vchannels}
    policy = wal_service_pb2.DeliverPolicy(all=wal_service_pb2.DeliverAll())
    end = wal_service_pb2.ScanEnd(watermark=wal_service_pb2.ScanEndWatermark())
    async with connect(endpoint) as channel:
        for name, rows in log.items():
            async for response in scan(channel, [name], policy, end):
                rows.extend((tick, value) for _, tick, value in rows_of(response, [name]))
    return log


async def create_channel(endpoint: str, name: str, vchannels: int) -> list[str]:
    """Create a channel if it does not exist, and return the names of its vchannels."""
    request = channel_service_pb2.CreateChannelsRequest(names=[name], vchannels=vchannels, if_not_exists=True)
    async with connect(endpoint) as channel:
        await channel.unary_unary(
            "/tidelog.v1.ChannelService/CreateChannels",
            channel_service_pb2.CreateChannelsRequest.SerializeToString,
            channel_service_pb2.CreateChannelsResponse.FromString,
        )(request)
    return [f"{name}/{index}" for index in range(vchannels)]


def detail_of(error: grpc.aio.AioRpcError) -> error_pb2.ErrorDetail | None:
    """Return the server's own detail of an error; None if the error comes from the transport."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            detail = error_pb2.ErrorDetail()
            assert isinstance(value, bytes)
            error_pb2.RpcStatus.FromString(value).details[0].Unpack(detail)
            return detail
    return None


def check_is_gone(error: grpc.aio.AioRpcError) -> None:
    """Raise ``error`` unless it is one that the transport reports when a server goes away.

    gRPC reports INTERNAL for a message that is written while the connection breaks, and CANCELLED for a call that
    arrives while the server stops listening.
    """
    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
    if error.code() not in codes:
        raise error


async def until(is_true: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait until a condition holds, checking every few milliseconds. Raises TimeoutError that names ``what``."""
    try:
        async with asyncio.timeout(within_s):
            while not is_true():
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise TimeoutError(f"not within {within_s} s: {what}") from None


async def open_producer(endpoint: str, vchannel: str) -> None:
    """Open a producer.

    Raises:
        grpc.aio.AioRpcError: The server went away.
    """
    async with connect(endpoint) as channel:
        wal: Any = wal_service_pb2_grpc.WalServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        await wal.OpenProducer(wal_service_pb2.OpenProducerRequest(vchannel=vchannel, producer_id="opened"))


async def stage(endpoint: str, vchannels: Sequence[str], *, commits: bool) -> None:
    """Begin a transaction, stage a batch on each vchannel, and commit it or roll it back.

    Raises:
        grpc.aio.AioRpcError: The server went away.
    """
    async with connect(endpoint) as channel:
        transactions: Any = transaction_service_pb2_grpc.TransactionServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        wal: Any = wal_service_pb2_grpc.WalServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        txn_id = (await transactions.BeginTxn(transaction_service_pb2.BeginTxnRequest())).txn_id
        for vchannel in vchannels:
            await wal.Append(
                wal_service_pb2.AppendRequest(
                    vchannel=vchannel,
                    messages=[message_pb2.Message(payload=b"staged")],
                    options=wal_service_pb2.AppendOptions(txn_id=txn_id),
                )
            )
        if commits:
            await transactions.CommitTxn(transaction_service_pb2.CommitTxnRequest(txn_id=txn_id))
        else:
            await transactions.RollbackTxn(transaction_service_pb2.RollbackTxnRequest(txn_id=txn_id))


async def trim(endpoint: str, history: History, vchannel: str, before_tick: int) -> None:
    """Trim a vchannel, and record the intent."""
    record = history.trims[vchannel]
    record.tried_tick = max(record.tried_tick, before_tick)
    async with connect(endpoint) as channel:
        await channel.unary_unary(
            f"{_WAL}/Trim", wal_service_pb2.TrimRequest.SerializeToString, wal_service_pb2.TrimResponse.FromString
        )(wal_service_pb2.TrimRequest(vchannel=vchannel, before_tick=before_tick))
    record.done_tick = max(record.done_tick, before_tick)


async def destroy_channel(endpoint: str, name: str) -> None:
    """Destroy a channel."""
    request = channel_service_pb2.DestroyChannelsRequest(names=[name])
    async with connect(endpoint) as channel:
        await channel.unary_unary(
            "/tidelog.v1.ChannelService/DestroyChannels",
            channel_service_pb2.DestroyChannelsRequest.SerializeToString,
            channel_service_pb2.DestroyChannelsResponse.FromString,
        )(request)
