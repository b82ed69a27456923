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


class Session:
    """The registration of one process under a node's id. Lives on the event loop."""

    def __init__(self, store: SharedMetadataStore, clock: Clock, lease: LeaseValidity, *, key: str, ttl_s: int) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._key = key
        self._ttl_s = ttl_s
        self._lease_id = 0
        self._lease_s = 0.0

    @property
    def lease_id(self) -> int:
        """The lease that the node's keys are attached to."""
        return self._lease_id

    async def register(self, record: NodeRecord) -> int:
        """Register the node and return its new term; the store is fenced with it from then on.

        Waits while another process holds the registration.
        """
        told_s = float("-inf")
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                self._lease_id, self._lease_s = await self._store.grant_lease(self._ttl_s)
                term = await self._store.commit([Put(self._key, record.encode(), 0, self._lease_id)])
            except RevisionConflictError:
                await self._revoke()
                if asked_s - told_s >= _TELL_EVERY_S:
                    told_s = asked_s
                    found = await self._store.get(self._key)
                    other = NodeRecord.decode(self._key, found.value) if found else None
                    _log.warning(
                        "registration_is_taken", node=record.node_id, address=other.address if other else "",
                        advice="another process is registered under this id: stop it, or wait until its lease expires; "
                        "every node needs its own cluster.node_id",
                    )  # fmt: skip
                await asyncio.sleep(_LOOK_AGAIN_S)
            except MetadataUnavailableError:
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                self._lease.begin(term, asked_s, self._lease_s)
                self._store.set_fence(Fence(self._key, term, record.node_id))
                return term

    async def keep(self) -> None:
        """Renew the lease until it is lost, then raise OwnershipLostError."""
        while self._lease.is_held():
            asked_s = self._clock.monotonic_s()
            try:
                async with asyncio.timeout(self._lease.left_s()):
                    left_s = await self._store.renew_lease(self._lease_id)
            except TimeoutError:
                break
            except MetadataUnavailableError:
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            if left_s == 0:
                # It has expired, or etcd has lost it. Either way another process may register from now on.
                self._lease.end()
                break
            self._lease.renewed(asked_s, left_s)
            await asyncio.sleep(min(self._lease_s / _RENEWALS, self._lease.left_s()))
        raise OwnershipLostError(self._lease.node_id)

    async def leave(self) -> None:
        """Revoke the lease, so that the next process need not wait for its expiry. A failure is only logged."""
        self._lease.end()
        if self._lease_id:
            await self._revoke()

    async def _revoke(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await self._store.revoke_lease(self._lease_id)
        except (TimeoutError, MetadataUnavailableError) as error:
            _log.warning("registration_not_given_back", ends_within_s=self._lease_s, error=str(error))
