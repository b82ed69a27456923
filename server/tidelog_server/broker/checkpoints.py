"""Checkpoints of this node for backups: few, and each lives as long as its owner keeps it."""

import asyncio
import secrets
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from tidelog_server.core.checkpoint_errors import CheckpointNotExistError, CheckpointUnsupportedError
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import MAX_CHECKPOINTS
from tidelog_server.core.ticks import Tick
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.data_folder import last_backup_ms, note_backup
from tidelog_server.storage.head_file import Head
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rocksdb_log_store import RocksdbLogStore

_SWEEP_EVERY_S: Final = 1.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """A checkpoint that is there.

    Attributes:
        checkpoint_id: Its name.
        folder: Where it lies.
        tick: Every message with this tick or a smaller one is in it, and none with a greater one.
        head: The last entry, as in HEAD.
        created_ms: Wall clock at its creation.
        lease_ms: How long it lives without a sign of its owner.
        expires_s: When it goes unless it is kept, monotonic.
    """

    checkpoint_id: str
    folder: Path
    tick: Tick
    head: Head
    created_ms: int
    lease_ms: int
    expires_s: float


class Checkpoints:
    """Makes, keeps and removes checkpoints. Lives on the event loop."""

    def __init__(self, node: LogNode, tasks: TaskOwner, store: LogStore | None, clock: Clock | None = None) -> None:
        """Make checkpoints of ``store``; None if it has no files, and then every call is refused."""
        assert store is None or isinstance(store, RocksdbLogStore)
        self._node = node
        self._tasks = tasks
        self._store = store
        self._clock = clock or SystemClock()
        self._states: dict[str, CheckpointState] = {}
        # One after the other: each flushes the database.
        self._making = asyncio.Lock()
        self._is_sweeping = False

    async def create(self, lease_ms: int) -> CheckpointState:
        """Freeze the log. Cancelling does not stop it; what nobody then knows of goes with its lease.

        Raises:
            CheckpointUnsupportedError: There are no files to freeze.
            RateLimitRejectedError: There are too many checkpoints.
            CheckpointFailedError: The disk refused.
        """
        self._node.admission.check_storage()
        return await self._tasks.finish(self._create(self._required(), lease_ms))

    async def _create(self, store: RocksdbLogStore, lease_ms: int) -> CheckpointState:
        async with self._making:
            if len(self._states) >= MAX_CHECKPOINTS:
                raise RateLimitRejectedError(
                    f"there are {len(self._states)} checkpoints, at most {MAX_CHECKPOINTS} are allowed: wait until a "
                    "backup has ended, or release one"
                )
            checkpoint_id = secrets.token_hex(8)
            # Twice: the second one has only what came during the first, so that appends wait for little.
            await asyncio.to_thread(store.flush)
            await asyncio.to_thread(store.flush)
            # Ordering: both in one step. Ticks are taken and submitted in one step too, so whatever has this tick or a
            # smaller one is written before the job, and everything else behind it.
            tick = self._node.shared.oracle.now()
            job = self._node.committer.submit_job(partial(store.checkpoint, checkpoint_id))
            folder, head = await asyncio.wrap_future(job)
            created_ms = self._clock.wall_ms()
            state = CheckpointState(checkpoint_id, folder, tick, head, created_ms, lease_ms, self._expiry(lease_ms))
            self._states[checkpoint_id] = state
            self._sweep_from_now_on()
            _log.info("checkpoint_made", checkpoint_id=checkpoint_id, tick=tick, sequence=head.sequence)
            return state

    def keep(self, checkpoint_id: str) -> None:
        """Let a checkpoint live for another lease. Raises CheckpointNotExistError."""
        state = self._states.get(checkpoint_id)
        if state is None:
            raise CheckpointNotExistError(checkpoint_id)
        self._states[checkpoint_id] = replace(state, expires_s=self._expiry(state.lease_ms))

    async def release(self, checkpoint_id: str, *, is_backed_up: bool = False) -> None:
        """Remove a checkpoint, if it is there; note, durably, that a backup was made of it."""
        state = self._states.pop(checkpoint_id, None)
        if state is None:
            return
        if is_backed_up:
            await asyncio.to_thread(note_backup, self._required().folder, state.created_ms)
            self._node.metrics.backup_last_success_seconds.set(state.created_ms / 1_000)
        await self._tasks.finish(self._remove(checkpoint_id))

    async def open(self) -> None:
        """Find out when the last backup was."""
        if self._store is None:
            self._node.metrics.leave_out_backups()
        else:
            last_ms = await asyncio.to_thread(last_backup_ms, self._store.folder)
            self._node.metrics.backup_last_success_seconds.set(last_ms / 1_000)

    def states(self) -> list[CheckpointState]:
        """Return all checkpoints, oldest first."""
        return list(self._states.values())

    async def close(self) -> None:
        """Remove all checkpoints: they do not outlive the server. Idempotent; after the tasks have ended."""
        for checkpoint_id in list(self._states):
            del self._states[checkpoint_id]
            await self._remove(checkpoint_id)

    def _required(self) -> RocksdbLogStore:
        if self._store is None:
            raise CheckpointUnsupportedError
        return self._store

    def _expiry(self, lease_ms: int) -> float:
        return self._clock.monotonic_s() + lease_ms / 1_000

    def _sweep_from_now_on(self) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            self._tasks.start("checkpoints", self._sweep())

    async def _sweep(self) -> None:
        """Remove checkpoints that nobody keeps, until there is none."""
        while self._states:
            now_s = self._clock.monotonic_s()
            for state in self.states():
                if state.expires_s <= now_s:
                    _log.warning("checkpoint_expired", checkpoint_id=state.checkpoint_id, lease_ms=state.lease_ms)
                    await self.release(state.checkpoint_id)
            await asyncio.sleep(_SWEEP_EVERY_S)
        self._is_sweeping = False

    async def _remove(self, checkpoint_id: str) -> None:
        path = self._required().checkpoint_path(checkpoint_id)
        # What cannot be removed now goes at the next start.
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
