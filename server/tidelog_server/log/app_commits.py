"""What applications have committed last: decides which commit is new, which is a repetition, and which comes too late.

Pure. An application numbers its commits, as Spark numbers its batches; of each the last one is remembered, so that a
commit whose answer was lost, or whose caller died, is made once.

Source: the application transactions of Delta Lake (``txnAppId``, ``txnVersion``).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog_server.core.errors import AppVersionPassedError, InvalidRequestError
from tidelog_server.core.limits import MAX_APP_ID_BYTES, MAX_APPS, MAX_FINISHED_APPS
from tidelog_server.core.transactions import AppCommit, AppKey
from tidelog_server.log.committer import AppChange

_MAX_VERSION: Final = (1 << 63) - 1


class AppVersion(NamedTuple):
    """A commit of an application.

    Attributes:
        app_id: The application, 1 to MAX_APP_ID_BYTES bytes that can be printed.
        version: Its number of the commit; None where that is not known yet.
        owner: The principal whose application it is; empty with authentication off.
    """

    app_id: str
    version: int | None
    owner: str = ""

    @property
    def key(self) -> AppKey:
        """Identifies the application: of the same id, those of two principals are two."""
        return AppKey(self.owner, self.app_id)

    def check(self) -> None:
        """Raise InvalidRequestError if it names nothing."""
        size_bytes = len(self.app_id.encode())
        if not 1 <= size_bytes <= MAX_APP_ID_BYTES or not self.app_id.isprintable():
            raise InvalidRequestError(
                f"the app_id has {size_bytes} bytes, expected 1 to {MAX_APP_ID_BYTES} that can be printed: name the "
                "application that commits",
                field="app_id",
            )
        if self.version is not None and self.version > _MAX_VERSION:
            raise InvalidRequestError(
                f"the app_version is {self.version}, expected 0 to {_MAX_VERSION}", field="app_version"
            )

    def is_covered_by(self, commit: "AppVersion") -> bool:
        """Tell whether ``commit``, which has a version, may take this along: it is for that version or below."""
        assert commit.version is not None
        return self.key == commit.key and (self.version is None or self.version <= commit.version)


class AppCommits:
    """The last commit of each of MAX_APPS applications, and of MAX_FINISHED_APPS that make no other commit."""

    def __init__(self, commits: Mapping[AppKey, AppCommit]) -> None:
        """Start with the commits of earlier runs, by ``AppVersion.key``."""
        self._lasting = _Remembered(commits, are_last=False)
        self._finished = _Remembered(commits, are_last=True)

    def repeated(self, app: AppVersion) -> AppCommit | None:
        """Return the commit that ``app`` repeats; None for a new one. None of its commits is on its way.

        Raises:
            AppVersionPassedError: The application has committed a later one.
        """
        assert app.version is not None
        last = self._lasting.find(app.key) or self._finished.find(app.key)
        if last is None or last.version < app.version:
            return None
        if app.version < last.version:
            raise AppVersionPassedError(app.app_id, app_version=app.version, last_version=last.version)
        return last

    def committing(self, app: AppVersion, commit: AppCommit) -> list[AppChange]:
        """Return what must be written with a commit, which is then on its way."""
        # Out of the order: its row is replaced behind this, and must not be removed behind that.
        self._lasting.take_out(app.key)
        self._finished.take_out(app.key)
        changes: list[AppChange] = [(app.key, commit)]
        maximum = MAX_FINISHED_APPS if commit.is_last else MAX_APPS
        return changes + [(forgotten, None) for forgotten in self._those_of(commit).make_room_for(app.key, maximum)]

    def committed(self, app: AppVersion, commit: AppCommit) -> None:
        """Note a commit that is durable; called in the order of their ticks."""
        self._those_of(commit).put(app.key, commit)

    def _those_of(self, commit: AppCommit) -> "_Remembered":
        return self._finished if commit.is_last else self._lasting


class _Remembered:
    """Commits by application; when there are too many, who has not committed for longest is forgotten.

    Invariant: an application whose commit is on its way is not forgotten.
    """

    def __init__(self, commits: Mapping[AppKey, AppCommit], *, are_last: bool) -> None:
        mine = [(key, commit) for key, commit in commits.items() if commit.is_last == are_last]
        # Of durable commits, oldest first.
        self._commits = OrderedDict(sorted(mine, key=lambda item: item[1].first_tick))
        # Of whom a commit is on its way, which replaces the last one.
        self._committing: set[AppKey] = set()

    def find(self, key: AppKey) -> AppCommit | None:
        return self._commits.get(key)

    def take_out(self, key: AppKey) -> None:
        self._commits.pop(key, None)

    def make_room_for(self, key: AppKey, maximum: int) -> list[AppKey]:
        """Note whose commit is on its way; return who is forgotten for it."""
        self._committing.add(key)
        excess = len(self._commits) + len(self._committing) - maximum
        return [self._commits.popitem(last=False)[0] for _ in range(min(excess, len(self._commits)))]

    def put(self, key: AppKey, commit: AppCommit) -> None:
        self._committing.discard(key)
        self._commits[key] = commit
