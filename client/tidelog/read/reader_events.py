"""Events of readers: changes of their connection and their lag, and callers that take too long."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.errors import TidelogError

ReaderState = Literal["connected", "waiting", "lagging", "fenced", "slow"]
"""See ``ReaderEvent``."""

WAITING_AFTER_S: Final = 1.0
"""A reader reports ``waiting`` after this time without its server; shorter losses are not reported."""
LAGGING_AFTER_S: Final = 10.0
"""A following reader reports ``lagging`` once the messages that it reads are older than this."""


@dataclass(frozen=True, slots=True)
class ReaderEvent:
    """A change in the state of a reader, or a warning, for the callback ``on_event``.

    ``connected``: The server has answered for the first time, or again after ``waiting`` or ``fenced``, or a reader
    that was ``lagging`` has caught up to within 10 s.

    ``waiting``: For 1 s the connection has been lost, could not be opened, or the server was unavailable. The reader
    retries for up to ``Retry.give_up_s``, then raises.

    ``lagging``: A following reader has received messages, or a watermark, older than 10 s. The age is computed from the
    ticks of the log, and corrected for a clock of this machine that is ahead of the server's. Readers with an end
    (``until``) do not report it.

    ``fenced``: The reader has lost access. The node has lost the channel (OwnershipLostError, after which the reader
    retries), another node owns it (NotOwnerError), the credentials are not accepted (UnauthenticatedError,
    PermissionDeniedError), or a consumer has lost vchannels to other members or to a seek (GroupFencedError).

    ``slow``: The caller of a consumer has not requested the next batch for half of ``release_within_s``, in which
    another member has waited for some of its vchannels. That member gets them at the end of ``release_within_s``, with
    all messages that are not committed, unless the caller requests a batch before. The state of the connection stays.

    Attributes:
        state: The new state.
        vchannels: Full names of the vchannels that the reader reads; with ``fenced`` of a consumer, of those that it
            lost, and with ``slow``, of those that it will lose. Empty while the names are unknown.
        error: Why the reader waits or was fenced; None otherwise.
        waited_s: With ``connected`` after ``waiting``, the time without the server, in seconds; else 0.
        lag_s: With ``lagging``, the age of the messages in seconds; else 0.
        handling_s: With ``slow``, the time since the consumer delivered its last batch, in seconds; else 0.
        lost_in_s: With ``slow``, the time until the first of the vchannels is lost, in seconds; else 0.
    """

    state: ReaderState
    vchannels: tuple[str, ...] = ()
    error: TidelogError | None = None
    waited_s: float = 0.0
    lag_s: float = 0.0
    handling_s: float = 0.0
    lost_in_s: float = 0.0


OnEvent = Callable[[ReaderEvent], None]
"""A callback for events of a reader. It runs on the client's event loop, which for a synchronous client is on a
background thread, so it must not block or call a synchronous client. Exceptions that it raises are logged."""
