"""Options of transactions, and the interface of consumers whose positions they commit."""

from collections.abc import Iterable
from typing import Final, Protocol, TypedDict, runtime_checkable

from tidelog.errors import TidelogError
from tidelog.types import Durability, PositionCommit
from tidelog.wire.durations import Duration, check_seconds

_MIN_KEEPALIVE_S: Final = 0.001


@runtime_checkable
class HasCommits(Protocol):
    """A consumer whose positions a transaction can commit."""

    def commits(self) -> list[PositionCommit]:
        """Return position commits for everything delivered so far."""

    def note_committed(self, commits: Iterable[PositionCommit]) -> None:
        """Record that ``commits`` are committed."""

    def rewind(self, cause: TidelogError | None) -> None:
        """Deliver uncommitted messages again: the transaction has ended without a commit."""


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
    timeout_s: Duration | None
    keepalive_s: Duration | None


def keepalive_or_none(keepalive_s: Duration | None, maximum: float) -> float | None:
    """Return a keepalive in seconds; None for the server's default. Raises as ``check_seconds``."""
    if keepalive_s is None:
        return None
    return check_seconds("keepalive_s", keepalive_s, minimum=_MIN_KEEPALIVE_S, maximum=maximum)
