"""The states of a transaction."""

from enum import Enum


class State(Enum):
    """The state of a transaction in its client, and what an error says of it."""

    OPEN = "is open"
    # From the call of commit() until the transaction is sent; a failure in between leads back to OPEN.
    CLOSING = "is being committed"
    COMMITTING = "is being committed: call commit() again to learn the outcome"
    COMMITTED = "is committed"
    PREPARED = "is prepared: commit it with commit_prepared"
    ROLLED_BACK = "was rolled back"
    EXPIRED = "is over, and nothing of it is in the log"
    UNKNOWN = "has an unknown outcome: read back whether it is there"
