"""The synchronous twin of the transaction."""

import threading
from collections.abc import Sequence
from typing import Unpack

from tidelog.append.arrow_data import ArrowData, is_arrow
from tidelog.append.options import AppendConditions
from tidelog.append.sizes import Appendable
from tidelog.sync.generated.transaction import TransactionBase
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess
from tidelog.txn.transaction import AsyncTransaction


class Transaction(InOneProcess, TransactionBase):
    """A transaction; use it with ``with``: leaving the block commits, and an exception in it rolls back.

    See ``AsyncTransaction``. Thread-safe.
    """

    def __init__(self, transaction: AsyncTransaction) -> None:
        self._transaction = transaction
        # Guards the messages gathered so far.
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return repr(self._transaction).replace("Async", "", 1)

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable] | ArrowData,
        **conditions: Unpack[AppendConditions],
    ) -> None:
        """Add messages to the transaction. See ``AsyncTransaction.append``."""
        # Why by hand: an append that sends nothing needs no event loop.
        with self._lock:
            if is_arrow(messages):
                background.run(self._transaction.append(vchannel, messages, **conditions))
                return
            self._transaction.add(vchannel, messages, **conditions)
            if self._transaction.is_due:
                background.run(self._transaction.stage())
