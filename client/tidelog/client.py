"""The asynchronous client: all calls, and handles bound to a channel or vchannel."""

import asyncio
import importlib
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self, Unpack

# Ordering: first, because it affects how grpc is imported.
from tidelog._closing import AsyncClosing
from tidelog.transport import fork as _fork  # noqa: F401 - imported for its effect

# isort: split
from tidelog.admin.blobs import AsyncBlobCalls
from tidelog.admin.broadcasts import AsyncBroadcastCalls, BroadcastIds
from tidelog.admin.channel_types import ChannelSettings
from tidelog.admin.channels import AsyncChannelCalls, targets_of
from tidelog.admin.checkpoints import AsyncCheckpointCalls
from tidelog.admin.mailboxes import AsyncMailboxCalls
from tidelog.admin.nodes import AsyncNodeCalls
from tidelog.admin.tokens import AsyncTokenCalls
from tidelog.append.arrow_data import ArrowData, is_arrow, one_batch
from tidelog.append.calls import Conditions, Several, traced
from tidelog.append.numbered_channel import NumberedChannel, NumberedChannels
from tidelog.append.producer import AsyncProducer, ProducerOptions
from tidelog.append.sizes import Appendable, measured
from tidelog.append.stream import AppendStream
from tidelog.errors import InvalidRequestError
from tidelog.groups.calls import AsyncGroupCalls
from tidelog.handles import AsyncChannel, AsyncVchannel
from tidelog.journals.calls import AsyncJournalCalls
from tidelog.mailboxes.calls import ServerMessageCalls
from tidelog.mailboxes.mailbox import AsyncMailbox
from tidelog.mailboxes.operate_stream import OperationStream
from tidelog.read import protocol as _requests
from tidelog.read.channel_patterns import ChannelPattern, patterns_of
from tidelog.read.positions import EARLIEST, FOLLOW, LATEST, WATERMARK, End, Positions, Start, position
from tidelog.read.scan import AsyncScan, ScanCore
from tidelog.read.scan_plan import ScanArguments, ScanOptions, check_options, scan_arguments
from tidelog.read.scan_sources import Targets
from tidelog.read.scanned import Scanned
from tidelog.session import ClientOptions, ClientSession
from tidelog.settings.addresses import is_url
from tidelog.settings.resolver import context_access
from tidelog.tick import Tick
from tidelog.transport.calls import closed_error
from tidelog.transport.credentials import TlsOptions, TokenSource, check_endpoint
from tidelog.transport.endpoints import check_address
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.retry import DEFAULT_RETRY, Retry
from tidelog.transport.transport import Transport
from tidelog.txn.calls import AsyncTransactionCalls
from tidelog.txn.options import TransactionOptions
from tidelog.txn.transaction import AsyncTransaction
from tidelog.types import AppendResult, Durability, Plan, ProducerPosition, ProducerSequence
from tidelog.v1 import wal_service_pb2
from tidelog.wal.accessor import AsyncWal
from tidelog.wire import protocol as _wire
from tidelog.wire.append_terms import DEFAULT_TERMS, AppendTerms, check_fencing_token
from tidelog.wire.durations import Duration, check_seconds, seconds_or
from tidelog.wire.partitioning import Partitioner

DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_CONNECT_TIMEOUT_S: Final = 5.0
DEFAULT_IN_FLIGHT_BYTES: Final = 8 << 20
_CLIENT_ID: Final = re.compile(r"[!-~]{1,64}")


class AsyncClient(
    InOneProcess,
    AsyncClosing,
    AsyncChannelCalls,
    AsyncTransactionCalls,
    AsyncBroadcastCalls,
    AsyncGroupCalls,
    AsyncNodeCalls,
    AsyncTokenCalls,
    AsyncCheckpointCalls,
):
    """A client of Tidelog. ``Client`` is its synchronous twin: same names, no ``await``.

    ``AsyncClient("host:port")`` calls the server at that address. ``AsyncClient()``, ``AsyncClient("tidelog://…")`` and
    ``from_context`` make a client of a server or of a cluster: it finds the node that owns a channel, follows a node to
    another address, and asks any node for what concerns no channel.

    The constructor does no I/O; the first call connects. Use ``async with``, or call ``aclose``. One client serves
    a whole program: concurrent appends share one stream and are batched.

    A failed call raises a TidelogError. Its class says what the caller can do, its ``effect`` whether the request may
    have changed something. The client retries a call, within its timeout, only if the failed attempt had no effect or
    the call is idempotent.
    """

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Return a client that finds the owners of channels, unless the endpoint is one address."""
        endpoint = args[0] if args else options.get("endpoint")
        is_finding = cls is AsyncClient and (endpoint is None or is_url(endpoint))
        made: type[Self] = _finding_class() if is_finding else cls
        return super().__new__(made)

    @classmethod
    def from_context(cls, name: str | None = None, **options: Unpack[ClientOptions]) -> "AsyncClient":
        """Return a client of a context, which ``tidelog ctx add`` has saved. Reads the file of contexts.

        Args:
            name: Name of the context, or ``-`` for the previous one. None for the one that ``TIDELOG_CONTEXT`` names,
                else the selected one.
            options: Options of the client; ``tls`` and ``token`` replace those of the context.

        Raises:
            ValueError: There is no such context, or the file cannot be used; or as the constructor.
        """
        endpoints, tls, token = context_access(name, options.get("tls"), options.get("token"))
        made: AsyncClient = _finding_class()(endpoints, **{**options, "tls": tls, "token": token})
        return made

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout_s: Duration = DEFAULT_TIMEOUT_S,
        connect_timeout_s: Duration = DEFAULT_CONNECT_TIMEOUT_S,
        max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        retry: Retry = DEFAULT_RETRY,
        client_id: str | None = None,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
    ) -> None:
        """Create a client; does no I/O.

        Args:
            endpoint: ``host:port``, with an IPv6 address in brackets, or another gRPC target such as ``unix:PATH``: the
                client stays at this address. Or ``tidelog://host:port``, or ``tidelogs://host:port`` for TLS, with more
                nodes after commas. Default None: the server and the credentials of the context that
                ``TIDELOG_CONTEXT`` names, else of ``TIDELOG_ENDPOINT``, ``TIDELOG_TOKEN_FILE``, ``TIDELOG_TOKEN`` and
                ``TIDELOG_TLS_*``, else of the selected context; without any of them 127.0.0.1:7420. An address that is
                passed gets only credentials that are passed.
            timeout_s: Timeout of a call, as a timedelta or in seconds, retries included, counted from the call; some
                calls accept one of their own. Calls that return pages or progress wait so long for each answer.
            connect_timeout_s: Maximum seconds that a call waits for a connection. Readers, such as scans and consumers,
                wait for ``Retry.give_up_s``.
            max_in_flight_bytes: Maximum bytes appended and not yet acknowledged; further appends wait.
            retry: Backoff between retries, and when to give up.
            client_id: Name of this client on the server: 1 to 64 visible ASCII characters. A transaction belongs to
                the client that began it. Default None: a random name.
            tls: TLS settings for encryption and server authentication. Default None: plaintext, unless ``endpoint``
                says otherwise.
            token: Access token sent with each call: a string, or a callable that returns the current one, such as
                ``TokenFile``.

        Raises:
            ValueError: The endpoint, the context or the client id is invalid, or the token would be sent unencrypted to
                another machine.
        """
        if client_id is not None and not _CLIENT_ID.fullmatch(client_id):
            raise ValueError(f"the client id is {client_id!r}, expected 1 to 64 visible ASCII characters")
        assert endpoint is not None
        check_address(endpoint)
        check_endpoint(endpoint, has_token=token is not None, has_tls=tls is not None)
        self._endpoint = endpoint
        self._tls = tls
        self._token = token
        super().__init__(self._own_transport, check_seconds("timeout_s", timeout_s))
        self._connect_timeout_s = check_seconds("connect_timeout_s", connect_timeout_s)
        self._max_in_flight_bytes = max_in_flight_bytes
        self._retry = retry
        self._client_id = client_id or secrets.token_hex(16)
        self._is_named = client_id is not None
        self._made_by_pid = os.getpid()
        self._open_session: ClientSession | None = None
        self._is_closed = False
        self._numbered = NumberedChannels()
        self.journals = AsyncJournalCalls(self._transport, self.timeout_s)
        self.mailboxes = AsyncMailboxCalls(self._transport, self.timeout_s)
        self.message_calls = ServerMessageCalls(self._transport, self._operations, self.timeout_s, retry)
        self.blobs = AsyncBlobCalls(self._transport, self.timeout_s)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._endpoint}{', closed' if self._is_closed else ''}>"

    # What shows the signature of the class shows that of the constructor.
    __new__.__wrapped__ = __init__  # type: ignore[attr-defined]  # functions have it if it is set

    @property
    def endpoint(self) -> str:
        """The server's ``host:port``, or other gRPC target; of a client of a node, the last known one."""
        return self._endpoint

    def channel(self, name: str) -> AsyncChannel:
        """Return a handle for a channel. Does no I/O and does not validate the name."""
        return AsyncChannel(self, name)

    def vchannel(self, name: str) -> AsyncVchannel:
        """Return a handle for a vchannel, such as ``orders/0``. Does no I/O and does not validate the name."""
        return AsyncVchannel(self, name)

    def mailbox(self, name: str) -> AsyncMailbox:
        """Return a handle for a mailbox. Does no I/O and does not validate the name."""
        return AsyncMailbox(self.message_calls, name)

    def wal(self) -> AsyncWal:
        """Return the client's log with a WAL accessor's interface and background readers. Does no I/O."""
        return AsyncWal(self)

    async def ensure_channel(self, name: str, **settings: Unpack[ChannelSettings]) -> AsyncChannel:
        """Create a channel if it does not exist, and return its handle. An existing channel keeps its retention.

        Raises:
            ChannelAlreadyExistsError: The channel exists with another number of vchannels.
            InvalidRequestError: The name, the number of vchannels or the retention is invalid.
        """
        await self.create_channel(name, if_not_exists=True, **settings)
        return self.channel(name)

    async def wal_name(self) -> str:
        """Return the kind of log store behind the server: ``rocksdb``, ``kafka``, ``pulsar`` or ``memory``."""
        request = wal_service_pb2.GetWalNameRequest()
        answer = await self._read(self._services.wal.GetWalName, request)
        return str(answer.wal_name)

    async def allocate_ticks(self, count: int = 1) -> range:
        """Return ``count`` (1 to 1,000,000) consecutive ticks; no other caller or message ever gets them."""
        request = wal_service_pb2.AllocateTicksRequest(count=count)
        # Safe to retry like a read: ticks of a lost answer stay unused, which harms nothing.
        answer = await self._read(self._services.wal.AllocateTicks, request)
        return range(answer.first_tick, answer.first_tick + answer.count)

    async def latest_mvcc_tick(self, vchannel: str) -> Tick:
        """Return the tick that a reader must reach to see every message acknowledged so far; 0 before the first one."""
        request = wal_service_pb2.GetLatestMvccTickRequest(vchannel=vchannel)
        answer = await self._read(self._services.wal.GetLatestMvccTick, request)
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
        whole_channels: Mapping[str, int] | None = None,
    ) -> Plan:
        """Divide the messages with begin_tick <= tick < end_tick into splits.

        Args:
            vchannels: 1 to 1,024 distinct names of vchannels.
            begin_tick: Lower bound, inclusive; 0 for all available messages.
            end_tick: Upper bound, exclusive. 0 for a consistent cut: everything acknowledged before the call, and
                nothing later.
            min_splits: Minimum number of splits, at most 100,000; a hint. 0 for no minimum.
            max_messages_per_split: Approximate maximum of messages per split; 0 for no limit.
            max_bytes_per_split: Approximate maximum of bytes per split; 0 for 64 MiB.
            created_ticks: Expected creation tick of the channel, by vchannel as named in ``vchannels``. The call fails
                if that channel was destroyed, even if another channel has its name now.
            whole_channels: Channels of which you want all vchannels, with the number that you know. The plan states
                which of them have ``grown``: it may lack messages on vchannels that were added just before the cut.

        Raises:
            PositionTrimmedError: ``begin_tick`` was trimmed, or is before the creation of a channel.
            ChannelNotFoundError: A channel does not exist, or is not the one named by ``created_ticks``.
        """
        names = list(vchannels)
        request = wal_service_pb2.PlanScanRequest(
            vchannels=names, created_ticks=[created_ticks.get(name, 0) for name in names] if created_ticks else (),
            begin_tick=begin_tick, end_tick=end_tick, min_splits=min_splits,
            max_messages_per_split=max_messages_per_split, max_bytes_per_split=max_bytes_per_split,
            whole_channels=[
                wal_service_pb2.ChannelSize(name=name, vchannels=number)
                for name, number in (whole_channels or {}).items()
            ],
        )  # fmt: skip
        answer = await self._read(self._services.wal.PlanScan, request)
        return _wire.plan(answer)

    async def trim(self, vchannel: str, before: End | None = None, *, everything: bool = False) -> Tick:
        """Delete, durably, all messages before a tick or time, or with ``everything`` all acknowledged so far.

        Returns the first tick that is still available. Trimming below an earlier trim changes nothing.

        Raises:
            ValueError: Neither or both of ``before`` and ``everything`` are given, or ``before`` is neither a tick nor
                a time.
        """
        request = _requests.trim_request(vchannel, None if before is None else position(before), everything=everything)
        # A trim before a fixed position is idempotent; `everything` grows between attempts.
        answer = await self._change(self._services.wal.Trim, request, is_idempotent=not everything)
        return Tick(answer.first_available_tick)

    async def open_producer(
        self, vchannel: str, producer_id: str, *, accept_forgotten: bool = False
    ) -> ProducerPosition:
        """Take over a producer id on a vchannel or a channel, durably, and return its last batch and new epoch.

        From then on the server rejects appends with an earlier epoch. A program that numbers its input batches resumes
        after ``last_sequence`` when it is restarted, so each batch is in the log once.

        On a channel with several vchannels, the producer's messages are distributed by their keys, which they must
        have, over the vchannels that the channel had when it was opened there first. This client then numbers the
        batches of each vchannel; its appends must be awaited one after the other.

        Args:
            vchannel: Vchannel or channel that the producer appends to.
            producer_id: Name of the producer; must not begin with ``_`` or ``~``.
            accept_forgotten: Open an unknown producer as new even if the server may have evicted its state. Set this
                only if its batches are known not to be in the log.

        Raises:
            InvalidRequestError: The producer id is invalid, or was opened on a vchannel and is now opened on its
                channel, or the other way round.
            ProducerForgottenError: The producer is unknown and may have been evicted. Nothing happened.
            ChannelNotFoundError, UnavailableError, StorageFailedError: See ``effect``.
        """
        request = wal_service_pb2.OpenProducerRequest(
            vchannel=vchannel, producer_id=producer_id, accept_forgotten=accept_forgotten
        )
        # Safe to retry: a second attempt raises the epoch again, and fences a process that opened it in between as any
        # later open does.
        answer = await self._change(self._services.wal.OpenProducer, request, is_idempotent=True)
        states = answer.vchannels
        if states:
            numbered = NumberedChannel(
                vchannel, [state.last_sequence for state in states], [state.last_call for state in states]
            )
            self._numbered.put(producer_id, numbered)
            if len(states) > 1:
                last_tick = Tick(max(state.last_tick for state in states))
                return ProducerPosition(producer_id, answer.epoch, numbered.complete_call, last_tick, len(states))
        return ProducerPosition(producer_id, answer.epoch, answer.last_sequence, Tick(answer.last_tick))

    async def fence(self, vchannel: str, fencing_token: int) -> None:
        """Raise the fencing token of a vchannel, durably; setting the current token again changes nothing.

        From then on the server rejects appends with another token; appends without a token are accepted. A writer that
        acquires a lock calls this with a number that grows with each holder of the lock, and passes it to every append.
        The previous holder can then no longer write, even if it has not noticed the loss of the lock.

        Raises:
            FencedError: The vchannel has a greater token: another writer has taken over since.
            ValueError: ``fencing_token`` is not in 1 to 2^64 - 1.
            ChannelNotFoundError, UnavailableError, StorageFailedError: See ``effect``.
        """
        check_fencing_token(fencing_token)
        request = wal_service_pb2.SetFencingTokenRequest(vchannel=vchannel, fencing_token=fencing_token)
        await self._change(self._services.wal.SetFencingToken, request, is_idempotent=True)

    async def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable] | ArrowData,
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
        producer: ProducerSequence | None = None,
        durability: Durability | None = None,
        partitioner: Partitioner | None = None,
        timeout_s: Duration | None = None,
    ) -> AppendResult:
        """Append one message, or several as one batch with consecutive ticks, and return their position.

        On a channel with several vchannels, a message with a key goes to the vchannel of the key, and the others go
        together to one vchannel, in turn. So the call appends one batch per vchannel, at the same time, each whole or
        not at all; ``parts`` of the result has them.

        Concurrent appends to one vchannel share batches. Cancelling ends only the wait: the messages may still be
        appended.

        Args:
            vchannel: Name of the vchannel, or of a channel.
            messages: One message or several; or at most 10,000 in columns: anything with an Arrow C interface and a
                column ``payload``, such as a table of pyarrow, pandas, Polars or DuckDB, a batch of a scan, or Columns.
                ``columns_from_arrow`` lists the columns that are read; others are ignored.
            barrier_tick: Tick that all ticks of the append must exceed; the append may have to wait for this.
            expected_last_tick: Append only if this is still the tick of the last message ever appended to the vchannel
                (0 for none).
            fencing_token: Append only if the vchannel has this token (1 to 2^64 - 1); see ``fence``.
            producer: Producer and sequence of the batch. The append is then retried within its timeout until the
                outcome is known. A batch that is already in the log is not appended again and its conditions are not
                checked again: its first result is returned with ``duplicate`` set and the original durability. The
                server appends the batches of one producer on one vchannel one after the other. For a channel with
                several vchannels, see ``open_producer``.
            durability: When to acknowledge: ``sync`` or ``os``; None for the server's default.
            partitioner: How the vchannel of a key is chosen, for a channel: ``crc32c`` (default), CRC-32C of the key
                modulo the number of vchannels; ``murmur2``, as Kafka's producers do; or a function of the key and the
                number that returns an index. See ``partition_keys``.
            timeout_s: Timeout in seconds; None for the client's.

        Raises:
            AppendPartlyDoneError: Some of the batches of the call are in the log, and others not, or not known to be.
            ProducerFencedError, SequenceError: See these classes. With ``effect`` ``none``, nothing was appended.
            AppendUnknownError: The messages may or may not be in the log.
            BarrierNotReachedError: The barrier is too far in the future. Nothing was appended.
            LastTickMismatchError, FencedError: A condition does not hold. Nothing was appended.
            ValueError: The fencing token or the durability is invalid.
            InvalidRequestError: The batch is empty, too large or malformed. Nothing was appended.
            ChannelNotFoundError, UnavailableError, DeadlineError, StorageFailedError: See ``effect``.
        """
        several = Several(*measured(await one_batch(messages) if is_arrow(messages) else messages))
        timeout_s = seconds_or("timeout_s", timeout_s, self.timeout_s)
        terms = DEFAULT_TERMS
        if durability is not None or fencing_token is not None:
            terms = AppendTerms(durability, fencing_token).checked()
        conditions = Conditions(terms, barrier_tick or 0, expected_last_tick, producer, partitioner)
        appending = self._session().append_calls.append(vchannel, several, conditions, timeout_s)
        return await traced(appending, vchannel, len(several.messages), self.endpoint)

    async def append_numbered(self, vchannel: str, messages: Sequence[Appendable]) -> AppendResult:
        """Append messages as one batch, and resend it within the timeout until the outcome is known; for ``msgstream``.

        Raises:
            TidelogError: As ``append``.
        """
        several, is_plain, size_bytes = measured(messages)
        appending = self._session().appends.append(
            vchannel, several, is_plain=is_plain, size_bytes=size_bytes, terms=DEFAULT_TERMS, timeout_s=self.timeout_s,
            is_numbered=True,
        )  # fmt: skip
        return await traced(appending, vchannel, len(several), self.endpoint)

    def producer(self, vchannel: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Return a producer that streams many messages to a vchannel or a channel; use it with ``async with``.

        Raises:
            ValueError: An option is out of range.
        """
        return AsyncProducer(self._appends(), vchannel, **options)

    def txn(self, **options: Unpack[TransactionOptions]) -> AsyncTransaction:
        """Return a transaction over any vchannels of the node; use it with ``async with``, which commits at the end.

        Raises:
            ValueError: An option is out of range.
        """
        return AsyncTransaction(self._appends(), self.timeout_s, count_vchannels=self._count_vchannels, **options)

    def scan(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = EARLIEST,
        until: End = WATERMARK,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan:
        """Return a scan of one or many vchannels, merged in tick order; it opens when it is iterated or entered.

        The name of a channel stands for all of its vchannels, and for those that are added while the scan follows it.
        So does a pattern, such as ``orders.*``, for every channel that matches it as in a shell (``*``, ``?``,
        ``[ab]``) and that the caller may read; channels that are created later are not added. ``start`` is inclusive
        and ``until`` exclusive. By default the scan reads everything acknowledged before it opens; with
        ``until=At.follow()`` it never ends.

        To resume a scan, pass its ``positions`` as ``start``; vchannels that were added to a channel since, and those
        of channels that match a pattern, begin at their first message. A scan fails with InvalidRequestError when it
        opens if the positions lack another one of its vchannels. The same holds for a scan of several vchannels that
        starts at ``At.after`` or ``At.after_message_id``: all copies of a broadcast have one tick, which does not say
        which of them were read.

        Raises:
            ValueError: A position, option or pattern is invalid.
        """
        names = [vchannels] if isinstance(vchannels, str) else list(vchannels)
        return self._scan(lambda: targets_of(self, names), start, until, options, patterns_of(names))

    def tail(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = LATEST,
        until: End = FOLLOW,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan:
        """Return a scan that follows new messages, by default from now on. Otherwise as ``scan``."""
        return self.scan(vchannels, start=start, until=until, **options)

    def check_open(self) -> None:
        """Raise ClosedError if the client is closed; for handles."""
        if self._is_closed:
            raise closed_error()

    async def aclose(self) -> None:
        """Drain: wait until all appends, broadcasts and other changes are answered, then close the connection.

        The wait takes at most the client's ``timeout_s``; a call with a shorter timeout ends at that. Then broadcasts
        that wait on the server are withdrawn, within a second, and end with ResourceAcquiredError or
        BarrierNotReachedError: nothing was appended. A call that is still unanswered ends with ClosedError without
        effect if it was not sent. If it was sent, an append, broadcast or commit ends with AppendUnknownError, and
        another change with ClosedError whose ``effect`` is ``unknown``. Reads and scans end with ClosedError at once.
        Cancelling ends only the wait: the client is closed.
        """
        self._is_closed = True
        await self._close_session()

    def scan_one(self, name: str, start: Start | Positions, until: End, options: ScanOptions) -> AsyncScan:
        """Return a scan of the vchannel ``name``, or of a channel's only vchannel; for handles and the WAL."""

        async def resolve() -> Targets:
            names = await self.vchannels_of([name])
            if len(names) > 1:
                raise InvalidRequestError(
                    f"channel '{name}' has {len(names)} vchannels, expected one vchannel: name it, such as {names[0]}, "
                    "or scan the channel",
                    values={"field": "vchannel", "name": name},
                )
            return Targets(names)

        return self._scan(resolve, start, until, options)

    def scan_core(self, targets: Targets, plan: ScanArguments) -> ScanCore:
        """Return the part of a scan that this node serves; for ``AsyncCluster``."""
        return ScanCore(self._transport, targets.resolved, plan)

    async def pause(self) -> bool:
        """Close the connection until the next call, unless the client is in use; return whether it is closed.

        For use before a fork, when gRPC must have no open connection.
        """
        session = self._open_session
        if session is not None and not session.is_idle:
            return False
        await self._close_session()
        return True

    def _scan(
        self,
        resolve: Callable[[], Awaitable[Targets]],
        start: Start | Positions,
        until: End,
        options: ScanOptions,
        patterns: Sequence[ChannelPattern] = (),
    ) -> AsyncScan:
        check_options(options)
        plan = replace(scan_arguments(start, until, **options), patterns=tuple(patterns))
        return AsyncScan(self._scanned(resolve, plan))

    def _scanned(self, resolve: Callable[[], Awaitable[Targets]], plan: ScanArguments) -> Scanned:
        """Return what a scan iterates."""
        return ScanCore(self._transport, resolve, plan)

    async def _count_vchannels(self, channel: str) -> int:
        """Return the number of vchannels of a channel; 0 if another node has it.

        Raises:
            ChannelNotFoundError: It does not exist.
        """
        return len((await self.describe_channels([channel]))[0].vchannels)

    def _session(self) -> ClientSession:
        """Return the session of this event loop and process; create it if necessary."""
        self.check_open()
        session = self._open_session
        if session is None or session.loop is not asyncio.get_running_loop() or session.pid != os.getpid():
            transport = self._new_transport(
                client_id=self._own_client_id(), connect_timeout_s=self._connect_timeout_s, retry=self._retry,
                tls=self._tls, token=self._token,
            )  # fmt: skip
            session = self._open_session = ClientSession(
                transport, self._max_in_flight_bytes, self.timeout_s, self._numbered, self._count_vchannels
            )
        return session

    def _new_transport(self, **options: Any) -> Transport:
        return Transport(self.endpoint, **options)

    def _appends(self) -> Callable[[], AppendStream]:
        """Return what returns the stream of a producer or a transaction, in its event loop."""
        return lambda: self._session().appends

    # Why methods: what holds one refuses to be pickled as the client does.
    def _own_transport(self) -> Transport:
        return self._session().transport

    def _operations(self) -> OperationStream:
        return self._session().operations

    def _own_client_id(self) -> str:
        """Return the client id. A forked child gets a new random one, unless the caller set ``client_id``."""
        if self._made_by_pid != os.getpid():
            self._client_id = self._client_id if self._is_named else secrets.token_hex(16)
            self._made_by_pid = os.getpid()
        return self._client_id

    def _broadcast_ids(self) -> BroadcastIds:
        return self._session().broadcast_ids

    async def _close_session(self) -> None:
        session, self._open_session = self._open_session, None
        if session is not None and session.loop is asyncio.get_running_loop() and session.pid == os.getpid():
            await session.aclose(self.timeout_s)


def _finding_class() -> Any:
    # Why by name: it is made of clients.
    return importlib.import_module("tidelog.finding.owner_client").OwnerFindingClient
