"""Why a commit of an application is refused, see ``errors``."""

from tidelog_server.core.errors import TidelogServerError


class AppVersionPassedError(TidelogServerError):
    """An application commits under a version below that of its last commit."""

    def __init__(self, app_id: str, *, app_version: int, last_version: int) -> None:
        super().__init__(
            f"application '{app_id}' commits version {app_version}, and has committed version {last_version} before: "
            "whether the earlier one was committed is not known any more; use greater versions, or under "
            "another app_id if this is a new run of numbers",
            app_id=app_id, app_version=app_version, last_version=last_version,
        )  # fmt: skip


class AppCommitMismatchError(TidelogServerError):
    """A commit uses the name of an application for something else than the application's last commit says."""

    def __init__(self, app_id: str, *, app_version: int, mismatch: str, text: str) -> None:
        super().__init__(text, app_id=app_id, app_version=app_version, mismatch=mismatch)

    @classmethod
    def of_query(cls, app_id: str, *, app_version: int, query_id: str, last_query_id: str) -> "AppCommitMismatchError":
        """Return the error for versions that another query counts than the one that has committed before."""
        source = f"query '{query_id}'" if query_id else "a caller that names no query"
        return cls(
            app_id, app_version=app_version, mismatch="query",
            text=f"version {app_version} of application '{app_id}' comes from {source}, and the versions of this "
            f"application are those of query '{last_query_id}': a version of one query says nothing about those of "
            "another, so nothing was committed; commit under another app_id",
        )  # fmt: skip

    @classmethod
    def of_messages(cls, app_id: str, *, app_version: int, messages: int, committed: int) -> "AppCommitMismatchError":
        """Return the error for a repetition with another number of messages."""
        return cls(
            app_id, app_version=app_version, mismatch="messages",
            text=f"version {app_version} of application '{app_id}' was committed with {committed} messages, and this "
            f"repetition has {messages}: it is another commit, and nothing of it was committed; commit it under a "
            "greater version, or under another app_id",
        )  # fmt: skip

    @classmethod
    def of_targets(cls, app_id: str, *, app_version: int, unit: str) -> "AppCommitMismatchError":
        """Return the error for a repetition that goes elsewhere; ``unit`` is vchannels or channels."""
        return cls(
            app_id, app_version=app_version, mismatch=unit,
            text=f"version {app_version} of application '{app_id}' was committed to other {unit}, or with other "
            f"numbers of messages on them, than this repetition: it is another commit, and nothing of it was "
            "committed; commit it under a greater version, or under an app_id for each target",
        )  # fmt: skip
