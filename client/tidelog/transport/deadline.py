"""One deadline for a call that makes several requests."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial

from tidelog.transport.patience_scope import answer_by
from tidelog.transport.transport import deadline_error


class Deadline:
    """The end of a call, by the event loop's clock: each of its requests gets what is left.

    Attributes:
        at_s: When it ends.
    """

    def __init__(self, timeout_s: float) -> None:
        """Start it now."""
        self._clock = asyncio.get_running_loop().time
        self._timeout_s = timeout_s
        self.at_s = self._clock() + timeout_s

    def restart(self) -> None:
        """Start it again, because the call has made progress."""
        self.at_s = self._clock() + self._timeout_s

    @property
    def left_s(self) -> float:
        """The time that is left, at least 0."""
        return max(0.0, self.at_s - self._clock())

    def check(self, what: str) -> None:
        """Check that time is left for ``what``, the next request: without any, its outcome would be unknown.

        Raises:
            DeadlineError: None is left. The request was not sent.
        """
        if not self.left_s:
            raise deadline_error(what, self._timeout_s)

    def bounded(self, what: str) -> AbstractAsyncContextManager[None]:
        """Run a block that waits before ``what``, the next request, is sent; see ``answer_by``.

        Raises:
            DeadlineError: The deadline has passed. The block was cancelled, and the request was not sent.
        """
        return answer_by(self.at_s, partial(deadline_error, what, self._timeout_s))
