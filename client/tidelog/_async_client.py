"""The asynchronous client: every call, and the handles that name a channel or vchannel once."""

import asyncio
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, Unpack

# Ordering: `_fork` before everything else, for it has a say in how grpc is imported.
from tidelog import _fork, _tracing, _wire  # noqa: F401 - imported for its effect
from tidelog._append_contents import as_messages
from tidelog._append_stream import AppendStream
from tidelog._append_terms import DEFAULT_TERMS, AppendTerms, check_fencing_token
from tidelog._async_broadcasts import AsyncBroadcastCalls
from tidelog._async_channels import AsyncChannelCalls
from tidelog._async_groups import AsyncGroupCalls
from tidelog._async_handles import AsyncChannel, AsyncVchannel
from tidelog._async_nodes import AsyncNodeCalls
from tidelog._async_tokens import AsyncTokenCalls
from tidelog._async_transactions import AsyncTransactionCalls
from tidelog._async_wal import AsyncWal
from tidelog._broadcast_ids import BroadcastIds
from tidelog._calls import closed_error
from tidelog._channel_types import OwnerDescription, Retention
from tidelog._credentials import TlsOptions, TokenSource, check_endpoint
from tidelog._endpoints import check_address
from tidelog._errors import InvalidRequestError
from tidelog._positions import EARLIEST, FOLLOW, LATEST, WATERMARK, End, Positions, Start, position
from tidelog._producer import AsyncProducer, ProducerOptions
from tidelog._retry import DEFAULT_RETRY, Retry
from tidelog._scan import AsyncScan, ScanCore
from tidelog._scan_plan import ScanOptions, check_options, scan_plan
from tidelog._sizes import Appendable, measured
from tidelog._tick import Tick
from tidelog._transaction import AsyncTransaction
from tidelog._transaction_options import TransactionOptions
from tidelog._transport import Transport
from tidelog._types import (
    AppendResult,
    Durability,
    Plan,
    ProducerPosition,
    ProducerSequence,
)
from tidelog.v1 import wal_service_pb2

DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_CONNECT_TIMEOUT_S: Final = 5.0
DEFAULT_IN_FLIGHT_BYTES: Final = 8 << 20
_CLIENT_ID: Final = re.compile(r"[!-~]{1,64}")


class _Session:
    """What a client holds in one event loop of one process."""

    def __init__(self, transport: Transport, max_in_flight_bytes: int) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.transport = transport
        self.appends = AppendStream(transport, max_in_flight_bytes=max_in_flight_bytes)
        self.broadcast_ids = BroadcastIds(transport)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        transport = self.transport
        return self.appends.is_idle and transport.is_idle and not transport.scans and not transport.open_transactions

    async def aclose(self, timeout_s: float) -> None:
        """Wait for appends and other changes, ``timeout_s`` at most, then end everything."""
        try:
            await asyncio.gather(self.appends.aclose(timeout_s), self.transport.drain(timeout_s))
        finally:
            await self.transport.aclose()


class AsyncClient(
    AsyncChannelCalls, AsyncTransactionCalls, AsyncBroadcastCalls, AsyncGroupCalls, AsyncNodeCalls, AsyncTokenCalls
):
    """A client of one Tidelog server. ``Client`` is its synchronous twin: same names, no ``await``.

    Making one does no I/O; the first call connects. Use it with ``async with``, or call ``aclose``. One client serves
    a whole program: concurrent appends share one stream and travel in batches.

    Every call raises a TidelogError whose class says what to do and whose ``effect`` says what may have happened.
    Calls are repeated, within their timeout, only when they had no effect, or are the same twice as once.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
        max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        retry: Retry = DEFAULT_RETRY,
        client_id: str | None = None,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
    ) -> None:
        """Name the server.

        Args:
            endpoint: ``host:port``, an IPv6 address in brackets, or another target that gRPC takes: ``unix:PATH``.
            timeout_s: How long a call may take, its repetitions included, unless it says otherwise.
            connect_timeout_s: How long a call waits for a connection. Readers, such as scans and consumers, wait for
                ``Retry.give_up_s``.
            max_in_flight_bytes: How much may be appended and not yet acknowledged; further appends wait.
            retry: How calls are repeated.
            client_id: Names this client to the server: visible ASCII, at most 64 characters. Transactions belong to
                the client that begins them. Default None, a random name.
            tls: Encrypts, and checks who the server is. Default None, plaintext.
            token: Shown with each call: a text, or what returns the one to show now, such as a ``TokenFile``.

        Raises:
            ValueError: The endpoint or the client id is none, or the token would travel unencrypted to another machine.
        """
        if client_id is not None and not _CLIENT_ID.fullmatch(client_id):
            raise ValueError(f"the client id is {client_id!r}, expected 1 to 64 visible ASCII characters")
        check_address(endpoint)
        check_endpoint(endpoint, has_token=token is not None, has_tls=tls is not None)
        self.endpoint = endpoint
        self._tls = tls
        self._token = token
        self.timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._max_in_flight_bytes = max_in_flight_bytes
        self._retry = retry
        self._client_id = client_id or secrets.token_hex(16)
        self._is_named = client_id is not None
        self._made_by_pid = os.getpid()
        self._open_session: _Session | None = None
        self._is_closed = False

    def channel(self, name: str) -> AsyncChannel:
        """Return a handle of a channel. Does no I/O and checks nothing."""
        return AsyncChannel(self, name)

    def vchannel(self, name: str) -> AsyncVchannel:
        """Return a handle of a vchannel, ``orders/0``. Does no I/O and checks nothing."""
        return AsyncVchannel(self, name)

    def wal(self) -> AsyncWal:
        """Return the log by the names of a WAL accessor, with readers that run by themselves. Does no I/O."""
        return AsyncWal(self)

    async def ensure_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> AsyncChannel:
        """Create a channel unless it is there, and return its handle; one that is there keeps its retention.

        Raises:
            ChannelAlreadyExistsError: It has another number of vchannels.
            InvalidRequestError: The name, the number or the retention is not allowed.
        """
        await self.create_channel(name, vchannels=vchannels, if_not_exists=True, owner=owner, retention=retention)
        return self.channel(name)

    async def wal_name(self) -> str:
        """Return the kind of log store behind the server: ``rocksdb`` or ``memory``."""
        transport = self._session().transport
        request = wal_service_pb2.GetWalNameRequest()
        answer = await transport.call(transport.wal.GetWalName, request, timeout_s=self.timeout_s, is_read=True)
        return str(answer.wal_name)

    async def allocate_ticks(self, count: int = 1) -> range:
        """Return ``count`` consecutive ticks (1 to 1,000,000) that nobody else ever gets."""
        transport = self._session().transport
        request = wal_service_pb2.AllocateTicksRequest(count=count)
        # Ticks that were allocated and lost on the way are missed by nobody.
        answer = await transport.call(transport.wal.AllocateTicks, request, timeout_s=self.timeout_s, is_read=True)
        return range(answer.first_tick, answer.first_tick + answer.count)

    async def latest_mvcc_tick(self, vchannel: str) -> Tick:
        """Return the tick that a reader must reach to see all that was acknowledged so far; 0 for nothing."""
        transport = self._session().transport
        request = wal_service_pb2.GetLatestMvccTickRequest(vchannel=vchannel)
        answer = await transport.call(transport.wal.GetLatestMvccTick, request, timeout_s=self.timeout_s, is_read=True)
        return Tick(answer.mvcc_tick)

    async def plan_scan(
        self,
        vchannels: Iterable[str],
        *,
        begin_tick: int = 0,
        end_tick: int = 0,
        min_splits: int = 0,
        max_messages_per_split: int = 0,
        max_bytes_per_split: int = 0,
        created_ticks: Mapping[str, int] | None = None,
    ) -> Plan:
        """Return the messages with begin_tick <= tick < end_tick, divided into splits; 0 leaves a bound to the server.

        Without ``end_tick`` the cut is consistent: all that was acknowledged before the call, and nothing later.
        ``created_ticks`` has for vchannels, by the names given here, when the channels were created that are meant: if
        one of them was destroyed the plan fails, also where another channel has its name.

        Raises:
            PositionTrimmedError: ``begin_tick`` was trimmed, or lies before the creation of a channel.
            ChannelNotFoundError: A channel does not exist, or is not the one that ``created_ticks`` means.
        """
        transport = self._session().transport
        names = list(vchannels)
        request = wal_service_pb2.PlanScanRequest(
            vchannels=names, created_ticks=[created_ticks.get(name, 0) for name in names] if created_ticks else (),
            begin_tick=begin_tick, end_tick=end_tick, min_splits=min_splits,
            max_messages_per_split=max_messages_per_split, max_bytes_per_split=max_bytes_per_split,
        )  # fmt: skip
        answer = await transport.call(transport.wal.PlanScan, request, timeout_s=self.timeout_s, is_read=True)
        return _wire.plan(answer)

    async def trim(self, vchannel: str, before: End | None = None, *, everything: bool = False) -> Tick:
        """Remove what lies before a tick or time, or ``everything`` acknowledged so far; durable when it returns.

        Returns the first tick that is still available. Trimming below an earlier trim changes nothing.

        Raises:
            ValueError: Neither or both of ``before`` and ``everything``, or a position that is neither tick nor time.
        """
        transport = self._session().transport
        request = _wire.trim_request(vchannel, None if before is None else position(before), everything=everything)
        # Trimming twice is trimming once.
        answer = await transport.call(
            transport.wal.Trim, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=not everything
        )
        return Tick(answer.first_available_tick)

    async def open_producer(
        self, vchannel: str, producer_id: str, *, accept_forgotten: bool = False
    ) -> ProducerPosition:
        """Take a producer over on a vchannel, durably, and return how far it got.

        Whoever appends under this name with the epoch before is refused from then on. A program that reads its input in
        numbered batches goes on behind ``last_sequence`` after a crash, and has each batch in the log once.

        Args:
            vchannel: Where it appends.
            producer_id: Its name, which does not begin with ``_`` or ``~``.
            accept_forgotten: Whether an unknown producer that the server may have evicted is opened as a new one: you
                know that its batches are not in the log.

        Raises:
            InvalidRequestError: The id is invalid.
            ProducerForgottenError: The producer is unknown and may have been evicted. Nothing happened.
            ChannelNotFoundError, UnavailableError, StorageFailedError: See ``effect``.
        """
        transport = self._session().transport
        request = wal_service_pb2.OpenProducerRequest(
            vchannel=vchannel, producer_id=producer_id, accept_forgotten=accept_forgotten
        )
        # Opening twice raises the epoch twice: whoever opened it in between is fenced off as by any later one.
        answer = await transport.call(
            transport.wal.OpenProducer, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )
        return ProducerPosition(producer_id, answer.epoch, answer.last_sequence, Tick(answer.last_tick))

    async def fence(self, vchannel: str, fencing_token: int) -> None:
        """Raise the fencing token of a vchannel, durably; setting the one that it has changes nothing.

        From then on an append with another token is refused; one without a token is not. So a writer that has won a
        lock fences with a number that grows with each winner, and gives it to every append: whoever held the lock
        before can write no more, however late he notices.

        Raises:
            FencedError: The vchannel has a greater one: somebody has taken over since.
            ValueError: The token is none.
            ChannelNotFoundError, UnavailableError, StorageFailedError: See ``effect``.
        """
        check_fencing_token(fencing_token)
        transport = self._session().transport
        request = wal_service_pb2.SetFencingTokenRequest(vchannel=vchannel, fencing_token=fencing_token)
        await transport.call(
            transport.wal.SetFencingToken, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )

    async def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
        producer: ProducerSequence | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> AppendResult:
        """Append one message, or several as one batch with consecutive ticks, and return where they are.

        Concurrent appends to one vchannel travel together. With ``barrier_tick`` every tick will be greater, which may
        have to be waited for. Cancelling ends the wait only: the messages may be appended all the same.

        With ``expected_last_tick`` they are appended only if nothing came since: if that is still the tick of the last
        message ever appended to the vchannel, 0 if there was none. With ``fencing_token`` only if the vchannel has this
        token, see ``fence``.

        With ``producer`` the append is repeated until its outcome is known, while there is time: a batch that was taken
        before is not appended again, and its first result comes back as ``duplicate``, with the durability of then.
        Conditions that held then do not matter to it any more. Batches of one producer on one vchannel are appended one
        after the other.

        Raises:
            ProducerFencedError, SequenceError: See there. With ``effect`` none nothing was appended.
            AppendUnknownError: They may or may not be in the log.
            BarrierNotReachedError: The barrier lies too far in the future. Nothing was appended.
            LastTickMismatchError, FencedError: A condition does not hold. Nothing was appended.
            ValueError: A condition, or the durability, is none.
            InvalidRequestError: They are empty, too large or malformed. Nothing was appended.
            ChannelNotFoundError, UnavailableError, DeadlineError, StorageFailedError: See ``effect``.
        """
        several, is_plain, size_bytes = measured(messages)
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        terms = DEFAULT_TERMS
        if durability is not None or fencing_token is not None:
            terms = AppendTerms(durability, fencing_token).checked()
        if barrier_tick is not None or expected_last_tick is not None or producer is not None or not several:
            options = _wire.append_options(
                terms, barrier_tick=barrier_tick or 0, expected_last_tick=expected_last_tick, producer=producer
            )
            appending = self._append_alone(vchannel, several, options, timeout_s)
        else:
            appending = self._session().appends.append(
                vchannel, several, is_plain=is_plain, size_bytes=size_bytes, terms=terms, timeout_s=timeout_s
            )
        return await _traced(vchannel, len(several), appending)

    async def append_numbered(self, vchannel: str, messages: Sequence[Appendable]) -> AppendResult:
        """Append messages as one batch, which is sent until its outcome is known, while there is time; for streams.

        Raises:
            TidelogError: As ``append``.
        """
        several, is_plain, size_bytes = measured(messages)
        appending = self._session().appends.append_numbered(
            vchannel, several, is_plain=is_plain, size_bytes=size_bytes, terms=DEFAULT_TERMS, timeout_s=self.timeout_s
        )
        return await _traced(vchannel, len(several), appending)

    def producer(self, vchannel: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Return a producer for many messages to one vchannel; use it with ``async with``.

        Raises:
            ValueError: An option is out of range.
        """
        return AsyncProducer(lambda: self._session().appends, vchannel, **options)

    def txn(self, **options: Unpack[TransactionOptions]) -> AsyncTransaction:
        """Return a transaction on any vchannels of the node; use it with ``async with``, which commits.

        Raises:
            ValueError: An option is out of range.
        """
        return AsyncTransaction(self._connection, self.timeout_s, **options)

    def scan(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = EARLIEST,
        until: End = WATERMARK,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan:
        """Return a scan of one or many vchannels, merged in tick order; it opens when it is iterated or entered.

        The name of a channel stands for all vchannels that it has when the scan opens. ``start`` is inclusive and
        ``until`` exclusive. By default it reads all that was acknowledged before it opens; ``until=At.follow()`` never
        ends.

        To resume a scan, give its ``positions`` as ``start``. They must have each vchannel, else the scan ends with
        InvalidRequestError when it opens; so does one of several vchannels that starts at ``At.after`` or
        ``At.after_message_id``, for one tick does not tell which copies of a broadcast were read.

        Raises:
            ValueError: A position or option is out of range.
        """
        names = [vchannels] if isinstance(vchannels, str) else list(vchannels)
        return self._scan(lambda: self._full_names(names), start, until, options)

    def tail(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = LATEST,
        until: End = FOLLOW,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan:
        """Return a scan that follows, by default from now on. Otherwise as ``scan``."""
        return self.scan(vchannels, start=start, until=until, **options)

    def check_open(self) -> None:
        """Raise ClosedError if the client is closed; for handles."""
        if self._is_closed:
            raise closed_error()

    async def aclose(self) -> None:
        """Wait until every append, broadcast and other change under way has its answer, then close the connection.

        It waits ``timeout_s`` of the client at most; calls with a shorter time of their own end with that. What is left
        then ends with ClosedError if it was not sent, so that it had no effect; an append, broadcast or commit that was
        sent ends with AppendUnknownError, another change with ClosedError whose ``effect`` is unknown. Calls that only
        read, and scans, end with ClosedError at once. Cancelling this ends the wait only: the client is closed.
        """
        self._is_closed = True
        await self._close_session()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def scan_one(self, name: str, start: Start | Positions, until: End, options: ScanOptions) -> AsyncScan:
        """Return a scan of the vchannel ``name``, which may be a channel that has one; for handles and the WAL."""

        async def resolve() -> Sequence[str]:
            names = await self._full_names([name])
            if len(names) > 1:
                raise InvalidRequestError(
                    f"channel '{name}' has {len(names)} vchannels, expected the name of one: give {names[0]}, or scan "
                    "the channel",
                    values={"field": "vchannel", "name": name},
                )
            return names

        return self._scan(resolve, start, until, options)

    async def pause(self) -> bool:
        """Close the connection until the next call, unless something is under way; tell whether it is closed.

        For use around a fork, in which gRPC must have nothing open.
        """
        session = self._open_session
        if session is not None and not session.is_idle:
            return False
        await self._close_session()
        return True

    def _scan(
        self,
        resolve: Callable[[], Awaitable[Sequence[str]]],
        start: Start | Positions,
        until: End,
        options: ScanOptions,
    ) -> AsyncScan:
        check_options(options)
        plan = scan_plan(start, until, **options)
        return AsyncScan(ScanCore(lambda: self._session().transport, resolve, plan))

    async def _full_names(self, names: Sequence[str]) -> Sequence[str]:
        """Return the full names of vchannels; the name of a channel stands for all that it has."""
        channels = dict.fromkeys(name for name in names if "/" not in name)
        described = await self.describe_channels(channels) if channels else ()
        found = {each.name: [vchannel.name for vchannel in each.vchannels] for each in described}
        # A channel of another node comes without vchannels: the server says where it is.
        return [vchannel for name in names for vchannel in found.get(name) or [name]]

    def _session(self) -> _Session:
        """Return the session of this event loop and process, beginning it if need be."""
        self.check_open()
        session = self._open_session
        if session is None or session.loop is not asyncio.get_running_loop() or session.pid != os.getpid():
            transport = Transport(
                self.endpoint, client_id=self._own_client_id(), connect_timeout_s=self._connect_timeout_s,
                retry=self._retry, tls=self._tls, token=self._token,
            )  # fmt: skip
            session = self._open_session = _Session(transport, self._max_in_flight_bytes)
        return session

    def _connection(self) -> tuple[Transport, AppendStream]:
        session = self._session()
        return session.transport, session.appends

    def _own_client_id(self) -> str:
        """Return the client's name: a forked child has another, unless somebody chose it."""
        if self._made_by_pid != os.getpid():
            self._client_id = self._client_id if self._is_named else secrets.token_hex(16)
            self._made_by_pid = os.getpid()
        return self._client_id

    def _transport(self) -> Transport:
        return self._session().transport

    def _broadcast_ids(self) -> BroadcastIds:
        return self._session().broadcast_ids

    async def _close_session(self) -> None:
        session, self._open_session = self._open_session, None
        if session is not None and session.loop is asyncio.get_running_loop() and session.pid == os.getpid():
            await session.aclose(self.timeout_s)

    async def _append_alone(
        self,
        vchannel: str,
        messages: Sequence[Appendable],
        options: wal_service_pb2.AppendOptions,
        timeout_s: float,
    ) -> AppendResult:
        """Append in a call of its own.

        An answer that has to wait for a barrier would hold up all behind it, and what depends on the last tick must
        not travel with others.
        """
        transport = self._session().transport
        request = wal_service_pb2.AppendRequest(
            vchannel=vchannel,
            messages=[_wire.message_to_wire(message) for message in as_messages(messages)],
            options=options,
        )
        answer = await transport.call(
            transport.wal.Append, request, timeout_s=timeout_s, is_read=False, is_append=True,
            is_idempotent=options.HasField("producer"),
        )  # fmt: skip
        return _wire.append_result(answer.result)


async def _traced(vchannel: str, messages: int, appending: Awaitable[AppendResult]) -> AppendResult:
    """Return what ``appending`` returns, in a span if spans are recorded."""
    if (hooks := _tracing.hooks) is None:
        return await appending
    with hooks.within(_tracing.Operation.APPEND, [vchannel], messages=messages) as span:
        result = await appending
        span.note(first_tick=result.first_tick)
        return result
