"""A transaction that has outgrown one request: its batches are staged on the server until it commits."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidelog import _wire
from tidelog._append_lane import ColumnsSubmission, Submission
from tidelog._append_stream import AppendStream
from tidelog._append_terms import DEFAULT_TERMS, AppendTerms
from tidelog._columns import Columns
from tidelog._errors import (
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
from tidelog._numbering import StagedNumbering
from tidelog._sizes import Appendable
from tidelog._transport import Transport
from tidelog._types import AppendResult, PositionCommit, TransactionResult
from tidelog.v1 import transaction_service_pb2

_log: Final = logging.getLogger("tidelog")
# Of the keepalive: two signs may get lost at once before the third comes too late.
_SIGN_SHARE: Final = 1 / 4
# With these the server has said nothing of the transaction, nor of an earlier try to commit it.
_UNHEARD: Final = (UnavailableError, DeadlineError)
# Fewer batches than the server may refuse for, and little memory for those that are not acknowledged yet.
MAX_UNACKNOWLEDGED: Final = 16


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of a vchannel when the transaction commits; see ``AsyncTransaction.append``."""

    expected_last_tick: int | None = None
    fencing_token: int | None = None


class StagedTransaction:
    """The server's side of a transaction. Lives in its client's event loop.

    Batches are numbered, so that those whose answers were lost are sent again, and are there once. A task tells the
    server now and then that the transaction is alive; it ends with the transaction or with its client.
    """

    def __init__(self, transport: Transport, appends: AppendStream, txn_id: int, keepalive_s: float) -> None:
        self.txn_id = txn_id
        self._transport = transport
        self._appends = appends
        self._keepalive_s = keepalive_s
        self._numberings: dict[str, StagedNumbering] = {}
        self._unacknowledged: set[asyncio.Future[AppendResult]] = set()
        self._batches = 0
        # Whether a commit was sent and not answered: then silence proves nothing.
        self._may_be_committed = False
        # The first reason why it cannot be committed any more.
        self._failure: TidelogError | None = None
        self._keeper = asyncio.get_running_loop().create_task(self._keep_alive(), name="tidelog-keepalive")
        transport.open_transactions.add(self)

    @classmethod
    async def begin(
        cls, transport: Transport, appends: AppendStream, *, keepalive_s: float | None, timeout_s: float
    ) -> "StagedTransaction":
        """Begin a transaction on the server.

        Raises:
            TidelogError: Why that was not possible. Nothing is left that would not end by itself.
        """
        request = transaction_service_pb2.BeginTxnRequest(keepalive_us=round((keepalive_s or 0) * 1e6))
        # One that was begun and lost on the way ends when its keepalive runs out.
        answer = await transport.call(
            transport.transactions.BeginTxn, request, timeout_s=timeout_s, is_read=True, is_idempotent=True
        )
        return cls(transport, appends, answer.txn_id, answer.keepalive_us / 1e6)

    async def stage(self, vchannel: str, messages: Sequence[Appendable], *, is_plain: bool, size_bytes: int) -> None:
        """Send a batch on its way; waits while too many are unacknowledged.

        Raises:
            TidelogError: Why the transaction cannot be committed any more.
        """
        await self._stage(vchannel, Submission(messages, is_plain, size_bytes, _future()))

    async def stage_columns(self, vchannel: str, columns: Columns) -> None:
        """Send a batch that is encoded already. As ``stage``."""
        submission = ColumnsSubmission((), False, columns.size_bytes, _future(), columns=columns)
        await self._stage(vchannel, submission)

    async def _stage(self, vchannel: str, submission: Submission) -> None:
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
        """Raise why the transaction cannot be committed any more, if so."""
        if self._failure is not None:
            # A copy, because an error that is raised holds on to whoever it passes, and this one is kept.
            raise copy_of(self._failure)

    async def settled(self, timeout_s: float) -> None:
        """Return once everything is staged.

        Raises:
            UnavailableError: Not so within ``timeout_s``; ask again.
            TidelogError: Why the transaction cannot be committed any more.
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
        conditions: Mapping[str, Condition],
        positions: Sequence[PositionCommit],
        *,
        barrier_tick: int,
        timeout_s: float,
    ) -> TransactionResult:
        """Commit what is staged. It may be called again until the outcome is known.

        Args:
            terms: How.
            conditions: By full name of the vchannel.
            positions: What consumer groups commit with it.
            barrier_tick: What every tick must exceed; 0 for nothing.
            timeout_s: How long it may take.

        Raises:
            AppendUnknownError: The outcome is not known yet.
            TidelogError: Why it is not committed. With the effect none it may be committed again, unless it is over.
        """
        if self._transport.is_closed:
            raise ClosedError(
                "the client is closed: make a new one", effect="unknown" if self._may_be_committed else "none"
            )
        request = _wire.commit_request(
            self.txn_id, self._batches, terms.durability,
            {name: (each.expected_last_tick, each.fencing_token) for name, each in conditions.items()},
            barrier_tick=barrier_tick, positions=positions,
        )  # fmt: skip
        # Beforehand, for the call may be cancelled.
        was_unsure, self._may_be_committed = self._may_be_committed, True
        try:
            answer = await self._transport.call(
                self._transport.transactions.CommitTxn, request, timeout_s=timeout_s, is_read=False, is_append=True,
                is_idempotent=True,
            )  # fmt: skip
        except TransactionExpiredError as error:
            # The server remembers what was committed: this was not, whatever became of earlier tries.
            error.effect = "none"
            raise
        except TidelogError as error:
            if error.effect == "none" and not (was_unsure and isinstance(error, _UNHEARD)):
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
        """Let what is staged wait to be committed, and give no more signs of life; return the client's id.

        Raises:
            TidelogError: It is not prepared, as far as one knows; this may be called again.
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
        """End a transaction whose commit was never sent; where the server cannot be reached, silence ends it."""
        self.forget()
        if self._transport.is_closed:
            return
        request = transaction_service_pb2.RollbackTxnRequest(txn_id=self.txn_id)
        # Nothing of it will be in the log, whatever the answer is.
        with suppress(TidelogError):
            await self._transport.call(
                self._transport.transactions.RollbackTxn, request, timeout_s=timeout_s, is_read=False,
                is_idempotent=True,
            )  # fmt: skip

    def forget(self) -> None:
        """Tell the server nothing more."""
        self._keeper.cancel()
        self._transport.open_transactions.discard(self)

    def _settled(self, future: "asyncio.Future[AppendResult]") -> None:
        self._unacknowledged.discard(future)
        error = None if future.cancelled() else future.exception()
        if self._failure is None and isinstance(error, TidelogError):
            self._failure = _before_commit(error, is_closing=self._transport.is_closing)

    async def _keep_alive(self) -> None:
        """Give a sign of life now and then, until the transaction is over."""
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
                # The server may come back in time; if not, the next batch or the commit learns it.
                _log.debug("transaction %d: no answer to a sign of life: %s", self.txn_id, error)


def _future() -> "asyncio.Future[AppendResult]":
    return asyncio.get_running_loop().create_future()


def _before_commit(error: TidelogError, *, is_closing: bool) -> TidelogError:
    """Return what a batch that was not staged means: nothing of its transaction is in the log in any case."""
    if is_closing:
        return ClosedError("the client was closed before the transaction was staged: nothing of it is in the log")
    if isinstance(error, AppendUnknownError):
        return UnavailableError("a batch of the transaction had no answer for too long: roll it back and begin anew")
    return copy_of(error, effect="none")
