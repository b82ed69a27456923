"""The states of a transaction."""

from enum import Enum, auto
from typing import Final


class State(Enum):
    """The state of a transaction in its client."""

    OPEN = auto()
    # From the call of commit() until the transaction is sent; a failure in between leads back to OPEN.
    CLOSING = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    PREPARED = auto()
    ROLLED_BACK = auto()
    EXPIRED = auto()
    UNKNOWN = auto()


TEXTS: Final = {
    State.CLOSING: "is being committed",
    State.COMMITTING: "is being committed: call commit() again to learn the outcome",
    State.COMMITTED: "is committed",
    State.PREPARED: "is prepared: commit it with commit_prepared",
    State.ROLLED_BACK: "was rolled back",
    State.EXPIRED: "is over, and nothing of it is in the log",
    State.UNKNOWN: "has an unknown outcome: read back whether it is there",
}
"""What an error says of each state."""
