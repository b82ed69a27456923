"""Transactions: messages to several vchannels that are in the log together or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self, TypedDict

from tidelog._append_lane import TransactionPart, TransactionSubmission
from tidelog._append_stream import AppendStream
from tidelog._append_terms import AppendTerms, check_fencing_token
from tidelog._errors import AppendUnknownError, InvalidRequestError, TidelogError, TransactionStateError
from tidelog._sizes import Appendable, measured
from tidelog._transport import deadline_error
from tidelog._types import Durability, TransactionResult


class TransactionOptions(TypedDict, total=False):
    """Options of a transaction.

    Attributes:
        durability: When the commit is acknowledged; default None, the server's.
        timeout_s: How long the commit may take; default None, the client's.
    """

    durability: Durability | None
    timeout_s: float | None


class _State(Enum):
    OPEN = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


_TEXTS: Final = {
    _State.COMMITTING: "is being committed: call commit() again to learn the outcome",
    _State.COMMITTED: "is committed",
    _State.ROLLED_BACK: "was rolled back",
    _State.UNKNOWN: "has an unknown outcome: read back whether it is there",
}


class AsyncTransaction:
    """A transaction; use it with ``async with``: leaving the block commits, and an exception in it rolls back.

    Appends are gathered here and travel with the commit, so an open transaction costs the server nothing and does not
    expire. Not thread-safe: use it in its client's event loop.
    """

    def __init__(
        self,
        appends: Callable[[], AppendStream],
        default_timeout_s: float,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._appends = appends
        self._timeout_s = default_timeout_s if timeout_s is None else timeout_s
        self._terms = AppendTerms(durability).checked()
        self._parts: dict[str, TransactionPart] = {}
        self._size_bytes = 0
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
        expected_last_tick: int | None = None,
        fencing_token: int | None = None,
    ) -> None:
        """Append one message or several to ``vchannel`` when the transaction commits, behind earlier ones.

        With ``expected_last_tick`` the whole transaction commits only if nothing came to the vchannel since: if that is
        the tick of the last message ever appended to it, 0 if there was none. With ``fencing_token`` only if the
        vchannel has this token. Both are compared when it commits.

        Raises:
            InvalidRequestError: There are no messages, or a condition contradicts an earlier one. Nothing was added.
            TransactionStateError: The transaction is over.
            TypeError: A message is neither bytes nor a Message.
            ValueError: The token is none.
        """
        self.add(vchannel, messages, expected_last_tick=expected_last_tick, fencing_token=fencing_token)

    def add(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        expected_last_tick: int | None,
        fencing_token: int | None,
    ) -> None:
        """Do what ``append`` does; for the synchronous twin."""
        self._check(_State.OPEN)
        several, is_plain, size_bytes = measured(messages)
        if not several:
            raise InvalidRequestError("there are no messages: append at least one")
        if fencing_token is not None:
            check_fencing_token(fencing_token)
        part = self._parts.get(vchannel) or TransactionPart()
        expected_last_tick = _same("expected_last_tick", vchannel, part.expected_last_tick, expected_last_tick)
        fencing_token = _same("fencing_token", vchannel, part.fencing_token, fencing_token)
        part.expected_last_tick, part.fencing_token = expected_last_tick, fencing_token
        part.messages.extend(several)
        part.is_plain = part.is_plain and is_plain
        self._parts[vchannel] = part
        self._size_bytes += size_bytes

    async def commit(self) -> TransactionResult | None:
        """Commit, and return where the messages are once they are durable; None if there are none.

        It is sent again until its outcome is known, and is in the log once. After an error with effect none the
        transaction is open as before: it may be committed again or rolled back. Once it is committed, another call
        returns the same result. Cancelling ends the wait only.

        Raises:
            LastTickMismatchError, FencedError: A condition does not hold. Nothing was appended.
            InvalidRequestError: It is too large, or a message or name is wrong. Nothing was appended.
            AppendUnknownError: Its outcome was not known in time: call again to learn it; or nobody will tell any more,
                and then the next call says so.
            TransactionStateError: It was rolled back, or its outcome stays unknown.
            ChannelNotFoundError, UnavailableError, StorageFailedError, DeadlineError: See ``effect``.
        """
        if self._state is _State.COMMITTED or (self._state is _State.OPEN and not self._parts):
            self._state = _State.COMMITTED
            return self._result
        if self._state is not _State.COMMITTING:
            self._check(_State.OPEN)
            self._submit()
        assert self._sent is not None
        stream, submission = self._sent
        try:
            self._result = await stream.outcome(submission, self._timeout_s)
        except TidelogError as error:
            if self._sent[1] is submission:
                self._state = _State.OPEN if error.effect == "none" else _State.UNKNOWN
            raise
        except TimeoutError:
            raise self._give_up(submission) from None
        self._state = _State.COMMITTED
        return self._result

    async def rollback(self) -> None:
        """Forget all messages. Rolling back twice is rolling back once.

        Raises:
            TransactionStateError: It is committed, or may be.
        """
        if self._state is not _State.ROLLED_BACK:
            self._check(_State.OPEN)
            self._state = _State.ROLLED_BACK
            self._parts.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self._state is not _State.ROLLED_BACK:
                await self.commit()
        elif self._state is _State.OPEN:
            await self.rollback()

    def _submit(self) -> None:
        stream = self._appends()
        future: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()
        submission = TransactionSubmission((), False, self._size_bytes, future, parts=dict(self._parts))
        stream.commit(self._terms, submission)
        self._sent, self._state = (stream, submission), _State.COMMITTING

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


def _same(name: str, vchannel: str, earlier: int | None, later: int | None) -> int | None:
    """Return the one value of a condition that appends to one vchannel agree on. Raises InvalidRequestError."""
    if earlier is not None and later is not None and earlier != later:
        raise InvalidRequestError(
            f"{name} of {vchannel} is {later}, an earlier append of the transaction said {earlier}: give one of them"
        )
    return earlier if later is None else later
