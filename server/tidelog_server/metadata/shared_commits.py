"""Group commit for the metadata store: changes submitted while a commit is in flight share the next one.

A commit costs a sync or a round trip; with shared commits, callers whose keys differ do not queue for one each.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog_server.core.errors import ShutdownError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT
from tidelog_server.metadata.store import Change, MetadataStore
from tidelog_server.runtime.tasks import TaskOwner

_NAME: Final = "metadata"


class _Request(NamedTuple):
    """Changes of one caller, the future that resolves to their revision, and whether a log write follows."""

    changes: Sequence[Change]
    done: "asyncio.Future[int]"
    is_before_log: bool


class SharedCommits:
    """Commits for callers whose keys differ. Lives on the event loop.

    The queue needs no bound of its own: each caller waits for its changes, so callers bound it.
    """

    def __init__(self, metadata: MetadataStore, tasks: TaskOwner) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._waiting: deque[_Request] = deque()
        self._is_running = False

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """Apply all changes atomically and durably, or none; return their revision.

        Changes of other callers may be applied in the same commit. Cancelling ends the wait only, except with
        ``is_before_log``: then a commit that has not started may not be applied.

        Args:
            changes: Puts and deletes.
            is_before_log: As in MetadataStore; effective only if all callers that share the commit set it.

        Raises:
            RevisionConflictError: A key of the shared commit has another revision than expected.
            StorageFailedError: The outcome is unknown.
            ShutdownError: The owner of the tasks is closed. Nothing was changed.
        """
        if self._tasks.is_closed:
            raise ShutdownError
        assert 0 < len(changes) <= MAX_CHANGES_PER_COMMIT
        if is_before_log and not self._waiting and not self._is_running:
            return await self._commit_alone(changes)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # A cancelled caller does not retrieve the future's exception, which asyncio would log.
        done.add_done_callback(_look_at)
        self._waiting.append(_Request(changes, done, is_before_log))
        self._begin()
        return await asyncio.shield(done)

    def _begin(self) -> None:
        if self._waiting and not self._is_running and not self._tasks.is_closed:
            self._is_running = True
            self._tasks.start(_NAME, self._run())

    def close(self) -> None:
        """Start no further commits and cancel waiting callers. Called once the owner of the tasks is closed.

        Changes that no caller awaits are recovered at the next start.
        """
        for request in self._waiting:
            request.done.cancel()
        self._waiting.clear()

    async def _commit_alone(self, changes: Sequence[Change]) -> int:
        """Commit for a single caller without a task: with no sync, a task would take longer than the write."""
        self._is_running = True
        try:
            return await self._metadata.commit(changes, is_before_log=True)
        finally:
            self._is_running = False
            self._begin()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit_next()
        finally:
            self._is_running = False
            self.close()

    async def _commit_next(self) -> None:
        together: list[_Request] = []
        changes: list[Change] = []
        while self._waiting and len(changes) + len(self._waiting[0].changes) <= MAX_CHANGES_PER_COMMIT:
            request = self._waiting.popleft()
            together.append(request)
            changes += request.changes
        try:
            is_before_log = all(request.is_before_log for request in together)
            revision = await self._metadata.commit(changes, is_before_log=is_before_log)
        except Exception as error:  # noqa: BLE001 - handed to the waiting callers
            for request in together:
                request.done.set_exception(error)
        except BaseException:
            for request in together:
                request.done.cancel()
            raise
        else:
            for request in together:
                request.done.set_result(revision)


def _look_at(done: "asyncio.Future[int]") -> None:
    if not done.cancelled():
        done.exception()
