"""BlobService: put, get, count and describe blobs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.v1 import blob_service_pb2 as pb
from tidelog_server.blobs.store import KeyAlgorithm
from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.errors.mailboxes import BlobNotExistError, BlobTooLargeError, LockUnknownError
from tidelog_server.core.limits import MAX_BLOB_REFERENCES, MIB
from tidelog_server.core.mailboxes import MAX_BODY_BYTES
from tidelog_server.core.message_checks import check_within
from tidelog_server.core.usage import Usage
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.mailboxes import Mailboxes
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.requests import parsed
from tidelog_server.security.access import count_sent, current_access, current_tenant
from tidelog_server.security.grants import EVERYTHING, Verb

MAX_BLOB_BYTES: Final = MAX_BODY_BYTES
# Memory for blobs that are being received, of all callers together, with a share of what is free for each principal.
# An upload that sends nothing for UPLOAD_IDLE_S ends.
MAX_UPLOAD_BYTES: Final = 128 * MIB
UPLOAD_IDLE_S: Final = 10.0

_ALGORITHMS: Final = {
    pb.BLOB_ALGORITHM_UNSPECIFIED: KeyAlgorithm.SHA256,
    pb.BLOB_ALGORITHM_SHA256: KeyAlgorithm.SHA256,
    pb.BLOB_ALGORITHM_SHA1: KeyAlgorithm.SHA1,
}


class BlobService:
    """Handlers of BlobService."""

    def __init__(self, mailboxes: Mailboxes, log: LogNode) -> None:
        self._mailboxes = mailboxes
        self._blobs = mailboxes.blobs
        self._log = log
        # Bytes of the blobs that are being received, by tenant.
        self._uploads = Usage()

    async def put_blob(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Receive a blob and store it."""
        with self._upload() as add:
            parts = list[bytes]()
            algorithm: KeyAlgorithm | None = None
            while (encoded := await _next_part(requests)) is not None:
                request = parsed(pb.PutBlobRequest, encoded, "PutBlob")
                if algorithm is None:
                    await self._admit(request)
                    algorithm = _algorithm_of(request)
                add(len(request.data))
                parts.append(request.data)
            if algorithm is None:
                raise InvalidRequestError("the call has no request: send the blob, in one request if it is empty")
            data = b"".join(parts)
            parts.clear()
            key, is_created = await self._blobs.put(data, algorithm, current_tenant())
        response = pb.PutBlobResponse(key=key, size_bytes=len(data), is_created=is_created)
        await context.write(response.SerializeToString())

    async def _admit(self, request: pb.PutBlobRequest) -> None:
        """Check the permission for a blob. Raises TidelogServerError, also if its mailbox is of another node."""
        access = current_access()
        if access is not None and request.mailbox:
            access.require(Verb.MAILBOX_SEND, request.mailbox)
        elif access is not None:
            access.require_somewhere(Verb.BLOB_PUT)
        if request.mailbox:
            await self._mailboxes.open(request.mailbox)

    @contextmanager
    def _upload(self) -> Iterator[Callable[[int], None]]:
        """Count the bytes of a blob that is being received.

        The function that this yields raises BlobTooLargeError and RateLimitRejectedError.
        """
        received, tenant = 0, current_tenant()

        def add(size_bytes: int) -> None:
            nonlocal received
            if received + size_bytes > MAX_BLOB_BYTES:
                raise BlobTooLargeError(size_bytes=received + size_bytes, max_bytes=MAX_BLOB_BYTES)
            if self._uploads.total + size_bytes > MAX_UPLOAD_BYTES:
                raise RateLimitRejectedError(
                    f"the server is receiving {self._uploads.total} bytes of blobs, the maximum is "
                    f"{MAX_UPLOAD_BYTES}: retry later",
                    limit="uploads",
                )
            percent = self._log.admission.limits.max_principal_percent
            self._uploads.check_share(tenant, size_bytes, MAX_UPLOAD_BYTES, percent, "bytes of unfinished uploads")
            received += size_bytes
            self._uploads.add(tenant, size_bytes)

        try:
            yield add
        finally:
            self._uploads.add(tenant, -received)

    async def get_blob(self, request: pb.GetBlobRequest, context: Context) -> None:
        """Send a blob, chunk by chunk."""
        if request.mailbox:
            await self._check_message(request)
        async for data, size_bytes in self._blobs.read(request.key):
            await context.write(pb.GetBlobResponse(data=data, size_bytes=size_bytes).SerializeToString())
            await count_sent(len(data))

    async def _check_message(self, request: pb.GetBlobRequest) -> None:
        """Raise TidelogServerError if the blob is not the body of the message that the request names or locks."""
        if request.message_id and request.lock_id:
            raise InvalidRequestError(
                "the request has both a message_id and a lock_id: set one of them", field="lock_id"
            )
        log = await self._mailboxes.open(request.mailbox)
        message_id = request.message_id or log.state.locks.message_of(request.lock_id)
        if not message_id:
            raise LockUnknownError(request.mailbox, request.lock_id)
        if log.state.blobs.keys.get(message_id) != request.key:
            raise BlobNotExistError(request.key)

    async def update_blob_ref_count(
        self, request: pb.UpdateBlobRefCountRequest, _: Context
    ) -> pb.UpdateBlobRefCountResponse:
        """Change the number of references of a blob."""
        check_within(request.delta, -MAX_BLOB_REFERENCES, MAX_BLOB_REFERENCES, "delta")
        access = current_access()
        may_lower_old = access is not None and access.may((Verb.ADMIN_WRITE,), EVERYTHING)
        storer = self._blobs.storer(current_tenant(), may_lower_old=may_lower_old)
        references = await self._blobs.update_references(request.key, request.delta, storer)
        return pb.UpdateBlobRefCountResponse(references=references)

    async def describe_blob(self, request: pb.DescribeBlobRequest, _: Context) -> pb.DescribeBlobResponse:
        """Return the size of a blob and what refers to it."""
        found = await self._blobs.describe(request.key, current_tenant())
        return pb.DescribeBlobResponse(
            size_bytes=found.size_bytes, references=found.references, messages=found.messages
        )


async def _next_part(requests: AsyncIterator[bytes]) -> bytes | None:
    """Return the next request of an upload; None at its end. Raises RateLimitRejectedError if it is idle."""
    try:
        async with asyncio.timeout(UPLOAD_IDLE_S):
            return await anext(requests, None)
    except TimeoutError:
        raise RateLimitRejectedError(
            f"no part of the blob came within {UPLOAD_IDLE_S:g} s, so the upload was ended: send the blob again",
            limit="upload_idle",
        ) from None


def _algorithm_of(request: pb.PutBlobRequest) -> KeyAlgorithm:
    algorithm = _ALGORITHMS.get(request.algorithm)
    if algorithm is None:
        raise InvalidRequestError(f"algorithm is {request.algorithm}, expected a BlobAlgorithm", field="algorithm")
    return algorithm
