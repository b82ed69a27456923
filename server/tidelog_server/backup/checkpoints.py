"""Checkpoints of this node for backups: at most MAX_CHECKPOINTS, each under a lease that its owner renews."""

import asyncio
import secrets
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.errors.storage import CheckpointNotExistError, CheckpointUnsupportedError
from tidelog_server.core.ticks import Tick
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.tasks import TaskOwner, to_its_end
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.format.data_folder import last_backup_ms, note_backup
from tidelog_server.storage.format.head_file import Head
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rocksdb.store import RocksdbLogStore

# Each checkpoint retains files that reclaim would delete, so there are few.
MAX_CHECKPOINTS: Final = 2

_SWEEP_EVERY_S: Final = 1.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """An existing checkpoint.

    Attributes:
        checkpoint_id: Id of the checkpoint.
        folder: Folder of its files.
        tick: The checkpoint contains every message with a tick at or below this one, and no other.
        head: The last entry, as in HEAD.
        created_ms: Wall clock at creation, in milliseconds since the epoch.
        lease_ms: Lifetime without a keepalive, in milliseconds.
        expires_s: Monotonic time of the expiry, in seconds.
    """

    checkpoint_id: str
    folder: Path
    tick: Tick
    head: Head
    created_ms: int
    lease_ms: int
    expires_s: float


class Checkpoints:
    """Creates, renews and deletes checkpoints. Lives on the event loop."""

    def __init__(self, node: LogNode, tasks: TaskOwner, store: LogStore | None, clock: Clock | None = None) -> None:
        """Create checkpoints of ``store``. Without one, or if its files are not all of it, every request is refused."""
        self._node = node
        self._tasks = tasks
        self._store = store if isinstance(store, RocksdbLogStore) else None
        # Which engine has the log; empty if none has it.
        self._engine = store.wal_name if isinstance(store, EngineLogStore) else ""
        self._clock = clock or SystemClock()
        self._states: dict[str, CheckpointState] = {}
        # One at a time: each flushes the database.
        self._making = asyncio.Lock()
        self._is_sweeping = False

    @to_its_end
    async def create(self, lease_ms: int) -> CheckpointState:
        """Create a checkpoint. Cancelling does not stop it; the checkpoint is then deleted when its lease expires.

        Raises:
            CheckpointUnsupportedError: The store has no files.
            RateLimitRejectedError: There are MAX_CHECKPOINTS checkpoints.
            CheckpointFailedError: The disk failed.
        """
        self._node.admission.check_storage()
        store = self._required()
        async with self._making:
            if len(self._states) >= MAX_CHECKPOINTS:
                raise RateLimitRejectedError(
                    f"there are {len(self._states)} checkpoints, at most {MAX_CHECKPOINTS} are allowed: wait until a "
                    "backup ends, or release one"
                )
            checkpoint_id = secrets.token_hex(8)
            # Flush twice: the second flush writes only what arrived during the first, so the checkpoint, for which
            # appends wait, flushes little.
            await asyncio.to_thread(store.flush)
            await asyncio.to_thread(store.flush)
            # Ordering: read the tick and submit the job in one step. Appends take and submit ticks in one step too, so
            # messages at or below this tick are written before the job, and all others after it.
            tick = self._node.shared.oracle.now()
            job = self._node.committer.submit_job(partial(store.checkpoint, checkpoint_id))
            folder, head = await asyncio.wrap_future(job)
            created_ms = self._clock.wall_ms()
            state = CheckpointState(checkpoint_id, folder, tick, head, created_ms, lease_ms, self._expiry(lease_ms))
            self._states[checkpoint_id] = state
            assert len(self._states) <= MAX_CHECKPOINTS
            if not self._is_sweeping:
                self._is_sweeping = True
                self._tasks.start("checkpoints", self._sweep())
            _log.info("checkpoint_made", checkpoint_id=checkpoint_id, tick=tick, sequence=head.sequence)
            return state

    def keep(self, checkpoint_id: str) -> None:
        """Renew the lease of a checkpoint. Raises CheckpointNotExistError."""
        state = self._states.get(checkpoint_id)
        if state is None:
            raise CheckpointNotExistError(checkpoint_id)
        self._states[checkpoint_id] = replace(state, expires_s=self._expiry(state.lease_ms))

    async def release(self, checkpoint_id: str, *, is_backed_up: bool = False) -> None:
        """Delete a checkpoint if it exists. With ``is_backed_up``, persist its time as that of the last backup."""
        state = self._states.pop(checkpoint_id, None)
        if state is None:
            return
        if is_backed_up:
            await asyncio.to_thread(note_backup, self._required().folder, state.created_ms)
            self._node.metrics.backup_last_success_timestamp_seconds.set(state.created_ms / 1_000)
        await self._tasks.finish(_remove(state.folder))

    async def open(self) -> None:
        """Load the time of the last backup into the metrics."""
        if self._store is None:
            self._node.metrics.leave_out_backups()
        else:
            last_ms = await asyncio.to_thread(last_backup_ms, self._store.folder)
            self._node.metrics.backup_last_success_timestamp_seconds.set(last_ms / 1_000)

    def states(self) -> list[CheckpointState]:
        """Return all checkpoints, oldest first."""
        return list(self._states.values())

    async def close(self) -> None:
        """Delete all checkpoints: they do not outlive the server. Idempotent; called after the tasks have ended."""
        while self._states:
            _, state = self._states.popitem()
            await _remove(state.folder)

    def _required(self) -> RocksdbLogStore:
        if self._store is None:
            raise CheckpointUnsupportedError(self._engine)
        return self._store

    def _expiry(self, lease_ms: int) -> float:
        return self._clock.monotonic_s() + lease_ms / 1_000

    async def _sweep(self) -> None:
        """Delete expired checkpoints, until no checkpoint is left."""
        while self._states:
            now_s = self._clock.monotonic_s()
            for state in self.states():
                if state.expires_s <= now_s:
                    _log.warning("checkpoint_expired", checkpoint_id=state.checkpoint_id, lease_ms=state.lease_ms)
                    await self.release(state.checkpoint_id)
            await asyncio.sleep(_SWEEP_EVERY_S)
        self._is_sweeping = False


async def _remove(folder: Path) -> None:
    # Files that cannot be deleted now are deleted at the next start.
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
