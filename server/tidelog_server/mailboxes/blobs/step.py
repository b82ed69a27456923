"""One step of the blobs of a node: changes the state, and collects the events. Pure."""

from collections.abc import Iterable, Sequence

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.errors.mailboxes import BlobNotExistError
from tidelog_server.core.limits import BLOB_CHUNK_BYTES, MAX_BLOB_REFERENCES, MAX_BLOBS
from tidelog_server.mailboxes.blobs.events import (
    BlobEvent,
    Chunk,
    encode_chunk,
    encode_collected,
    encode_counted,
)
from tidelog_server.mailboxes.blobs.state import BlobState, Copy, chunks_of


class BlobStep:
    """One step: changes the state, and collects the events. Pure.

    Attributes:
        state: The blobs.
        base: Tick of the first event.
        types, payloads: The events.
    """

    __slots__ = ("base", "payloads", "state", "types")

    def __init__(self, state: BlobState, base: int) -> None:
        self.state = state
        self.base = base
        self.types: list[int] = []
        self.payloads: list[bytes] = []

    @property
    def last_tick(self) -> int:
        """Tick of the last event."""
        return self.base + len(self.payloads) - 1

    def check_room(self, key: bytes) -> None:
        """Raise RateLimitRejectedError if there are too many blobs to add ``key``."""
        if len(self.state.blobs) >= MAX_BLOBS and key not in self.state.blobs:
            raise RateLimitRejectedError(
                f"this node stores {MAX_BLOBS} blobs, which is the maximum: remove references, and retry later",
                limit="blobs",
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
            self.state.put(key, len(data), index, self._add(BlobEvent.PUT, encode_chunk(chunk)))
            is_new = True
        if not is_new:
            self.count(key, 0)

    def count(self, key: bytes, delta: int) -> int:
        """Change the references of a blob, within their limits; return them. Raises BlobNotExistError."""
        blob = self.state.blobs.get(key)
        if blob is None:
            raise BlobNotExistError(key)
        wanted = max(-MAX_BLOB_REFERENCES, min(blob.references + delta, MAX_BLOB_REFERENCES))
        delta = wanted - blob.references
        self.state.counted(key, delta, self._add(BlobEvent.COUNTED, encode_counted(key, delta)))
        return wanted

    def collect(self, keys: Sequence[bytes]) -> None:
        """Remove blobs."""
        self._add(BlobEvent.COLLECTED, encode_collected(keys))
        self.state.collected(keys)

    def relocate(self, chunks: Iterable[tuple[int, Chunk]]) -> list[Copy]:
        """Copy chunks, each given by its tick, to this place of the log, if they are still there.

        Ordering: the caller passes the copies to ``BlobState.copied`` once they are durable. Until then the state has
        the old places: readers need what is in the log, and a trim must not pass it.
        """
        return [
            Copy(chunk.key, chunk.number, old, self._add(BlobEvent.RELOCATED, encode_chunk(chunk)))
            for old, chunk in chunks
            if (blob := self.state.blobs.get(chunk.key)) is not None and blob.places[chunk.number] == old
        ]

    def snapshot(self, page: bytes) -> int:
        """Add a page of a snapshot; return its tick."""
        return self._add(BlobEvent.SNAPSHOT, page)

    def _add(self, kind: BlobEvent, payload: bytes) -> int:
        self.types.append(kind)
        self.payloads.append(payload)
        return self.base + len(self.payloads) - 1
