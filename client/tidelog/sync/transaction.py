"""The synchronous twin of the transaction."""

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from tidelog.append.sizes import Appendable
from tidelog.transport.background import background
from tidelog.txn.options import HasCommits
from tidelog.txn.transaction import AsyncTransaction
from tidelog.types import PositionCommit, PreparedTransaction, TransactionResult
from tidelog.wire.columns import Columns


class Transaction:
    """A transaction; use it with ``with``: leaving the block commits, and an exception in it rolls back.

    See ``AsyncTransaction``. Thread-safe.
    """

    def __init__(self, transaction: AsyncTransaction) -> None:
        self._transaction = transaction
        # Guards the messages gathered so far.
        self._lock = threading.Lock()

    @property
    def result(self) -> TransactionResult:
        """Position of the committed messages. See ``AsyncTransaction.result``."""
        return self._transaction.result

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
    ) -> None:
        """Add messages to the transaction. See ``AsyncTransaction.append``."""
        with self._lock:
            self._transaction.add(
                vchannel, messages, barrier_tick=barrier_tick, expected_last_tick=expected_last_tick,
                fencing_token=fencing_token,
            )  # fmt: skip
            if self._transaction.is_due:
                background.run(self._transaction.stage())

    def append_columns(self, vchannel: str, columns: Columns) -> None:
        """Add a batch that is encoded as columns. See ``AsyncTransaction.append_columns``."""
        with self._lock:
            background.run(self._transaction.append_columns(vchannel, columns))

    def prepare(
        self, app_id: str, *, app_version: int | None = None, keepalive_s: float | None = None
    ) -> PreparedTransaction | None:
        """Prepare the transaction, to be committed together with others. See ``AsyncTransaction.prepare``."""
        with self._lock:
            return background.run(self._transaction.prepare(app_id, app_version=app_version, keepalive_s=keepalive_s))

    def commit_positions(self, source: HasCommits | Iterable[PositionCommit]) -> None:
        """Commit positions of consumer groups with the transaction. See ``AsyncTransaction.commit_positions``."""
        with self._lock:
            self._transaction.commit_positions(source)

    def commit(self) -> TransactionResult | None:
        """Commit, and return the position of the messages. See ``AsyncTransaction.commit``."""
        with self._lock:
            return background.run(self._transaction.commit())

    def rollback(self) -> None:
        """Discard all messages. See ``AsyncTransaction.rollback``."""
        with self._lock:
            background.run(self._transaction.rollback())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            background.run(self._transaction.__aexit__(kind, error, trace))
