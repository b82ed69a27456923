"""Blob calls of the asynchronous client: put, get, count and describe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import grpc.aio

from tidelog.errors import UnavailableError
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.stream_end import StreamEnd
from tidelog.v1 import blob_service_pb2 as pb

KeyAlgorithm = Literal["sha256", "sha1"]
"""Algorithm of the key of a blob."""
_ALGORITHMS: Final = {"sha256": pb.BLOB_ALGORITHM_SHA256, "sha1": pb.BLOB_ALGORITHM_SHA1}
_PART_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BlobDescription:
    """A blob.

    Attributes:
        size_bytes: Its size.
        references: Number of references set with ``update_ref_count``: the caller's own, and those of no principal.
        messages: Number of messages in mailboxes of the node that refer to it.
    """

    size_bytes: int
    references: int
    messages: int


class AsyncBlobCalls(ServiceCalls):
    """Blobs, bytes under the hash of their content: ``AsyncClient.blobs``. Each node of a cluster has its own.

    With authentication each principal has its own number of references to a blob. A blob is kept while a message of a
    mailbox refers to it, or a number of references is positive. Otherwise it is deleted after a grace period, which
    begins again with each ``put`` and ``update_ref_count`` of the blob.
    """

    async def put(self, data: bytes, *, algorithm: KeyAlgorithm = "sha256") -> bytes:
        """Store a blob, durably, and return its key. Equal bytes are stored once.

        Args:
            data: The bytes, at most 64 MiB.
            algorithm: ``sha256`` for a key of 32 bytes; ``sha1`` for one of 20 bytes, for compatibility.

        Raises:
            InvalidRequestError: The blob is too large.
            OverloadedError: The server receives or stores too many blobs.
            ValueError: The algorithm is another one.
        """
        if algorithm not in _ALGORITHMS:
            raise ValueError(f"the algorithm is {algorithm!r}, expected 'sha256' or 'sha1'")
        requests = list(parts_of(data, _ALGORITHMS[algorithm]))
        answer: pb.PutBlobResponse = await self._change(putting(self._services.blobs), requests, is_idempotent=True)
        return answer.key

    async def get(self, key: bytes) -> bytes:
        """Return a blob. Raises BlobNotFoundError."""
        answer: bytes = await self._read(getting(self._services.blobs), pb.GetBlobRequest(key=key))
        return answer

    async def update_ref_count(self, key: bytes, delta: int) -> int:
        """Add ``delta`` to the caller's number of references of a blob, durably, and return it.

        With authentication the number of a principal is never below 0; without, the number of all may be negative.

        Args:
            key: The blob.
            delta: Number to add, -1,000,000,000 to 1,000,000,000.

        Raises:
            BlobNotFoundError: No blob has this key.
            InvalidRequestError: ``delta`` is out of range.
        """
        request = pb.UpdateBlobRefCountRequest(key=key, delta=delta)
        answer: pb.UpdateBlobRefCountResponse = await self._change(self._services.blobs.UpdateBlobRefCount, request)
        return answer.references

    async def describe(self, key: bytes) -> BlobDescription:
        """Return the size of a blob and what refers to it. Raises BlobNotFoundError."""
        answer = await self._read(self._services.blobs.DescribeBlob, pb.DescribeBlobRequest(key=key))
        return BlobDescription(answer.size_bytes, answer.references, answer.messages)


def parts_of(data: bytes, algorithm: Any, mailbox: str = "") -> Iterator[pb.PutBlobRequest]:
    """Yield the requests of PutBlob; ``mailbox`` is the one to which the blob will be sent."""
    for begin in range(0, max(1, len(data)), _PART_BYTES):
        yield pb.PutBlobRequest(data=data[begin : begin + _PART_BYTES], algorithm=algorithm, mailbox=mailbox)


def putting(stub: Any) -> Any:
    """Return PutBlob as a method with one request, the parts of the blob, and one response."""

    async def put(requests: Sequence[pb.PutBlobRequest], **options: Any) -> pb.PutBlobResponse:
        call = stub.PutBlob(iter(requests), **options)
        end = StreamEnd(call)
        try:
            answer: Any = await call.read()
        except grpc.aio.AioRpcError as error:
            # A part that was being written may have hidden why the call ended.
            raise await end.failure(call) from error
        finally:
            call.cancel()
        if answer is grpc.aio.EOF:
            raise UnavailableError("the server closed the stream of a blob without an answer")
        stored: pb.PutBlobResponse = answer
        return stored

    return put


def getting(stub: Any) -> Any:
    """Return GetBlob as a method with one response, the blob."""

    async def get(request: pb.GetBlobRequest, **options: Any) -> bytes:
        call = stub.GetBlob(request, **options)
        try:
            return b"".join([part.data async for part in call])
        finally:
            call.cancel()

    return get
