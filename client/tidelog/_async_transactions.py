"""The calls of the asynchronous client on transactions that the server knows of."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidelog import _wire
from tidelog._transport import Transport
from tidelog._types import Durability, PreparedCommit, PreparedTransaction, TransactionDescription
from tidelog.v1 import transaction_service_pb2


class AsyncTransactionCalls(ABC):
    """Transactions of whatever client, for ``AsyncClient``.

    Attributes:
        timeout_s: How long a call may take.
    """

    timeout_s: float

    @abstractmethod
    def _transport(self) -> Transport:
        """Return the open connections of this event loop."""

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
        timeout_s: float | None = None,
    ) -> PreparedCommit:
        """Commit prepared transactions, of whatever clients, at once: all of them are in the log, or none.

        That is done once for each version of an application: a repetition, also with other transactions and after a
        restart of the server, returns the first commit, and ends those that are given then. It is refused unless it
        has as many messages as the first commit, on the same vchannels. The server remembers the
        last commit of each of 10,000 applications. Whatever else was prepared for the version or an earlier one ends as
        well, and so does what was prepared for none and begun before the commit: an earlier try has left it behind.
        With authentication on, transactions and applications are those of the client's principal.

        Args:
            txns: At most 1,000 with 16,384 batches in all; the messages of one vchannel follow each other in this
                order. None notes the version as done.
            app_id: For whom they were prepared.
            app_version: Its number of this commit, not below that of its last one.
            is_last: Whether the application makes no other commit. 1,000 of those are remembered besides. One that
                goes on all the same is as any other from then on.
            is_first: Whether you know that the application has committed no other transactions under this version:
                an unknown application whose last commit the server may have evicted is refused otherwise.
            query_id: The query whose versions they are, at most 128 bytes. Once the application has committed under
                one, commits under another one, or without one, are refused.
            any_vchannel: Whether a repetition may put messages on other vchannels of the same channels.
            barrier_tick: Every tick will be greater.
            durability: When to answer; default None, the server's.
            timeout_s: How long it may take; default None, the client's.

        Raises:
            AppCommitMismatchError: The versions are those of another query, or this version was committed with
                another content. Nothing happened.
            ApplicationForgottenError: The application is unknown, and its last commit may have been evicted. Nothing
                happened now.
            AppVersionPassedError: The application has committed a later version. Nothing happened.
            TransactionError: One cannot be committed: it expired, ended, or waits for another commit. Nothing happened.
            TidelogError: With the effect unknown, repeat it to learn the outcome; else nothing happened.
            ValueError: The version is none.
        """
        request = _wire.commit_prepared_request(
            txns,
            app_id,
            app_version,
            barrier_tick=barrier_tick,
            durability=durability,
            is_last=is_last,
            is_first=is_first,
            query_id=query_id,
            any_vchannel=any_vchannel,
        )
        transport = self._transport()
        answer = await transport.call(
            transport.transactions.CommitPreparedTxns, request,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s, is_read=False, is_idempotent=True,
        )  # fmt: skip
        return _wire.prepared_commit(answer)

    async def roll_back_prepared(self, txns: Sequence[PreparedTransaction]) -> None:
        """End prepared transactions, of whatever clients; those that ended without a commit already are passed over.

        Raises:
            TransactionStateError: One is committed, or is being so. Nothing changed.
        """
        transport = self._transport()
        request = transaction_service_pb2.RollbackPreparedTxnsRequest(txns=_wire.prepared(txns))
        await transport.call(
            transport.transactions.RollbackPreparedTxns, request, timeout_s=self.timeout_s, is_read=False,
            is_idempotent=True,
        )  # fmt: skip

    async def list_txns(self) -> list[TransactionDescription]:
        """Return the open transactions of all clients that have staged something, or said so, oldest first."""
        found: list[TransactionDescription] = []
        page_token = ""
        while True:
            transport = self._transport()
            request = transaction_service_pb2.ListTxnsRequest(page_token=page_token)
            answer = await transport.call(
                transport.transactions.ListTxns, request, timeout_s=self.timeout_s, is_read=True
            )
            found += map(_wire.transaction_description, answer.txns)
            page_token = answer.next_page_token
            if not page_token:
                return found

    async def describe_txn(self, txn_id: int) -> TransactionDescription:
        """Return what the server knows of a transaction of any client.

        Raises:
            TransactionNotFoundError, TransactionExpiredError, TransactionStateError: It is not open, nor committed.
        """
        transport = self._transport()
        request = transaction_service_pb2.DescribeTxnRequest(txn_id=txn_id)
        answer = await transport.call(
            transport.transactions.DescribeTxn, request, timeout_s=self.timeout_s, is_read=True
        )
        return _wire.transaction_description(answer.txn)

    async def abort_txn(self, txn_id: int, reason: str) -> None:
        """End an open transaction of any client; the server's log keeps who and why.

        Raises:
            TransactionNotFoundError, TransactionExpiredError, TransactionStateError: It is not open.
            InvalidRequestError: There is no reason, or it has more than 256 bytes.
        """
        transport = self._transport()
        request = transaction_service_pb2.AbortTxnRequest(txn_id=txn_id, reason=reason)
        await transport.call(transport.transactions.AbortTxn, request, timeout_s=self.timeout_s, is_read=False)
