"""Options of transactions, and the interface of consumers whose positions they commit."""

from collections.abc import Iterable
from typing import Protocol, TypedDict, runtime_checkable

from tidelog.errors import TidelogError
from tidelog.types import Durability, PositionCommit


@runtime_checkable
class HasCommits(Protocol):
    """A consumer whose positions a transaction can commit."""

    def commits(self) -> list[PositionCommit]:
        """Return position commits for everything delivered so far."""
        ...

    def note_committed(self, commits: Iterable[PositionCommit]) -> None:
        """Record that ``commits`` are committed."""
        ...

    def rewind(self, cause: TidelogError | None) -> None:
        """Deliver uncommitted messages again: the transaction has ended without a commit."""
        ...


class TransactionOptions(TypedDict, total=False):
    """Options of a transaction.

    Attributes:
        durability: When the server acknowledges the commit; default None, the server's default.
        timeout_s: Maximum time of a commit, preparation or rollback with all of its requests, and of an append between
            two batches, in seconds; default None, the client's timeout.
        keepalive_s: Time after the last keepalive of this process at which the server expires a staged transaction,
            0.001 to 3,600 s; default None, the server's default.
    """

    durability: Durability | None
    timeout_s: float | None
    keepalive_s: float | None
