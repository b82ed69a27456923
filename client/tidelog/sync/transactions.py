"""Transaction calls of the synchronous client: prepared commits, and administration of open transactions."""

from collections.abc import Sequence

from tidelog.client import AsyncClient
from tidelog.transport.background import background
from tidelog.types import Durability, PreparedCommit, PreparedTransaction, TransactionDescription


class TransactionCalls:
    """Transactions of any client, for ``Client``. See ``AsyncTransactionCalls``."""

    _client: AsyncClient

    def commit_prepared(
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
        """Commit prepared transactions of any clients atomically. See ``AsyncClient.commit_prepared``."""
        return background.run(
            self._client.commit_prepared(
                txns,
                app_id,
                app_version,
                is_last=is_last,
                is_first=is_first,
                query_id=query_id,
                any_vchannel=any_vchannel,
                barrier_tick=barrier_tick,
                durability=durability,
                timeout_s=timeout_s,
            )
        )

    def roll_back_prepared(self, txns: Sequence[PreparedTransaction]) -> None:
        """Roll back prepared transactions of any clients. See ``AsyncClient.roll_back_prepared``."""
        background.run(self._client.roll_back_prepared(txns))

    def list_txns(self) -> list[TransactionDescription]:
        """Return the open transactions of all clients, oldest first. See ``AsyncClient.list_txns``."""
        return background.run(self._client.list_txns())

    def describe_txn(self, txn_id: int) -> TransactionDescription:
        """Return the server's description of a transaction of any client. See ``AsyncClient.describe_txn``."""
        return background.run(self._client.describe_txn(txn_id))

    def abort_txn(self, txn_id: int, reason: str) -> None:
        """Abort an open transaction of any client. See ``AsyncClient.abort_txn``."""
        background.run(self._client.abort_txn(txn_id, reason))
