"""Last commits of applications, and the prepared transactions that belong to a commit. Pure."""

from collections import Counter

import pytest

from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import Effect, InvalidRequestError, InvalidTransactionStateError
from tidelog_server.core.errors.applications import AppVersionPassedError
from tidelog_server.core.errors.forgotten import ApplicationForgottenError
from tidelog_server.core.limits import MAX_REPEAT_AGE_MS, Limits
from tidelog_server.core.shares import FloorKey, FloorTable
from tidelog_server.core.ticks import compose
from tidelog_server.core.transactions import AppCommit, AppKey
from tidelog_server.txn import applications
from tidelog_server.txn.applications import AppCommits, AppVersion
from tidelog_server.txn.rows import APP_COMMITS, FLOORS
from tidelog_server.txn.table import TxnTable


def a_commit(version: int, first_tick: int, *, is_last: bool = False) -> AppCommit:
    return AppCommit(version, first_tick, 3, True, is_last)


def a_key(app_id: str) -> AppKey:
    return AppKey("", app_id)


def rows_of(commits: dict[str, AppCommit]) -> dict[AppKey, AppCommit]:
    return {a_key(app_id): commit for app_id, commit in commits.items()}


def committed(
    apps: AppCommits, app_id: str, version: int, first_tick: int, *, is_last: bool = False
) -> list[tuple[str, AppCommit | None]]:
    """Commit at once; return the changes to write."""
    app, commit = AppVersion(app_id, version), a_commit(version, first_tick, is_last=is_last)
    changes = apps.committing(app, commit)
    apps.committed(app, commit)
    return [(row.key.app_id, row.value) for row in changes if row.table is APP_COMMITS]


def test_the_last_version_is_repeated_a_later_one_is_new_and_an_earlier_one_came_too_late() -> None:
    apps = AppCommits(rows_of({"a": a_commit(5, 100)}))

    assert apps.repeated(AppVersion("a", 5)) == a_commit(5, 100)
    assert apps.repeated(AppVersion("a", 6)) is None
    assert apps.repeated(AppVersion("b", 0)) is None
    with pytest.raises(AppVersionPassedError) as caught:
        apps.repeated(AppVersion("a", 4))
    assert caught.value.values == {"app_id": "a", "app_version": "4", "last_version": "5"}

    assert committed(apps, "a", 8, 200) == [("a", a_commit(8, 200))]
    assert apps.repeated(AppVersion("a", 8)) == a_commit(8, 200)
    with pytest.raises(AppVersionPassedError):
        apps.repeated(AppVersion("a", 5))


def test_who_has_not_committed_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 3)
    # In arbitrary order, as a store returns them.
    apps = AppCommits(rows_of({"c": a_commit(0, 30), "a": a_commit(0, 10), "b": a_commit(0, 20)}))

    assert committed(apps, "a", 1, 40) == [("a", a_commit(1, 40))]
    assert committed(apps, "d", 0, 50) == [("d", a_commit(0, 50)), ("b", None)]
    assert committed(apps, "e", 0, 60) == [("e", a_commit(0, 60)), ("c", None)]
    assert apps.repeated(AppVersion("a", 1)) == a_commit(1, 40)
    assert apps.repeated(AppVersion("b", 0)) is None


def test_an_application_that_is_committing_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 2)
    apps = AppCommits(rows_of({"old": a_commit(0, 10), "b": a_commit(0, 20)}))
    again = AppVersion("old", 1)

    assert apps.committing(again, a_commit(1, 30)) == [APP_COMMITS.row(a_key("old"), a_commit(1, 30))]
    # Its new row precedes this one in the log, and must not be removed.
    assert committed(apps, "c", 0, 40) == [("c", a_commit(0, 40)), ("b", None)]
    apps.committed(again, a_commit(1, 30))

    assert apps.repeated(again) == a_commit(1, 30)


def test_many_that_commit_at_once_do_not_exceed_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 3)
    apps = AppCommits(rows_of({name: a_commit(0, tick) for tick, name in enumerate("abc")}))
    rows = set("abc")
    for tick, name in enumerate("defgh", 10):
        rows |= {name}
        changes = apps.committing(AppVersion(name, 0), a_commit(0, tick))
        rows -= {row.key.app_id for row in changes if row.table is APP_COMMITS and row.value is None}
    for tick, name in enumerate("defgh", 10):
        apps.committed(AppVersion(name, 0), a_commit(0, tick))
    for gone, row in committed(apps, "i", 0, 99):
        rows = rows - {gone} if row is None else rows | {gone}
    assert rows == {"g", "h", "i"}


def test_a_store_with_more_than_the_bound_is_brought_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 2)
    apps = AppCommits(rows_of({name: a_commit(0, tick) for tick, name in enumerate("abcd")}))
    assert [gone for gone, row in committed(apps, "e", 0, 99) if row is None] == ["a", "b", "c"]


def test_no_number_of_finished_applications_makes_a_lasting_one_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 2)
    monkeypatch.setattr(applications, "MAX_FINISHED_APPS", 2)
    stored = {"a": a_commit(0, 10), "x": a_commit(0, 20, is_last=True), "b": a_commit(0, 30)}
    apps = AppCommits(rows_of(stored))

    gone = [
        forgotten
        for tick, name in enumerate(["y", "z", "w"], 40)
        for forgotten, row in committed(apps, name, 0, tick, is_last=True)
        if row is None
    ]

    assert gone == ["x", "y"]
    assert [apps.repeated(AppVersion(name, 0)) for name in "ab"] == [stored["a"], stored["b"]]
    assert apps.repeated(AppVersion("w", 0)) == a_commit(0, 42, is_last=True)
    assert committed(apps, "c", 0, 50) == [("c", a_commit(0, 50)), ("a", None)]
    assert apps.repeated(AppVersion("z", 0)) == a_commit(0, 41, is_last=True)


def test_a_principal_with_many_applications_evicts_its_own_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 4)
    monkeypatch.setattr(applications, "MAX_FINISHED_APPS", 4)
    evicted: Counter[FloorTable] = Counter()
    rows: dict[AppKey, AppCommit] = {}
    floors: dict[FloorKey, int] = {}

    def commit(apps: AppCommits, app: AppVersion, tick: int, *, is_last: bool = False) -> None:
        made = a_commit(0, tick, is_last=is_last)
        changes = apps.committing(app, made)
        apps.committed(app, made)
        for table, key, value in changes:
            if table is FLOORS:
                floors.update({} if value is None else {key: value})
            elif value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    apps = AppCommits({}, {}, lambda table, count: evicted.update({table: count}))
    mine = AppVersion("stream", 0, "jwt:other")
    commit(apps, mine, 1)
    for tick in range(2, 102):
        commit(apps, AppVersion(f"a{tick}", 0, "jwt:hoarder"), tick)
        commit(apps, AppVersion(f"f{tick}", 0, "jwt:hoarder"), 1_000 + tick, is_last=True)

    for known in (apps, AppCommits(rows, floors)):
        assert known.repeated(mine) == a_commit(0, 1)
        # Nothing of the other principal was evicted, so an unknown application is new.
        for is_last in (False, True):
            known.check_new(AppVersion("new", 0, "jwt:other"), is_last=is_last, latest_tick=2_000)
        # An unknown application of the hoarder may have been committed.
        for app_id, is_last in (("a2", False), ("f2", True), ("never seen", False)):
            with pytest.raises(ApplicationForgottenError) as refused:
                known.check_new(AppVersion(app_id, 0, "jwt:hoarder"), is_last=is_last, latest_tick=2_000)
            assert refused.value.effect is Effect.UNKNOWN
        known.check_new(AppVersion("a101", 1, "jwt:hoarder"), is_last=False, latest_tick=2_000)
    assert evicted == {FloorTable.APPS: 97, FloorTable.FINISHED_APPS: 96}
    assert len(rows) == 8


def test_an_application_that_makes_no_other_commit_is_repeated_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_FINISHED_APPS", 1)
    apps = AppCommits({})
    committed(apps, "a", 0, compose(1_000_000), is_last=True)
    committed(apps, "b", 0, compose(1_000_001), is_last=True)
    within, after = compose(1_000_000 + MAX_REPEAT_AGE_MS), compose(1_000_001 + MAX_REPEAT_AGE_MS)
    with pytest.raises(ApplicationForgottenError):
        apps.check_new(AppVersion("a", 0), is_last=True, latest_tick=within)
    apps.check_new(AppVersion("a", 0), is_last=True, latest_tick=after)


def test_a_full_store_that_knows_no_floors_may_have_forgotten_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 2)
    stored = {a_key(name): a_commit(0, 10) for name in "ab"}
    with pytest.raises(ApplicationForgottenError):
        AppCommits(stored).check_new(AppVersion("c", 0), is_last=False, latest_tick=20)
    AppCommits({a_key("a"): a_commit(0, 10)}).check_new(AppVersion("c", 0), is_last=False, latest_tick=20)


def test_an_application_that_goes_on_after_all_is_lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "MAX_FINISHED_APPS", 1)
    apps = AppCommits(rows_of({"a": a_commit(0, 10, is_last=True)}))

    assert committed(apps, "a", 1, 20) == [("a", a_commit(1, 20))]
    assert committed(apps, "b", 0, 30, is_last=True) == [("b", a_commit(0, 30, is_last=True))]
    assert apps.repeated(AppVersion("a", 1)) == a_commit(1, 20)
    with pytest.raises(AppVersionPassedError):
        apps.repeated(AppVersion("a", 0))


@pytest.mark.parametrize(
    ("app", "field"),
    [
        (AppVersion("", 0), "app_id"),
        (AppVersion("x" * 129, 0), "app_id"),
        (AppVersion("\u00fc" * 65, None), "app_id"),
        (AppVersion("a\nb", 0), "app_id"),
        (AppVersion("a", 1 << 63), "app_version"),
    ],
)
def test_what_names_no_application_is_refused(app: AppVersion, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        app.check()
    assert caught.value.values["field"] == field


def test_an_application_belongs_to_its_principal() -> None:
    keys = [
        AppVersion("c", 0).key, AppVersion("c", 0, "a b").key, AppVersion("b c", 0, "a").key,
        AppVersion("c", 0, "a\nb").key, AppVersion("b\nc", 0, "a").key,
    ]  # fmt: skip
    assert len(set(keys)) == 5
    AppVersion("x" * 128, (1 << 63) - 1, "a principal with a long name").check()


def test_a_commit_covers_its_version_earlier_ones_and_what_knows_none() -> None:
    commit = AppVersion("a", 5, "p")
    covered = [AppVersion("a", version, "p").is_covered_by(commit) for version in (None, 0, 5, 6)]
    assert covered == [True, True, True, False]
    assert not AppVersion("b", 5, "p").is_covered_by(commit)
    assert not AppVersion("a", 5, "q").is_covered_by(commit)


def test_a_session_is_open_then_prepared_for_one_commit_then_committing() -> None:
    session = TxnTable(Limits(), {}, 1).begin(7, Caller("", "client"), [], 1.0, 0.0)
    session.check_not_prepared()
    with pytest.raises(InvalidTransactionStateError, match="not prepared for this commit"):
        session.check_prepared(AppVersion("a", 0))

    session.batches = 1
    session.prepare(AppVersion("a", None))
    session.check_open()
    session.check_prepared(AppVersion("a", 0))
    with pytest.raises(InvalidTransactionStateError, match="is prepared: commit"):
        session.check_not_prepared()
    with pytest.raises(InvalidTransactionStateError, match="not prepared for this commit"):
        session.check_prepared(AppVersion("b", 0))

    session.start_commit()
    with pytest.raises(InvalidTransactionStateError, match="being committed"):
        session.check_open()
