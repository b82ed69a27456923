"""Broadcast calls of the synchronous client."""

from collections.abc import Iterable, Iterator, Sequence

from tidelog.admin.broadcast_types import (
    AckMode,
    BroadcastDescription,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    ResourceKey,
)
from tidelog.admin.broadcasts import OPEN_STATES, AsyncBroadcastCalls
from tidelog.append.sizes import Appendable
from tidelog.transport.background import background
from tidelog.wire.batch import Batch


class BroadcastCalls:
    """Broadcasts, for ``Client``. See ``AsyncBroadcastCalls``."""

    _client: AsyncBroadcastCalls

    def broadcast(
        self,
        vchannels: str | Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: float | None = None,
        barrier_tick: int | None = None,
        timeout_s: float | None = None,
    ) -> BroadcastResult:
        """Append one message atomically to many vchannels, at one tick. See ``AsyncClient.broadcast``."""
        return background.run(
            self._client.broadcast(
                vchannels, message, resource_keys=resource_keys, wait_s=wait_s, barrier_tick=barrier_tick,
                timeout_s=timeout_s,
            )
        )  # fmt: skip

    def ack(self, broadcast_id: int, vchannels: str | Iterable[str]) -> None:
        """Acknowledge a broadcast on vchannels, durably. See ``AsyncClient.ack``."""
        background.run(self._client.ack(broadcast_id, vchannels))

    def ack_batch(self, batch: Batch) -> None:
        """Acknowledge a broadcast delivered by a scan. See ``AsyncClient.ack_batch``."""
        background.run(self._client.ack_batch(batch))

    def wait_acked(
        self, key_or_id: ResourceKey | int, *, mode: AckMode = AckMode.ALL, timeout_s: float | None = None
    ) -> None:
        """Wait until a broadcast, or all that hold a key now, are acknowledged. See ``AsyncClient.wait_acked``."""
        background.run(self._client.wait_acked(key_or_id, mode=mode, timeout_s=timeout_s))

    def list_broadcasts(self, states: Sequence[BroadcastState] = OPEN_STATES) -> Iterator[BroadcastSummary]:
        """Yield broadcasts in one of ``states``, in order of id. See ``AsyncClient.list_broadcasts``."""
        broadcasts = self._client.list_broadcasts(states)

        async def following() -> BroadcastSummary | None:
            return await anext(broadcasts, None)

        while (broadcast := background.run(following())) is not None:
            yield broadcast

    def describe_broadcast(self, broadcast_id: int) -> BroadcastDescription:
        """Return a broadcast with its vchannels. See ``AsyncClient.describe_broadcast``."""
        return background.run(self._client.describe_broadcast(broadcast_id))

    def abort_broadcast(self, broadcast_id: int, reason: str) -> BroadcastSummary:
        """Stop waiting for a broadcast's acknowledgements, durably. See ``AsyncClient.abort_broadcast``."""
        return background.run(self._client.abort_broadcast(broadcast_id, reason))
