"""Which broadcasts a node accepts: by its state, its channels, and the bounds of the node and of each tenant."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidelog_server.broadcast.saver import BroadcastSaver
from tidelog_server.core.broadcasts import ResourceKey
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import (
    BatchTooLargeError,
    ChannelNotExistError,
    InvalidRequestError,
    RateLimitRejectedError,
)
from tidelog_server.core.limits import MAX_OPEN_BROADCASTS, MIB
from tidelog_server.core.message_checks import check_at_most
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.usage import Usage
from tidelog_server.log.batch import Batch
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import FindAll, Place

MAX_BROADCAST_VCHANNELS: Final = 1_024
# Of a message, summed over its vchannels: its copies are written at once, like a group.
MAX_BROADCAST_BYTES: Final = 8 * MIB
# Sum over all open broadcasts: their names are in memory.
MAX_OPEN_BROADCAST_VCHANNELS: Final = 1_000_000
# Messages of broadcasts that wait for keys or for the log.
MAX_WAITING_BROADCAST_BYTES: Final = 64 * MIB

# Approximate memory of a name in addition to its characters.
_NAME_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class BroadcastRequest:
    """A request for a broadcast, validated except for what depends on the node's state.

    Attributes:
        vchannels: Names as requested, at least one; that of a channel stands for all vchannels at the broadcast's tick.
        batch: A batch of one message.
        resource_keys: Resource keys, sorted by name, without duplicates.
        digest: See ``digest_of``.
        broadcast_id: Id chosen by the caller; 0 to allocate one.
        wait_s: Maximum wait for the keys in seconds; 0 to fail at once.
        barrier_tick: Tick that the message's tick must exceed.
        barrier_wait_s: Maximum wait for the barrier in seconds.
        tenant: Tenant of the sending principal.
    """

    vchannels: Sequence[str]
    batch: Batch
    resource_keys: tuple[ResourceKey, ...]
    digest: str
    broadcast_id: int = 0
    wait_s: float = 0.0
    barrier_tick: int = NO_TICK
    barrier_wait_s: float = 0.0
    tenant: Tenant = NO_TENANT


class BroadcastAdmission:
    """Decides whether a broadcast may be accepted now. Lives on the event loop.

    Attributes:
        leaving: Channels that are being destroyed: new broadcasts to them are refused.
        accepted_bytes: Bytes of broadcasts that hold their keys and are not durable yet.
    """

    def __init__(self, node: LogNode, saver: BroadcastSaver, find_all: FindAll) -> None:
        self._node = node
        self._saver = saver
        self._find_all = find_all
        # Channels that get vchannels now, and the event that ends the wait for them.
        self._growing: frozenset[str] = frozenset()
        self._has_grown = asyncio.Event()
        self._waiting_bytes = Usage()
        self.leaving: set[str] = set()
        self.accepted_bytes = 0

    @contextmanager
    def room_for(self, request: BroadcastRequest) -> Iterator[None]:
        """Count the bytes of a broadcast that waits, within this block. Raises RateLimitRejectedError."""
        names = sum(map(len, request.vchannels)) + _NAME_BYTES * len(request.vchannels)
        keys = sum(len(key.name.domain) + len(key.name.key) + _NAME_BYTES for key in request.resource_keys)
        size_bytes = len(request.batch.columns) + names + keys
        waiting = self._waiting_bytes
        if waiting.total + size_bytes > MAX_WAITING_BROADCAST_BYTES:
            raise RateLimitRejectedError(
                f"broadcasts with {waiting.total} bytes wait for keys, at most {MAX_WAITING_BROADCAST_BYTES} are "
                "allowed: retry later",
                bytes=waiting.total, max_bytes=MAX_WAITING_BROADCAST_BYTES,
            )  # fmt: skip
        waiting.check_share(
            request.tenant, size_bytes, MAX_WAITING_BROADCAST_BYTES, self._percent, "bytes of broadcasts that wait"
        )
        waiting.add(request.tenant, size_bytes)
        try:
            yield
        finally:
            waiting.add(request.tenant, -size_bytes)

    def check(self, request: BroadcastRequest) -> list[Place]:
        """Return the targets of a broadcast; raise if the node cannot accept it now."""
        admission = self._node.admission
        admission.check()
        targets = [place for name in request.vchannels for place in self._find_all(name)]
        if len({vchannel.vchannel_id for _, vchannel in targets}) < len(targets):
            raise InvalidRequestError("the broadcast names a vchannel twice: name each once", field="vchannels")
        for log, _ in targets:
            if log.name in self.leaving:
                raise ChannelNotExistError(log.name, "is being destroyed")
        check_at_most(len(targets), MAX_BROADCAST_VCHANNELS, "vchannels", "the broadcast is for {value} vchannels")
        size_bytes = len(targets) * len(request.batch.columns)
        if size_bytes > MAX_BROADCAST_BYTES:
            raise BatchTooLargeError(actual=size_bytes, maximum=MAX_BROADCAST_BYTES, unit="bytes")
        admission.check_room(self.accepted_bytes + size_bytes)
        self._check_open(len(targets), request.tenant)
        return targets

    @contextmanager
    def growing(self, channels: Sequence[str]) -> Iterator[None]:
        """Have broadcasts to channels wait, in ``wait_grown``, within this block. One block at a time."""
        assert not self._growing
        self._growing, self._has_grown = frozenset(channels), asyncio.Event()
        try:
            yield
        finally:
            self._growing = frozenset()
            self._has_grown.set()

    async def wait_grown(self, request: BroadcastRequest) -> None:
        """Wait while a channel of a broadcast gets vchannels."""
        while self._growing and any(name.partition("/")[0] in self._growing for name in request.vchannels):
            await self._has_grown.wait()

    def _check_open(self, vchannels: int, tenant: Tenant) -> None:
        """Raise RateLimitRejectedError if no further broadcast with ``vchannels`` vchannels may be open."""
        table, live = self._saver.table, self._saver.live
        accepting = [one.task.record for broadcast_id, one in live.items() if broadcast_id not in table.open]
        mine = [record for record in accepting if record.tenant == tenant.hex()]
        for unit, usage, amount, own, maximum in (
            ("broadcasts", table.open_usage, len(accepting) + 1, len(mine) + 1, MAX_OPEN_BROADCASTS),
            ("vchannels", table.vchannels_usage, vchannels + sum(len(each.vchannels) for each in accepting),
             vchannels + sum(len(each.vchannels) for each in mine), MAX_OPEN_BROADCAST_VCHANNELS),
        ):  # fmt: skip
            if (total := usage.total + amount) > maximum:
                raise RateLimitRejectedError(
                    f"the node's open broadcasts would have {total} {unit}, at most {maximum} are allowed: "
                    "acknowledge or abort some first; `tidelog broadcast ls` lists them",
                    **{unit: total, f"max_{unit}": maximum},
                )
            usage.check_share(tenant, own, maximum, self._percent, f"{unit} of open broadcasts")

    @property
    def _percent(self) -> int:
        return self._node.admission.limits.max_principal_percent
