"""Transactions: atomic appends to several vchannels."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, Unpack

from tidelog.append.arrow_data import ArrowData, batches, is_arrow, unplaced
from tidelog.append.dividing import check_partitioner
from tidelog.append.options import AppendConditions
from tidelog.append.queue import Submission, TransactionPart, TransactionSubmission
from tidelog.append.sizes import Appendable, in_batches, measured
from tidelog.append.stream import AppendStream
from tidelog.errors import (
    AppendUnknownError,
    GroupFencedError,
    GroupPositionMovedError,
    InvalidRequestError,
    TidelogError,
    TransactionExpiredError,
    TransactionStateError,
)
from tidelog.transport import tracing as _tracing
from tidelog.transport.deadline import Deadline
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.node.located import located
from tidelog.transport.transport import deadline_error
from tidelog.txn.channel_parts import ChannelParts
from tidelog.txn.companions import Acknowledgeable, Companions, Sendable
from tidelog.txn.conditions import check_barrier_tick, check_names, full_name, one_value
from tidelog.txn.options import HasCommits, keepalive_or_none
from tidelog.txn.staged import StagedTransaction
from tidelog.txn.states import State
from tidelog.txn.turns import Turns
from tidelog.types import Durability, PositionCommit, PreparedTransaction, TransactionResult
from tidelog.wire import protocol as _wire
from tidelog.wire.append_terms import AppendTerms, check_fencing_token
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, Columns
from tidelog.wire.durations import Duration, seconds_or
from tidelog.wire.partitioning import Partitioner

STAGE_FROM_BYTES: Final = 1 << 20
"""Messages gathered for one vchannel are staged from this size, in batches of this size."""
# Maximum size of a transaction in one request, well below servers' limits; and of what is gathered besides the staged.
_MAX_REQUEST_BYTES: Final = 3 << 20
_MAX_GATHERED_BYTES: Final = 64 << 20
# After these errors, the messages that the transaction processed no longer belong to this process.
_LOST_POSITIONS: Final = (GroupFencedError, GroupPositionMovedError)
# In the error of a call whose deadline passes before it is sent.
_BATCH: Final = "the next batch of the transaction"
_MAX_KEEPALIVE_S: Final = 3_600.0
_MAX_PREPARED_KEEPALIVE_S: Final = 86_400.0


class AsyncTransaction(InOneProcess):
    """A transaction; use it with ``async with``: leaving the block commits, an exception rolls back.

    Appends are gathered in memory and sent with the commit, so a small open transaction costs the server nothing and
    does not expire. From 1 MiB on one vchannel, or 3 MiB in total, batches are sent immediately and staged on the
    server's disk: such a transaction may exceed the memory of client and server, and expires if the server receives no
    keepalive for ``keepalive_s``. A transaction with a barrier is staged when it commits.

    Not thread-safe: use it in its client's event loop.
    """

    def __init__(
        self,
        appends: Callable[[], AppendStream],
        default_timeout_s: float,
        *,
        count_vchannels: Callable[[str], Awaitable[int]],
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
        keepalive_s: Duration | None = None,
    ) -> None:
        self._appends = appends
        self._keepalive_s = keepalive_or_none(keepalive_s, _MAX_KEEPALIVE_S)
        self._timeout_s = seconds_or("timeout_s", timeout_s, default_timeout_s)
        self._terms = AppendTerms(durability).checked()
        self._parts: dict[str, TransactionPart] = {}
        self._channel_parts = ChannelParts(self._parts, lambda: appends().known, count_vchannels)
        self._size_bytes = 0
        self._barrier_tick = 0
        self._companions = Companions()
        self._staged: StagedTransaction | None = None
        # Whether there is something to stage; for the synchronous twin.
        self.is_due = False
        # Batches are staged in order, and before a commit is sent.
        self._turns = Turns()
        self._state = State.OPEN
        self._sent: tuple[AppendStream, TransactionSubmission] | None = None
        self._result: TransactionResult | None = None

    def __repr__(self) -> str:
        return f"<AsyncTransaction, {self._state.name.lower().replace('_', ' ')}>"

    @property
    def result(self) -> TransactionResult:
        """The result of the commit.

        Raises:
            TransactionStateError: The transaction is not committed, or had no messages.
        """
        if self._result is None:
            raise TransactionStateError("the transaction has no result: it is not committed, or had no messages")
        return self._result

    async def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable] | ArrowData,
        **conditions: Unpack[AppendConditions],
    ) -> None:
        """Append one message or several to ``vchannel`` when the transaction commits, after earlier ones.

        In a large transaction this waits while many batches are unacknowledged, until the transaction's timeout has
        passed since the last batch was sent. Conditions are compared at the commit.

        Args:
            vchannel: Name of the vchannel, or of a channel, whose messages are distributed as by ``AsyncClient.append``
                when they are sent.
            messages: One message, or a sequence of at least one. Or any number of messages in columns, as
                ``AsyncClient.append`` takes them: they are staged at once, after earlier messages, so the transaction
                expires like a large one. If one of their rows is invalid, those before it may remain.
            conditions: ``barrier_tick``: a tick that every tick of the transaction must exceed, which may delay the
                commit. ``expected_last_tick``: commit only if the last message ever appended to the vchannel has this
                tick; 0: if no message was ever appended to it. ``fencing_token``: commit only if the vchannel has this
                token. Default None: no condition. ``partitioner``: see ``AsyncClient.append``; one for each channel.

        Raises:
            InvalidRequestError: There are no messages, or a condition contradicts an earlier one. Nothing was added.
            TransactionStateError: The transaction is over.
            TransactionError, TidelogError: A large transaction can no longer be committed, or the server cannot be
                reached now. Messages appended before remain in the transaction.
            TypeError: A message is neither bytes nor a Message.
            ValueError: ``fencing_token`` is not in 1 … 2**64 - 1, or ``barrier_tick`` not in 0 … 2**63 - 1.
        """
        if is_arrow(messages):
            await self._found(vchannel)
            way = (conditions.pop("partitioner", None), self._timeout_s)
            async for rows in batches(messages, needs_rows=True):
                for name, part in await self._channel_parts.divided(vchannel, rows, conditions, *way):
                    self._part(name, **conditions)
                    await self.append_columns(name, part.columns)
            return
        self.add(vchannel, messages, **conditions)
        if self.is_due:
            await self.stage()

    def add(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        **conditions: Unpack[AppendConditions],
    ) -> None:
        """Add messages without sending anything; for ``append`` and its synchronous twin."""
        self._check(State.OPEN)
        several, is_plain, size_bytes = measured(messages)
        if not several:
            raise InvalidRequestError("there are no messages: append at least one")
        part = self._part(vchannel, **conditions)
        part.messages.extend(several)
        part.is_plain = part.is_plain and is_plain
        part.size_bytes += size_bytes
        part.count += len(several)
        self._size_bytes += size_bytes
        bound_bytes = _MAX_REQUEST_BYTES if self._staged is None else _MAX_GATHERED_BYTES
        self.is_due = part.size_bytes >= STAGE_FROM_BYTES or self._size_bytes >= bound_bytes

    def _part(
        self,
        vchannel: str,
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> TransactionPart:
        """Return the part of a vchannel, with more conditions."""
        self._check(State.OPEN)
        if fencing_token is not None:
            check_fencing_token(fencing_token)
        check_barrier_tick(barrier_tick)
        check_partitioner(partitioner, vchannel)
        part = self._parts.get(vchannel) or TransactionPart()
        expected_last_tick = one_value("expected_last_tick", vchannel, part.expected_last_tick, expected_last_tick)
        fencing_token = one_value("fencing_token", vchannel, part.fencing_token, fencing_token)
        part.partitioner = one_value("partitioner", vchannel, part.partitioner, partitioner)
        part.expected_last_tick, part.fencing_token = expected_last_tick, fencing_token
        self._barrier_tick = max(self._barrier_tick, barrier_tick or 0)
        self._parts[vchannel] = part
        return part

    async def append_columns(self, vchannel: str, columns: Columns) -> None:
        """Append a batch that is already in columns, from a scan or ``columns_from_arrow``.

        It is staged at once, after earlier messages, so the transaction expires like a large one.

        Raises:
            InvalidRequestError: There are not 1 to 10,000 messages. Nothing was added.
            TransactionStateError: The transaction is over.
            TransactionError, TidelogError: It can no longer be committed, or the server cannot be reached.
        """
        rows = unplaced(columns)
        deadline = Deadline(self._timeout_s)
        async with self._turns.turn(deadline, _BATCH):
            self._check(State.OPEN)
            await self._found(vchannel)
            if "/" not in vchannel and (count := await self._channel_parts.count_of(vchannel, deadline)) > 1:
                raise InvalidRequestError(f"'{vchannel}' has {count} vchannels: name the one of the columns")
            part = self._parts.setdefault(vchannel, TransactionPart())
            staged = self._staged or await self._begin(deadline)
            check_names(self._parts)
            await self._stage_part(staged, vchannel, deadline)
            async with deadline.bounded(_BATCH):
                submission = Submission(rows, False, columns.size_bytes, _future())
                await staged.stage(full_name(vchannel), submission)
            part.count += columns.count

    async def prepare(
        self, app_id: str, *, app_version: int | None = None, keepalive_s: Duration | None = None
    ) -> PreparedTransaction | None:
        """Prepare the transaction, so that ``client.commit_prepared`` can commit it with others; None if it is empty.

        A prepared transaction expires after ``keepalive_s``, and does not survive a restart of the server.

        Args:
            app_id: The application that will commit it, 1 to 128 bytes.
            app_version: The application's number of that commit, 0 … 2**63 - 1, if it is known.
            keepalive_s: Time until it expires, 0.001 to 86,400 s; default None, the keepalive of the transaction.

        Raises:
            InvalidRequestError: It has conditions, positions or a barrier. Nothing changed.
            TransactionStateError: The transaction is over.
            TidelogError: It is not prepared; it stays open unless it is over. If ``effect`` is ``unknown`` it may be
                prepared, and then accepts no more messages: call this again, or roll back.
            ValueError: ``keepalive_s`` or ``app_version`` is out of range. Nothing changed.
        """
        if app_version is not None:
            _wire.check_app_version(app_version)
        keepalive_s = keepalive_or_none(keepalive_s, _MAX_PREPARED_KEEPALIVE_S)
        deadline = Deadline(self._timeout_s)
        async with self._turns.turn(deadline, _BATCH):
            self._check(State.OPEN)
            parts = self._parts.values()
            if any(part.has_conditions for part in parts):
                raise InvalidRequestError("a transaction with conditions cannot be prepared: commit it")
            if self._companions.positions or self._companions.has_mailboxes or self._barrier_tick:
                raise InvalidRequestError(
                    "a transaction with positions, mailboxes or a barrier cannot be prepared: commit it"
                )
            messages = sum(part.count for part in parts)
            if not messages:
                self._abandon()
                return None
            with self._closing():
                staged = await self._stage_rest(deadline)
                client_id = await staged.prepare(
                    app_id, app_version, keepalive_s=keepalive_s, timeout_s=deadline.left_s
                )
                self._state = State.PREPARED
        return PreparedTransaction(staged.txn_id, client_id, messages)

    def commit_positions(self, source: HasCommits | Iterable[PositionCommit]) -> None:
        """Commit positions of consumer groups atomically with the transaction, for exactly-once processing.

        If another member has the vchannel at the commit, the transaction ends with GroupFencedError, and that member
        receives the messages again. If the transaction ends without a commit, also by a rollback, the consumer delivers
        the uncommitted messages of its vchannels again.

        Args:
            source: A consumer created with ``auto_commit=False``, for everything that it has delivered so far; or
                position commits. For each group and vchannel the last one applies.

        Raises:
            TransactionStateError: The transaction is over.
            ValueError: The consumer commits automatically.
        """
        self._check(State.OPEN)
        self._companions.add_positions(source)

    def send(self, mailbox: str, message: bytes | Sendable) -> None:
        """Send a message to a mailbox when the transaction commits.

        The mailbox must belong to the node of the vchannels. ``TransactionResult.sent`` has the ids of the messages.

        Args:
            mailbox: Name of the mailbox.
            message: The body, or an ``OutgoingMessage``.

        Raises:
            InvalidRequestError: The transaction has 1,000 messages and deliveries of mailboxes. Nothing was added.
            TransactionStateError: The transaction is over.
            TypeError, ValueError: The message is invalid. Nothing was added.
        """
        self._check(State.OPEN)
        self._companions.add_message(mailbox, message)

    def ack(self, delivery: Acknowledgeable) -> None:
        """Confirm a delivery of a mailbox when the transaction commits.

        So a job is done once: if its lease is lost before the commit, the commit is refused with LockError, and nothing
        of the transaction is in the log. The mailbox must belong to the node of the vchannels.

        Raises:
            InvalidRequestError: The transaction confirms it already, or has 1,000 messages and deliveries of mailboxes.
                Nothing was added.
            TransactionStateError: The transaction is over.
            TypeError: ``delivery`` is no delivery.
        """
        self._check(State.OPEN)
        self._companions.add_delivery(delivery)

    async def stage(self) -> None:
        """Stage gathered messages while there are enough to fill a batch; for the synchronous twin.

        Raises:
            TidelogError: See ``append``.
        """
        deadline = Deadline(self._timeout_s)
        async with self._turns.turn(deadline, _BATCH):
            # A commit that came first includes everything gathered.
            if self._state is not State.OPEN:
                return
            staged = self._staged or await self._begin(deadline)
            await self._channel_parts.divide(deadline)
            while (vchannel := self._next_to_stage()) is not None:
                await self._stage_part(staged, vchannel, deadline, may_restart=True)

    def _next_to_stage(self) -> str | None:
        """Return the vchannel with the most bytes if it has a full batch or the total is at its limit; else None."""
        vchannel = max(self._parts, key=lambda name: self._parts[name].size_bytes)
        is_due = self._parts[vchannel].size_bytes >= STAGE_FROM_BYTES or self._size_bytes >= _MAX_GATHERED_BYTES
        return vchannel if is_due else None

    async def _begin(self, deadline: Deadline) -> StagedTransaction:
        check_names(self._parts)
        await self._found()
        staged = self._staged = await StagedTransaction.begin(
            self._appends(), keepalive_s=self._keepalive_s, timeout_s=deadline.left_s
        )
        # A transaction that is garbage-collected without an end must expire.
        finalizer = weakref.finalize(self, staged.forget_soon, asyncio.get_running_loop())
        finalizer.atexit = False
        return staged

    async def _stage_part(
        self, staged: StagedTransaction, vchannel: str, deadline: Deadline, *, may_restart: bool = False
    ) -> None:
        """Stage the gathered messages of one vchannel. On failure, the rest stays gathered.

        With ``may_restart`` each batch restarts the deadline: the messages of one append may be many.
        """
        part, sent = self._parts[vchannel], 0
        gathered = part.messages[:]
        try:
            for messages, is_plain, size_bytes in in_batches(
                gathered, max_bytes=STAGE_FROM_BYTES, max_messages=MAX_MESSAGES_PER_BATCH
            ):
                async with deadline.bounded(_BATCH):
                    await staged.stage(full_name(vchannel), Submission(messages, is_plain, size_bytes, _future()))
                if may_restart:
                    deadline.restart()
                sent += len(messages)
                part.size_bytes -= size_bytes
                self._size_bytes -= size_bytes
        finally:
            del part.messages[:sent]

    async def commit(self) -> TransactionResult | None:
        """Commit, and return the positions of the messages once they are durable; None if there are no messages.

        The commit is retried until its outcome is known, and is applied once. After an error whose ``effect`` is
        ``none`` the transaction is still open: it may be committed again or rolled back. After a commit, further calls
        return the same result. Cancelling ends only the wait.

        Raises:
            LastTickMismatchError, FencedError: A condition does not hold. Nothing was appended.
            GroupFencedError, GroupError: A position cannot be committed. Nothing was appended.
            LockError, MailboxError: A delivery cannot be confirmed, or a message not sent. Nothing was appended.
            BarrierNotReachedError: The barrier lies too far in the future. Nothing was appended.
            InvalidRequestError: It is too large, or a message or name is invalid. Nothing was appended.
            AppendUnknownError: Its outcome was not known in time: call again to learn it. If it cannot be learned, the
                next call raises TransactionStateError.
            TransactionStateError: It was rolled back, or its outcome stays unknown.
            ChannelNotFoundError, UnavailableError, StorageFailedError, DeadlineError: See ``effect``.
        """
        if (hooks := _tracing.hooks) is None or self._state in {State.ROLLED_BACK, State.EXPIRED}:
            return await self._commit()
        await self._found()
        messages = sum(part.count for part in self._parts.values())
        endpoint = self._appends().transport.endpoint
        with hooks.within(_tracing.Operation.COMMIT, list(self._parts), endpoint, messages=messages) as span:
            result = await self._commit()
            if result is not None:
                # Without results, it consists of deliveries and messages to mailboxes.
                span.note(first_tick=min((each.first_tick for each in result.results.values()), default=None))
            return result

    async def _commit(self) -> TransactionResult | None:
        deadline = Deadline(self._timeout_s)
        async with self._turns.turn(deadline, _BATCH):
            # Of several concurrent commits the first one sends.
            if self._state is State.OPEN:
                if not self._parts and not self._companions.has_mailboxes:
                    with self._ending(*_LOST_POSITIONS):
                        await self._companions.commit_alone(self._appends, deadline)
                    self._note_committed()
                else:
                    await self._close(deadline)
        if self._state is State.COMMITTED:
            return self._result
        self._check(State.COMMITTING)
        staged = self._staged
        with self._ending(*_LOST_POSITIONS):
            outcome = self._outcome(deadline) if staged is None else self._outcome_of_staged(staged, deadline.left_s)
            self._result = await outcome
        self._note_committed()
        return self._result

    async def rollback(self) -> None:
        """Discard all messages. Does nothing if the transaction has already ended without a commit.

        If the server cannot be reached, the transaction expires there.

        Raises:
            TransactionStateError: The transaction is committed, or may be.
        """
        async with self._turns.turn():
            if self._state in {State.ROLLED_BACK, State.EXPIRED}:
                return
            self._check(State.OPEN)
            self._abandon()
        if self._staged is not None:
            await self._staged.roll_back(self._timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is State.PREPARED:
            return
        if error is None and self._state is not State.ROLLED_BACK:
            try:
                await self.commit()
            except TidelogError:
                # The block has ended, so nothing would commit it again.
                if self._state is State.OPEN:
                    await self.rollback()
                raise
            except BaseException:
                if self._state is State.OPEN:
                    self._abandon()
                raise
        elif self._state is State.OPEN:
            await self.rollback()

    def _abandon(self) -> None:
        """Discard everything; unless it is rolled back on the server, the transaction expires there."""
        self._state = State.ROLLED_BACK
        self._companions.rewind(None)
        self._parts.clear()
        if self._staged is not None:
            self._staged.forget()

    async def _close(self, deadline: Deadline) -> None:
        """Send the transaction: unless this fails, nothing can be appended any more.

        Why a small one with a barrier is staged too: a response that waits for the clock would block the stream of
        appends.
        """
        with self._closing():
            if self._parts and self._staged is None and not self.is_due and not self._barrier_tick:
                await self._found()
                self._submit()
            else:
                await self._stage_rest(deadline)
            self._state = State.COMMITTING

    async def _stage_rest(self, deadline: Deadline) -> StagedTransaction:
        """Stage the gathered messages, and return once everything is staged."""
        staged = self._staged or await self._begin(deadline)
        await self._channel_parts.divide(deadline)
        check_names(self._parts)
        for vchannel in [name for name, part in self._parts.items() if part.messages]:
            await self._stage_part(staged, vchannel, deadline)
        await staged.settled(deadline.left_s)
        deadline.check("the end of the transaction")
        return staged

    @contextmanager
    def _closing(self) -> Generator[None, None, None]:
        """Refuse appends from now on, and reopen the transaction if the block fails."""
        self._state = State.CLOSING
        try:
            with self._ending(TransactionExpiredError):
                yield
        finally:
            if self._state is State.CLOSING:
                self._state = State.OPEN

    @contextmanager
    def _ending(self, *losses: type[TidelogError]) -> Generator[None, None, None]:
        """End the transaction without a commit if the block raises one of ``losses``."""
        try:
            yield
        except losses as error:
            self._state = State.EXPIRED
            self._companions.rewind(error)
            raise

    async def _outcome(self, deadline: Deadline) -> TransactionResult:
        """Wait for the outcome of a transaction in one request."""
        while True:
            assert self._sent is not None
            stream, submission = self._sent
            try:
                return await stream.outcome(submission, deadline.left_s)
            except TidelogError as error:
                if self._sent[1] is submission and self._state is State.COMMITTING:
                    self._state = State.OPEN if error.effect == "none" else State.UNKNOWN
                    if self._channel_parts.has_learned(error):
                        self._submit()
                if self._sent[1] is submission:
                    raise
            except TimeoutError:
                raise self._give_up(submission) from None

    async def _outcome_of_staged(self, staged: StagedTransaction, left_s: float) -> TransactionResult:
        """Commit the staged transaction, again if an earlier attempt had no response."""
        names = {full_name(vchannel): vchannel for vchannel in self._parts}
        conditions = {
            full_name(vchannel): (part.expected_last_tick, part.fencing_token)
            for vchannel, part in self._parts.items()
            if part.has_conditions
        }
        try:
            result = await staged.commit(
                self._terms, conditions, self._companions.to_wire(), barrier_tick=self._barrier_tick,
                timeout_s=left_s,
            )  # fmt: skip
        except TidelogError as error:
            if error.effect == "none":
                self._state = State.OPEN
                if isinstance(error, TransactionExpiredError):
                    self._state = State.EXPIRED
                    self._companions.rewind(error)
            raise
        return replace(result, results={names.get(name, name): part for name, part in result.results.items()})

    async def _found(self, *more: str) -> None:
        """Find the node of the transaction, which may get ``more`` names, if the client finds owners."""
        await located(self._appends, (*self._parts, *more, *self._companions.vchannels), self._companions.mailboxes)

    def _submit(self) -> None:
        stream = self._appends()
        self._channel_parts.divide_known()
        submission = TransactionSubmission(
            (), False, self._size_bytes, _future(), parts=dict(self._parts), companions=self._companions.serialized()
        )
        stream.commit(self._terms, submission)
        self._sent, self._state = (stream, submission), State.COMMITTING

    def _note_committed(self) -> None:
        self._state = State.COMMITTED
        if self._result is not None:
            self._result = replace(self._result, indices=self._channel_parts.indices)
            if self._companions.has_mailboxes:
                self._result = replace(self._result, sent=self._companions.sent(self._result))
        self._companions.note_committed()

    def _give_up(self, submission: TransactionSubmission) -> TidelogError:
        """Return the error of a timeout: the outcome is unknown only if the transaction was sent."""
        if submission.is_sent:
            return AppendUnknownError(
                f"the transaction was sent, but not answered within {self._timeout_s:.1f} s: it may or may not be in "
                "the log; call commit() again to learn the outcome",
                effect="unknown",
            )
        if self._sent is not None and self._sent[1] is submission:
            self._state = State.OPEN
        return deadline_error("the commit", self._timeout_s)

    def _check(self, state: State) -> None:
        if self._state is not state:
            raise TransactionStateError(f"the transaction {self._state.value}")


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()
