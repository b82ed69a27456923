"""The client's log with the interface of a WAL accessor: appends, transactions, broadcasts and reads."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, overload

from tidelog.admin._generated_client_calls import ClientCalls
from tidelog.admin.broadcast_types import AckMode, BroadcastResult, ResourceKey
from tidelog.append.options import AppendConditions, AppendOptions
from tidelog.append.sizes import Appendable
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.read.positions import EARLIEST, FOLLOW, Positions, Start
from tidelog.read.scanned import Signal
from tidelog.tick import Tick
from tidelog.txn.conditions import check_barrier_tick, full_name
from tidelog.txn.options import TransactionOptions
from tidelog.txn.together import append_together
from tidelog.txn.transaction import AsyncTransaction
from tidelog.types import AppendPart, AppendResult, Durability
from tidelog.wal.deliver_filters import ReadOptions, filter_options
from tidelog.wal.message_handler import Handler, HandlerCalls, calls_here
from tidelog.wal.responses import AppendResponse, AppendResponses, Group, To, grouped, in_order
from tidelog.wal.scanner import AsyncWalScanner, ScannerCore
from tidelog.wire.batch import Batch
from tidelog.wire.durations import Duration


class AsyncWal:
    """The log of a client. It holds no resources and needs no close. ``Wal`` is its synchronous twin.

    Once the client is closed, each call raises ClosedError.
    """

    def __init__(self, client: ClientCalls) -> None:
        self._client = client

    async def wal_name(self) -> str:
        """Return the kind of log store behind the server: ``rocksdb`` or ``memory``."""
        return await self._client.wal_name()

    async def latest_mvcc_tick(self, vchannel: str) -> Tick:
        """Return the tick that a reader must reach to see every message acknowledged so far; 0 before the first one."""
        return await self._client.latest_mvcc_tick(vchannel)

    def txn(self, vchannel: str, **options: Unpack[TransactionOptions]) -> "AsyncWalTransaction":
        """Return a transaction on one vchannel; use it with ``async with``. ``AsyncClient.txn`` spans any vchannels.

        Args:
            vchannel: Vchannel that it appends to.
            **options: As for ``AsyncClient.txn``. ``keepalive_s`` is the time in seconds after the last sign of life of
                this process until the server expires the transaction and discards its staged messages, 0.001 to 3,600;
                with 2 s or more, a pause of the server does not expire it. ``durability`` is when to acknowledge the
                commit: ``sync`` or ``os``. ``timeout_s`` is the timeout of the commit in seconds. The default of each
                is None: that of the server, or the client's timeout.

        Raises:
            ValueError: An option is out of range.
        """
        self._client.check_open()
        return AsyncWalTransaction(self._client.txn(**options), vchannel, self._client.check_open)

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        **options: Unpack[AppendOptions],
    ) -> Coroutine[Any, Any, AppendResult]:
        """Append one message, or several as one batch, and return their position. See ``AsyncClient.append``."""
        return self._client.append(vchannel, messages, **options)

    async def append_messages(
        self,
        messages: Iterable[To | tuple[str, Appendable]],
        *,
        barrier_tick: int | None = None,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
    ) -> AppendResponses:
        """Append messages to several vchannels, independently per vchannel, and return the outcome of each message.

        The messages of one vchannel are appended atomically and in the given order: a single one by a plain append,
        several in a transaction. Vchannels do not wait for each other, and a failure on one does not stop the others.
        A transaction that expires leaves nothing in the log, and is retried within the timeout. Cancelling ends only
        the wait.

        Args:
            messages: Pairs of a vchannel and a message. The messages of a channel with several vchannels are divided
                as by ``AsyncClient.append``.
            barrier_tick: Tick that all ticks must exceed.
            durability: When to acknowledge each append: ``sync`` or ``os``; None for the server's default.
            timeout_s: Timeout per vchannel in seconds; None for the client's.

        Raises:
            TypeError: An item is not such a pair. Nothing was appended.
            ValueError: ``barrier_tick`` is not a valid tick. Nothing was appended.
        """
        self._client.check_open()
        check_barrier_tick(barrier_tick)
        options = AppendOptions(barrier_tick=barrier_tick, durability=durability, timeout_s=timeout_s)
        groups = grouped(messages, full_name)
        appends = [self._append_group(group, options) for group in groups]
        return in_order(zip(groups, await asyncio.gather(*appends), strict=True))

    def broadcast(self) -> "AsyncWalBroadcast":
        """Return the broadcast interface of the log."""
        return AsyncWalBroadcast(self._client)

    def read(
        self,
        vchannel: str,
        *,
        message_handler: Handler,
        deliver_policy: Start | Positions = EARLIEST,
        **options: Unpack[ReadOptions],
    ) -> AsyncWalScanner:
        """Read a vchannel in the background, and pass each batch to ``message_handler``; returns at once.

        The handler receives each batch once, sequentially in tick order, across lost connections and restarts of the
        server. Reading pauses while it runs. A plain function runs on the event loop and must not block. The reason why
        a scanner ended is its ``error``: a trimmed position, a vchannel that does not exist, an exception of the
        handler, a server that is unavailable for ``Retry.give_up_s``, or the close of the client. A new ``read`` with
        ``deliver_policy=scanner.resume_policy`` resumes after the last batch that was handled.

        Args:
            vchannel: Vchannel to read.
            message_handler: Function of one batch, or an object with ``handle`` and optionally ``close``.
            deliver_policy: Where to start: ``At.earliest()``, ``At.latest()``, ``At.tick``, ``At.after``,
                ``At.message_id``, ``At.after_message_id`` or ``At.time``, or the positions of an earlier scan or read.
            **options: ``deliver_filters``: filters; a message is delivered if it passes all of them. ``until``: end of
                the read; default: it never ends. ``on_event``: callback for each ReaderEvent of the read.

        Raises:
            ClosedError: The client is closed.
            TypeError, ValueError: The handler, the policy, a filter or the end is invalid.
        """
        done, opened = asyncio.Event(), asyncio.Event()
        core = self.scanner_core(vchannel, calls_here(message_handler), deliver_policy, done, opened, **options)
        core.start()
        return AsyncWalScanner(core, done, opened)

    def scanner_core(
        self,
        vchannel: str,
        calls: HandlerCalls,
        policy: Start | Positions,
        done: Signal,
        opened: Signal,
        **options: Unpack[ReadOptions],
    ) -> ScannerCore:
        """Return the core of a scanner, which ``read`` starts; for the synchronous twin."""
        self._client.check_open()
        scan_options = filter_options(options.get("deliver_filters", ()))
        scan_options["on_event"] = options.get("on_event")
        scan = self._client.scan_one(vchannel, policy, options.get("until", FOLLOW), scan_options)
        return ScannerCore(scan.core, policy, calls, done=done, opened=opened)

    async def _append_group(self, group: Group, options: AppendOptions) -> list[AppendResponse]:
        """Append the messages of one vchannel, and return the outcome of each."""
        try:
            if group.has_two_names:
                await self._check_has_one(group.vchannel)
            if len(group.messages) == 1:
                return [AppendResponse(await self._client.append(group.vchannel, group.messages[0], **options))]
            committed = await append_together(
                self._client, {group.vchannel: group.messages}, barrier_tick=options["barrier_tick"],
                durability=options["durability"], timeout_s=options["timeout_s"],
            )  # fmt: skip
        except TidelogError as error:
            return [AppendResponse(error=error)] * len(group.messages)
        whole = committed.of(group.vchannel)
        parts = whole.parts or (AppendPart(group.vchannel, whole, range(len(group.messages))),)
        found = {
            index: part.result.part(place, place + 1) for part in parts for place, index in enumerate(part.indices)
        }
        return [AppendResponse(found[index], txn_id=committed.txn_id) for index in range(len(group.messages))]

    async def _check_has_one(self, channel: str) -> None:
        """Raise InvalidRequestError if a channel, named beside its first vchannel, has several."""
        [described] = await self._client.describe_channels([channel])
        if len(described.vchannels) > 1:
            raise InvalidRequestError(
                f"'{channel}' has {len(described.vchannels)} vchannels, and the call names it and '{channel}/0': use a "
                + "call for each"
            )


class AsyncWalTransaction:
    """A transaction on one vchannel: leaving the ``async with`` block commits, and an exception in it rolls back.

    See ``AsyncTransaction``: appends are sent with the commit, or staged before it if they are large. If a transaction
    is neither committed nor rolled back, the server discards it within its keepalive; no call waits for it.

    Attributes:
        vchannel: Vchannel that it appends to.
        transaction: The underlying AsyncTransaction.
    """

    def __init__(self, transaction: AsyncTransaction, vchannel: str, check_open: Callable[[], None]) -> None:
        self.vchannel = vchannel
        self.transaction = transaction
        self.check_open = check_open

    @property
    def result(self) -> AppendResult:
        """Position of the messages. Raises TransactionStateError if it is not committed, or had no messages."""
        return self.transaction.result.of(self.vchannel)

    @property
    def txn_id(self) -> int:
        """Id of its messages in the log. Raises TransactionStateError if it is not committed, or had no messages."""
        return self.transaction.result.txn_id

    async def append(
        self,
        messages: Appendable | Sequence[Appendable],
        **conditions: Unpack[AppendConditions],
    ) -> None:
        """Add one message or several to the transaction, after earlier ones.

        See ``AsyncTransaction.append`` for the barrier, the conditions and the errors.
        """
        self.check_open()
        await self.transaction.append(self.vchannel, messages, **conditions)

    async def commit(self) -> AppendResult | None:
        """Commit, and return the position of the messages; None without messages. See ``AsyncTransaction.commit``.

        If the outcome is unknown, call it again. Once committed, each call returns the same result.
        """
        committed = await self.transaction.commit()
        return None if committed is None else committed.of(self.vchannel)

    async def rollback(self) -> None:
        """Discard all messages. See ``AsyncTransaction.rollback``."""
        await self.transaction.rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transaction.__aexit__(kind, error, trace)


class AsyncWalBroadcast:
    """Broadcasts: one message to many vchannels, acknowledged by their consumers. See ``AsyncWal.broadcast``."""

    def __init__(self, client: ClientCalls) -> None:
        self._client = client

    async def append(
        self,
        vchannels: Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: Duration | None = None,
        barrier_tick: int | None = None,
        timeout_s: Duration | None = None,
    ) -> BroadcastResult:
        """Append one message atomically to many vchannels, at one tick. See ``AsyncClient.broadcast``."""
        return await self._client.broadcast(
            vchannels, message, resource_keys=resource_keys, wait_s=wait_s, barrier_tick=barrier_tick,
            timeout_s=timeout_s,
        )  # fmt: skip

    @overload
    async def ack(self, broadcast: int, vchannels: str | Iterable[str]) -> None: ...
    @overload
    async def ack(self, broadcast: Batch) -> None: ...
    async def ack(self, broadcast: int | Batch, vchannels: str | Iterable[str] | None = None) -> None:
        """Acknowledge a broadcast, durably: by id and vchannels, or by a delivered batch on the vchannel of the batch.

        Succeeds if it is acknowledged or finished already. Raises as ``AsyncClient.ack`` and ``ack_batch``.

        Raises:
            ValueError: A batch is given with vchannels or does not belong to a broadcast, or an id without vchannels.
        """
        if isinstance(broadcast, Batch):
            if vchannels is not None:
                raise ValueError("a batch is acknowledged on its own vchannel: leave out vchannels")
            await self._client.ack_batch(broadcast)
        elif vchannels is None:
            raise ValueError(f"broadcast {broadcast} is given by id: pass the vchannels to acknowledge it on")
        else:
            await self._client.ack(broadcast, vchannels)

    async def block_until_resource_key_ack_once(self, key: ResourceKey, *, timeout_s: Duration | None = None) -> None:
        """Wait until one vchannel has acknowledged one of the broadcasts that hold ``key`` now, or ``key`` is free.

        Raises:
            DeadlineError: No vchannel has within ``timeout_s`` seconds; None for the client's timeout.
        """
        await self._client.wait_acked(key, mode=AckMode.ONCE, timeout_s=timeout_s)

    async def block_until_resource_key_ack_all(self, key: ResourceKey, *, timeout_s: Duration | None = None) -> None:
        """Wait until all vchannels have acknowledged all broadcasts that hold ``key`` now, or ``key`` is free.

        Raises:
            DeadlineError: They have not within ``timeout_s`` seconds; None for the client's timeout.
        """
        await self._client.wait_acked(key, mode=AckMode.ALL, timeout_s=timeout_s)
