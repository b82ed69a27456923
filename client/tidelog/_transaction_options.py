"""What a transaction is asked for, and what it wants of consumers whose positions it commits."""

from collections.abc import Iterable
from typing import Protocol, TypedDict, runtime_checkable

from tidelog._errors import TidelogError
from tidelog._types import Durability, PositionCommit


@runtime_checkable
class HasCommits(Protocol):
    """A consumer, which knows how far it got."""

    def commits(self) -> list[PositionCommit]:
        """Return what commits everything delivered so far."""
        ...

    def note_committed(self, commits: Iterable[PositionCommit]) -> None:
        """Note that these are committed."""
        ...

    def rewind(self, cause: TidelogError | None) -> None:
        """Deliver again what is not committed: the transaction that it was for is over."""
        ...


class TransactionOptions(TypedDict, total=False):
    """Options of a transaction.

    Attributes:
        durability: When the commit is acknowledged; default None, the server's.
        timeout_s: How long the commit may take; default None, the client's.
        keepalive_s: How long the server keeps a large one after the last sign of this process, at least 0.001; default
            None, the server's.
    """

    durability: Durability | None
    timeout_s: float | None
    keepalive_s: float | None
