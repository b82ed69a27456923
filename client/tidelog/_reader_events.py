"""What readers report of their connection and their lag."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tidelog._errors import TidelogError

ReaderState = Literal["connected", "waiting", "lagging", "fenced"]
"""See ``ReaderEvent``."""

WAITING_AFTER_S: Final = 1.0
"""A reader reports ``waiting`` once it has been without its server for this long; shorter losses are not reported."""
LAGGING_AFTER_S: Final = 10.0
"""A following reader reports ``lagging`` once what it reads is older than this."""


@dataclass(frozen=True, slots=True)
class ReaderEvent:
    """A change in the state of a reader, for the callback ``on_event``.

    ``connected``: the server has answered for the first time, or again after ``waiting`` or ``fenced``, or a reader
    that was ``lagging`` has caught up to within 10 s.

    ``waiting``: the connection is lost, or cannot be made, or the server is unavailable, and 1 s later this is still
    so. The reader tries again until ``Retry.give_up_s`` is over; then it raises.

    ``lagging``: a reader that follows has received messages, or a watermark, older than 10 s. The age is measured from
    the ticks of the log, and corrected by how far this machine's clock is ahead of the server's. Readers with an end
    (``until``) do not report it.

    ``fenced``: the reader may not read on as before. The node has lost the channel (OwnershipLostError, after which the
    reader tries again), another node owns it (NotOwnerError), the credentials are not accepted (UnauthenticatedError,
    PermissionDeniedError), or a consumer has lost vchannels to other members or to a seek (GroupFencedError).

    Attributes:
        state: The new state.
        vchannels: What the reader reads, by full names; with ``fenced`` of a consumer, what it lost. Empty while the
            names are not known yet.
        error: Why it waits, or was fenced; None otherwise.
        waited_s: With ``connected`` after ``waiting``, for how long the server was away; else 0.
        lag_s: With ``lagging``, how old the messages are; else 0.
    """

    state: ReaderState
    vchannels: tuple[str, ...] = ()
    error: TidelogError | None = None
    waited_s: float = 0.0
    lag_s: float = 0.0


OnEvent = Callable[[ReaderEvent], None]
"""A callback for events of a reader. It runs on the event loop of the client, which for a synchronous client is on a
background thread, so it must not block, nor call a synchronous client. An exception that it raises is logged."""
