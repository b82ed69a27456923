"""Staged transactions of a node: state, staged batches and outcomes. Pure; time is passed in.

::

    OPEN ──commit──▶ COMMITTING ──durable──▶ committed: an outcome
      │  ◀─refused──┘
      ├──prepare──▶ PREPARED ──commit, with others──▶ COMMITTING
      ├──rollback──▶ ended: rolled back
      └──keepalive expired, abort, channel destroyed──▶ ended: expired, permanently

Source: the transaction manager of Milvus' streaming node for keepalive and sticky expiry.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from tidelog_server.core.callers import NO_TENANT, Caller, Tenant, tenant_of
from tidelog_server.core.entries import StagedColumns
from tidelog_server.core.errors import (
    InvalidTransactionStateError,
    RateLimitRejectedError,
    TransactionExpiredError,
    TransactionForeignError,
    TransactionIncompleteError,
    TransactionNotExistError,
    TransactionOutcomeForgottenError,
    TransactionTooLargeError,
    TxnSequenceGapError,
    TxnSequenceReusedError,
    VchannelNotInTransactionError,
)
from tidelog_server.core.limits import MAX_TXN_VCHANNELS, Limits
from tidelog_server.core.shares import Floors, FloorTable, Shares
from tidelog_server.core.transactions import TxnContent, TxnOutcome, TxnPlace, content_of
from tidelog_server.core.usage import Usage
from tidelog_server.log.batch import Batch
from tidelog_server.log.protocols import Place
from tidelog_server.storage.rows import Row
from tidelog_server.txn.applications import AppVersion
from tidelog_server.txn.rows import OUTCOMES, floor_rows

# In a staged transaction: its commit writes a header for each in one step of the event loop.
MAX_STAGED_BATCHES_PER_TXN: Final = 4_096
# In all staged transactions of a node: about 200 bytes of memory each.
MAX_STAGED_BATCHES: Final = 131_072
# Outcomes of staged transactions on disk; above that, the principal with the most loses the one with its smallest id.
MAX_TXN_OUTCOMES: Final = 10_000
# Aborted staged transactions that are remembered, so that their clients learn the cause.
MAX_ENDED_TXNS: Final = 10_000


class TxnState(Enum):
    """State of a transaction; the module's diagram has the changes."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ENDED = "ended"


EndCause = Literal["rolled_back", "keepalive", "aborted", "channel_destroyed"]
"""Cause of the end of a transaction without a commit."""

_TEXTS: Final[dict[EndCause, str]] = {
    "keepalive": "its client was silent for longer than its keepalive",
    "aborted": "an operator aborted it",
    "channel_destroyed": "a channel that it appended to was destroyed",
}


class BatchOfTxn(NamedTuple):
    """Identifies a batch of a transaction.

    Attributes:
        txn_id: Id of the transaction.
        caller: Client that appends it.
        sequence: Number of the batch within the transaction on its vchannel, from 1; 0 for the next one.
    """

    txn_id: int
    caller: Caller
    sequence: int


class StagedHeader(NamedTuple):
    """A staged batch without its columns. A tuple, because there may be a hundred thousand of them.

    Attributes:
        messages: Number of messages.
        message_type, columns_crc32c: See Batch.
        columns: Reference to its columns.
    """

    messages: int
    message_type: int
    columns_crc32c: int
    columns: StagedColumns


@dataclass(slots=True, eq=False)
class StagedPart:
    """The staged batches of a transaction on one vchannel.

    Invariant: ``batches[i]`` has the sequence ``i + 1``.

    Attributes:
        target: The vchannel.
        batches: Batches in order of arrival.
    """

    target: Place
    batches: list[StagedHeader] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """Number of messages in its batches."""
        return sum(batch.messages for batch in self.batches)


@dataclass(slots=True, eq=False)
class TxnSession:
    """An open transaction.

    Attributes:
        txn_id: A tick, so that later ids are greater.
        caller: Client that began it.
        keepalive_s: Seconds that it stays open without a request of its client.
        expires_s: Time of expiry on the monotonic clock of the table's owner.
        is_bound: True if it may only append to the vchannels that it was begun for.
        parts: Its vchannels by id, in the order in which they joined.
        batches: Number of staged batches.
        size_bytes: Bytes of their columns.
        state: COMMITTING until the commit is durable; a refused commit restores the state before it.
        prepared_for: Application commit that it waits for; None if it was not prepared.
        tenant: Tenant of the principal that began it.
    """

    txn_id: int
    caller: Caller
    keepalive_s: float
    expires_s: float
    is_bound: bool
    parts: dict[int, StagedPart]
    batches: int = 0
    size_bytes: int = 0
    state: TxnState = TxnState.OPEN
    prepared_for: AppVersion | None = None
    tenant: Tenant = field(init=False)

    def __post_init__(self) -> None:
        self.tenant = tenant_of(self.caller.principal)

    @property
    def places(self) -> dict[TxnPlace, int]:
        """Number of staged batches by place, for places that have any."""
        return {
            (vchannel_id, self.txn_id): len(part.batches) for vchannel_id, part in self.parts.items() if part.batches
        }

    @property
    def messages(self) -> int:
        """Number of staged messages."""
        return sum(part.messages for part in self.parts.values())

    @property
    def content(self) -> TxnContent:
        """Number and targets of its messages."""
        total = TxnContent()
        for vchannel_id, part in self.parts.items():
            total = total.plus(content_of(vchannel_id, part.target.log.vchannels[0].vchannel_id, part.messages))
        return total

    @property
    def has_closed_channel(self) -> bool:
        """True if a channel that it appends to is being destroyed."""
        return any(part.target.log.is_closed for part in self.parts.values())

    @property
    def is_committing(self) -> bool:
        """True from the start of a commit until it is durable or refused."""
        return self.state is TxnState.COMMITTING

    def prepare(self, app: AppVersion) -> None:
        """Wait for the commit of ``app``, without further batches. Idempotent."""
        assert self.state in (TxnState.OPEN, TxnState.PREPARED)
        assert self.prepared_for in (None, app)
        assert self.batches
        self.state, self.prepared_for = TxnState.PREPARED, app

    def start_commit(self) -> None:
        """Accept no other request than keepalives until the commit is durable or refused."""
        assert self.state in (TxnState.OPEN, TxnState.PREPARED)
        self.state = TxnState.COMMITTING

    def refuse_commit(self) -> None:
        """Return to the state before ``start_commit``."""
        assert self.state is TxnState.COMMITTING
        self.state = TxnState.OPEN if self.prepared_for is None else TxnState.PREPARED

    def keep_alive(self, now_s: float) -> None:
        """Extend its expiry after a request of its client."""
        self.expires_s = now_s + self.keepalive_s

    def check_open(self) -> None:
        """Raise InvalidTransactionStateError while it is being committed."""
        if self.is_committing:
            raise InvalidTransactionStateError(self.txn_id, state="being committed")

    def check_not_prepared(self) -> None:
        """Raise InvalidTransactionStateError if it is prepared."""
        if self.prepared_for is not None:
            raise InvalidTransactionStateError(
                self.txn_id,
                state="prepared",
                advice="commit the prepared transactions of its application, or roll back",
            )

    def check_prepared(self, app: AppVersion) -> None:
        """Raise InvalidTransactionStateError unless it is prepared for this commit."""
        if self.prepared_for is None or not self.prepared_for.is_covered_by(app):
            raise InvalidTransactionStateError(
                self.txn_id, state="not prepared for this commit", advice="name transactions that were prepared for it"
            )

    def check_whole(self, expected_batches: int | None) -> None:
        """Raise TransactionIncompleteError unless it has ``expected_batches`` batches; None is not checked."""
        if expected_batches not in (None, self.batches):
            assert expected_batches is not None
            raise TransactionIncompleteError(self.txn_id, expected_batches=expected_batches, batches=self.batches)

    def is_repeated(self, vchannel_id: int, batch: Batch, sequence: int) -> bool:
        """Return whether a batch is already staged; ``sequence`` 0 is always a new batch.

        Raises:
            TxnSequenceGapError: An earlier batch is missing.
            TxnSequenceReusedError: A different batch is staged with its sequence.
        """
        part = self.parts.get(vchannel_id)
        batches = part.batches if part else ()
        expected = len(batches) + 1
        if sequence in (0, expected):
            return False
        if expected < sequence:
            raise TxnSequenceGapError(self.txn_id, sequence=sequence, expected_sequence=expected)
        staged = batches[sequence - 1]
        known = (staged.messages, staged.columns_crc32c, staged.columns.columns_bytes)
        if known != (batch.count, batch.columns_crc32c, len(batch.columns)):
            raise TxnSequenceReusedError(self.txn_id, sequence=sequence)
        return True


@dataclass(frozen=True, slots=True)
class _EndedTxn:
    """A transaction that ended without a commit; ``content`` is set if it was prepared."""

    caller: Caller
    cause: EndCause
    content: TxnContent | None = None


class TxnTable:
    """All staged transactions that this node knows of.

    Invariant: an id is in at most one of ``open``, ``_ended`` and ``_outcomes``.
    Invariant: the id of an evicted outcome is at most the floor of its tenant. So an unknown transaction of a tenant
    with a greater id was never committed.

    Attributes:
        open: Transactions that are neither committed nor ended, by id.
    """

    def __init__(
        self,
        limits: Limits,
        outcomes: Mapping[int, TxnOutcome],
        first_txn_id: int,
        floors: Mapping[Tenant, int] = MappingProxyType({}),
        on_evicted: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Start with the outcomes of earlier runs.

        Args:
            limits: Configured limits.
            outcomes: Outcomes of earlier runs.
            first_txn_id: Smallest id of this run.
            floors: Floors of earlier runs: the greatest id of an evicted outcome, by tenant.
            on_evicted: Called with the number of evicted outcomes.
        """
        self._limits = limits
        self._first_txn_id = first_txn_id
        # Ids of this run up to this one may be forgotten.
        self._forgotten_up_to = first_txn_id - 1
        self._ended: Shares[int, _EndedTxn] = Shares()
        # Durable outcomes, and the number of commits in flight.
        self._outcomes: Shares[int, TxnOutcome] = Shares()
        self._committing = 0
        self._on_evicted = on_evicted
        by_age = sorted(outcomes.items(), key=lambda item: item[1].first_tick)
        for txn_id, outcome in by_age:
            self._outcomes.put(txn_id, outcome, outcome.tenant)
        if len(by_age) >= MAX_TXN_OUTCOMES and not floors:
            # Written by a server without floors, which evicted the outcomes with the smallest first ticks.
            floors = {NO_TENANT: by_age[0][1].first_tick - 1}
        self._floors = Floors(floors)
        self._per_client: Counter[Caller] = Counter()
        self.open: dict[int, TxnSession] = {}
        self._open_usage = Usage()
        self._bytes_usage = Usage()
        self._batches_usage = Usage()

    @property
    def staged_bytes(self) -> int:
        """Bytes of all open transactions, and of ended ones whose batches are not removed yet."""
        return self._bytes_usage.total

    def check_room(self, caller: Caller) -> None:
        """Raise RateLimitRejectedError if the caller may not begin another transaction."""
        for whose, count, name, maximum in (
            ("the server has", len(self.open), "max_open_txns", self._limits.max_open_txns),
            ("the client has", self._per_client[caller], "max_open_txns_per_client",
             self._limits.max_open_txns_per_client),
        ):  # fmt: skip
            if maximum <= count:
                raise RateLimitRejectedError(
                    f"{whose} {count} open transactions, at most {maximum} are allowed: commit or roll back some, or "
                    f"raise limits.{name}",
                    open_txns=count, max_open_txns=maximum,
                )  # fmt: skip
        limits = self._limits
        self._open_usage.check_share(
            tenant_of(caller.principal), 1, limits.max_open_txns, limits.max_principal_percent, "open transactions"
        )

    def begin(
        self, txn_id: int, caller: Caller, targets: Sequence[Place], keepalive_s: float, now_s: float
    ) -> TxnSession:
        """Add a transaction, limited to ``targets`` if there are any. ``check_room`` was called before."""
        assert txn_id >= self._first_txn_id
        assert txn_id not in self.open
        session = TxnSession(
            txn_id, caller, keepalive_s, now_s + keepalive_s, bool(targets),
            {target.vchannel.vchannel_id: StagedPart(target) for target in targets},
        )  # fmt: skip
        self.open[txn_id] = session
        self._per_client[caller] += 1
        self._open_usage.add(session.tenant, 1)
        return session

    def session(self, txn_id: int, caller: Caller | None, latest_tick: int) -> TxnSession:
        """Return an open transaction, whose keepalive may have run out.

        Args:
            txn_id: Id of the transaction.
            caller: Client that asks; None for an operator, who may access all transactions.
            latest_tick: The greatest tick ever allocated.

        Raises:
            TransactionForeignError: It belongs to another client of the principal.
            TransactionExpiredError: It was aborted, or begun before the last start, or its end is forgotten.
            InvalidTransactionStateError: It is committed, or was rolled back.
            TransactionOutcomeForgottenError: It may have been committed long ago.
            TransactionNotExistError: It was never begun.

        A transaction of another principal is treated as never begun.
        """
        found = self.find(txn_id, caller)
        if isinstance(found, TxnSession):
            return found
        if found is not None:
            raise InvalidTransactionStateError(txn_id, state="committed")
        self.check_remembered(txn_id, None if caller is None else tenant_of(caller.principal))
        if self._first_txn_id <= txn_id and (self._forgotten_up_to < txn_id or latest_tick < txn_id):
            raise TransactionNotExistError(txn_id)
        raise TransactionExpiredError(
            txn_id, cause="forgotten", detail="it was begun before the server's last start, or ended long ago"
        )

    def find(self, txn_id: int, caller: Caller | None) -> TxnSession | TxnOutcome | None:
        """Return an open transaction or the outcome of one; None if the caller may see no such transaction.

        Raises:
            TransactionForeignError, TransactionExpiredError, InvalidTransactionStateError: See ``session``.
        """
        if (session := self.open.get(txn_id)) is not None:
            return session if _is_of_caller(txn_id, session.caller, caller) else None
        ended = self._ended.get(txn_id)
        if ended is not None and _is_of_caller(txn_id, ended.caller, caller):
            if ended.cause == "rolled_back":
                raise InvalidTransactionStateError(txn_id, state="rolled back")
            raise TransactionExpiredError(txn_id, cause=ended.cause, detail=_TEXTS[ended.cause])
        outcome = self._outcomes.get(txn_id)
        return outcome if outcome is not None and _may_know(outcome, caller) else None

    def was_rolled_back(self, txn_id: int, caller: Caller) -> bool:
        """Return whether a client has rolled back this transaction."""
        ended = self._ended.get(txn_id)
        return ended is not None and (ended.caller, ended.cause) == (caller, "rolled_back")

    def content(self, txn_id: int, caller: Caller) -> TxnContent | TxnOutcome | None:
        """Return the content that a prepared transaction has, or had at its end, or its outcome; None if unknown.

        Raises:
            TransactionForeignError: It belongs to another client of the principal.
        """
        found = self.open.get(txn_id) or self._ended.get(txn_id)
        if found is not None:
            return found.content if _is_of_caller(txn_id, found.caller, caller) else None
        outcome = self._outcomes.get(txn_id)
        return outcome if outcome is not None and _may_know(outcome, caller) else None

    def check_remembered(self, txn_id: int, tenant: Tenant | None) -> None:
        """Raise TransactionOutcomeForgottenError if an unknown transaction may have been committed.

        ``tenant`` is the tenant of the principal that asks; None for an operator, who may access all transactions.
        """
        floor = self._floors.highest if tenant is None else self._floors.of(tenant)
        if txn_id <= floor:
            raise TransactionOutcomeForgottenError(txn_id, oldest_tick=floor + 1)

    def stage(self, session: TxnSession, target: Place, batch: Batch, stored_crc32c: int) -> int:
        """Add a new batch to an open transaction; return its sequence. Nothing changes if this raises.

        Raises:
            VchannelNotInTransactionError: The transaction was begun for other vchannels.
            TransactionTooLargeError, RateLimitRejectedError: A limit is reached.
        """
        assert session.state is TxnState.OPEN
        vchannel = target.vchannel
        if session.is_bound and vchannel.vchannel_id not in session.parts:
            raise VchannelNotInTransactionError(session.txn_id, vchannel.name)
        self._check_room_for(session, vchannel.vchannel_id, len(batch.columns))
        part = session.parts.setdefault(vchannel.vchannel_id, StagedPart(target))
        sequence = len(part.batches) + 1
        columns = StagedColumns(sequence, len(batch.columns), stored_crc32c)
        part.batches.append(StagedHeader(batch.count, batch.message_type, batch.columns_crc32c, columns))
        session.batches += 1
        session.size_bytes += len(batch.columns)
        self._bytes_usage.add(session.tenant, len(batch.columns))
        self._batches_usage.add(session.tenant, 1)
        return sequence

    def start_commit(self, txn_id: int, outcome: TxnOutcome) -> list[Row]:
        """Record that a transaction is about to be committed; return the changes to write with it."""
        assert self.open[txn_id].is_committing
        assert self._outcomes.get(txn_id) is None
        evicted = self._outcomes.make_room(outcome.tenant, MAX_TXN_OUTCOMES - self._committing)
        self._committing += 1
        self._on_evicted(len(evicted))
        changes = [OUTCOMES.row(txn_id, outcome), *(OUTCOMES.gone(each.key) for each in evicted)]
        floors: dict[Tenant, int | None] = {}
        for each in evicted:
            floors |= self._floors.raise_to(each.tenant, each.key)
        return changes + floor_rows(FloorTable.OUTCOMES, floors)

    def finish_commit(self, session: TxnSession, outcome: TxnOutcome) -> None:
        """Replace a transaction by its durable outcome; called in tick order."""
        assert session.is_committing
        assert 0 < self._committing
        self._committing -= 1
        self._remove(session)
        self.release_staged(session)
        self._outcomes.put(session.txn_id, outcome, outcome.tenant)

    def end(self, session: TxnSession, cause: EndCause) -> None:
        """End a transaction without a commit. Its staged batches count until ``release_staged``."""
        assert session.state in (TxnState.OPEN, TxnState.PREPARED)
        assert self._outcomes.get(session.txn_id) is None
        self._remove(session)
        content = None if session.prepared_for is None else session.content
        for forgotten in self._ended.make_room(session.tenant, MAX_ENDED_TXNS):
            self._forgotten_up_to = max(self._forgotten_up_to, forgotten.key)
        self._ended.put(session.txn_id, _EndedTxn(session.caller, cause, content), session.tenant)

    def release_staged(self, session: TxnSession) -> None:
        """Stop counting the staged batches of a transaction."""
        self._bytes_usage.add(session.tenant, -session.size_bytes)
        self._batches_usage.add(session.tenant, -session.batches)

    def expired(self, now_s: float) -> list[TxnSession]:
        """Return the open transactions whose keepalive has expired, except those being committed."""
        return [session for session in self.open.values() if session.expires_s <= now_s and not session.is_committing]

    def on_vchannels(self, vchannel_ids: Iterable[int]) -> list[TxnSession]:
        """Return the open transactions that have one of these vchannels."""
        ids = set(vchannel_ids)
        return [session for session in self.open.values() if ids & session.parts.keys()]

    def _check_room_for(self, session: TxnSession, vchannel_id: int, size_bytes: int) -> None:
        vchannels = len(session.parts.keys() | {vchannel_id})
        for unit, actual, maximum in (
            ("bytes", session.size_bytes + size_bytes, self._limits.max_txn_bytes),
            ("batches", session.batches + 1, MAX_STAGED_BATCHES_PER_TXN),
            ("vchannels", vchannels, MAX_TXN_VCHANNELS),
        ):
            if maximum < actual:
                raise TransactionTooLargeError(session.txn_id, actual=actual, maximum=maximum, unit=unit)
        for unit, usage, amount, maximum in (
            ("bytes", self._bytes_usage, size_bytes, self._limits.max_staged_bytes),
            ("batches", self._batches_usage, 1, MAX_STAGED_BATCHES),
        ):
            usage.check(
                session.tenant, amount, maximum, self._limits.max_principal_percent,
                unit=f"{unit} of open transactions", name=unit,
                full=f"the open transactions of the server would have {{total}} {unit}, at most {{maximum}} are "
                "allowed: commit or roll back some",
            )  # fmt: skip

    def _remove(self, session: TxnSession) -> None:
        assert self.open.get(session.txn_id) is session
        session.state = TxnState.ENDED
        del self.open[session.txn_id]
        self._open_usage.add(session.tenant, -1)
        self._per_client[session.caller] -= 1
        if not self._per_client[session.caller]:
            del self._per_client[session.caller]


def _is_of_caller(txn_id: int, owner: Caller, caller: Caller | None) -> bool:
    """Return whether a transaction is the caller's, or an operator asks; False if another principal owns it.

    Raises:
        TransactionForeignError: It belongs to another client of the same principal.
    """
    if caller in (None, owner):
        return True
    assert caller is not None
    if caller.principal == owner.principal:
        raise TransactionForeignError(txn_id)
    return False


def _may_know(outcome: TxnOutcome, caller: Caller | None) -> bool:
    """Return whether a caller may see an outcome.

    Outcomes of earlier servers have no tenant. All callers may see them, because a client that retries its commit must
    not be refused as unknown; CommitTxn checks permissions as well.
    """
    if caller is None or not caller.principal:
        return True
    return outcome.tenant in (NO_TENANT, tenant_of(caller.principal))
