"""What applications have committed last: decides which commit is new, which is a repetition, and which comes too late.

Pure. An application numbers its commits, as Spark numbers its batches; of each the last one is remembered, so that a
commit whose answer was lost, or whose caller died, is made once.

Source: the application transactions of Delta Lake (``txnAppId``, ``txnVersion``).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog_server.core.errors import AppVersionPassedError, InvalidRequestError
from tidelog_server.core.limits import MAX_APP_ID_BYTES, MAX_APPS
from tidelog_server.core.transactions import AppCommit
from tidelog_server.log.committer import AppChange

_MAX_VERSION: Final = (1 << 63) - 1


class AppVersion(NamedTuple):
    """A commit of an application.

    Attributes:
        app_id: The application, 1 to MAX_APP_ID_BYTES bytes.
        version: Its number of the commit; None where that is not known yet.
    """

    app_id: str
    version: int | None

    def check(self) -> None:
        """Raise InvalidRequestError if it names nothing."""
        size_bytes = len(self.app_id.encode())
        if not 1 <= size_bytes <= MAX_APP_ID_BYTES:
            raise InvalidRequestError(
                f"the app_id has {size_bytes} bytes, expected 1 to {MAX_APP_ID_BYTES}: name the application that "
                "commits",
                field="app_id",
            )
        if self.version is not None and self.version > _MAX_VERSION:
            raise InvalidRequestError(
                f"the app_version is {self.version}, expected 0 to {_MAX_VERSION}", field="app_version"
            )

    def is_covered_by(self, commit: "AppVersion") -> bool:
        """Tell whether ``commit``, which has a version, leaves nothing to do for this one."""
        assert commit.version is not None
        return self.app_id == commit.app_id and (self.version is None or self.version <= commit.version)


class AppCommits:
    """The last commit of each of MAX_APPS applications; who has not committed for longest is forgotten."""

    def __init__(self, commits: Mapping[str, AppCommit]) -> None:
        # Of durable commits, oldest first.
        self._commits = OrderedDict(sorted(commits.items(), key=lambda item: item[1].first_tick))

    def repeated(self, app: AppVersion) -> AppCommit | None:
        """Return the commit that ``app`` repeats; None for a new one.

        Raises:
            AppVersionPassedError: The application has committed a later one.
        """
        assert app.version is not None
        last = self._commits.get(app.app_id)
        if last is None or last.version < app.version:
            return None
        if app.version < last.version:
            raise AppVersionPassedError(app.app_id, app_version=app.version, last_version=last.version)
        return last

    def committing(self, app_id: str, commit: AppCommit) -> list[AppChange]:
        """Return what must be written with a commit."""
        changes: list[AppChange] = [(app_id, commit)]
        if app_id not in self._commits and len(self._commits) >= MAX_APPS:
            forgotten, _ = self._commits.popitem(last=False)
            changes.append((forgotten, None))
        return changes

    def committed(self, app_id: str, commit: AppCommit) -> None:
        """Note a commit that is durable."""
        self._commits[app_id] = commit
        self._commits.move_to_end(app_id)
