"""Errors of application commits."""

from tidelog_server.core.errors import TidelogServerError


class AppVersionPassedError(TidelogServerError, reason="APP_VERSION_PASSED"):
    """The version is below that of the application's last commit."""

    def __init__(self, app_id: str, *, app_version: int, last_version: int) -> None:
        super().__init__(
            f"application '{app_id}' commits version {app_version}, but has already committed version {last_version}: "
            "whether the earlier version was committed is no longer known; use greater versions, or another app_id if "
            "the numbering starts again",
            app_id=app_id, app_version=app_version, last_version=last_version,
        )  # fmt: skip


class AppCommitMismatchError(TidelogServerError, reason="APP_COMMIT_MISMATCH"):
    """A commit contradicts the last commit of the application with the same name."""

    def __init__(self, app_id: str, *, app_version: int, mismatch: str, text: str) -> None:
        super().__init__(text, app_id=app_id, app_version=app_version, mismatch=mismatch)

    @classmethod
    def of_query(cls, app_id: str, *, app_version: int, query_id: str, last_query_id: str) -> "AppCommitMismatchError":
        """Return the error for a version numbered by another query than the application's last commit."""
        source = f"query '{query_id}'" if query_id else "a caller that names no query"
        return cls(
            app_id, app_version=app_version, mismatch="query",
            text=f"version {app_version} of application '{app_id}' comes from {source}, but the versions of this "
            f"application belong to query '{last_query_id}': versions of different queries cannot be compared, so "
            "nothing was committed; commit under another app_id",
        )  # fmt: skip

    @classmethod
    def of_messages(cls, app_id: str, *, app_version: int, messages: int, committed: int) -> "AppCommitMismatchError":
        """Return the error for a retry with a different number of messages."""
        return cls(
            app_id, app_version=app_version, mismatch="messages",
            text=f"version {app_version} of application '{app_id}' was committed with {committed} messages, but this "
            f"retry has {messages}: it is another commit, so nothing was committed; commit it under a greater version, "
            "or under another app_id",
        )  # fmt: skip

    @classmethod
    def of_targets(cls, app_id: str, *, app_version: int, unit: str) -> "AppCommitMismatchError":
        """Return the error for a retry with other targets; ``unit`` is ``vchannels`` or ``channels``."""
        return cls(
            app_id, app_version=app_version, mismatch=unit,
            text=f"version {app_version} of application '{app_id}' was committed to other {unit}, or with other "
            f"numbers of messages on them, than this retry: it is another commit, so nothing was committed; commit it "
            "under a greater version, or use an app_id for each target",
        )  # fmt: skip
