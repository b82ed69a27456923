"""Transaction calls of the asynchronous client: prepared commits, and administration of open transactions."""

from collections.abc import Sequence

from tidelog.tick import Tick
from tidelog.transport.deadline import Deadline
from tidelog.transport.service_calls import ServiceCalls
from tidelog.types import Durability, PreparedCommit, PreparedTransaction, TransactionDescription
from tidelog.v1 import transaction_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.durations import Duration, seconds_or


class AsyncTransactionCalls(ServiceCalls):
    """Transactions of any client, for ``AsyncClient``."""

    async def commit_prepared(
        self,
        txns: Sequence[PreparedTransaction],
        app_id: str,
        app_version: int,
        *,
        is_last: bool = False,
        is_first: bool = False,
        query_id: str = "",
        any_vchannel: bool = False,
        barrier_tick: int | None = None,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
    ) -> PreparedCommit:
        """Commit prepared transactions of any clients atomically, once per application and version.

        Repeating a version, even with other transactions or after a restart of the server, returns the first commit and
        discards the transactions passed with it. The repetition is rejected unless it has as many messages as the first
        commit, on the same vchannels. The server remembers the last commit of each of 10,000 applications.

        A commit also discards what earlier attempts left behind: all other transactions prepared for this version or an
        earlier one, and those that were prepared without a version and begun before the commit. With authentication on,
        a call sees only transactions and applications of the client's principal.

        Args:
            txns: At most 1,000 transactions with 16,384 batches in all. Messages on one vchannel are appended in this
                order. If empty, the version is recorded as committed.
            app_id: Application that they were prepared for.
            app_version: The application's number for this commit, not below that of its last commit.
            is_last: The application makes no later commit. The server remembers 1,000 such applications in addition.
                If one commits again, it counts as an ordinary application from then on.
            is_first: The caller knows that the application has not committed other transactions under this version.
                Without this, an unknown application is rejected if the server may have evicted its last commit.
            query_id: Query that the versions belong to, at most 128 bytes. Once the application has committed under a
                query, commits under another query, or without one, are rejected.
            any_vchannel: Allow a repetition to have its messages on other vchannels of the same channels.
            barrier_tick: Tick that all ticks of the commit must exceed.
            durability: When to acknowledge: ``sync`` or ``os``; None for the server's default.
            timeout_s: Timeout in seconds; None for the client's.

        Raises:
            AppCommitMismatchError: The application's versions belong to another query, or this version was committed
                with different content. Nothing happened.
            ApplicationForgottenError: The application is unknown, and its last commit may have been evicted. This call
                changed nothing.
            AppVersionPassedError: The application has committed a later version. Nothing happened.
            TransactionError: A transaction cannot be committed: it expired, ended, or waits for another commit. Nothing
                happened.
            TidelogError: If ``effect`` is ``unknown``, repeat the call to learn the outcome; else nothing happened.
            ValueError: ``app_version`` is not in 0 to 2^63 - 1.
        """
        _wire.check_app_version(app_version)
        request = transaction_service_pb2.CommitPreparedTxnsRequest(
            txns=_wire.prepared(txns), app_id=app_id, app_version=app_version, barrier_tick=barrier_tick or 0,
            durability=_wire.DURABILITIES[durability], is_last=is_last, is_first=is_first, query_id=query_id,
            any_vchannel=any_vchannel,
        )  # fmt: skip
        transport = self._transport()
        answer = await transport.call(
            transport.transactions.CommitPreparedTxns, request,
            timeout_s=seconds_or("timeout_s", timeout_s, self.timeout_s), is_read=False, is_idempotent=True,
        )  # fmt: skip
        synced: Durability = "sync" if answer.durability == _wire.DURABILITIES["sync"] else "os"
        ticks = Tick(answer.first_tick), Tick(answer.last_tick)
        return PreparedCommit(*ticks, answer.messages, synced, answer.duplicate)

    async def roll_back_prepared(self, txns: Sequence[PreparedTransaction]) -> None:
        """Roll back prepared transactions of any clients; skip those that have ended without a commit.

        Raises:
            TransactionStateError: One is committed or being committed. Nothing changed.
        """
        request = transaction_service_pb2.RollbackPreparedTxnsRequest(txns=_wire.prepared(txns))
        await self._change(self._services.transactions.RollbackPreparedTxns, request, is_idempotent=True)

    async def list_txns(self) -> list[TransactionDescription]:
        """Return the open transactions of all clients that have staged a batch or sent a keepalive, oldest first."""
        found: list[TransactionDescription] = []
        deadline = Deadline(self.timeout_s)
        request = transaction_service_pb2.ListTxnsRequest()
        async for answer in self._pages(lambda services: services.transactions.ListTxns, request, deadline):
            found += map(_wire.transaction_description, answer.txns)
        return found

    async def describe_txn(self, txn_id: int) -> TransactionDescription:
        """Return the server's description of a transaction of any client.

        Raises:
            TransactionNotFoundError, TransactionExpiredError, TransactionStateError: The transaction is neither open
                nor committed.
        """
        request = transaction_service_pb2.DescribeTxnRequest(txn_id=txn_id)
        answer = await self._read(self._services.transactions.DescribeTxn, request)
        return _wire.transaction_description(answer.txn)

    async def abort_txn(self, txn_id: int, reason: str) -> None:
        """Abort an open transaction of any client. The server logs the caller and ``reason`` (1 to 256 bytes).

        Raises:
            TransactionNotFoundError, TransactionExpiredError, TransactionStateError: The transaction is not open.
            InvalidRequestError: ``reason`` is empty or too long.
        """
        request = transaction_service_pb2.AbortTxnRequest(txn_id=txn_id, reason=reason)
        await self._change(self._services.transactions.AbortTxn, request)
