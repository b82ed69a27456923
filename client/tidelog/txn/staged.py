"""A transaction that is too large for one request: its batches are staged on the server until it commits."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tidelog.append.numbering import StagedNumbering
from tidelog.append.queue import Submission
from tidelog.append.stream import AppendStream
from tidelog.errors import (
    AppendUnknownError,
    ClosedError,
    DeadlineError,
    TidelogError,
    TransactionExpiredError,
    TransactionForeignError,
    TransactionNotFoundError,
    UnavailableError,
    copy_of,
)
from tidelog.transport.calls import closed_error
from tidelog.types import AppendResult, TransactionResult
from tidelog.v1 import transaction_service_pb2, wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.append_terms import DEFAULT_TERMS, AppendTerms

_log: Final = logging.getLogger("tidelog")
# Interval of keepalives, as a share of the keepalive time: two in a row may be lost before the transaction expires.
_SIGN_SHARE: Final = 1 / 4
# These errors do not report the state of the transaction or of an earlier attempt to commit it.
_UNHEARD: Final = (UnavailableError, DeadlineError)
# Below the server's limit of unanswered batches, and small enough to bound the memory of unacknowledged batches.
MAX_UNACKNOWLEDGED: Final = 16


class StagedTransaction:
    """The server's side of a transaction. Lives in its client's event loop.

    Batches are numbered, so that those whose responses were lost can be sent again and are staged once. A task sends
    keepalives until the transaction ends or the client is closed.
    """

    def __init__(self, appends: AppendStream, txn_id: int, keepalive_s: float) -> None:
        self.txn_id = txn_id
        self._transport = appends.transport
        self._appends = appends
        self._keepalive_s = keepalive_s
        self._numberings: dict[str, StagedNumbering] = {}
        self._unacknowledged: set[asyncio.Future[AppendResult]] = set()
        self._batches = 0
        # Whether a commit was sent and not answered, so that the transaction may be committed.
        self._may_be_committed = False
        # The first reason why the transaction can no longer be committed.
        self._failure: TidelogError | None = None
        self._keeper = asyncio.get_running_loop().create_task(self._keep_alive(), name="tidelog-keepalive")
        self._transport.open_transactions.add(self.forget)

    @classmethod
    async def begin(cls, appends: AppendStream, *, keepalive_s: float | None, timeout_s: float) -> "StagedTransaction":
        """Begin a transaction on the server.

        Raises:
            TidelogError: The transaction was not begun. One that was begun without a response expires by itself.
        """
        request = transaction_service_pb2.BeginTxnRequest(keepalive_us=round((keepalive_s or 0) * 1e6))
        # Repeating is safe: a transaction whose response was lost expires with its keepalive.
        transport = appends.transport
        answer = await transport.call(
            transport.transactions.BeginTxn, request, timeout_s=timeout_s, is_read=True, is_idempotent=True
        )
        return cls(appends, answer.txn_id, answer.keepalive_us / 1e6)

    async def stage(self, vchannel: str, submission: Submission) -> None:
        """Send a batch; wait while ``MAX_UNACKNOWLEDGED`` batches are unacknowledged.

        Raises:
            TidelogError: The transaction can no longer be committed.
        """
        while len(self._unacknowledged) >= MAX_UNACKNOWLEDGED:
            await asyncio.wait(self._unacknowledged, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        numbering = self._numberings.get(vchannel) or self._numberings.setdefault(
            vchannel, StagedNumbering(self.txn_id)
        )
        self._unacknowledged.add(submission.future)
        submission.future.add_done_callback(self._settled)
        self._batches += 1
        self._appends.put(vchannel, DEFAULT_TERMS, submission, numbering)

    def check(self) -> None:
        """Raise the error because of which the transaction can no longer be committed, if there is one."""
        if self._failure is not None:
            # A copy, because a raised error references the frames that it passes through, and this one is stored.
            raise copy_of(self._failure)

    async def settled(self, timeout_s: float) -> None:
        """Return once everything is staged.

        Raises:
            UnavailableError: Not all batches were acknowledged within ``timeout_s``; call again.
            TidelogError: The transaction can no longer be committed.
        """
        if self._unacknowledged:
            _, pending = await asyncio.wait(self._unacknowledged, timeout=timeout_s)
            if pending:
                raise UnavailableError(
                    f"{len(pending)} batches of the transaction were not acknowledged within {timeout_s:.1f} s: "
                    "commit again"
                )
        self.check()

    async def commit(
        self,
        terms: AppendTerms,
        conditions: Mapping[str, tuple[int | None, int | None]],
        companions: wal_service_pb2.Transaction,
        *,
        barrier_tick: int,
        timeout_s: float,
    ) -> TransactionResult:
        """Commit the staged batches. This may be called again until the outcome is known.

        Args:
            terms: Durability of the commit.
            conditions: Expected last tick and fencing token by full name of the vchannel.
            companions: What else to commit with it, as a transaction without parts.
            barrier_tick: Tick that every tick of the transaction must exceed; 0 for no barrier.
            timeout_s: Maximum time for the commit.

        Raises:
            AppendUnknownError: The outcome is not known yet.
            TidelogError: The transaction is not committed. If ``effect`` is ``none``, it may be committed again unless
                it is over.
        """
        if self._transport.is_closed:
            raise closed_error("unknown" if self._may_be_committed else "none")
        request = transaction_service_pb2.CommitTxnRequest(
            txn_id=self.txn_id, batches=self._batches, durability=_wire.DURABILITIES[terms.durability],
            conditions=[
                transaction_service_pb2.CommitCondition(
                    vchannel=vchannel, expected_last_tick=expected_last_tick, fencing_token=fencing_token or 0
                )
                for vchannel, (expected_last_tick, fencing_token) in conditions.items()
            ],
            barrier_tick=barrier_tick, positions=companions.positions, sends=companions.sends, acks=companions.acks,
        )  # fmt: skip
        # Set before the call, which may be cancelled.
        was_in_doubt, self._may_be_committed = self._may_be_committed, True
        try:
            answer = await self._transport.call(
                self._transport.transactions.CommitTxn, request, timeout_s=timeout_s, is_read=False, is_append=True,
                is_idempotent=True,
            )  # fmt: skip
        except TransactionExpiredError as error:
            # The server remembers committed transactions, so no earlier attempt has committed this one.
            error.effect = "none"
            raise
        except TidelogError as error:
            if error.effect == "none" and not (was_in_doubt and isinstance(error, _UNHEARD)):
                self._may_be_committed = False
                raise
            if isinstance(error, AppendUnknownError):
                raise
            raise AppendUnknownError(str(error), effect="unknown", values=error.values) from error
        self.forget()
        return _wire.committed(answer)

    async def prepare(
        self, app_id: str, app_version: int | None, *, keepalive_s: float | None, timeout_s: float
    ) -> str:
        """Prepare the transaction, and stop sending keepalives; return the client's id.

        Raises:
            TidelogError: The transaction is not known to be prepared; this may be called again.
        """
        request = transaction_service_pb2.PrepareTxnRequest(
            txn_id=self.txn_id, batches=self._batches, keepalive_us=round((keepalive_s or 0) * 1e6), app_id=app_id,
            app_version=app_version,
        )  # fmt: skip
        await self._transport.call(
            self._transport.transactions.PrepareTxn, request, timeout_s=timeout_s, is_read=False, is_idempotent=True
        )
        self.forget()
        return self._transport.client_id

    async def roll_back(self, timeout_s: float) -> None:
        """Roll back a transaction whose commit was never sent. If the server cannot be reached, it expires there."""
        self.forget()
        if self._transport.is_closed:
            return
        request = transaction_service_pb2.RollbackTxnRequest(txn_id=self.txn_id)
        # Nothing of it will be in the log, whatever the response is.
        with suppress(TidelogError):
            await self._transport.call(
                self._transport.transactions.RollbackTxn, request, timeout_s=timeout_s, is_read=False,
                is_idempotent=True,
            )  # fmt: skip

    def forget(self) -> None:
        """Stop sending keepalives."""
        self._keeper.cancel()
        self._transport.open_transactions.discard(self.forget)

    def forget_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop sending keepalives, because the transaction was garbage-collected; may be called on any thread."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self.forget)

    def _settled(self, future: "asyncio.Future[AppendResult]") -> None:
        self._unacknowledged.discard(future)
        error = None if future.cancelled() else future.exception()
        if self._failure is None and isinstance(error, TidelogError):
            self._failure = _before_commit(error, is_closing=self._transport.calls.is_closing)

    async def _keep_alive(self) -> None:
        """Send keepalives until the transaction is over."""
        request = transaction_service_pb2.KeepaliveTxnRequest(txn_id=self.txn_id)
        while True:
            await asyncio.sleep(self._keepalive_s * _SIGN_SHARE)
            try:
                await self._transport.call(
                    self._transport.transactions.KeepaliveTxn, request, timeout_s=self._keepalive_s, is_read=True
                )
            except (TransactionExpiredError, TransactionNotFoundError, TransactionForeignError) as error:
                self._failure = self._failure or copy_of(error)
                return
            except TidelogError as error:
                # The server may recover in time; if not, the next batch or the commit fails.
                _log.debug("transaction %d: a keepalive failed: %s", self.txn_id, error)


def _before_commit(error: TidelogError, *, is_closing: bool) -> TidelogError:
    """Return the error for a transaction with a batch that was not staged: nothing of it is in the log."""
    if is_closing:
        return ClosedError("the client was closed before the transaction was staged: nothing of it is in the log")
    if isinstance(error, AppendUnknownError):
        return UnavailableError(
            "the server did not acknowledge a batch of the transaction in time: roll it back and begin a new one"
        )
    return copy_of(error, effect="none")
