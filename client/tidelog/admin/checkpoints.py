"""Checkpoint calls of the asynchronous client."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.transport.deadline import Deadline
from tidelog.transport.service_calls import ServiceCalls
from tidelog.v1 import backup_service_pb2 as pb
from tidelog.wire.durations import Duration, check_seconds, seconds_or

# A checkpoint flushes memory to disk first.
_CREATE_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class CheckpointDescription:
    """The log of a server at one moment, and the folder with its files.

    Attributes:
        checkpoint_id: Id of the checkpoint.
        folder: Path on the server's machine: a data folder without its lock.
        tick: The checkpoint contains every message with this tick or a smaller one, and no message with a greater one.
        sequence: Number of entries ever written to the store.
        chain_hash: Chain hash of the last entry.
        incarnation: Identity of the store.
        last_tick: Greatest tick of any message; 0 if no message was ever appended.
        created_time_ms: Time of creation, in milliseconds since the epoch.
        lease_s: Seconds after which the server deletes the checkpoint unless its lease is renewed.
    """

    checkpoint_id: str
    folder: str
    tick: int
    sequence: int
    chain_hash: bytes
    incarnation: bytes
    last_tick: int
    created_time_ms: int
    lease_s: float


class AsyncCheckpointCalls(ServiceCalls):
    """Checkpoints for backups, for ``AsyncClient``."""

    async def create_checkpoint(
        self, *, lease_s: Duration | None = None, timeout_s: Duration = _CREATE_WITHIN_S
    ) -> CheckpointDescription:
        """Freeze the log in a folder of hard links next to the database. Requires ``backup``.

        Appends wait for some milliseconds. Release the checkpoint when its files are copied: it retains files that
        would otherwise be deleted.

        Args:
            lease_s: Seconds until the server deletes the checkpoint, unless ``keep_checkpoint`` renews the lease: 1 to
                3,600. Default None: 60.
            timeout_s: Timeout in seconds. If it passes, a checkpoint may exist until its lease ends.

        Raises:
            CheckpointUnsupportedError: The server's log is in memory.
            CheckpointError: The files could not be linked.
            OverloadedError: The server has as many checkpoints as it can, and none was released in time.
            InvalidRequestError: ``lease_s`` is out of range.
        """
        deadline = Deadline(check_seconds("timeout_s", timeout_s))
        request = pb.CreateCheckpointRequest(lease_ms=round(seconds_or("lease_s", lease_s, 0.0) * 1_000))
        answer = await self._change(self._services.backups.CreateCheckpoint, request, deadline=deadline)
        return _description(answer.checkpoint)

    async def keep_checkpoint(self, checkpoint_id: str) -> None:
        """Renew the lease of a checkpoint. Requires ``backup``.

        Raises:
            CheckpointNotFoundError: The lease has ended, or the server has restarted.
        """
        request = pb.KeepCheckpointRequest(checkpoint_id=checkpoint_id)
        await self._change(self._services.backups.KeepCheckpoint, request, is_idempotent=True)

    async def release_checkpoint(self, checkpoint_id: str, *, is_backed_up: bool = False) -> None:
        """Delete a checkpoint; succeeds if it does not exist. Requires ``backup``.

        Args:
            checkpoint_id: Id of the checkpoint.
            is_backed_up: Whether a complete backup was made from it. The server's metrics report the last one's time.
        """
        request = pb.ReleaseCheckpointRequest(checkpoint_id=checkpoint_id, is_backed_up=is_backed_up)
        await self._change(self._services.backups.ReleaseCheckpoint, request, is_idempotent=True)

    async def list_checkpoints(self) -> Sequence[CheckpointDescription]:
        """Return all checkpoints of the server, oldest first. Requires ``backup``."""
        answer = await self._read(self._services.backups.ListCheckpoints, pb.ListCheckpointsRequest())
        return [_description(checkpoint) for checkpoint in answer.checkpoints]


def _description(wire: pb.Checkpoint) -> CheckpointDescription:
    return CheckpointDescription(
        wire.checkpoint_id, wire.folder, wire.tick, wire.sequence, wire.chain_hash, wire.incarnation, wire.last_tick,
        wire.created_ms, wire.lease_ms / 1_000,
    )  # fmt: skip
