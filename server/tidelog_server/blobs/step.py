"""One step of the blobs of a node: changes the state, and collects the events. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog_server.blobs.events import (
    BlobEvent,
    Chunk,
    encode_chunk,
    encode_collected,
    encode_counted,
    encode_counted_by,
    encode_stored_by,
)
from tidelog_server.blobs.state import Blob, BlobState, Copy, chunks_of
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.errors.mailboxes import BlobNotExistError
from tidelog_server.core.limits import BLOB_CHUNK_BYTES, BLOB_TENANT_MEMORY_BYTES, MAX_BLOB_REFERENCES, WHOLE_PERCENT
from tidelog_server.fold.events import Outbox

# Blobs of a node, which the memory of mailboxes bounds as well.
MAX_BLOBS: Final = 1_000_000
MAX_BLOB_TENANTS: Final = 1_000

CheckMemory = Callable[[Tenant, int], None]
"""Raises RateLimitRejectedError if a tenant may not use a number of further bytes of memory."""


@dataclass(frozen=True, slots=True)
class Storer:
    """Who stores or counts blobs, and what it may use.

    Attributes:
        tenant: Its tenant.
        percent: Share of what is free that a tenant may use.
        free_bytes: Bytes that blobs may still use on the disk; None if that is not known.
        may_lower_old: Whether it may lower the references of no tenant.
        check_memory: See ``CheckMemory``.
    """

    tenant: Tenant = NO_TENANT
    percent: int = WHOLE_PERCENT
    free_bytes: int | None = None
    may_lower_old: bool = False
    check_memory: CheckMemory = field(default=lambda _tenant, _memory_bytes: None, compare=False)


NOBODY: Final = Storer()
"""A caller without authentication."""


class BlobStep(Outbox):
    """One step: changes the state, and collects the events. Pure.

    Attributes:
        state: The blobs.
    """

    __slots__ = ("_storer_of", "state")

    def __init__(self, state: BlobState, base: int, storer: Storer | Callable[[], Storer] = NOBODY) -> None:
        """``storer`` may be a function that returns it: most steps of mailboxes need none."""
        super().__init__(base)
        self.state = state
        self._storer_of = storer

    @property
    def outbox(self) -> Outbox:
        """Its events."""
        return self

    @property
    def storer(self) -> Storer:
        """Who stores or counts blobs in the step."""
        if not isinstance(self._storer_of, Storer):
            self._storer_of = self._storer_of()
        return self._storer_of

    @storer.setter
    def storer(self, storer: Storer) -> None:
        self._storer_of = storer

    def new_memory_bytes(self, key: bytes, size_bytes: int) -> int:
        """Return the further memory that a blob takes once the storer has stored it."""
        return self.state.new_memory_bytes(key, size_bytes, self.storer.tenant)

    def check_memory(self, memory_bytes: int) -> None:
        """Raise RateLimitRejectedError if the storer may not use a number of further bytes of memory."""
        # What takes no memory is accepted even beyond the bound.
        if memory_bytes:
            self.storer.check_memory(self.storer.tenant, memory_bytes)

    def check_room(self, key: bytes, size_bytes: int) -> None:
        """Check that a blob may be stored. The caller checks the memory with ``check_memory``, for all of a request.

        Raises:
            InvalidRequestError: Another blob has its key.
            RateLimitRejectedError: There is no room for it, or the storer uses too much.
        """
        blob, storer = self.state.blobs.get(key), self.storer
        if blob is not None and blob.size_bytes != size_bytes:
            raise InvalidRequestError(
                f"a blob of {blob.size_bytes} bytes has the key of this one of {size_bytes} bytes: choose SHA-256",
                field="algorithm",
            )
        self._check_tenants(blob)
        if blob is None and len(self.state.blobs) >= MAX_BLOBS:
            raise RateLimitRejectedError(
                f"this node stores {MAX_BLOBS} blobs, which is the maximum: remove references, and retry later",
                limit="blobs",
            )
        if blob is not None and blob.payer != NO_TENANT:
            return
        numbers, usage = self.state.number_usage, self.state.bytes_usage
        numbers.check_share(storer.tenant, 1, MAX_BLOBS, storer.percent, "blobs")
        if storer.free_bytes is not None:
            maximum = usage.total + storer.free_bytes
            usage.check_share(storer.tenant, size_bytes, maximum, storer.percent, "bytes of blobs")

    def _check_tenants(self, blob: Blob | None) -> None:
        """Raise RateLimitRejectedError if too many tenants have stored or counted a blob to add the storer."""
        tenant = self.storer.tenant
        if blob is not None and tenant and tenant not in blob.counts and len(blob.counts) >= MAX_BLOB_TENANTS:
            raise RateLimitRejectedError(
                f"{MAX_BLOB_TENANTS} principals have stored or counted this blob, which is the maximum: retry after it "
                "was deleted, or store other bytes",
                limit="blob_tenants",
            )

    def put(self, key: bytes, data: bytes, first: int = 0, chunks: int | None = None) -> None:
        """Store the ``chunks`` chunks of a blob from ``first`` on that are missing; all by default.

        If none is missing, only the grace period of the blob begins again.
        """
        blob, is_new = self.state.blobs.get(key), False
        end = chunks_of(len(data)) if chunks is None else min(first + chunks, chunks_of(len(data)))
        for index in range(first, end):
            if blob is not None and blob.places[index]:
                continue
            begin = index * BLOB_CHUNK_BYTES
            chunk = Chunk(key, index, len(data), data[begin : begin + BLOB_CHUNK_BYTES])
            self.state.put(key, len(data), index, self.add(BlobEvent.PUT, encode_chunk(chunk)))
            is_new = True
        tenant = self.storer.tenant
        stored = self.state.blobs[key]
        # A tenant may have counted a blob that no tenant has stored.
        if tenant and (stored.payer == NO_TENANT or tenant not in stored.counts):
            self.state.stored_by(key, tenant, self.add(BlobEvent.STORED_BY, encode_stored_by(key, tenant)))
        elif not is_new:
            self._count_old(key, 0)

    def count(self, key: bytes, delta: int) -> int:
        """Change the references of the storer, within their limits; return those that it sees.

        Raises:
            BlobNotExistError: No blob has this key.
            RateLimitRejectedError: Too many tenants count it, or the node has no memory for one more.
        """
        blob, storer = self.state.blobs.get(key), self.storer
        if blob is None:
            raise BlobNotExistError(key)
        if storer.tenant == NO_TENANT:
            wanted = max(-MAX_BLOB_REFERENCES, min(blob.references + delta, MAX_BLOB_REFERENCES))
            self._count_old(key, wanted - blob.references)
            return blob.references_of(storer.tenant)
        own = blob.counts.get(storer.tenant, 0)
        wanted = max(0, min(own + delta, MAX_BLOB_REFERENCES))
        # Of the references of no tenant, what its own do not suffice for.
        lowered = max(own + delta, -blob.references) if storer.may_lower_old and blob.references > 0 else 0
        if wanted != own:
            self._check_tenants(blob)
            if storer.tenant not in blob.counts:
                self.check_memory(BLOB_TENANT_MEMORY_BYTES)
            payload = encode_counted_by(key, storer.tenant, wanted - own)
            self.state.counted_by(key, storer.tenant, wanted - own, self.add(BlobEvent.COUNTED_BY, payload))
        if wanted == own or lowered < 0:
            self._count_old(key, min(0, lowered))
        return blob.references_of(storer.tenant)

    def _count_old(self, key: bytes, delta: int) -> None:
        self.state.counted(key, delta, self.add(BlobEvent.COUNTED, encode_counted(key, delta)))

    def collect(self, keys: Sequence[bytes]) -> None:
        """Remove blobs."""
        self.add(BlobEvent.COLLECTED, encode_collected(keys))
        self.state.collected(keys)

    def relocate(self, chunks: Iterable[tuple[int, Chunk]]) -> list[Copy]:
        """Copy chunks, each given by its tick, to this place of the log, if they are still there.

        Ordering: the caller passes the copies to ``BlobState.copied`` once they are durable. Until then the state has
        the old places: readers need what is in the log, and a trim must not pass it.
        """
        return [
            Copy(chunk.key, chunk.number, old, self.add(BlobEvent.RELOCATED, encode_chunk(chunk)))
            for old, chunk in chunks
            if (blob := self.state.blobs.get(chunk.key)) is not None and blob.places[chunk.number] == old
        ]
