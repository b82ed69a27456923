"""The message API over a blob store and a message store.

Source: pandora's API, version of January 2020.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from tidelog.errors import TidelogError
from tidelog.pandora.errors import (
    MAX_SIZE,
    BlobNotFoundError,
    NilBodyError,
    blob_not_found,
    message_too_big,
)
from tidelog.pandora.keys import Key, print_key_string
from tidelog.pandora.message import DEFAULT_LEASE_TIME, AckStatus, Message, check_mailbox, utc_now
from tidelog.pandora.stores import AsyncBlobStore, AsyncMessageStore
from tidelog.pandora.values import encode_values, parse_values, values_of
from tidelog.pandora_formats.url_values import SERVER_FIELD

logger: Final = logging.getLogger("tidelog.pandora")


class AsyncServer:
    """Sends, delivers and acknowledges messages. Safe for concurrent calls if the stores are.

    A message refers to its body in the blob store from before it is enqueued until it is confirmed, so the body is not
    collected meanwhile. A crash between two calls of the stores can leave a body that nothing refers to and that is
    never collected; it does not lose a body.

    Args:
        blob_store: Store of the bodies.
        message_store: Store of the headers.
        max_size: Maximum size of an encoded body in bytes.

    Attributes:
        blob_store: Store of the bodies.
        message_store: Store of the headers.
    """

    def __init__(
        self, blob_store: AsyncBlobStore, message_store: AsyncMessageStore, *, max_size: int = MAX_SIZE
    ) -> None:
        self.blob_store = blob_store
        self.message_store = message_store
        self._max_size = max_size

    async def send(
        self,
        sender: str,
        receiver: str,
        delay: timedelta,
        client_time: datetime | str | None,
        body: Mapping[str, str | Sequence[str]] | None,
    ) -> Message:
        """Send a body from one mailbox to another, both of which are created if missing; return the message.

        Args:
            sender: Mailbox of the sender.
            receiver: Mailbox of the receiver.
            delay: Time until the message is due, by the clock of the message store; due at once if it is negative.
            client_time: When the client sent it; RFC 3339 text keeps its nanoseconds. ``None``: now.
            body: The fields, which are copied. The copy gets the sender, the receiver, the client's time, and one value
                more of ``p-server``, all of which count for the message's id.

        Raises:
            NilBodyError: There is no body.
            InvalidMailBoxError: A name is invalid.
            InvalidHeaderEncodingError: UTF-8 cannot encode the body or a name.
            MessageTooBigError: The encoded body exceeds the maximum size.
            DuplicateMessageError: The same body was sent before at the same client time.
            ValueError: The client's time has no time zone or is not RFC 3339.
        """
        if body is None:
            raise NilBodyError
        check_mailbox(sender)
        check_mailbox(receiver)
        message = Message(body=values_of(body), delay=delay)
        message.set_sender(sender)
        message.set_receiver(receiver)
        name, value = SERVER_FIELD
        message.body.setdefault(name, []).append(value)
        message.set_client_time(utc_now() if client_time is None else client_time)
        await self.write_blob(message)
        assert message.mid is not None, "it was written"
        # The reference is there before the message: if this process stops in between, no message is without its body.
        await self.blob_store.update_ref_count(message.mid, 1)
        try:
            await self.message_store.enqueue(message)
        except TidelogError as error:
            if error.effect == "none":
                await self._release(message.mid)
            raise
        return message

    async def fetch_latest(self, receiver: str, lease: timedelta) -> Message:
        """Lease and return the message of a mailbox that was due first.

        If its body is missing or cannot be read, the message is returned nevertheless and stays leased:
        ``valid_body()`` is false, ``body`` is empty and ``body_error`` is the cause.

        Args:
            receiver: The mailbox.
            lease: Duration of the lease; zero or less is ``DEFAULT_LEASE_TIME``.

        Raises:
            SenderNotFoundError: The mailbox does not exist.
            InvalidMailBoxError: The name is invalid.
            NoMessagesError: No message is due and without a lease.
        """
        message = await self.message_store.fetch_and_lock_latest(
            receiver, lease if lease > timedelta() else DEFAULT_LEASE_TIME
        )
        assert message.mid is not None, "a store sets the id"
        try:
            data = await self.blob_store.get_data(message.mid)
            if data is None:
                raise blob_not_found(print_key_string(message.mid))
            message.body = parse_values(data)
        except (TidelogError, OSError, ValueError) as error:
            message.body_error = error
        return message

    async def fetch_headers(self, receiver: str, received_after: datetime, limit: int = 10) -> list[Message]:
        """Return messages that could be fetched now, without bodies. See ``AsyncMessageStore.fetch_headers``."""
        return await self.message_store.fetch_headers(receiver, received_after, limit)

    async def ack(self, mid: Key, lid: Key, status: int) -> None:
        """Acknowledge a leased message. See ``AsyncMessageStore.ack``.

        A confirmed message no longer refers to its body. If the blob store fails then, the message is acknowledged
        nevertheless, and a warning is logged: the body is never collected.
        """
        await self.message_store.ack(mid, lid, status)
        if status == AckStatus.CONFIRMED:
            await self._release(mid)

    async def write_blob(self, message: Message) -> None:
        """Write the encoded body of a message to the blob store, and set ``mid`` to its key.

        Raises:
            MessageTooBigError: The encoded body exceeds the maximum size.
            InvalidHeaderEncodingError: UTF-8 cannot encode the body.
        """
        encoded = encode_values(message.body)
        if len(encoded) > self._max_size:
            raise message_too_big(len(encoded), self._max_size)
        message.mid = await self.blob_store.put_data(encoded)

    async def _release(self, mid: Key) -> None:
        """Remove a message's reference to its body.

        Why no error: the call has done what it is for; without this, the body is kept longer.
        """
        try:
            await self.blob_store.update_ref_count(mid, -1)
        except BlobNotFoundError:
            logger.debug("body %s is not in the blob store any more", print_key_string(mid))
        except (TidelogError, OSError) as error:
            logger.warning("body %s keeps one reference too many: %s", print_key_string(mid), error)
