"""Named places in a consumer where a test can kill the process. They cost nothing when disarmed.

``TIDELOG_GAZETTE_FAILPOINT=store_committed:3`` kills the process with SIGKILL at the third hit of ``store_committed``.
No clean-up runs, as in a real crash.
"""

import os
import signal
from enum import StrEnum
from typing import Final

VARIABLE: Final = "TIDELOG_GAZETTE_FAILPOINT"


class Failpoint(StrEnum):
    """Failpoints of a consumer, in the order in which it hits them."""

    ACQUIRED = "acquired"
    """The store is acquired; intents of the last commit are not appended again yet."""
    RECOVERED = "recovered"
    """They are appended, and nothing was read."""
    HANDLED = "handled"
    """A message was handled; its transaction is open."""
    FLUSHED = "flushed"
    """Everything published in the transaction is acknowledged."""
    BEFORE_COMMIT = "before_commit"
    """The intents are built; the store has not committed."""
    STORE_COMMITTED = "store_committed"
    """The store has committed; no intent was appended."""
    INTENT_QUEUED = "intent_queued"
    """An intent was passed to the append service; once for each journal."""
    INTENT_WRITTEN = "intent_written"
    """An intent is acknowledged, others may not be; once for each journal."""
    INTENTS_WRITTEN = "intents_written"
    """All intents are acknowledged."""


class _Armed:
    """The armed failpoint, if any, and the number of hits left."""

    __slots__ = ("hits_left", "name")

    def __init__(self, setting: str) -> None:
        name, _, hits = setting.partition(":")
        self.name: Failpoint | None = Failpoint(name) if name else None
        self.hits_left = int(hits) if hits else 1


_armed: Final = _Armed(os.environ.get(VARIABLE, ""))


def is_armed(name: Failpoint) -> bool:
    """Return whether this failpoint is armed, for one that needs preparation."""
    return _armed.name is name


def hit(name: Failpoint) -> None:
    """Kill the process if this failpoint is armed and this is its last hit."""
    if _armed.name is not name:
        return
    _armed.hits_left -= 1
    if _armed.hits_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
