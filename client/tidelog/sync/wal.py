"""The synchronous client's log with the interface of a WAL accessor. See ``tidelog.wal.accessor``."""

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self, Unpack, overload

from tidelog.admin.broadcast_types import BroadcastResult, ResourceKey
from tidelog.append.options import AppendConditions, AppendOptions
from tidelog.append.sizes import Appendable
from tidelog.read.positions import EARLIEST, FOLLOW, End, Positions, Start
from tidelog.read.reader_events import OnEvent
from tidelog.sync.transaction import Transaction
from tidelog.sync.wal_scanner import HandlerThread, WalScanner, start
from tidelog.tick import Tick
from tidelog.transport.background import background
from tidelog.types import AppendResult, Durability
from tidelog.wal.accessor import AsyncWal, AsyncWalBroadcast, AsyncWalTransaction
from tidelog.wal.deliver_filters import DeliverFilter
from tidelog.wal.message_handler import Handler
from tidelog.wal.responses import AppendResponses, To
from tidelog.wire.batch import Batch


class Wal:
    """The log of a client. See ``AsyncWal``. Thread-safe."""

    def __init__(self, wal: AsyncWal) -> None:
        self._wal = wal

    def wal_name(self) -> str:
        """Return the kind of log store behind the server: ``rocksdb`` or ``memory``."""
        return background.run(self._wal.wal_name())

    def latest_mvcc_tick(self, vchannel: str) -> Tick:
        """Return the tick that a reader must reach to see every message acknowledged so far; 0 before the first one."""
        return background.run(self._wal.latest_mvcc_tick(vchannel))

    def txn(
        self,
        vchannel: str,
        *,
        keepalive_s: float | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> "WalTransaction":
        """Return a transaction on one vchannel; use it with ``with``. See ``AsyncWal.txn``."""
        return WalTransaction(
            self._wal.txn(vchannel, keepalive_s=keepalive_s, durability=durability, timeout_s=timeout_s)
        )

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        **options: Unpack[AppendOptions],
    ) -> AppendResult:
        """Append one message, or several as one batch, and return their position. See ``AsyncWal.append``."""
        appending = self._wal.append(vchannel, messages, **options)
        return background.run(appending)

    def append_messages(
        self,
        messages: Iterable[To | tuple[str, Appendable]],
        *,
        barrier_tick: int | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> AppendResponses:
        """Append to several vchannels, and return the outcome of each message. See ``AsyncWal.append_messages``."""
        return background.run(
            self._wal.append_messages(messages, barrier_tick=barrier_tick, durability=durability, timeout_s=timeout_s)
        )

    def broadcast(self) -> "WalBroadcast":
        """Return the broadcast interface of the log."""
        return WalBroadcast(self._wal.broadcast())

    def read(
        self,
        vchannel: str,
        *,
        message_handler: Handler,
        deliver_policy: Start | Positions = EARLIEST,
        deliver_filters: Iterable[DeliverFilter] = (),
        until: End = FOLLOW,
        on_event: OnEvent | None = None,
    ) -> WalScanner:
        """Read in the background, and pass each batch to ``message_handler``; returns at once. See ``AsyncWal.read``.

        The handler runs on its own thread: it may block, and may use the client.
        """
        done, opened = threading.Event(), threading.Event()
        thread = HandlerThread(message_handler)
        try:
            core = self._wal.scanner_core(
                vchannel, thread.calls, deliver_policy=deliver_policy, deliver_filters=deliver_filters, until=until,
                on_event=on_event, done=done, opened=opened,
            )  # fmt: skip
            background.run(start(core))
        except BaseException:
            thread.end()
            raise
        return WalScanner(core, thread, done, opened)


class WalTransaction:
    """A transaction on one vchannel: leaving the ``with`` block commits, and an exception in it rolls back.

    See ``AsyncWalTransaction``. Thread-safe.
    """

    def __init__(self, transaction: AsyncWalTransaction) -> None:
        self.vchannel = transaction.vchannel
        self._check_open = transaction.check_open
        self._transaction = Transaction(transaction.transaction)

    @property
    def result(self) -> AppendResult:
        """Position of the messages. See ``AsyncWalTransaction.result``."""
        return self._transaction.result.results[self.vchannel]

    @property
    def txn_id(self) -> int:
        """Id of its messages in the log. See ``AsyncWalTransaction.txn_id``."""
        return self._transaction.result.txn_id

    def append(
        self,
        messages: Appendable | Sequence[Appendable],
        **conditions: Unpack[AppendConditions],
    ) -> None:
        """Add messages to the transaction. See ``AsyncWalTransaction.append``."""
        self._check_open()
        self._transaction.append(self.vchannel, messages, **conditions)

    def commit(self) -> AppendResult | None:
        """Commit, and return the position of the messages. See ``AsyncWalTransaction.commit``."""
        committed = self._transaction.commit()
        return None if committed is None else committed.results[self.vchannel]

    def rollback(self) -> None:
        """Discard all messages. See ``AsyncWalTransaction.rollback``."""
        self._transaction.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transaction.__exit__(kind, error, trace)


class WalBroadcast:
    """Broadcasts: one message to many vchannels, acknowledged by their consumers. See ``AsyncWalBroadcast``."""

    def __init__(self, broadcast: AsyncWalBroadcast) -> None:
        self._broadcast = broadcast

    def append(
        self,
        vchannels: Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: float | None = None,
        barrier_tick: int | None = None,
        timeout_s: float | None = None,
    ) -> BroadcastResult:
        """Append one message atomically to many vchannels, at one tick. See ``AsyncClient.broadcast``."""
        return background.run(
            self._broadcast.append(
                vchannels, message, resource_keys=resource_keys, wait_s=wait_s, barrier_tick=barrier_tick,
                timeout_s=timeout_s,
            )
        )  # fmt: skip

    @overload
    def ack(self, broadcast: int, vchannels: str | Iterable[str]) -> None: ...
    @overload
    def ack(self, broadcast: Batch) -> None: ...
    def ack(self, broadcast: int | Batch, vchannels: str | Iterable[str] | None = None) -> None:
        """Acknowledge a broadcast, durably. See ``AsyncWalBroadcast.ack``."""
        background.run(self._broadcast.ack(broadcast, vchannels))  # type: ignore[arg-type]  # the twin rejects the other combinations

    def block_until_resource_key_ack_once(self, key: ResourceKey, *, timeout_s: float | None = None) -> None:
        """Wait for one acknowledgement. See ``AsyncWalBroadcast.block_until_resource_key_ack_once``."""
        background.run(self._broadcast.block_until_resource_key_ack_once(key, timeout_s=timeout_s))

    def block_until_resource_key_ack_all(self, key: ResourceKey, *, timeout_s: float | None = None) -> None:
        """Wait for all acknowledgements. See ``AsyncWalBroadcast.block_until_resource_key_ack_all``."""
        background.run(self._broadcast.block_until_resource_key_ack_all(key, timeout_s=timeout_s))
