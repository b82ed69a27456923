"""The last commits of applications: decides whether a commit is new, a retry, or refused because its version is passed.

Pure. An application numbers its commits, as Spark numbers its batches. The last commit of each is remembered, so that
a commit whose answer was lost, or whose caller died, is made exactly once when it is retried.

Source: the application transactions of Delta Lake (``txnAppId``, ``txnVersion``).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog_server.core.callers import NO_TENANT, Tenant, tenant_of
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.applications import AppCommitMismatchError, AppVersionPassedError
from tidelog_server.core.errors.forgotten import ApplicationForgottenError
from tidelog_server.core.limits import MAX_REPEAT_AGE_MS
from tidelog_server.core.shares import FloorKey, Floors, FloorTable, Shares, floors_of
from tidelog_server.core.ticks import physical_ms
from tidelog_server.core.transactions import AppCommit, AppKey, TxnContent
from tidelog_server.storage.rows import Row
from tidelog_server.txn.rows import APP_COMMITS, floor_rows

# Applications whose last commit is remembered; the one with the oldest commit is evicted first. Finished applications
# are counted separately, so that they never evict an active one.
MAX_APP_ID_BYTES: Final = 128
MAX_QUERY_ID_BYTES: Final = 128
MAX_APPS: Final = 10_000
MAX_FINISHED_APPS: Final = 1_000

_MAX_VERSION: Final = (1 << 63) - 1


class AppVersion(NamedTuple):
    """A commit of an application.

    Attributes:
        app_id: Id of the application, 1 to MAX_APP_ID_BYTES bytes, printable.
        version: Version of the commit; None if not known yet.
        owner: Principal that owns the application; empty with authentication off.
    """

    app_id: str
    version: int | None
    owner: str = ""

    @property
    def key(self) -> AppKey:
        """Key of the application: equal ids of two principals are two applications."""
        return AppKey(self.owner, self.app_id)

    def check(self) -> None:
        """Raise InvalidRequestError if the app_id or the version is invalid."""
        size_bytes = len(self.app_id.encode())
        if not 1 <= size_bytes <= MAX_APP_ID_BYTES or not self.app_id.isprintable():
            raise InvalidRequestError(
                f"the app_id has {size_bytes} bytes, expected 1 to {MAX_APP_ID_BYTES} printable ones: name the "
                "application that commits",
                field="app_id",
            )
        if self.version is not None and self.version > _MAX_VERSION:
            raise InvalidRequestError(
                f"the app_version is {self.version}, expected 0 to {_MAX_VERSION}", field="app_version"
            )

    def is_covered_by(self, commit: "AppVersion") -> bool:
        """Return whether this belongs to ``commit``, which has a version: same application, and no greater version."""
        assert commit.version is not None
        return self.key == commit.key and (self.version is None or self.version <= commit.version)


class AppTerms(NamedTuple):
    """Properties of an application's commit other than its version.

    Attributes:
        is_last: True if the application makes no other commit; it is then forgotten sooner.
        query_id: Query that numbers the versions, at most MAX_QUERY_ID_BYTES bytes; empty if not set.
        any_vchannel: True if a retry may put messages on other vchannels of the same channels.
        is_first: True if the caller knows that the application has not committed this version before; then an
            application that may have been evicted is accepted as new.
    """

    is_last: bool = False
    query_id: str = ""
    any_vchannel: bool = False
    is_first: bool = False

    def check(self) -> None:
        """Raise InvalidRequestError if they cannot be stored."""
        size_bytes = len(self.query_id.encode())
        if size_bytes > MAX_QUERY_ID_BYTES or not self.query_id.isprintable():
            raise InvalidRequestError(
                f"the query_id has {size_bytes} bytes, expected at most {MAX_QUERY_ID_BYTES} printable ones",
                field="query_id",
            )

    def content(self, content: TxnContent) -> int:
        """Return the part of a commit's content that is stored."""
        return content.by_channel if self.any_vchannel else content.by_vchannel


class AppCommits:
    """The last commits of at most MAX_APPS applications, and of MAX_FINISHED_APPS that make no other commit.

    Above that, the principal with the most applications loses the one with the oldest commit.
    """

    def __init__(
        self,
        commits: Mapping[AppKey, AppCommit],
        floors: Mapping[FloorKey, int] = MappingProxyType({}),
        on_evicted: Callable[[FloorTable, int], None] = lambda *_: None,
    ) -> None:
        """Start with the commits of earlier runs, by ``AppVersion.key``, and the floors of evicted ones.

        ``on_evicted`` is called with a table and the number of applications evicted from it.
        """
        self._lasting = _AppCommitTable(commits, floors, FloorTable.APPS, on_evicted)
        self._finished = _AppCommitTable(commits, floors, FloorTable.FINISHED_APPS, on_evicted)

    def repeated(self, app: AppVersion, query_id: str = "") -> AppCommit | None:
        """Return the commit that ``app`` retries; None if it is new. No commit of the application is in flight.

        Raises:
            AppCommitMismatchError: Another query numbers the versions of the application.
            AppVersionPassedError: The application has committed a later version.
        """
        assert app.version is not None
        last = self._lasting.commits.get(app.key) or self._finished.commits.get(app.key)
        if last is None:
            return None
        # Before the version: if two queries count from 0, a version of one is never a retry of the other's.
        if last.query_id and query_id != last.query_id:
            raise AppCommitMismatchError.of_query(
                app.app_id, app_version=app.version, query_id=query_id, last_query_id=last.query_id
            )
        if last.version < app.version:
            return None
        if app.version < last.version:
            raise AppVersionPassedError(app.app_id, app_version=app.version, last_version=last.version)
        return last

    def check_new(self, app: AppVersion, *, is_last: bool, latest_tick: int) -> None:
        """Check that a version that is not remembered was never committed.

        The last commit of an active application may be retried at any time, that of a finished one within
        MAX_REPEAT_AGE_MS.

        Raises:
            ApplicationForgottenError: It may have been committed, and evicted.
        """
        assert app.version is not None
        if self._lasting.commits.get(app.key) is not None or self._finished.commits.get(app.key) is not None:
            return
        floor = (self._finished if is_last else self._lasting).floors.of(tenant_of(app.owner))
        oldest_ms = physical_ms(latest_tick) - MAX_REPEAT_AGE_MS if is_last else 0
        if floor and oldest_ms <= physical_ms(floor):
            raise ApplicationForgottenError(app.app_id, app_version=app.version)

    def committing(self, app: AppVersion, commit: AppCommit) -> list[Row]:
        """Return the changes to write with a commit, which is then in flight."""
        assert commit.version == app.version
        # Not evictable now: a later write replaces its row, and an eviction must not delete that row afterwards.
        self._lasting.commits.pop(app.key)
        self._finished.commits.pop(app.key)
        evicted, floors = self._those_of(commit).make_room_for(app)
        return [APP_COMMITS.row(app.key, commit), *map(APP_COMMITS.gone, evicted), *floors]

    def committed(self, app: AppVersion, commit: AppCommit) -> None:
        """Record a durable commit; called in tick order."""
        self._those_of(commit).put(app, commit)

    def _those_of(self, commit: AppCommit) -> "_AppCommitTable":
        return self._finished if commit.is_last else self._lasting


def check_same_messages(app: AppVersion, commit: AppCommit, messages: int) -> None:
    """Raise AppCommitMismatchError unless a retry of ``commit`` has the same number of messages."""
    assert app.version is not None
    if messages != commit.messages:
        raise AppCommitMismatchError.of_messages(
            app.app_id, app_version=app.version, messages=messages, committed=commit.messages
        )


def check_same_content(app: AppVersion, commit: AppCommit, content: TxnContent) -> None:
    """Raise AppCommitMismatchError unless a retry of ``commit`` has the same number of messages on the same targets."""
    assert app.version is not None
    check_same_messages(app, commit, content.messages)
    found = content.by_channel if commit.any_vchannel else content.by_vchannel
    if commit.content not in (None, found):
        unit = "channels" if commit.any_vchannel else "vchannels"
        raise AppCommitMismatchError.of_targets(app.app_id, app_version=app.version, unit=unit)


class _AppCommitTable:
    """Commits by application.

    Attributes:
        commits: The durable ones, without those in flight.

    Invariant: an application with a commit in flight is not evicted.
    Invariant: the first tick of an evicted commit is at most the floor of its tenant.
    """

    def __init__(
        self,
        commits: Mapping[AppKey, AppCommit],
        floors: Mapping[FloorKey, int],
        table: FloorTable,
        on_evicted: Callable[[FloorTable, int], None],
    ) -> None:
        self._table = table
        self._on_evicted = on_evicted
        self.commits: Shares[AppKey, AppCommit] = Shares()
        # Applications with a commit in flight, which replaces the last one.
        self._committing: set[AppKey] = set()
        mine = [item for item in commits.items() if item[1].is_last == (table is FloorTable.FINISHED_APPS)]
        for key, commit in sorted(mine, key=lambda item: item[1].first_tick):
            self.commits.put(key, commit, tenant_of(key.owner))
        if len(mine) >= self._maximum and not floors:
            # Written by a server without floors, which evicted the applications with the oldest commits.
            floors = {FloorKey(table, NO_TENANT): max(1, min(commit.first_tick for _, commit in mine) - 1)}
        self.floors = Floors(floors_of(floors, table))

    @property
    def _maximum(self) -> int:
        return MAX_FINISHED_APPS if self._table is FloorTable.FINISHED_APPS else MAX_APPS

    def make_room_for(self, app: AppVersion) -> tuple[list[AppKey], list[Row]]:
        """Mark an application's commit as in flight; return the evicted applications and their tenants' floors."""
        assert app.key not in self._committing
        evicted = self.commits.make_room(tenant_of(app.owner), self._maximum - len(self._committing))
        self._committing.add(app.key)
        self._on_evicted(self._table, len(evicted))
        floors: dict[Tenant, int | None] = {}
        for each in evicted:
            floors |= self.floors.raise_to(each.tenant, each.value.first_tick)
        return [each.key for each in evicted], floor_rows(self._table, floors)

    def put(self, app: AppVersion, commit: AppCommit) -> None:
        assert app.key in self._committing
        assert self.commits.get(app.key) is None
        self._committing.remove(app.key)
        self.commits.put(app.key, commit, tenant_of(app.owner))
