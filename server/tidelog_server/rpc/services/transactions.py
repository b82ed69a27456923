"""TransactionService: staged transactions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog.v1 import transaction_service_pb2 as pb
from tidelog_server.channels.directory import Directory
from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import InvalidRequestError, TransactionNotExistError
from tidelog_server.core.limits import MAX_BARRIER_WAIT_S, MAX_COMMITS_PER_TXN, MAX_OWNER_FIELD_BYTES
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.transactions import TxnOutcome
from tidelog_server.groups.groups import Groups
from tidelog_server.log.batch import Conditions
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Companions
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.pages import id_in_token
from tidelog_server.rpc.services.mailboxes.transactions import MailboxTransactions, sent_by
from tidelog_server.rpc.services.options import Syncs, caller_of, commits_of, conditions_of, longest_wait_s, needs_sync
from tidelog_server.rpc.services.results import result_at
from tidelog_server.security.access import current_access, current_principal
from tidelog_server.security.grants import Verb
from tidelog_server.txn.applications import AppTerms, AppVersion
from tidelog_server.txn.commit import CommitTerms
from tidelog_server.txn.prepared import PreparedTransactions, PreparedTxn
from tidelog_server.txn.staged import Transactions, check_targets
from tidelog_server.txn.table import TxnSession

# Prepared transactions per commit, which are committed in one step of the event loop.
MAX_PREPARED_TXNS: Final = 1_000

_US_PER_S: Final = 1_000_000
# Small, because each transaction may have 256 vchannels with long names.
_PAGE: Final = 100


class TransactionService:
    """Handlers of TransactionService."""

    def __init__(
        self,
        transactions: Transactions,
        prepared: PreparedTransactions,
        groups: Groups,
        directory: Directory,
        node: LogNode,
        *,
        mailboxes: MailboxTransactions,
        syncs: Syncs,
    ) -> None:
        self._transactions = transactions
        self._mailboxes = mailboxes
        self._prepared = prepared
        self._groups = groups
        self._directory = directory
        self._node = node
        self._syncs = syncs

    async def begin_txn(self, request: pb.BeginTxnRequest, context: Context) -> pb.BeginTxnResponse:
        """Begin a transaction."""
        targets = [self._directory.find(name) for name in request.vchannels]
        check_targets(targets)
        session = await self._transactions.begin(targets, request.keepalive_us, caller_of(context))
        return pb.BeginTxnResponse(txn_id=session.txn_id, keepalive_us=_us(session.keepalive_s))

    async def commit_txn(self, request: pb.CommitTxnRequest, context: Context) -> pb.CommitTxnResponse:
        """Commit a transaction."""
        positions = commits_of(request.positions, MAX_COMMITS_PER_TXN)
        joined = await self._mailboxes.join(request.sends, request.acks)

        def terms() -> CommitTerms:
            # Only for the first commit: a repeated one must succeed even if channels were destroyed since.
            return CommitTerms(
                needs_sync(request.durability, self._syncs),
                request.barrier_tick,
                self._conditions(request.conditions),
                request.batches if request.HasField("batches") else None,
                Companions(self._groups.commits.position_move(positions), joined),
            )

        caller, wait_s = caller_of(context), longest_wait_s(context, MAX_BARRIER_WAIT_S)
        committed = await self._transactions.commit(_txn_id(request), caller, terms, wait_s)
        names = [self._node.vchannel_name(run.vchannel_id) or "" for run in committed.outcome.runs]
        if committed.is_repeated:
            _check_visible(request.txn_id, names)
        result = _result(request.txn_id, committed.outcome, is_repeated=committed.is_repeated)
        if not committed.is_repeated:
            result.sent.extend(sent_by(joined))
        return pb.CommitTxnResponse(result=result, vchannels=names)

    async def rollback_txn(self, request: pb.RollbackTxnRequest, context: Context) -> pb.RollbackTxnResponse:
        """Roll back a transaction."""
        self._transactions.roll_back(_txn_id(request), caller_of(context))
        return pb.RollbackTxnResponse()

    async def keepalive_txn(self, request: pb.KeepaliveTxnRequest, context: Context) -> pb.KeepaliveTxnResponse:
        """Renew the keepalive of a transaction."""
        session = self._transactions.keep_alive(_txn_id(request), caller_of(context))
        return pb.KeepaliveTxnResponse(keepalive_us=_us(session.keepalive_s))

    async def prepare_txn(self, request: pb.PrepareTxnRequest, context: Context) -> pb.PrepareTxnResponse:
        """Prepare a transaction."""
        session = self._prepared.prepare(
            PreparedTxn(_txn_id(request), caller_of(context)),
            _app(request.app_id, request.app_version if request.HasField("app_version") else None),
            expected_batches=request.batches if request.HasField("batches") else None,
            keepalive_us=request.keepalive_us,
        )
        return pb.PrepareTxnResponse(keepalive_us=_us(session.keepalive_s))

    async def commit_prepared_txns(
        self, request: pb.CommitPreparedTxnsRequest, context: Context
    ) -> pb.CommitPreparedTxnsResponse:
        """Commit prepared transactions together."""
        terms = CommitTerms(needs_sync(request.durability, self._syncs), request.barrier_tick)
        app = _app(request.app_id, request.app_version)
        wait_s = longest_wait_s(context, MAX_BARRIER_WAIT_S)
        commit, is_repeated = await self._prepared.commit(
            _prepared(request.txns),
            app,
            terms,
            wait_s,
            AppTerms(request.is_last, request.query_id, request.any_vchannel, request.is_first),
        )
        return pb.CommitPreparedTxnsResponse(
            first_tick=commit.first_tick if commit.messages else 0,
            last_tick=commit.last_tick if commit.messages else 0,
            messages=commit.messages,
            durability=message_pb2.DURABILITY_SYNC if commit.is_synced else message_pb2.DURABILITY_OS,
            duplicate=is_repeated,
        )

    async def rollback_prepared_txns(
        self, request: pb.RollbackPreparedTxnsRequest, _: Context
    ) -> pb.RollbackPreparedTxnsResponse:
        """Roll back prepared transactions."""
        self._prepared.roll_back(_prepared(request.txns))
        return pb.RollbackPreparedTxnsResponse()

    async def list_txns(self, request: pb.ListTxnsRequest, _: Context) -> pb.ListTxnsResponse:
        """Return a page of open transactions."""
        found = self._transactions.list(id_in_token(request), _PAGE + 1)
        page = found[:_PAGE]
        token = str(page[-1].txn_id) if len(found) > _PAGE else ""
        return pb.ListTxnsResponse(txns=map(self._open_txn, page), next_page_token=token)

    async def describe_txn(self, request: pb.DescribeTxnRequest, _: Context) -> pb.DescribeTxnResponse:
        """Describe a transaction."""
        found = self._transactions.describe(_txn_id(request))
        if isinstance(found, TxnSession):
            return pb.DescribeTxnResponse(txn=self._open_txn(found))
        names = (self._node.vchannel_name(run.vchannel_id) for run in found.runs)
        txn = pb.TxnDescription(
            txn_id=request.txn_id,
            state=pb.TXN_STATE_COMMITTED,
            vchannels=[name for name in names if name is not None],
            messages=sum(run.messages for run in found.runs),
            result=_result(request.txn_id, found),
        )
        return pb.DescribeTxnResponse(txn=txn)

    async def abort_txn(self, request: pb.AbortTxnRequest, _: Context) -> pb.AbortTxnResponse:
        """Abort a transaction on behalf of an operator."""
        size_bytes = len(request.reason.encode())
        check_within(
            size_bytes,
            1,
            MAX_OWNER_FIELD_BYTES,
            "reason",
            "the reason has {value} bytes",
            advice=": say why the transaction is aborted",
        )
        self._transactions.abort(_txn_id(request), request.reason)
        return pb.AbortTxnResponse()

    def _conditions(self, wire: Iterable[pb.CommitCondition]) -> Mapping[int, Conditions]:
        """Return conditions by vchannel id. Raises InvalidRequestError if a vchannel has two."""
        conditions: dict[int, Conditions] = {}
        for each in wire:
            _, vchannel = self._directory.find(each.vchannel)
            if vchannel.vchannel_id in conditions:
                raise InvalidRequestError(
                    f"the commit has two conditions for {vchannel.name}: combine them", field="conditions"
                )
            conditions[vchannel.vchannel_id] = conditions_of(each)
        return conditions

    def _open_txn(self, txn: TxnSession) -> pb.TxnDescription:
        state = pb.TXN_STATE_OPEN
        if txn.prepared_for is not None:
            state = pb.TXN_STATE_PREPARED
        if txn.is_committing:
            state = pb.TXN_STATE_COMMITTING
        left_s = max(0.0, txn.expires_s - self._transactions.clock.now_s())
        return pb.TxnDescription(
            txn_id=txn.txn_id,
            state=state,
            client_id=txn.caller.client_id,
            principal=txn.caller.principal,
            vchannels=[part.target.vchannel.name for part in txn.parts.values()],
            batches=txn.batches,
            messages=txn.messages,
            bytes=txn.size_bytes,
            keepalive_us=_us(txn.keepalive_s),
            expires_in_us=0 if txn.is_committing else _us(left_s),
        )


def _check_visible(txn_id: int, names: Iterable[str]) -> None:
    """Check that the caller may see the outcome of a transaction, which is stored without its owner.

    Raises:
        TransactionNotExistError: It may not append to all vchannels of the transaction.
    """
    access = current_access()
    if access is not None and not all(access.may((Verb.APPEND,), name) for name in names if name):
        raise TransactionNotExistError(txn_id)


def _result(txn_id: int, outcome: TxnOutcome, *, is_repeated: bool = False) -> wal_service_pb2.TransactionResult:
    """Return the position of a committed transaction as a message."""
    if not outcome.runs:
        return wal_service_pb2.TransactionResult(txn_id=txn_id)
    parts, tick = [], outcome.first_tick
    for run in outcome.runs:
        end_tick = tick + run.messages
        parts.append(result_at(tick, end_tick - 1, is_synced=outcome.is_synced, is_duplicate=is_repeated))
        tick = end_tick
    return wal_service_pb2.TransactionResult(
        txn_id=txn_id, first_tick=outcome.first_tick, last_tick=outcome.last_tick, parts=parts
    )


def _app(app_id: str, version: int | None) -> AppVersion:
    return AppVersion(app_id, version, current_principal())


def _prepared(wire: Sequence[pb.PreparedTxn]) -> list[PreparedTxn]:
    """Return the transactions that a request names.

    Raises:
        InvalidRequestError: There are more than MAX_PREPARED_TXNS, one occurs twice, or one has no id.
    """
    check_at_most(len(wire), MAX_PREPARED_TXNS, "txns", "the request names {value} transactions")
    principal = current_principal()
    txns = {_txn_id(each): PreparedTxn(each.txn_id, Caller(principal, each.client_id)) for each in wire}
    if len(txns) < len(wire):
        raise InvalidRequestError("the request names a transaction twice: name each once", field="txns")
    return list(txns.values())


class _OnTxn(Protocol):
    """A request that names a transaction."""

    txn_id: int


def _txn_id(request: _OnTxn) -> int:
    """Return the id in a request. Raises InvalidRequestError if it is 0."""
    if not request.txn_id:
        raise InvalidRequestError("the txn_id is 0: expected the id that BeginTxn returned", field="txn_id")
    return request.txn_id


def _us(seconds: float) -> int:
    return round(seconds * _US_PER_S)
