"""The calls of the synchronous client on transactions that the server knows of; see ``_async_transactions``."""

from collections.abc import Sequence

from tidelog._async_client import AsyncClient
from tidelog._background import background
from tidelog._types import Durability, PreparedCommit, PreparedTransaction, TransactionDescription


class TransactionCalls:
    """Transactions of whatever client, for ``Client``."""

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
        """Commit prepared transactions at once. See ``AsyncClient.commit_prepared``."""
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
        """End prepared transactions. See ``AsyncClient.roll_back_prepared``."""
        background.run(self._client.roll_back_prepared(txns))

    def list_txns(self) -> list[TransactionDescription]:
        """Return the open transactions of all clients. See ``AsyncClient.list_txns``."""
        return background.run(self._client.list_txns())

    def describe_txn(self, txn_id: int) -> TransactionDescription:
        """Return what the server knows of a transaction. See ``AsyncClient.describe_txn``."""
        return background.run(self._client.describe_txn(txn_id))

    def abort_txn(self, txn_id: int, reason: str) -> None:
        """End an open transaction of any client. See ``AsyncClient.abort_txn``."""
        background.run(self._client.abort_txn(txn_id, reason))
