"""Each version of an application is committed once, with all of its transactions, despite retries and evictions.

Method: random preparations, commits, retries of earlier calls, some concurrent, rollbacks and restarts on a node whose
store outlives it, against a model of the last version of each application, the state of each transaction and the
messages of the log.

Promises of docs/reference/guarantees.md: G47.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import (
    InvalidTransactionStateError,
    TidelogServerError,
    TransactionExpiredError,
)
from tidelog_server.core.errors.applications import AppCommitMismatchError, AppVersionPassedError
from tidelog_server.core.transactions import AppCommit, AppKey, TxnContent, content_of
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.txn.applications import AppTerms, AppVersion
from tidelog_server.txn.commit import CommitTerms
from tidelog_server.txn.prepared import CommittedPrepared, PreparedTxn
from tidelog_server.txn.rows import APP_COMMITS
from tidelog_server.txn.staged import StagingAppend
from tidelog_server.txn.table import BatchOfTxn
from tidelog_testing.parts.batches import a_batch, payloads_of
from tidelog_testing.parts.lives import lives
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import LastingStore

VCHANNELS: Final = ("a/0", "a/1", "b/0")
APPS: Final = st.sampled_from(["x", "y"])
CLIENT: Final = Caller("", "client")


@dataclass(frozen=True)
class Prepare:
    """Prepare a transaction with a batch on each of ``vchannels``.

    Its version is the last one plus ``ahead``, or not set if None. The last version is 0 before the first commit.
    """

    app_id: str
    vchannels: tuple[str, ...]
    ahead: int | None


@dataclass(frozen=True)
class Commit:
    """Commit the last version plus ``ahead``, with the last ``count`` transactions, ``times`` times.

    ``terms`` may declare this the application's last commit, even if further ones follow.
    """

    app_id: str
    ahead: int
    count: int
    times: int
    terms: AppTerms


@dataclass(frozen=True)
class RollBack:
    """Roll back the last ``count`` transactions."""

    count: int


@dataclass(frozen=True)
class Restart:
    """Stop the node and start another one on its store."""


TERMS = st.builds(AppTerms, st.booleans(), st.sampled_from(["", "q", "q", "q", "other"]), st.booleans())
Step = Prepare | Commit | RollBack | Restart
PREPARE = st.builds(
    Prepare,
    APPS,
    st.lists(st.sampled_from(VCHANNELS), min_size=1, max_size=3).map(tuple),
    st.none() | st.sampled_from([0, 1, 1, 2]),
)
STEPS = st.lists(
    PREPARE
    | PREPARE
    | st.builds(Commit, APPS, st.sampled_from([1, 1, 1, 2, 0, -1]), st.integers(0, 3), st.integers(1, 3), TERMS)
    | st.builds(RollBack, st.integers(1, 2))
    | st.builds(Restart),
    min_size=5,
    max_size=40,
)


@dataclass
class Txn:
    """A prepared transaction as the model knows it; ``state`` is ``prepared``, ``committed``, ``ended`` or ``lost``."""

    txn_id: int
    app_id: str
    version: int | None
    batches: list[tuple[str, bytes]]
    state: str = "prepared"
    committed_by: AppCommit | None = None

    def is_covered(self, app_id: str, version: int) -> bool:
        return self.app_id == app_id and (self.version is None or self.version <= version)


class Model:
    """The expected content of the log, and the expected result of each call."""

    def __init__(self) -> None:
        self.txns: list[Txn] = []
        self.last: dict[AppKey, AppCommit] = {}
        self.last_targets: dict[AppKey, Counter[str]] = {}
        self.rows: list[tuple[int, str, bytes, int]] = []

    def version_at(self, app_id: str, ahead: int) -> int:
        last = self.last.get(AppKey("", app_id))
        return max(0, (last.version if last else 0) + ahead)

    async def take(self, node: Node, step: Step) -> None:
        match step:
            case Prepare():
                await self.prepare(node, step)
            case Commit():
                await self.commit(node, step)
            case RollBack():
                self.roll_back(node, step)
            case _:
                raise AssertionError

    async def prepare(self, node: Node, step: Prepare) -> None:
        transactions = node.transactions
        session = await transactions.begin([], 0, CLIENT)
        batches: list[tuple[str, bytes]] = []
        for vchannel in step.vchannels:
            content = b"%d-%d" % (session.txn_id, len(batches))
            place, target = BatchOfTxn(session.txn_id, CLIENT, 0), node.directory.find(vchannel)
            create = partial(StagingAppend, transactions, place, target, a_batch(content))
            await Submitted(create).submit(node.log.shared)
            batches.append((vchannel, content))
        version = None if step.ahead is None else self.version_at(step.app_id, step.ahead)
        app = AppVersion(step.app_id, version)
        for _ in range(2):
            node.prepared.prepare(
                PreparedTxn(session.txn_id, CLIENT), app, expected_batches=len(batches), keepalive_us=0
            )
        self.txns.append(Txn(session.txn_id, step.app_id, version, batches))

    async def commit(self, node: Node, step: Commit) -> None:
        version = self.version_at(step.app_id, step.ahead)
        chosen = self.txns[len(self.txns) - step.count :] if step.count else []
        named = [PreparedTxn(txn.txn_id, CLIENT) for txn in chosen]
        last = self.last.get(AppKey("", step.app_id))
        app = AppVersion(step.app_id, version)
        calls = [node.prepared.commit(named, app, CommitTerms(), 5.0, step.terms) for _ in range(step.times)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        if last is not None and last.query_id not in ("", step.terms.query_id):
            assert {type(answer) for answer in answers} == {AppCommitMismatchError}
            return
        if last is not None and version < last.version:
            assert {type(answer) for answer in answers} == {AppVersionPassedError}
            return
        if last is None or last.version < version:
            if wanted := refusal_of(chosen, step.app_id, version):
                assert {type(answer) for answer in answers} <= wanted, (answers, wanted)
                return
            first = next(each for each in answers if isinstance(each, CommittedPrepared) and not each.is_repeated)
            last = self.committed(node, chosen, step, version, first.commit)
            assert len([each for each in answers if each is first]) == 1
        elif wanted := self.refusal_of_repetition(chosen, step.app_id, last):
            assert {type(answer) for answer in answers} <= wanted, (answers, wanted)
            return
        # Each other call is a retry.
        repeated = [each for each in answers if isinstance(each, CommittedPrepared)]
        assert len(repeated) == step.times
        assert {each.commit for each in repeated} == {last}
        assert sum(not each.is_repeated for each in repeated) <= 1
        is_repeated = any(each.is_repeated for each in repeated)
        for txn in self.txns:
            if txn.state == "prepared" and txn.is_covered(step.app_id, version):
                is_named = is_repeated and txn in chosen
                if is_named or txn.version is not None or txn.txn_id < last.first_tick:
                    txn.state = "ended"

    def refusal_of_repetition(self, chosen: list[Txn], app_id: str, last: AppCommit) -> set[type[TidelogServerError]]:
        """Return the errors that may refuse a retry of the last commit; empty if it has the same content."""
        if chosen and all(txn.committed_by == last for txn in chosen):
            messages = sum(len(txn.batches) for txn in chosen)
            return set() if messages == last.messages else {AppCommitMismatchError}
        wanted: set[type[TidelogServerError]] = set()
        for txn in chosen:
            if txn.state == "lost":
                wanted.add(TransactionExpiredError)
            elif txn.state == "committed":
                wanted.add(InvalidTransactionStateError)
        targets = targets_of(chosen)
        first = self.last_targets[AppKey("", app_id)]
        is_same = by_channel(targets) == by_channel(first) if last.any_vchannel else targets == first
        return wanted or (set() if is_same else {AppCommitMismatchError})

    def committed(self, node: Node, chosen: list[Txn], step: Commit, version: int, commit: AppCommit) -> AppCommit:
        tick = commit.first_tick
        assert all(row[0] < tick for row in self.rows)
        for txn in chosen:
            txn.state = "committed"
            # Vchannels in the order in which they were added.
            for vchannel in dict(txn.batches):
                for name, content in txn.batches:
                    if name == vchannel:
                        self.rows.append((tick, name, content, txn.txn_id))
                        tick += 1
        is_last, query_id, any_vchannel, _ = step.terms
        targets = targets_of(chosen)
        stored = step.terms.content(content_on(node, targets))
        wanted = AppCommit(
            version, commit.first_tick, tick - commit.first_tick, True, is_last, any_vchannel, stored, query_id
        )
        assert commit == wanted
        self.last[AppKey("", step.app_id)] = wanted
        self.last_targets[AppKey("", step.app_id)] = targets
        for txn in chosen:
            txn.committed_by = wanted
        return wanted

    def roll_back(self, node: Node, step: RollBack) -> None:
        chosen = self.txns[-step.count :]
        try:
            node.prepared.roll_back([PreparedTxn(txn.txn_id, CLIENT) for txn in chosen])
        except InvalidTransactionStateError:
            assert any(txn.state == "committed" for txn in chosen)
            return
        assert all(txn.state != "committed" for txn in chosen)
        for txn in chosen:
            if txn.state == "prepared":
                txn.state = "ended"

    def restarted(self) -> None:
        for txn in self.txns:
            if txn.state != "committed":
                txn.state = "lost"

    async def check(self, node: Node) -> None:
        """Check that the log equals the model, and that staged batches belong to prepared transactions."""
        store = node.log.store
        found = []
        for name in VCHANNELS:
            for entry in store.read(node.directory.find(name)[1].vchannel_id, 0, 1 << 62, 1 << 30):
                txn = entry.header.txn
                assert txn is not None
                payloads = payloads_of(entry.columns)
                found += [(entry.header.base_tick + i, name, p, txn.txn_id) for i, p in enumerate(payloads)]
        assert sorted(found) == self.rows
        assert store.rows(APP_COMMITS) == self.last
        open_ids = {txn.txn_id for txn in self.txns if txn.state == "prepared"}
        assert {each.txn_id for each in node.transactions.list()} == open_ids
        async with asyncio.timeout(60):
            while {txn_id for _, txn_id in store.staged()} != open_ids:
                await asyncio.sleep(0)
        assert not node.task_failures


def targets_of(chosen: list[Txn]) -> Counter[str]:
    """Return the number of messages on each vchannel."""
    return Counter(vchannel for txn in chosen for vchannel, _ in txn.batches)


def by_channel(targets: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for vchannel, messages in targets.items():
        found[vchannel.partition("/")[0]] += messages
    return found


def content_on(node: Node, targets: Counter[str]) -> TxnContent:
    total = TxnContent()
    for name, messages in targets.items():
        log, vchannel = node.directory.find(name)
        total = total.plus(content_of(vchannel.vchannel_id, log.vchannels[0].vchannel_id, messages))
    return total


def refusal_of(chosen: list[Txn], app_id: str, version: int) -> set[type[TidelogServerError]]:
    """Return the errors that may refuse a new commit of these; empty if it succeeds."""
    wanted: set[type[TidelogServerError]] = set()
    for txn in chosen:
        if txn.state == "lost":
            wanted.add(TransactionExpiredError)
        elif txn.state != "prepared" or not txn.is_covered(app_id, version):
            wanted.add(InvalidTransactionStateError)
    return wanted


async def play(steps: list[Step]) -> None:
    store, metadata = LastingStore(), MemoryMetadataStore()
    model = Model()
    for number, life in enumerate(lives(steps, Restart)):
        async with running_node(store, metadata=metadata) as node:
            if number == 0:
                await node.create("a", 2)
                await node.create("b")
            else:
                model.restarted()
            for step in life:
                await model.take(node, step)
            await model.check(node)


@given(STEPS)
def test_a_version_is_committed_once_and_as_a_whole(steps: list[Step]) -> None:
    asyncio.run(play(steps))
