"""Scans: bounded or following reads that survive the loss of their connection."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import grpc.aio

from tidelog._closing import AsyncClosing
from tidelog.errors import ClosedError, DataLossError, ServerError, TidelogError, UnavailableError
from tidelog.read import protocol as _requests
from tidelog.read.frames import MAX_FRAME_BYTES
from tidelog.read.positions import At
from tidelog.read.reader_watch import Patience, ReaderWatch
from tidelog.read.scan_plan import ScanArguments
from tidelog.read.scan_sources import Begin, Source, Targets, added_sources, sizes_of, sources_of
from tidelog.read.scanned import Scanned, Signal
from tidelog.tick import Tick
from tidelog.transport import tracing as _tracing
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.patience_scope import Alarm
from tidelog.transport.status import error_of_status
from tidelog.transport.stream_end import look_at
from tidelog.transport.transport import Connection, Transport
from tidelog.v1 import wal_service_pb2
from tidelog.wire import columns as _columns
from tidelog.wire import scan_response
from tidelog.wire.batch import Batch, polars_frame
from tidelog.wire.column_message import columns_from_wire
from tidelog.wire.column_parts import txn_parts
from tidelog.wire.key_filter import KeyFilter
from tidelog.wire.optional import need
from tidelog.wire.protowire import WireFormatError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


@dataclass(slots=True)
class _Received:
    """A response with batches that were not delivered yet.

    Attributes:
        batches: Of each batch its source, the messages to deliver, None if a filter removed all, and its last tick.
    """

    batches: "deque[tuple[Source, Batch | None, int]]"
    watermark: int
    caught_up: bool

    def pass_over(self) -> None:
        """Count batches without messages to deliver as delivered, up to the next one that has some."""
        while self.batches and self.batches[0][1] is None:
            source, _, last_tick = self.batches.popleft()
            source.delivered_tick = last_tick


_SHOWN_VCHANNELS: Final = 3


class ScanCore(Scanned):
    """A scan of one server; see ``Scanned``."""

    def __init__(
        self,
        transport: Callable[[], Transport],
        resolve: Callable[[], Awaitable[Targets]],
        plan: ScanArguments,
        watch: ReaderWatch | None = None,
        group: str = "",
    ) -> None:
        self.caught_up: Signal = asyncio.Event()
        self.plan = plan
        self._transport = transport
        self._resolve = resolve
        self._watch = watch or ReaderWatch(plan.on_event)
        # The group whose consumer delivers the batches, and reports them; empty if the caller of the scan gets them.
        self._group = group
        self._sources: list[Source] | None = None
        self._open_sources: list[Source] = []
        self._whole: Collection[str] = ()
        self._lease: tuple[Transport, Connection] | None = None
        self._call: Any = None
        # The span of the call, if tracing is enabled.
        self._span: _tracing.Span | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._has_read = asyncio.Event()
        self._alarm = Alarm()
        # Of a scan up to the watermark: its end, according to the first response; 0 before that.
        self._end_tick = 0
        self._received: _Received | None = None
        self._received_watermark = 0
        self._watermark = Tick(0)
        self._state: Literal["open", "ended", "closed"] = "open"

    @classmethod
    def at(
        cls,
        transport: Callable[[], Transport],
        begins: Mapping[str, Begin],
        plan: ScanArguments,
        watch: ReaderWatch | None = None,
        group: str = "",
    ) -> Self:
        """Return a scan with a separate begin for each vchannel, given by its full name."""
        core = cls(transport, Targets(list(begins)).resolved, plan, watch, group)
        core._sources = [Source(vchannel, begin) for vchannel, begin in begins.items()]
        core._watch.reads(list(begins))
        return core

    def __repr__(self) -> str:
        """Return the vchannels and the state, for the scans."""
        names = [source.vchannel for source in self._sources or ()]
        some = ", ".join(names[:_SHOWN_VCHANNELS]) + (", ..." if len(names) > _SHOWN_VCHANNELS else "")
        return f"of {some}, {self._state}" if names else "that is not opened yet"

    @property
    def has_batch(self) -> bool:
        return self._received is not None and bool(self._received.batches)

    @property
    def watermark(self) -> Tick:
        return self._watermark

    @property
    def positions(self) -> Mapping[str, Tick]:
        if self._sources is None:
            return {vchannel: Tick(tick) for vchannel, tick in (self.plan.positions or {}).items()}
        found = {source.vchannel: source.position(self._watermark) for source in self._sources}
        return {vchannel: tick for vchannel, tick in found.items() if tick is not None}

    async def fetch(self) -> bool:
        while not self.has_batch:
            if not await self.next_response():
                return False
        return True

    async def next_response(self) -> bool:
        """Wait for the next response, which may have only a watermark; there must be no batch. False at the end.

        Raises:
            TidelogError: As ``AsyncScan.__anext__``.
        """
        # The caller may have dropped the batches of the previous one.
        self._finish_empty()
        if self._state == "ended":
            return False
        await self._receive()
        self._finish_empty()
        return True

    async def enter(self) -> None:
        """Open a scan that starts at ``latest``, so that it misses nothing that is appended from now on.

        A server sends a following scan its watermark at once, from which the scan can be resumed.
        """
        if self.plan.start.kind == "latest" and self._sources is None:
            await self.next_response()

    def take(self) -> Batch:
        received = self._received
        assert received is not None
        source, batch, last_tick = received.batches.popleft()
        assert batch is not None
        source.delivered_tick = last_tick
        received.pass_over()
        if not received.batches:
            self._finish(received)
        return batch

    def peek(self) -> Batch:
        assert self._received is not None
        batch = self._received.batches[0][1]
        assert batch is not None
        return batch

    @property
    def has_ended(self) -> bool:
        return self._state == "ended"

    def mark(self) -> Callable[[], None]:
        return partial(
            self._restore, self._watermark, {each.vchannel: each.delivered_tick for each in self._sources or ()}
        )

    def forget(self) -> None:
        """Set the positions back to the start of the scan, after ``end``."""
        self._restore(Tick(0), {})

    def _restore(self, watermark: Tick, delivered: Mapping[str, int]) -> None:
        self._watermark = watermark
        for source in self._sources or ():
            source.delivered_tick = delivered.get(source.vchannel, 0)

    def drop(self, vchannels: Collection[str]) -> None:
        """Deliver nothing more of these vchannels. The server sends their batches until the call is opened again."""
        if self._sources is None:
            return
        for source in self._sources:
            source.is_dropped = source.is_dropped or source.vchannel in vchannels
        self._sources = [source for source in self._sources if not source.is_dropped]
        if self._received is not None:
            kept = (each for each in self._received.batches if not each[0].is_dropped)
            self._received.batches = deque(kept)
            self._received.pass_over()

    def end(self) -> None:
        """Cancel the call and deliver nothing more; ``aclose`` waits for what is under way. Idempotent."""
        self._state = "closed"
        self._received = None
        self._watch.closed(self)
        self._hang_up()

    async def aclose(self) -> None:
        self.end()
        await self._forget_read()

    async def _forget_read(self) -> None:
        """Wait for the end of the read under way, whose call was cancelled."""
        # A task that waits for the read forgets it first.
        if (reading := self._reading) is not None:
            await asyncio.wait((reading,))
            look_at(reading)
            self._reading = None

    def _finish_empty(self) -> None:
        # Read once: a synchronous caller, on its thread, may take the last batch meanwhile.
        received = self._received
        if received is not None and not received.batches:
            self._finish(received)

    def _finish(self, received: _Received) -> None:
        """Apply the response's watermark and ``caught_up``, which hold after its last batch."""
        self._received = None
        self._watermark = Tick(max(self._watermark, received.watermark))
        if received.caught_up:
            self.caught_up.set()
        else:
            self.caught_up.clear()

    async def _receive(self) -> None:
        """Wait for the next response, reopening the call as needed; at the end of the scan, become ``ended``."""
        if self._state == "closed":
            raise ClosedError("the scan is closed: start another with start=scan.positions")
        transport = self._transport()
        patience = Patience(self._watch, self, transport)
        with transport.waiting():
            while (error := await self._attempt(patience)) is not None:
                await patience.bear(error)

    async def _attempt(self, patience: Patience) -> TidelogError | None:
        """Accept the next response, opening the call if necessary. Return the error, or None on success."""
        error: TidelogError
        try:
            response = await self._read(patience)
        except grpc.aio.AioRpcError as failure:
            self._hang_up(failure)
            error = error_of_status(failure, is_read=True)
            error.__cause__ = failure
            return error
        except TidelogError as absence:
            # There is no connection, the names could not be resolved, or the server has stopped answering.
            self._hang_up(absence)
            await self._forget_read()
            return absence
        if response is None and self._call is not None and self.plan.until.kind == "follow":
            # The server never ends a following scan without an error, but a proxy may, such as one that is restarted.
            error = UnavailableError(
                "the call of a following scan ended without an error, and the server never ends it: check proxies "
                "between client and server"
            )
            self._hang_up(error)
            return error
        self._watch.answered(self)
        self._accept(response)
        return None

    def _accept(self, response: bytes | None) -> None:
        if response is None:
            self._state = "ended"
            self._hang_up()
            return
        try:
            self._received = self._unpack(response)
        except DataLossError:
            # A caller that iterates again must receive the same batch, not the next one.
            self._hang_up()
            raise
        except WireFormatError as error:
            self._hang_up()
            raise ServerError(
                f"the server's response to a scan is malformed ({error}): check proxies between client and server"
            ) from error

    async def _read(self, patience: Patience) -> bytes | None:
        """Return the next response of the call, opened if there is no call yet; None at the end."""
        # A server sends a watermark at this interval if it has nothing else.
        extra_s = self.plan.watermark_interval_ms / 1_000
        if self._call is None:
            async with patience.bounded(extra_s):
                is_open = await self._open(patience)
            if not is_open:
                return None
        # Why a task: cancelling a read cancels the call, and callers wait for the next batch with a timeout.
        if self._reading is None:
            # A new one each time: an event belongs to a loop, and a fork replaces that of the synchronous clients.
            self._has_read = has_read = asyncio.Event()
            self._reading = asyncio.create_task(_read_one(self._call, has_read), name="tidelog-scan-read")
            # A task that is cancelled before its first step sets nothing.
            self._reading.add_done_callback(lambda _: has_read.set())
        elif not self._reading.done():
            # The alarm may have set it in the moment in which its wait was cancelled.
            self._has_read.clear()
        self._alarm.set(patience.give_up_at_s + extra_s, self._has_read.set)
        try:
            # Not for the task itself: each layer of callbacks takes a turn of the event loop.
            await self._has_read.wait()
        finally:
            self._alarm.clear()
        if not self._reading.done():
            raise patience.silence()
        reading, self._reading = self._reading, None
        if reading.cancelled():
            raise ClosedError("the client was closed while a scan was open")
        response: bytes | None = reading.result()
        return response

    async def _open(self, patience: Patience) -> bool:
        """Open the call after the last received batch; return False if nothing is left before the end."""
        transport = self._transport()
        await patience.connected()
        if self._sources is None:
            targets = await self._resolve()
            self._sources, self._whole = sources_of(self.plan, targets), targets.whole
            self._watch.reads(targets.vchannels)
        end = self._fixed_end()
        received = self._received_watermark
        self._open_sources = [
            source for source in self._sources if end is None or source.resume_tick(received) + 1 < end
        ]
        if not self._open_sources:
            return False
        request = wal_service_pb2.ScanRequest(
            sources=[source.to_wire(received) for source in self._open_sources],
            policy=_requests.deliver_policy(self.plan.start),
            filters=self.plan.filters,
            end=_requests.scan_end(
                At.tick(end) if end is not None and self.plan.until.kind == "watermark" else self.plan.until
            ),
            format=wal_service_pb2.SCAN_FORMAT_COLUMNS,
            max_response_bytes=self.plan.max_response_bytes,
            watermark_interval_ms=self.plan.watermark_interval_ms,
            whole_channels=sizes_of(self._sources, self._whole),
        )
        connection = transport.lease()
        self._lease = (transport, connection)
        if _tracing.hooks is None:
            self._call = connection.scan(request, metadata=transport.metadata())
        else:
            names = [source.vchannel for source in self._open_sources]
            self._span = _tracing.hooks.begin(
                _tracing.Operation.SCAN, names, transport.endpoint, group=self._group
            )  # fmt: skip
            self._call = connection.scan(request, metadata=(*transport.metadata(), *self._span.metadata))
        return True

    def _fixed_end(self) -> int | None:
        """Return the tick before which the scan ends; None if it follows, or the server has not determined it yet."""
        if self.plan.until.kind in ("tick", "inside"):
            assert isinstance(self.plan.until.value, int)
            return self.plan.until.value
        # The end of a scan up to the watermark does not move when the scan is reopened.
        return self._end_tick or None

    def _unpack(self, response: bytes) -> _Received:
        page = scan_response.scan_page(response)
        for source, created_tick in zip(self._open_sources, page.created_ticks, strict=False):
            source.created_tick = created_tick
        if page.end_tick and self.plan.until.kind == "watermark":
            self._end_tick = page.end_tick
        batches = deque(self._verified(page.entries))
        # Ordering: only after all batches are verified, see _accept.
        for source, _, last_tick in batches:
            source.received_tick = last_tick
        self._received_watermark = max(self._received_watermark, page.watermark)
        if page.grown:
            self._grow(page.grown)
        if self.plan.until.kind == "follow":
            self._watch.reached(self, batches[-1][2] if batches else 0, page.watermark)
        if self._span is not None and batches:
            self._span.note(messages=sum(len(batch) for _, batch, _ in batches if batch is not None))
        received = _Received(batches, page.watermark, page.caught_up)
        received.pass_over()
        return received

    def _verified(self, entries: Sequence[scan_response.ScanEntry]) -> Iterator[tuple[Source, Batch | None, int]]:
        """Yield the batches of a response as in ``_Received``. Raises as ``batches_of``."""
        for entry in entries:
            if entry.source >= len(self._open_sources):
                raise WireFormatError(f"an entry has source {entry.source}, expected below {len(self._open_sources)}")
            source = self._open_sources[entry.source]
            if not source.is_dropped:
                for batch in batches_of(source.vchannel, entry):
                    yield source, _wanted(batch, self.plan.keys), batch.ticks[-1]

    def _grow(self, grown: Sequence[wal_service_pb2.ChannelSize]) -> None:
        """Read also the vchannels that were added to channels: the call has ended, and the next one has them."""
        assert self._sources is not None
        self._sources = [*self._sources, *added_sources(self.plan, self._sources, grown)]
        self._watch.reads([source.vchannel for source in self._sources])
        self._hang_up()

    def _hang_up(self, failure: Exception | None = None) -> None:
        self._alarm.stop()
        if self._span is not None:
            self._span.end(failure)
            self._span = None
        if self._call is not None:
            self._call.cancel()
            self._call = None
        if self._lease is not None:
            transport, connection = self._lease
            transport.release(connection)
            self._lease = None


class AsyncScan(InOneProcess, AsyncClosing, AsyncIterator[Batch]):
    """Batches in tick order, over one or many vchannels: ``async for batch in scan``.

    After a lost connection, the scan reconnects and resumes after the last received batch, for up to
    ``Retry.give_up_s``: no message is lost or repeated. While it waits, it logs a warning and calls ``on_event``. A
    following scan never ends by itself; a bounded one ends the iteration. Cancelling a wait for the next batch loses
    nothing. Do not use a scan from several tasks at once.

    ``async with`` closes the scan at the end of the block. On entry, a scan that starts at ``latest`` is opened, and
    delivers everything appended from then on.
    """

    def __init__(self, core: Scanned) -> None:
        self.caught_up = asyncio.Event()
        self.core = core
        core.caught_up = self.caught_up

    def __repr__(self) -> str:
        return f"<AsyncScan {self.core!r}>"

    @property
    def watermark(self) -> Tick:
        """Nothing with a tick at or below this will be delivered; 0 until the server has sent a watermark."""
        return self.core.watermark

    @property
    def positions(self) -> Mapping[str, Tick]:
        """For each vchannel the tick up to which everything was delivered. Resume with it as ``start`` of another scan.

        0 if nothing was read. A scan that was not opened has no positions, and neither does one that starts at
        ``latest`` before the server's first response.
        """
        return self.core.positions

    async def aclose(self) -> None:
        """Close the scan. Its ``positions`` remain available."""
        await self.core.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Return the next batch.

        Raises:
            StopAsyncIteration: A bounded scan has ended.
            PositionTrimmedError: Messages were trimmed before they were delivered.
            DataLossError: A batch does not match its CRC.
            InvalidRequestError: The start does not fit the vchannels: see ``AsyncClient.scan``.
            TidelogError: The scan was refused, or the server was unavailable for ``Retry.give_up_s``. Iterating again
                retries, after the last delivered batch.
        """
        if not self.core.has_batch and not await self.core.fetch():
            raise StopAsyncIteration
        return self.core.take()

    async def to_arrow(
        self, *, max_bytes: int = MAX_FRAME_BYTES, columns: Sequence[str] | None = None
    ) -> "pyarrow.Table":
        """Read all messages up to the end of the scan, and return them as a table, in the order of their delivery.

        The columns are those of ``Batch.to_arrow``. After an error the scan is closed, and its ``positions`` are those
        before the call.

        Args:
            max_bytes: Maximum size of the table; default 1 GiB.
            columns: Names of the columns to return, in this order; default None, all.

        Raises:
            FrameTooLargeError: The table would be larger than ``max_bytes``.
            ValueError: The scan follows the log, or there is no column of a name.
            ClosedError: The scan was closed, or read to its end.
            ImportError: pyarrow is not installed.
            TidelogError: As for the next batch.
        """
        return await self.core.to_arrow(max_bytes=max_bytes, columns=columns)

    async def to_pandas(
        self, *, max_bytes: int = MAX_FRAME_BYTES, columns: Sequence[str] | None = None
    ) -> "pandas.DataFrame":
        """As ``to_arrow``, as a pandas frame, in which each key and each payload is an object of its own."""
        need("pandas")
        table = await self.to_arrow(max_bytes=max_bytes, columns=columns)
        return await asyncio.to_thread(table.to_pandas)

    async def to_polars(
        self, *, max_bytes: int = MAX_FRAME_BYTES, columns: Sequence[str] | None = None
    ) -> "polars.DataFrame":
        """As ``to_arrow``, as a Polars frame, in chunks."""
        need("polars")
        table = await self.to_arrow(max_bytes=max_bytes, columns=columns)
        return await asyncio.to_thread(polars_frame, table)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Raise TypeError: an Arrow stream is read by calls that block, which would stop the event loop."""
        del requested_schema
        raise TypeError(
            "an AsyncScan is no Arrow stream, which is read by calls that block the event loop: use "
            "`await scan.to_arrow()`, or the scan of a Client"
        )

    async def __aenter__(self) -> Self:
        await self.core.enter()
        return self


async def _read_one(call: Any, has_read: asyncio.Event) -> bytes | None:
    """Return the next response; ``has_read`` is set in the step of the event loop in which the task ends."""
    try:
        response = await call.read()
    finally:
        has_read.set()
    return None if response is grpc.aio.EOF else response


def _wanted(batch: Batch, keys: KeyFilter | None) -> Batch | None:
    """Return the messages of ``batch`` that a filter selects; None without any."""
    if keys is None:
        return batch
    found = keys.select(batch.columns, batch.ticks)
    return None if found is None else Batch(batch.vchannel, *found, batch.txn_id, batch.broadcast_id)


def batches_of(vchannel: str, entry: scan_response.ScanEntry) -> Iterator[Batch]:
    """Yield the batch of ``entry``, or one for each of the transactions that share it.

    Raises:
        DataLossError: Its columns do not match their CRC.
        WireFormatError: Its columns are malformed.
    """
    columns = columns_from_wire(entry.columns)
    actual = _columns.checksum(columns)
    if actual != columns.crc32c:
        raise DataLossError(
            f"the batch at tick {entry.base_tick} of {vchannel} has CRC-32C {actual:#010x}, expected "
            f"{columns.crc32c:#010x}: it was damaged on the server or in transit; scan again, then check the disk",
            values={"vchannel": vchannel, "tick": str(entry.base_tick)},
        )
    ticks = scan_response.ticks_of(entry, columns.count)
    if not columns.txn_ends:
        yield Batch(vchannel, columns, ticks, entry.txn_id or None, entry.broadcast_id or None)
        return
    try:
        for number, begin, part in txn_parts(columns):
            yield Batch(vchannel, part, ticks[begin : begin + part.count], entry.txn_id + number)
    except ValueError as error:
        raise WireFormatError(f"the batch at tick {entry.base_tick} of {vchannel}: {error}") from error
