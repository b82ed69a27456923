"""A node's registration under a lease: created, renewed, and revoked.

At most one process holds a node's registration: a second one waits until the first revokes it or its lease expires.
The term of a node, and of every channel that it owns, is the revision at which it registered.
"""

import asyncio
from typing import Final

import structlog

from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.metadata.store import Fence, Put, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.clock import Clock

# Renewals per lease duration.
_RENEWALS: Final = 6
_LOOK_AGAIN_S: Final = 0.1
_TELL_EVERY_S: Final = 5.0
_LEAVE_WITHIN_S: Final = 2.0
_log = structlog.get_logger()


def node_key(root: str, node_id: str) -> str:
    """Return the key of a node's registration; without a node id, the prefix of all."""
    return f"{root}/node/{node_id}"


class Session:
    """The registration of one process under a node's id. Lives on the event loop.

    Attributes:
        store: The metadata store; fenced with the registration once there is one.
        record: The record that is registered.
        lease: Whether this process holds the registration, and its term.
        lease_id: The lease that the node's keys are attached to; 0 without one.
        ttl_s: Seconds after which the registration of a process that died ends.
    """

    def __init__(self, store: SharedMetadataStore, clock: Clock, record: NodeRecord, *, root: str, ttl_s: int) -> None:
        """Prepare a registration of ``record``; does no I/O."""
        self.store = store
        self.record = record
        self.lease = LeaseValidity(clock, record.node_id)
        self.ttl_s = ttl_s
        self._clock = clock
        self._key = node_key(root, record.node_id)
        self.lease_id = 0
        self._lease_s = 0.0

    async def register(self) -> int:
        """Register the node and return its new term; the store is fenced with it from then on.

        Waits while another process holds the registration.
        """
        told_s = float("-inf")
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                if await self.attempt():
                    return self.lease.term
                if asked_s - told_s >= _TELL_EVERY_S:
                    told_s = asked_s
                    found = await self.store.get(self._key)
                    other = NodeRecord.decode(self._key, found.value) if found else None
                    _log.warning(
                        "registration_is_taken", node=self.record.node_id, address=other.address if other else "",
                        advice="another process is registered under this id: stop it, or wait until its lease expires; "
                        "every node needs its own cluster.node_id",
                    )  # fmt: skip
            except MetadataUnavailableError as error:
                _log.debug("not_registered", node=self.record.node_id, error=str(error))
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def attempt(self) -> bool:
        """Register the node, unless another process holds the registration; return whether this one does now.

        Raises:
            MetadataUnavailableError: The metadata store did not answer, or refused. A registration that it made
                nevertheless ends with its lease.
        """
        asked_s = self._clock.monotonic_s()
        self.lease_id, self._lease_s = await self.store.grant_lease(self.ttl_s)
        try:
            term = await self.store.commit([Put(self._key, self.record.encode(), 0, self.lease_id)])
        except RevisionConflictError:
            await self._revoke()
            return False
        self.lease.begin(term, asked_s, self._lease_s)
        self.store.set_fence(Fence(self._key, term, self.record.node_id))
        return True

    async def keep(self) -> None:
        """Renew the lease until it is lost, then raise OwnershipLostError."""
        while self.lease.is_held():
            asked_s = self._clock.monotonic_s()
            try:
                async with asyncio.timeout(self.lease.left_s()):
                    left_s = await self.store.renew_lease(self.lease_id)
            except TimeoutError:
                break
            except MetadataUnavailableError:
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            if left_s == 0:
                # It has expired, or etcd has lost it. Either way another process may register from now on.
                self.lease.end()
                break
            self.lease.renewed(asked_s, left_s)
            await asyncio.sleep(min(self._lease_s / _RENEWALS, self.lease.left_s()))
        raise OwnershipLostError(self.lease.node_id)

    async def leave(self) -> None:
        """Revoke the lease, so that the next process need not wait for its expiry. A failure is only logged."""
        self.lease.end()
        if self.lease_id:
            await self._revoke()
            self.lease_id = 0

    async def close(self) -> None:
        """Leave, and close the metadata store."""
        await self.leave()
        await self.store.close()

    async def _revoke(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await self.store.revoke_lease(self.lease_id)
        except (TimeoutError, MetadataUnavailableError) as error:
            _log.warning("registration_not_given_back", ends_within_s=self._lease_s, error=str(error))
