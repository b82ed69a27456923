"""A list of journals that follows a selector, for mappings to dynamic partitions."""

import asyncio
import logging
from typing import Final, Self

from tidelog._closing import AsyncClosing
from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import ClosedError, TidelogError
from tidelog.gazette.errors import GazetteError
from tidelog.journals.types import ListRequest, ListResponse
from tidelog.wire.durations import Duration, check_seconds

_log: Final = logging.getLogger(__name__)


class AsyncPolledList(AsyncClosing):
    """The journals that a request selects, listed again at an interval. Use it with ``async with``.

    ``list`` is a partitions function of mappings. Its result stays the same object while nothing changes. A poll that
    fails with TidelogError is logged, and the last result remains until the next one. Any other exception is an error
    of the program: it ends polling, and so does closing the client. Waiters and ``list`` then raise. ``PolledList`` is
    its synchronous twin.
    """

    def __init__(self, client: AsyncClient | AsyncCluster, interval_s: Duration, request: ListRequest) -> None:
        """Create a list; entering the block, or ``refresh``, fetches it first.

        Args:
            client: Client of the server, or of the cluster.
            interval_s: Seconds between polls.
            request: Which journals.

        Raises:
            ValueError: ``interval_s`` is not positive.
        """
        self._client = client
        self._interval_s = check_seconds("interval_s", interval_s, may_be_minimum=False)
        self._request = request
        self._listed: ListResponse | None = None
        # Set, and replaced, at each change.
        self._changed = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._is_closed = False
        # What ended polling, other than `aclose`.
        self._failure: BaseException | None = None

    def list(self) -> ListResponse:
        """Return the journals as of the last poll, in order of name; after ``aclose``, the last result.

        Raises:
            RuntimeError: They were not fetched yet.
            ClosedError: The client was closed, so polling has ended.
            GazetteError: An unexpected exception has ended polling; it is the cause.
        """
        if self._failure is not None:
            raise self._ended(self._failure)
        if self._listed is None:
            raise RuntimeError("the journals are not fetched yet: use `async with`, or await refresh() first")
        return self._listed

    async def refresh(self) -> None:
        """List the journals now.

        Raises:
            TidelogError: As ``AsyncClient.journals.list``. The last result remains.
        """
        found = await self._client.journals.list(self._request)
        # Ordering: the comparison keeps the object, by which mappings know that nothing has changed.
        if found != self._listed:
            self._listed = found
            self._wake()

    async def wait_changed(self, known: ListResponse) -> ListResponse:
        """Return the journals once they differ from ``known``, the result of an earlier ``list``.

        Raises:
            ClosedError: The list or its client was closed before they changed.
            GazetteError: As ``list``.
        """
        while self._listed is known and self._failure is None and not self._is_closed:
            await self._changed.wait()
        if self._listed is known and self._failure is None:
            raise ClosedError("the polled list is closed: no change will be noticed, create another one")
        return self.list()

    async def start(self) -> None:
        """List the journals now, and from then on at the interval until ``aclose``; ``async with`` calls it."""
        await self.refresh()
        self._is_closed = False
        if self._polling is None:
            self._failure = None
            self._polling = asyncio.create_task(self._poll(), name="tidelog-polled-list")
            self._polling.add_done_callback(self._polling_ended)

    async def aclose(self) -> None:
        """Stop polling, and wake waiters with ClosedError; ``list`` returns the last result."""
        polling, self._polling = self._polling, None
        self._is_closed = True
        self._wake()
        if polling is not None:
            polling.cancel()
            await asyncio.wait((polling,))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.refresh()
            except ClosedError:
                raise
            except TidelogError as error:
                _log.warning("journals could not be listed, the last list remains in use: %s", error)

    def _polling_ended(self, polling: asyncio.Task[None]) -> None:
        failure = asyncio.CancelledError() if polling.cancelled() else polling.exception()
        if self._polling is not polling:
            # `aclose` ended it.
            return
        self._polling, self._failure = None, failure
        if isinstance(failure, Exception) and not isinstance(failure, ClosedError):
            _log.error("the list of journals is not polled any more", exc_info=failure)
        self._wake()

    def _ended(self, failure: BaseException) -> TidelogError:
        if isinstance(failure, ClosedError):
            error: TidelogError = ClosedError(f"the list of journals is not polled any more: {failure}")
        else:
            error = GazetteError(
                f"the list of journals is not polled any more, because a poll raised {failure!r}: correct the cause, "
                "and create another list"
            )
        error.__cause__ = failure
        return error

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
