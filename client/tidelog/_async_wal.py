"""The log as one object: appends, transactions, broadcasts and reads of a client, by the names of a WAL accessor."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from tidelog._append_responses import AppendResponse, AppendResponses, Group, To, grouped, in_order
from tidelog._append_together import append_together
from tidelog._batch import Batch
from tidelog._broadcast_types import AckMode, BroadcastResult, ResourceKey
from tidelog._deliver_filters import DeliverFilter, filter_options
from tidelog._errors import TidelogError
from tidelog._message_handler import Handler, HandlerCalls, calls_here
from tidelog._positions import EARLIEST, FOLLOW, End, Positions, Start
from tidelog._reader_events import OnEvent
from tidelog._scan import Signal
from tidelog._sizes import Appendable
from tidelog._tick import Tick
from tidelog._transaction import AsyncTransaction, check_barrier_tick, full_name
from tidelog._types import AppendResult, Durability
from tidelog._wal_scanner import AsyncWalScanner, ScannerCore

if TYPE_CHECKING:
    from tidelog._async_client import AsyncClient


class AsyncWal:
    """The log of a client. It holds nothing, and needs no close of its own; ``Wal`` is its synchronous twin.

    After the client was closed each call raises ClosedError.
    """

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client

    async def wal_name(self) -> str:
        """Return the kind of log store behind the server: ``rocksdb`` or ``memory``."""
        return await self._client.wal_name()

    async def latest_mvcc_tick(self, vchannel: str) -> Tick:
        """Return the tick that a reader must reach to see all that was acknowledged so far; 0 for nothing."""
        return await self._client.latest_mvcc_tick(vchannel)

    def txn(
        self,
        vchannel: str,
        *,
        keepalive_s: float | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> "AsyncWalTransaction":
        """Return a transaction on one vchannel; use it with ``async with``. ``AsyncClient.txn`` takes any vchannels.

        Args:
            vchannel: Where it appends.
            keepalive_s: How long the server keeps what is staged of it after the last sign of this process, 0.001 to
                3,600; None for the server's time. From two seconds on, no pause of the server ends it.
            durability: When the commit is acknowledged; None for the server's default.
            timeout_s: How long the commit may take; None for the client's time.

        Raises:
            ValueError: An option is out of range.
        """
        self._client.check_open()
        transaction = self._client.txn(keepalive_s=keepalive_s, durability=durability, timeout_s=timeout_s)
        return AsyncWalTransaction(transaction, vchannel, self._client.check_open)

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, AppendResult]:
        """Append one message, or several as one batch, and return where they are; see ``AsyncClient.append``."""
        return self._client.append(
            vchannel, messages, barrier_tick=barrier_tick, expected_last_tick=expected_last_tick,
            fencing_token=fencing_token, durability=durability, timeout_s=timeout_s,
        )  # fmt: skip

    async def append_messages(
        self,
        messages: Iterable[To | tuple[str, Appendable]],
        *,
        barrier_tick: int | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> AppendResponses:
        """Append messages to several vchannels, each vchannel by itself, and return what became of each message.

        Those for one vchannel are in the log in the order in which they are given, and together or not at all: one
        alone by a plain append, several in a transaction. Vchannels do not wait for each other, and one that fails
        does not stop the others. A transaction that expires, which leaves nothing in the log, is made again while there
        is time. Cancelling ends the wait only.

        Args:
            messages: Pairs of a vchannel and a message.
            barrier_tick: What all ticks must exceed.
            durability: When each append is acknowledged; None for the server's default.
            timeout_s: How long each vchannel may take; None for the client's time.

        Raises:
            TypeError: One is no such pair. Nothing was appended.
            ValueError: The barrier is no tick. Nothing was appended.
        """
        self._client.check_open()
        check_barrier_tick(barrier_tick)
        groups = grouped(messages, full_name)
        appends = [
            self._append_group(group, barrier_tick=barrier_tick, durability=durability, timeout_s=timeout_s)
            for group in groups
        ]
        return in_order(zip(groups, await asyncio.gather(*appends), strict=True))

    def broadcast(self) -> "AsyncWalBroadcast":
        """Return the broadcasts of the log."""
        return AsyncWalBroadcast(self._client)

    def read(
        self,
        vchannel: str,
        *,
        message_handler: Handler,
        deliver_policy: Start | Positions = EARLIEST,
        deliver_filters: Iterable[DeliverFilter] = (),
        until: End = FOLLOW,
        on_event: OnEvent | None = None,
    ) -> AsyncWalScanner:
        """Read a vchannel in the background, and hand each batch to ``message_handler``; returns at once.

        The handler gets each batch once, one after the other in tick order, across lost connections and restarts of
        the server; nothing more is read while it works. A plain function runs on the event loop, so it must not block.
        What ends the scanner is its ``error``: a trimmed position, a vchannel that does not exist, an exception of the
        handler, a server that stays away for ``Retry.give_up_s``, or the close of the client. Another ``read`` with
        ``deliver_policy=scanner.resume_policy`` continues behind the last batch that was handled.

        Args:
            vchannel: What to read.
            message_handler: A function of one batch, or an object with ``handle`` and maybe ``close``.
            deliver_policy: Where to start: ``At.earliest()``, ``At.latest()``, ``At.tick``, ``At.after``,
                ``At.message_id``, ``At.after_message_id`` or ``At.time``; or the positions of an earlier scan or read.
            deliver_filters: What to deliver; all must pass.
            until: Where to end; never by default.
            on_event: Is called with each ReaderEvent of the read.

        Raises:
            ClosedError: The client is closed.
            TypeError, ValueError: The handler, the policy, a filter or the end is none.
        """
        done, opened = asyncio.Event(), asyncio.Event()
        core = self.scanner_core(
            vchannel, calls_here(message_handler), deliver_policy=deliver_policy, deliver_filters=deliver_filters,
            until=until, on_event=on_event, done=done, opened=opened,
        )  # fmt: skip
        core.start()
        return AsyncWalScanner(core, done, opened)

    def scanner_core(
        self,
        vchannel: str,
        calls: HandlerCalls,
        *,
        deliver_policy: Start | Positions,
        deliver_filters: Iterable[DeliverFilter],
        until: End,
        on_event: OnEvent | None,
        done: Signal,
        opened: Signal,
    ) -> ScannerCore:
        """Return what ``read`` starts; for the synchronous twin."""
        self._client.check_open()
        options = filter_options(deliver_filters)
        options["on_event"] = on_event
        scan = self._client.scan_one(vchannel, deliver_policy, until, options)
        return ScannerCore(scan.core, deliver_policy, calls, done=done, opened=opened)

    async def _append_group(
        self, group: Group, *, barrier_tick: int | None, durability: Durability | None, timeout_s: float | None
    ) -> list[AppendResponse]:
        """Append the messages of one vchannel, and return what became of them."""
        try:
            if len(group.messages) == 1:
                result = await self._client.append(
                    group.vchannel, group.messages[0], barrier_tick=barrier_tick, durability=durability,
                    timeout_s=timeout_s,
                )  # fmt: skip
                return [AppendResponse(result)]
            committed = await append_together(
                self._client, {group.vchannel: group.messages}, barrier_tick=barrier_tick, durability=durability,
                timeout_s=timeout_s,
            )  # fmt: skip
        except TidelogError as error:
            return [AppendResponse(error=error)] * len(group.messages)
        whole = committed.results[group.vchannel]
        return [
            AppendResponse(whole.part(index, index + 1), txn_id=committed.txn_id)
            for index in range(len(group.messages))
        ]


class AsyncWalTransaction:
    """A transaction on one vchannel: leaving an ``async with`` commits, and an exception in it rolls back.

    See ``AsyncTransaction``: appends travel with the commit, or are staged if they are many. One that is neither
    committed nor rolled back costs a keepalive at most, and nobody waits for it.

    Attributes:
        vchannel: Where it appends.
        transaction: What it is made of.
    """

    def __init__(self, transaction: AsyncTransaction, vchannel: str, check_open: Callable[[], None]) -> None:
        self.vchannel = vchannel
        self.transaction = transaction
        self.check_open = check_open

    @property
    def result(self) -> AppendResult:
        """Where the messages are. Raises TransactionStateError: it is not committed, or had none."""
        return self.transaction.result.results[self.vchannel]

    @property
    def txn_id(self) -> int:
        """What its messages carry in the log. Raises TransactionStateError: it is not committed, or had none."""
        return self.transaction.result.txn_id

    async def append(
        self,
        messages: Appendable | Sequence[Appendable],
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
    ) -> None:
        """Append one message or several when the transaction commits, behind earlier ones.

        The barrier, the conditions and what it raises are those of ``AsyncTransaction.append``.
        """
        self.check_open()
        await self.transaction.append(
            self.vchannel, messages, barrier_tick=barrier_tick, expected_last_tick=expected_last_tick,
            fencing_token=fencing_token,
        )  # fmt: skip

    async def commit(self) -> AppendResult | None:
        """Commit, and return where the messages are; None if there are none. See ``AsyncTransaction.commit``.

        It may be called again until the outcome is known, and returns the same once it is committed.
        """
        committed = await self.transaction.commit()
        return None if committed is None else committed.results[self.vchannel]

    async def rollback(self) -> None:
        """Forget all messages. See ``AsyncTransaction.rollback``."""
        await self.transaction.rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transaction.__aexit__(kind, error, trace)


class AsyncWalBroadcast:
    """One message to many vchannels, which their consumers acknowledge. Made by ``AsyncWal.broadcast``."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client

    async def append(
        self,
        vchannels: Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: float | None = None,
        barrier_tick: int | None = None,
        timeout_s: float | None = None,
    ) -> BroadcastResult:
        """Append one message to many vchannels, to all or to none, at one tick. See ``AsyncClient.broadcast``."""
        return await self._client.broadcast(
            vchannels, message, resource_keys=resource_keys, wait_s=wait_s, barrier_tick=barrier_tick,
            timeout_s=timeout_s,
        )  # fmt: skip

    @overload
    async def ack(self, broadcast: int, vchannels: str | Iterable[str]) -> None: ...
    @overload
    async def ack(self, broadcast: Batch) -> None: ...
    async def ack(self, broadcast: int | Batch, vchannels: str | Iterable[str] | None = None) -> None:
        """Acknowledge a broadcast, durably: by its id on vchannels, or the batch that was delivered, where it was.

        Doing so twice is no error, nor is it for a finished one. Raises as ``AsyncClient.ack`` and ``ack_batch``.

        Raises:
            ValueError: A batch with vchannels, or of no broadcast, or an id without vchannels.
        """
        if isinstance(broadcast, Batch):
            if vchannels is not None:
                raise ValueError("a batch says where it was delivered: leave the vchannels out")
            await self._client.ack_batch(broadcast)
        elif vchannels is None:
            raise ValueError(f"say on which vchannels broadcast {broadcast} is acknowledged")
        else:
            await self._client.ack(broadcast, vchannels)

    async def block_until_resource_key_ack_once(self, key: ResourceKey, *, timeout_s: float | None = None) -> None:
        """Return once one vchannel has acknowledged one of the broadcasts that hold ``key`` now, or nobody holds it.

        Raises:
            DeadlineError: None has within ``timeout_s``; None for the client's time.
        """
        await self._client.wait_acked(key, mode=AckMode.ONCE, timeout_s=timeout_s)

    async def block_until_resource_key_ack_all(self, key: ResourceKey, *, timeout_s: float | None = None) -> None:
        """Return once all vchannels have acknowledged all broadcasts that hold ``key`` now, or nobody holds it.

        Raises:
            DeadlineError: They have not within ``timeout_s``; None for the client's time.
        """
        await self._client.wait_acked(key, mode=AckMode.ALL, timeout_s=timeout_s)
