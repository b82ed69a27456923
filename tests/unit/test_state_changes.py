"""State changes that break an invariant fail an assertion, and change nothing.

Method: each case takes the state of a feature and makes a change that its callers never make.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog_server.broadcast.keys import ResourceKeys
from tidelog_server.broadcast.records import Progress, TaskRecord
from tidelog_server.broadcast.table import BroadcastTable, Task
from tidelog_server.core.broadcasts import KeyName, ResourceKey
from tidelog_server.core.callers import Caller
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.limits import Limits
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import AppCommit, TxnOutcome
from tidelog_server.groups.members import Grants, GroupMembers, Member
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.txn.applications import AppCommits, AppVersion
from tidelog_server.txn.commit import CommitAppend, CommitTerms, TxnCommit
from tidelog_server.txn.inline import TxnAppend
from tidelog_server.txn.table import TxnSession, TxnState, TxnTable

RECORD = TaskRecord(9, ("a/0", "a/1"), (1, 2), (), "00", 0, 0, created_ms=0)
KEY = ResourceKey(KeyName("d", "k"), is_shared=False)


def a_table() -> tuple[TxnTable, TxnSession]:
    table = TxnTable(Limits(), {}, 1)
    return table, table.begin(7, Caller("", "client"), [], 1.0, 0.0)


def an_open_task() -> tuple[BroadcastTable, Task]:
    table, task = BroadcastTable(), Task(RECORD)
    table.add(task)
    return table, task


def end_while_committing() -> None:
    table, session = a_table()
    session.start_commit()
    table.end(session, "keepalive")


def end_twice() -> None:
    table, session = a_table()
    table.end(session, "aborted")
    table.end(session, "aborted")


def commit_twice() -> None:
    _, session = a_table()
    session.start_commit()
    session.start_commit()


def refuse_what_is_not_committing() -> None:
    a_table()[1].refuse_commit()


def prepare_without_messages() -> None:
    a_table()[1].prepare(AppVersion("a", None))


def finish_what_is_not_committing() -> None:
    table, session = a_table()
    table.finish_commit(session, TxnOutcome(1, True, ()))


def submit_what_is_not_committing() -> None:
    table, session = a_table()
    node = cast("Any", SimpleNamespace(admission=SimpleNamespace(check=lambda: None)))
    CommitAppend(node, table, TxnCommit([session], CommitTerms()), lambda _: None)


def append_no_parts() -> None:
    options = cast("Any", SimpleNamespace(conditions=CommitTerms().conditions))
    TxnAppend(cast("Any", None), [], options, lambda _: None)


def record_a_commit_that_was_not_submitted() -> None:
    AppCommits({}).committed(AppVersion("a", 1), AppCommit(1, 5, 1, True))


def append_at_no_tick() -> None:
    an_open_task()[1].mark_appended(NO_TICK, 0)


def acknowledge_a_vchannel_that_is_not_included() -> None:
    an_open_task()[1].mark_acked(1 << 2, 0)


def take_back_an_acknowledgement() -> None:
    table, task = an_open_task()
    table.apply(task, Progress(5, 1))
    table.apply(task, Progress(5, 0))


def move_a_broadcast_to_another_tick() -> None:
    table, task = an_open_task()
    table.apply(task, Progress(5))
    table.apply(task, Progress(6))


def discard_twice() -> None:
    table, task = an_open_task()
    table.discard(task)
    table.discard(task)


def acquire_twice() -> None:
    keys = ResourceKeys()
    keys.request(1, (KEY,))
    keys.request(1, (KEY,))


def restart_under_an_old_epoch() -> None:
    members = GroupMembers()
    members.join(Member("m", "", frozenset({"a"}), 1.0, 1.0, 1.0, lambda: None))
    grants = Grants(lambda: 5, lambda _: 0)
    members.rebalance({"a/0": "a"}, grants, 0.0)
    members.restart("a/0", grants)


def return_after_the_removal() -> None:
    members, member = GroupMembers(), Member("m", "", frozenset({"a"}), 1.0, 1.0, 1.0, lambda: None)
    members.join(member)
    members.remove(member)
    members.join(member)


def remove_a_missing_position() -> None:
    GroupPositions({}).remove(GroupKey("g", "a/0"))


@pytest.mark.parametrize(
    "change",
    [
        end_while_committing, end_twice, commit_twice, refuse_what_is_not_committing, prepare_without_messages,
        finish_what_is_not_committing, submit_what_is_not_committing, append_no_parts,
        record_a_commit_that_was_not_submitted, append_at_no_tick, acknowledge_a_vchannel_that_is_not_included,
        take_back_an_acknowledgement, move_a_broadcast_to_another_tick, discard_twice, acquire_twice,
        restart_under_an_old_epoch, return_after_the_removal, remove_a_missing_position,
    ],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_a_change_that_breaks_an_invariant_fails(change: Callable[[], None]) -> None:
    with pytest.raises(AssertionError):
        change()


@pytest.mark.parametrize("app", [None, AppVersion("a", None)])
def test_a_refused_commit_restores_the_state_before_it(app: AppVersion | None) -> None:
    _, session = a_table()
    session.batches = 1
    if app is not None:
        session.prepare(app)
    before = session.state
    session.start_commit()
    assert session.state is TxnState.COMMITTING
    session.refuse_commit()
    assert session.state is before is (TxnState.OPEN if app is None else TxnState.PREPARED)
