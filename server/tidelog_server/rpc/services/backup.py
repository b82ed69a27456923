"""BackupService."""

from typing import Final

from tidelog.v1 import backup_service_pb2 as pb
from tidelog_server.backup.checkpoints import Checkpoints, CheckpointState
from tidelog_server.core.message_checks import check_within
from tidelog_server.rpc.context import Context

DEFAULT_CHECKPOINT_LEASE_MS: Final = 60_000
MIN_CHECKPOINT_LEASE_MS: Final = 1_000
MAX_CHECKPOINT_LEASE_MS: Final = 3_600_000


class BackupService:
    """Handlers of BackupService: checkpoints."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    async def create_checkpoint(self, request: pb.CreateCheckpointRequest, _: Context) -> pb.CreateCheckpointResponse:
        """Create a checkpoint of the log."""
        lease_ms = request.lease_ms or DEFAULT_CHECKPOINT_LEASE_MS
        check_within(lease_ms, MIN_CHECKPOINT_LEASE_MS, MAX_CHECKPOINT_LEASE_MS, "lease_ms", advice=", or 0")
        return pb.CreateCheckpointResponse(checkpoint=_described(await self._checkpoints.create(lease_ms)))

    async def keep_checkpoint(self, request: pb.KeepCheckpointRequest, _: Context) -> pb.KeepCheckpointResponse:
        """Renew the lease of a checkpoint."""
        self._checkpoints.keep(request.checkpoint_id)
        return pb.KeepCheckpointResponse()

    async def release_checkpoint(
        self, request: pb.ReleaseCheckpointRequest, _: Context
    ) -> pb.ReleaseCheckpointResponse:
        """Delete a checkpoint."""
        await self._checkpoints.release(request.checkpoint_id, is_backed_up=request.is_backed_up)
        return pb.ReleaseCheckpointResponse()

    async def list_checkpoints(self, _: pb.ListCheckpointsRequest, __: Context) -> pb.ListCheckpointsResponse:
        """Return all checkpoints."""
        return pb.ListCheckpointsResponse(checkpoints=map(_described, self._checkpoints.states()))


def _described(state: CheckpointState) -> pb.Checkpoint:
    head = state.head
    return pb.Checkpoint(
        checkpoint_id=state.checkpoint_id,
        folder=str(state.folder.absolute()),
        tick=state.tick,
        sequence=head.sequence,
        chain_hash=head.chain_hash,
        incarnation=head.incarnation,
        last_tick=head.last_tick,
        created_ms=state.created_ms,
        lease_ms=state.lease_ms,
    )
