"""Transactions: messages to several vchannels that are in the log together or not at all."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self

from tidelog import _tracing, _wire
from tidelog._append_lane import TransactionPart, TransactionSubmission
from tidelog._append_stream import AppendStream
from tidelog._append_terms import AppendTerms, check_fencing_token
from tidelog._columns import MAX_MESSAGES_PER_BATCH, Columns
from tidelog._errors import (
    AppendUnknownError,
    GroupFencedError,
    GroupPositionMovedError,
    InvalidRequestError,
    TidelogError,
    TransactionExpiredError,
    TransactionStateError,
)
from tidelog._sizes import Appendable, in_batches, measured
from tidelog._staged_transaction import Condition, StagedTransaction
from tidelog._tick import MAX_TICK
from tidelog._transaction_options import HasCommits
from tidelog._transport import Transport, deadline_error
from tidelog._types import Durability, PositionCommit, PreparedTransaction, TransactionResult
from tidelog.v1 import group_service_pb2

STAGE_FROM_BYTES: Final = 1 << 20
"""What is gathered for one vchannel is staged from this size on, in batches of this size."""
# What travels in one request, well below what servers take; and what is gathered beside what is staged.
_MAX_REQUEST_BYTES: Final = 3 << 20
_MAX_GATHERED_BYTES: Final = 64 << 20
# Whoever has the messages that the transaction is about, it is not this process.
_LOST_POSITIONS: Final = (GroupFencedError, GroupPositionMovedError)
_MIN_KEEPALIVE_S: Final = 0.001
_MAX_KEEPALIVE_S: Final = 3_600.0
_MAX_PREPARED_KEEPALIVE_S: Final = 86_400.0


class _State(Enum):
    OPEN = auto()
    # From the call of commit() until the transaction is on its way; what fails then leads back to OPEN.
    CLOSING = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    PREPARED = auto()
    ROLLED_BACK = auto()
    EXPIRED = auto()
    UNKNOWN = auto()


_TEXTS: Final = {
    _State.CLOSING: "is being committed",
    _State.COMMITTING: "is being committed: call commit() again to learn the outcome",
    _State.COMMITTED: "is committed",
    _State.PREPARED: "is prepared: commit it with commit_prepared",
    _State.ROLLED_BACK: "was rolled back",
    _State.EXPIRED: "is over, and nothing of it is in the log",
    _State.UNKNOWN: "has an unknown outcome: read back whether it is there",
}


class AsyncTransaction:
    """A transaction; use it with ``async with``: leaving the block commits, and an exception in it rolls back.

    Appends are gathered here and travel with the commit, so a small open transaction costs the server nothing and does
    not expire. From 1 MiB on one vchannel, or 3 MiB in all, they are staged on the server's disk, and travel there as
    they come: such a transaction may be larger than anybody's memory, and expires when this process is gone for
    ``keepalive_s``. One with a barrier is staged when it commits.

    Not thread-safe: use it in its client's event loop.
    """

    def __init__(
        self,
        connection: Callable[[], tuple[Transport, AppendStream]],
        default_timeout_s: float,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
        keepalive_s: float | None = None,
    ) -> None:
        if keepalive_s is not None and not _MIN_KEEPALIVE_S <= keepalive_s <= _MAX_KEEPALIVE_S:
            raise ValueError(f"keepalive_s is {keepalive_s}, expected {_MIN_KEEPALIVE_S} to {_MAX_KEEPALIVE_S}")
        self._connection = connection
        self._keepalive_s = keepalive_s
        self._timeout_s = default_timeout_s if timeout_s is None else timeout_s
        self._terms = AppendTerms(durability).checked()
        self._parts: dict[str, TransactionPart] = {}
        self._size_bytes = 0
        self._barrier_tick = 0
        # By group and vchannel.
        self._positions: dict[tuple[str, str], PositionCommit] = {}
        # Those whose positions are among them.
        self._consumers: list[HasCommits] = []
        self._staged: StagedTransaction | None = None
        # Whether there is something to stage; for the synchronous twin.
        self.is_due = False
        # Held while something is being staged, so that batches keep their order, and until a commit is on its way.
        self._staging = asyncio.Lock()
        self._state = _State.OPEN
        self._sent: tuple[AppendStream, TransactionSubmission] | None = None
        self._result: TransactionResult | None = None

    @property
    def result(self) -> TransactionResult:
        """Where the transaction is.

        Raises:
            TransactionStateError: It is not committed, or had no messages.
        """
        if self._result is None:
            raise TransactionStateError("the transaction has no result: it is not committed, or had no messages")
        return self._result

    async def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        barrier_tick: int | None = None,
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
    ) -> None:
        """Append one message or several to ``vchannel`` when the transaction commits, behind earlier ones.

        In a large transaction this waits while much is on its way to the server.

        With ``expected_last_tick`` the whole transaction commits only if nothing came to the vchannel since: if that is
        the tick of the last message ever appended to it, 0 if there was none. With ``fencing_token`` only if the
        vchannel has this token. Both are compared when it commits.

        With ``barrier_tick`` every tick of the transaction will be greater, which the commit may have to wait for; of
        several the greatest counts.

        Raises:
            InvalidRequestError: There are no messages, or a condition contradicts an earlier one. Nothing was added.
            TransactionStateError: The transaction is over.
            TransactionError, TidelogError: Of a large transaction: why it cannot be committed any more, or that the
                server cannot be reached now. What was appended stays appended.
            TypeError: A message is neither bytes nor a Message.
            ValueError: The token or the barrier is none.
        """
        self.add(
            vchannel, messages, barrier_tick=barrier_tick, expected_last_tick=expected_last_tick,
            fencing_token=fencing_token,
        )  # fmt: skip
        if self.is_due:
            await self.stage()

    def add(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        barrier_tick: int | None,
        expected_last_tick: int | None,
        fencing_token: int | None,
    ) -> None:
        """Do what ``append`` does before anything is sent; for the synchronous twin."""
        self._check(_State.OPEN)
        several, is_plain, size_bytes = measured(messages)
        if not several:
            raise InvalidRequestError("there are no messages: append at least one")
        if fencing_token is not None:
            check_fencing_token(fencing_token)
        check_barrier_tick(barrier_tick)
        part = self._parts.get(vchannel) or TransactionPart()
        expected_last_tick = _same("expected_last_tick", vchannel, part.expected_last_tick, expected_last_tick)
        fencing_token = _same("fencing_token", vchannel, part.fencing_token, fencing_token)
        part.expected_last_tick, part.fencing_token = expected_last_tick, fencing_token
        self._barrier_tick = max(self._barrier_tick, barrier_tick or 0)
        part.messages.extend(several)
        part.is_plain = part.is_plain and is_plain
        part.size_bytes += size_bytes
        part.count += len(several)
        self._parts[vchannel] = part
        self._size_bytes += size_bytes
        bound_bytes = _MAX_REQUEST_BYTES if self._staged is None else _MAX_GATHERED_BYTES
        self.is_due = part.size_bytes >= STAGE_FROM_BYTES or self._size_bytes >= bound_bytes

    async def append_columns(self, vchannel: str, columns: Columns) -> None:
        """Append a batch that is columns already, as a scan delivers them or ``columns_from_arrow`` makes them.

        It is staged at once, behind what was appended before, so the transaction expires as a large one does.

        Raises:
            InvalidRequestError: There are no messages, or too many. Nothing was added.
            TransactionStateError: The transaction is over.
            TransactionError, TidelogError: Why it cannot be committed any more, or that the server cannot be reached.
        """
        if not 1 <= columns.count <= MAX_MESSAGES_PER_BATCH:
            raise InvalidRequestError(
                f"the columns have {columns.count} messages, expected 1 to {MAX_MESSAGES_PER_BATCH}: divide them"
            )
        async with self._staging:
            self._check(_State.OPEN)
            part = self._parts.setdefault(vchannel, TransactionPart())
            staged = self._staged or await self._begin()
            _check_names(self._parts)
            await self._stage_part(staged, vchannel)
            async with staging_time(self._timeout_s):
                await staged.stage_columns(full_name(vchannel), columns)
            part.count += columns.count

    async def prepare(
        self, app_id: str, *, app_version: int | None = None, keepalive_s: float | None = None
    ) -> PreparedTransaction | None:
        """Let the transaction wait to be committed with others, by whoever has what this returns; None if it is empty.

        It waits for ``keepalive_s``, at most a day, and does not survive a restart of the server.
        ``client.commit_prepared`` commits it, for the same application.

        Args:
            app_id: Who will commit it, 1 to 128 bytes.
            app_version: The application's number of that commit, if it is known.
            keepalive_s: How long it waits; default None, the keepalive of the transaction.

        Raises:
            InvalidRequestError: It has conditions, positions or a barrier. Nothing changed.
            TransactionStateError: The transaction is over.
            TidelogError: Why it is not prepared; it is open as before, unless it is over. With the effect unknown it
                may be prepared, and takes nothing more then: call this again, or roll back.
            ValueError: The keepalive or the version is none. Nothing changed.
        """
        if app_version is not None:
            _wire.check_app_version(app_version)
        if keepalive_s is not None and not _MIN_KEEPALIVE_S <= keepalive_s <= _MAX_PREPARED_KEEPALIVE_S:
            raise ValueError(
                f"keepalive_s is {keepalive_s}, expected {_MIN_KEEPALIVE_S} to {_MAX_PREPARED_KEEPALIVE_S}"
            )
        async with self._staging:
            self._check(_State.OPEN)
            parts = self._parts.values()
            if any(part.expected_last_tick is not None or part.fencing_token is not None for part in parts):
                raise InvalidRequestError("a transaction with conditions cannot be prepared: commit it")
            if self._positions or self._barrier_tick:
                raise InvalidRequestError("a transaction with positions or a barrier cannot be prepared: commit it")
            messages = sum(part.count for part in parts)
            if not messages:
                self._abandon()
                return None
            async with self._closing():
                staged = await self._stage_rest()
                client_id = await staged.prepare(
                    app_id, app_version, keepalive_s=keepalive_s, timeout_s=self._timeout_s
                )
                self._state = _State.PREPARED
        return PreparedTransaction(staged.txn_id, client_id, messages)

    def commit_positions(self, source: "HasCommits | Iterable[PositionCommit]") -> None:
        """Let positions of consumer groups move when the transaction commits, or not at all: exactly once.

        ``source`` is a consumer made with ``auto_commit=False``, for everything that it has delivered so far, or
        commits. Of a vchannel's the last one counts. If somebody else has the vchannel by then, the transaction is
        over with GroupFencedError, and whoever has it gets the messages again. Where the transaction is over without
        a commit, also by a rollback, the consumer delivers again what was not committed and is still its own.

        Raises:
            TransactionStateError: The transaction is over.
            ValueError: The consumer commits by itself.
        """
        self._check(_State.OPEN)
        if isinstance(source, HasCommits):
            self._consumers.append(source)
            commits: Iterable[PositionCommit] = source.commits()
        else:
            commits = source
        self._positions.update({(commit.group, commit.vchannel): commit for commit in commits})

    async def stage(self) -> None:
        """Send what is gathered on its way where it is much; for the synchronous twin.

        Raises:
            TidelogError: See ``append``.
        """
        async with self._staging:
            # A commit that came first takes along whatever is gathered.
            if self._state is not _State.OPEN:
                return
            staged = self._staged or await self._begin()
            while (vchannel := self._next_to_stage()) is not None:
                await self._stage_part(staged, vchannel)

    def _next_to_stage(self) -> str | None:
        """Return the vchannel with most if that is a full batch, or all together is too much; else None."""
        vchannel = max(self._parts, key=lambda name: self._parts[name].size_bytes)
        is_due = self._parts[vchannel].size_bytes >= STAGE_FROM_BYTES or self._size_bytes >= _MAX_GATHERED_BYTES
        return vchannel if is_due else None

    async def _begin(self) -> StagedTransaction:
        _check_names(self._parts)
        transport, appends = self._connection()
        staged = self._staged = await StagedTransaction.begin(
            transport, appends, keepalive_s=self._keepalive_s, timeout_s=self._timeout_s
        )
        # One that nobody ends, nor has any more, must not be kept alive.
        finalizer = weakref.finalize(self, _forget, asyncio.get_running_loop(), staged)
        finalizer.atexit = False
        return staged

    async def _stage_part(self, staged: StagedTransaction, vchannel: str) -> None:
        """Stage what is gathered for one vchannel. What is left where that fails stays gathered."""
        part, sent = self._parts[vchannel], 0
        gathered = part.messages[:]
        try:
            for messages, is_plain, size_bytes in in_batches(
                gathered, max_bytes=STAGE_FROM_BYTES, max_messages=MAX_MESSAGES_PER_BATCH
            ):
                async with staging_time(self._timeout_s):
                    await staged.stage(full_name(vchannel), messages, is_plain=is_plain, size_bytes=size_bytes)
                sent += len(messages)
                part.size_bytes -= size_bytes
                self._size_bytes -= size_bytes
        finally:
            del part.messages[:sent]

    async def commit(self) -> TransactionResult | None:
        """Commit, and return where the messages are once they are durable; None if there are none.

        It is sent again until its outcome is known, and is in the log once. After an error with effect none the
        transaction is open as before: it may be committed again or rolled back. Once it is committed, another call
        returns the same result. Cancelling ends the wait only.

        Raises:
            LastTickMismatchError, FencedError: A condition does not hold. Nothing was appended.
            GroupFencedError, GroupError: A position cannot be committed. Nothing was appended.
            BarrierNotReachedError: The barrier lies too far in the future. Nothing was appended.
            InvalidRequestError: It is too large, or a message or name is wrong. Nothing was appended.
            AppendUnknownError: Its outcome was not known in time: call again to learn it; or nobody will tell any more,
                and then the next call says so.
            TransactionStateError: It was rolled back, or its outcome stays unknown.
            ChannelNotFoundError, UnavailableError, StorageFailedError, DeadlineError: See ``effect``.
        """
        if (hooks := _tracing.hooks) is None:
            return await self._commit()
        messages = sum(part.count for part in self._parts.values())
        with hooks.within(_tracing.Operation.COMMIT, list(self._parts), messages=messages) as span:
            result = await self._commit()
            if result is not None:
                span.note(first_tick=min(each.first_tick for each in result.results.values()))
            return result

    async def _commit(self) -> TransactionResult | None:
        async with self._staging:
            # Behind what is being staged; and of several commits at once the first one sends.
            if self._state is _State.OPEN:
                if not self._parts:
                    try:
                        await self._commit_positions_alone()
                    except _LOST_POSITIONS as error:
                        self._state = _State.EXPIRED
                        self._rewind(error)
                        raise
                    self._note_committed()
                else:
                    await self._close()
        if self._state is _State.COMMITTED:
            return self._result
        self._check(_State.COMMITTING)
        try:
            self._result = await (self._outcome() if self._staged is None else self._outcome_of_staged(self._staged))
        except _LOST_POSITIONS as error:
            self._state = _State.EXPIRED
            self._rewind(error)
            raise
        self._note_committed()
        return self._result

    async def rollback(self) -> None:
        """Forget all messages. Rolling back twice is rolling back once, as is what ended without a commit already.

        The server is told of it if it can be reached; if not, it learns it from the silence.

        Raises:
            TransactionStateError: It is committed, or may be.
        """
        async with self._staging:
            if self._state in {_State.ROLLED_BACK, _State.EXPIRED}:
                return
            self._check(_State.OPEN)
            self._abandon()
        if self._staged is not None:
            await self._staged.roll_back(self._timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is _State.PREPARED:
            return
        if error is None and self._state is not _State.ROLLED_BACK:
            try:
                await self.commit()
            except TidelogError:
                # Nobody is left who would commit it again.
                if self._state is _State.OPEN:
                    await self.rollback()
                raise
            except BaseException:
                if self._state is _State.OPEN:
                    self._abandon()
                raise
        elif self._state is _State.OPEN:
            await self.rollback()

    def _abandon(self) -> None:
        """Forget everything; the server learns it from the silence, if it is not told."""
        self._state = _State.ROLLED_BACK
        self._rewind(None)
        self._parts.clear()
        if self._staged is not None:
            self._staged.forget()

    async def _close(self) -> None:
        """Bring the transaction on its way: nothing can be appended any more, unless this fails.

        Why a small one with a barrier is staged too: an answer that waits for the clock would hold up the stream of
        appends.
        """
        async with self._closing():
            if self._staged is None and not self.is_due and not self._barrier_tick:
                self._submit()
            else:
                await self._stage_rest()
            self._state = _State.COMMITTING

    async def _stage_rest(self) -> StagedTransaction:
        """Stage what is gathered, and return once everything is staged."""
        staged = self._staged or await self._begin()
        _check_names(self._parts)
        for vchannel in [name for name, part in self._parts.items() if part.messages]:
            await self._stage_part(staged, vchannel)
        await staged.settled(self._timeout_s)
        return staged

    @asynccontextmanager
    async def _closing(self) -> AsyncGenerator[None, None]:
        """Let nothing be appended any more, unless what is done meanwhile fails."""
        self._state = _State.CLOSING
        try:
            yield
        except TransactionExpiredError as error:
            self._state = _State.EXPIRED
            self._rewind(error)
            raise
        finally:
            if self._state is _State.CLOSING:
                self._state = _State.OPEN

    async def _outcome(self) -> TransactionResult:
        """Wait for the outcome of a transaction that travels in one request."""
        assert self._sent is not None
        stream, submission = self._sent
        try:
            return await stream.outcome(submission, self._timeout_s)
        except TidelogError as error:
            if self._sent[1] is submission and self._state is _State.COMMITTING:
                self._state = _State.OPEN if error.effect == "none" else _State.UNKNOWN
            raise
        except TimeoutError:
            raise self._give_up(submission) from None

    async def _outcome_of_staged(self, staged: StagedTransaction) -> TransactionResult:
        """Commit what is staged; again, if an earlier try had no answer."""
        names = {full_name(vchannel): vchannel for vchannel in self._parts}
        conditions = {
            name: Condition(self._parts[vchannel].expected_last_tick, self._parts[vchannel].fencing_token)
            for name, vchannel in names.items()
        }
        given = {name: each for name, each in conditions.items() if each != Condition()}
        try:
            result = await staged.commit(
                self._terms, given, tuple(self._positions.values()), barrier_tick=self._barrier_tick,
                timeout_s=self._timeout_s,
            )  # fmt: skip
        except TidelogError as error:
            if error.effect == "none":
                self._state = _State.OPEN
                if isinstance(error, TransactionExpiredError):
                    self._state = _State.EXPIRED
                    self._rewind(error)
            raise
        return replace(result, results={names[name]: part for name, part in result.results.items()})

    def _submit(self) -> None:
        _, stream = self._connection()
        future: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()
        submission = TransactionSubmission(
            (),
            False,
            self._size_bytes,
            future,
            parts=dict(self._parts),
            positions=tuple(self._positions.values()),
        )
        stream.commit(self._terms, submission)
        self._sent, self._state = (stream, submission), _State.COMMITTING

    def _note_committed(self) -> None:
        self._state = _State.COMMITTED
        consumers, self._consumers = self._consumers, []
        for consumer in consumers:
            consumer.note_committed(self._positions.values())

    def _rewind(self, cause: TidelogError | None) -> None:
        """Let consumers deliver again what was to be committed and is not."""
        consumers, self._consumers = self._consumers, []
        for consumer in consumers:
            consumer.rewind(cause)

    async def _commit_positions_alone(self) -> None:
        """Commit a transaction without messages."""
        if self._positions:
            transport, _ = self._connection()
            request = group_service_pb2.CommitPositionsRequest(
                positions=map(_wire.position_commit, self._positions.values())
            )
            await transport.call(
                transport.groups.CommitPositions, request, timeout_s=self._timeout_s, is_read=False, is_idempotent=True
            )

    def _give_up(self, submission: TransactionSubmission) -> TidelogError:
        """Return what the end of the time means: the outcome is unknown only if the transaction is on its way."""
        if submission.is_sent:
            return AppendUnknownError(
                f"the transaction was sent, but not answered within {self._timeout_s:.1f} s: it may or may not be in "
                "the log; call commit() again to learn it",
                effect="unknown",
            )
        if self._sent is not None and self._sent[1] is submission:
            self._state = _State.OPEN
        return deadline_error("the commit", self._timeout_s)

    def _check(self, state: _State) -> None:
        if self._state is not state:
            raise TransactionStateError(f"the transaction {_TEXTS[self._state]}")


@asynccontextmanager
async def staging_time(timeout_s: float) -> AsyncGenerator[None, None]:
    """Bound the time of staging a batch. Raises DeadlineError: it was not sent."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        if isinstance(error, TidelogError):
            raise
        raise deadline_error("the next batch of the transaction", timeout_s) from None


def check_barrier_tick(barrier_tick: int | None) -> None:
    """Raise ValueError if ``barrier_tick`` is none."""
    if barrier_tick is not None and not 0 <= barrier_tick <= MAX_TICK:
        raise ValueError(f"the barrier tick is {barrier_tick}, expected 0 to {MAX_TICK}")


def full_name(vchannel: str) -> str:
    """Return ``vchannel`` with its index, which may be left out for the only one of a channel."""
    return vchannel if "/" in vchannel else f"{vchannel}/0"


def _check_names(vchannels: Iterable[str]) -> None:
    """Raise InvalidRequestError if one vchannel goes by two names."""
    seen: set[str] = set()
    for name in map(full_name, vchannels):
        if name in seen:
            raise InvalidRequestError(f"the transaction appends to {name} under two names: use one")
        seen.add(name)


def _forget(loop: asyncio.AbstractEventLoop, staged: StagedTransaction) -> None:
    """Let a transaction that nobody has any more run out; called by whatever thread collects garbage."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(staged.forget)


def _same(name: str, vchannel: str, earlier: int | None, later: int | None) -> int | None:
    """Return the one value of a condition that appends to one vchannel agree on. Raises InvalidRequestError."""
    if earlier is not None and later is not None and earlier != later:
        raise InvalidRequestError(
            f"{name} of {vchannel} is {later}, an earlier append of the transaction said {earlier}: give one of them"
        )
    return earlier if later is None else later
