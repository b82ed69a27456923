"""Errors of journals."""

from tidelog_server.core.errors import TidelogServerError


class JournalRevisionMismatchError(TidelogServerError, reason="JOURNAL_REVISION_MISMATCH"):
    """A journal has another revision than the request expects. Nothing happened."""

    def __init__(self, name: str, *, expected_revision: int, revision: int) -> None:
        found = f"has revision {revision}" if revision else "does not exist"
        wanted = f"revision {expected_revision}" if expected_revision else "no journal with this name"
        super().__init__(
            f"journal '{name}' {found}, expected {wanted}: list the journals with `tidelog journal ls`, then "
            "repeat the request with the revision that it has, or with -1 for any",
            name=name, expected_revision=expected_revision, revision=revision,
        )  # fmt: skip
