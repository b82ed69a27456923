"""The synchronous twin of the transaction."""

import threading
from collections.abc import Sequence
from typing import Unpack

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

    def append(
        self, vchannel: str, messages: Appendable | Sequence[Appendable], **conditions: Unpack[AppendConditions]
    ) -> None:
        """Add messages to the transaction. See ``AsyncTransaction.append``."""
        # Why by hand: an append that sends nothing needs no event loop.
        with self._lock:
            self._transaction.add(vchannel, messages, **conditions)
            if self._transaction.is_due:
                background.run(self._transaction.stage())
