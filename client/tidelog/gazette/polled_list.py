"""A list of journals that follows a selector, for mappings to dynamic partitions."""

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from tidelog.admin.journal_types import ListRequest, ListResponse
from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import ClosedError, TidelogError

_log: Final = logging.getLogger(__name__)


class AsyncPolledList:
    """The journals that a request selects, listed again at an interval. Use it with ``async with``.

    ``list`` is a partitions function of mappings. Its result stays the same object while nothing changes. A poll that
    fails is logged, and the last result remains. ``PolledList`` is its synchronous twin.
    """

    def __init__(self, client: AsyncClient | AsyncCluster, interval_s: float, request: ListRequest) -> None:
        """Create a list; entering the block, or ``refresh``, fetches it first.

        Args:
            client: Client of the server, or of the cluster.
            interval_s: Seconds between polls.
            request: Which journals.

        Raises:
            ValueError: ``interval_s`` is not positive.
        """
        if interval_s <= 0:
            raise ValueError(f"interval_s is {interval_s}, expected more than 0")
        self._client = client
        self._interval_s = interval_s
        self._request = request
        self._listed: ListResponse | None = None
        self._changed = asyncio.Condition()
        self._polling: asyncio.Task[None] | None = None

    def list(self) -> ListResponse:
        """Return the journals as of the last poll, in order of name.

        Raises:
            RuntimeError: They were not fetched yet.
        """
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
            async with self._changed:
                self._listed = found
                self._changed.notify_all()

    async def wait_changed(self, known: ListResponse) -> ListResponse:
        """Return the journals once they differ from ``known``, the result of an earlier ``list``."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._listed is not known)
        return self.list()

    async def start(self) -> None:
        """List the journals now, and from then on at the interval until ``aclose``; ``async with`` calls it."""
        await self.refresh()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="tidelog-polled-list")

    async def aclose(self) -> None:
        """Stop polling; ``list`` returns the last result."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.wait((polling,))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.refresh()
            except ClosedError:
                return
            except TidelogError as error:
                _log.warning("journals could not be listed, the last list remains in use: %s", error)
