"""Commits that many callers share: what is asked for while one commit is on its way goes into the next.

A commit of the metadata store is a sync, or a round trip; callers whose changes do not touch each other need not queue
for one each.
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


class _Wanted(NamedTuple):
    """Changes that belong together, who waits for them, and whether the log is written next."""

    changes: Sequence[Change]
    done: "asyncio.Future[int]"
    is_before_log: bool


class SharedCommits:
    """Commits for callers whose keys differ. Lives on the event loop.

    What waits needs no bound of its own: each caller waits for its changes.
    """

    def __init__(self, metadata: MetadataStore, tasks: TaskOwner) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._waiting: deque[_Wanted] = deque()
        self._is_running = False

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """Apply all changes atomically and durably, or none; return the revision that they have then.

        Others' changes may be applied with them. Cancelling ends the wait only, but what is before the log and was not
        begun may then not be applied at all.

        Args:
            changes: What to change.
            is_before_log: As in MetadataStore; it counts only if it is so for all that share the commit.

        Raises:
            RevisionConflictError: An expectation failed, of these changes or of others that went with them.
            StorageFailedError: The outcome is unknown.
            ShutdownError: The owner of the tasks is closed. Nothing was changed.
        """
        if self._tasks.is_closed:
            raise ShutdownError
        assert 0 < len(changes) <= MAX_CHANGES_PER_COMMIT
        if is_before_log and not self._waiting and not self._is_running:
            return await self._commit_alone(changes)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # Somebody who was cancelled meanwhile must not leave a failure that nobody looked at.
        done.add_done_callback(_look_at)
        self._waiting.append(_Wanted(changes, done, is_before_log))
        self._begin()
        return await asyncio.shield(done)

    def _begin(self) -> None:
        if self._waiting and not self._is_running and not self._tasks.is_closed:
            self._is_running = True
            self._tasks.start(_NAME, self._run())

    def close(self) -> None:
        """Begin no commit any more; who still waits is cancelled. Called once the owner of the tasks is closed."""
        for wanted in self._waiting:
            wanted.done.cancel()
        self._waiting.clear()

    async def _commit_alone(self, changes: Sequence[Change]) -> int:
        """Commit what nobody shares and the log will sync: a task for it would take longer than the write."""
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
            for wanted in self._waiting:
                wanted.done.cancel()
            self._waiting.clear()

    async def _commit_next(self) -> None:
        together: list[_Wanted] = []
        changes: list[Change] = []
        while self._waiting and len(changes) + len(self._waiting[0].changes) <= MAX_CHANGES_PER_COMMIT:
            wanted = self._waiting.popleft()
            together.append(wanted)
            changes += wanted.changes
        try:
            is_before_log = all(wanted.is_before_log for wanted in together)
            revision = await self._metadata.commit(changes, is_before_log=is_before_log)
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            for wanted in together:
                wanted.done.set_exception(error)
        except BaseException:
            for wanted in together:
                wanted.done.cancel()
            raise
        else:
            for wanted in together:
                wanted.done.set_result(revision)


def _look_at(done: "asyncio.Future[int]") -> None:
    if not done.cancelled():
        done.exception()
