"""Bodies of messages that are blobs: stored when they are sent, read when they are delivered."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.blobs.state import chunks_of
from tidelog_server.blobs.store import Blobs, KeyAlgorithm
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.mailboxes import BlobNotExistError
from tidelog_server.core.limits import KIB, MAX_DELIVERED_BODY_BYTES
from tidelog_server.mailboxes.events import Sent
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Fetched, Outgoing

# Bodies of messages above this size are stored as blobs.
MIN_BLOB_BODY_BYTES: Final = 64 * KIB


def any_large(bodies: Iterable[bytes]) -> bool:
    """Return whether one of some bodies is stored as a blob."""
    return max(map(len, bodies), default=0) > MIN_BLOB_BODY_BYTES


class Bodies:
    """Stores bodies as blobs, and reads them."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def must_wait(self, requests: Iterable[pb.SendRequest]) -> bool:
        """Return whether ``prepare`` must be awaited before ``outgoing``: there is no place for blobs yet."""
        return self._blobs.log is None and any(
            any_large(request.bodies) or any_large(message.body for message in request.messages) for request in requests
        )

    async def prepare(self, requests: Iterable[pb.SendRequest]) -> None:
        """Prepare to store large bodies. Raises TidelogServerError if that is not possible; nothing happened then."""
        if self.must_wait(requests):
            await self._blobs.create()

    def outgoing(self, message: Outgoing) -> Outgoing:
        """Return a message with the key and the size of its body if that is a blob.

        Raises:
            BlobNotExistError: The message names a blob that is not stored.
            InvalidRequestError: It has both a body and the key of one.
        """
        if any_large((message.body,)) and not message.blob_key:
            key = KeyAlgorithm.SHA256.key_of(message.body)
            return message._replace(blob_key=key, blob_bytes=len(message.body))
        if not message.blob_key:
            return message
        if message.body:
            raise InvalidRequestError("a message has both a body and a blob_key: set one of them", field="blob_key")
        blob = self._blobs.state.find(message.blob_key)
        if blob is None:
            raise BlobNotExistError(message.blob_key)
        return message._replace(blob_bytes=blob.size_bytes)

    def are_blobs(self, mailbox: Mailbox, fetched: Fetched) -> bool:
        """Return whether the body of a fetched message is a blob."""
        keys = mailbox.state.blobs.keys
        return bool(keys) and any(grant.message_id in keys for grant in fetched.grants)

    async def complete(
        self, messages: Mapping[int, Sent], left_bytes: int = MAX_DELIVERED_BODY_BYTES
    ) -> Mapping[int, Sent]:
        """Return messages with their bodies: blobs up to ``left_bytes`` together, but the first one up to the maximum.

        Raises:
            DataLossError: A chunk is damaged.
        """
        completed = dict(messages)
        for message_id, message in messages.items():
            if not message.blob_key:
                continue
            if self._blobs.state.find(message.blob_key) is None:
                completed[message_id] = replace(message, is_missing=True)
            elif message.blob_bytes <= left_bytes:
                body = await self._blobs.bytes_of(message.blob_key)
                left_bytes -= message.blob_bytes
                completed[message_id] = replace(message, body=body or b"", is_missing=body is None)
        return completed


def blob_events(messages: Iterable[Outgoing]) -> int:
    """Return the maximum number of events of the blobs that the bodies of messages add."""
    # For each, the chunks and the tenant.
    return sum(chunks_of(len(message.body)) + 1 for message in messages if message.blob_key and message.body)
