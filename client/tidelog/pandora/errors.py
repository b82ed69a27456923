"""Errors of mailboxes, part of the client's hierarchy (``tidelog.TidelogError``).

The tree::

    TidelogError
    └── PandoraError
        ├── ApiError
        │   ├── KeyTooShortError            read into a key of the printed key's size
        │   ├── InputTooShortError          pass the whole printed key
        │   ├── InvalidHeaderEncodingError  pass text that UTF-8 can encode
        │   ├── MessageTooBigError          send less, or raise ``max_size`` of the server
        │   ├── NilBodyError                pass a body; it may be empty
        │   ├── InvalidMailBoxError         correct the name of the sender or receiver
        │   ├── SenderNotFoundError         send to the mailbox, or correct its name
        │   ├── ReceiverNotFoundError       as for SenderNotFoundError; the stores here do not raise it
        │   ├── UnableToChangeStatusError   acknowledge with CONFIRMED or REJECTED
        │   │   └── StaleLockError          discard the result: another client may have the message
        │   ├── NoMessagesError             fetch again later
        │   └── BlobNotFoundError           put the data first
        ├── DuplicateMessageError           treat the message as sent, or change its body or client time
        ├── NoDataAvailableError            fetch again later
        └── InvalidStatusCodeError          see ``status_code`` and ``text``

The text of an ``ApiError`` is that of pandora. Source: pandora's API, version of January 2020.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar, Final
from urllib.parse import unquote_plus

from tidelog.errors import Effect, TidelogError, number_value, text_value

MAX_SIZE: Final = 4096
"""Maximum size of an encoded body, in bytes."""


class PandoraError(TidelogError):
    """A mailbox or a blob store refused a call."""


class ApiError(PandoraError):
    """A refusal with a text that pandora's API defines; each class has its own.

    Attributes:
        text: The text of errors of the class.
    """

    text: ClassVar[str] = "the mailbox refused the call"

    def __init__(self, message: str = "", *, effect: Effect = "none", values: Mapping[str, str] | None = None) -> None:
        super().__init__(message or self.text, effect=effect, values=values)


class KeyTooShortError(ApiError):
    """A printed key has more bytes than the key that it is read into."""

    text = "key is too short"


class InputTooShortError(ApiError):
    """A printed key has fewer bytes than the key that it is read into."""

    text = "input is to short to process"


class InvalidHeaderEncodingError(ApiError):
    """UTF-8 cannot encode a field of a body, or the name of a mailbox."""

    text = "header should be a valid utf-8"


class MessageTooBigError(ApiError):
    """An encoded body exceeds the maximum size."""

    text = f"message is too big. max size is {MAX_SIZE}"
    size_bytes = number_value("Size of the encoded body.")
    max_bytes = number_value("Maximum size of an encoded body.")


class NilBodyError(ApiError):
    """A message was sent without a body."""

    text = "body is nil"


class InvalidMailBoxError(ApiError):
    """The name of a mailbox is empty, longer than 256 bytes, or has control characters."""

    text = "invalid mailbox"


class SenderNotFoundError(ApiError):
    """No message was sent to or from the mailbox; pandora uses this text for receivers too."""

    text = "sender not found"


class ReceiverNotFoundError(ApiError):
    """The receiver is unknown. Pandora declares the text and never uses it."""

    text = "receiver not found"


class UnableToChangeStatusError(ApiError):
    """A message cannot be acknowledged, or not with this status."""

    text = "unable to change status"


class StaleLockError(UnableToChangeStatusError):
    """The lock id is not that of a valid lease: the lease has ended, or the message was acknowledged."""


class NoMessagesError(ApiError):
    """No message of the mailbox is due and without a lease."""

    text = "no messages at this moment"


class BlobNotFoundError(ApiError):
    """The blob store does not have the key."""

    text = "key not found"
    key = text_value("The key in hexadecimal digits.")


class DuplicateMessageError(PandoraError):
    """A message with the same encoded body was sent before."""

    mid = text_value("Id of the message in hexadecimal digits.")


class NoDataAvailableError(PandoraError):
    """``HttpClient.fetch``: no message of the mailbox is due and without a lease."""

    def __init__(
        self, message: str = "no data available", *, effect: Effect = "none", values: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, effect=effect, values=values)


class InvalidStatusCodeError(PandoraError):
    """``HttpClient``: the server refused a call, or failed."""

    status_code = number_value("Status code of HTTP; 0 if the content of the answer was invalid.")
    text = text_value("What the server answered; empty if it did not say.")


def message_too_big(size_bytes: int, max_bytes: int) -> MessageTooBigError:
    """Return the error for an encoded body over the limit."""
    text = f"message is too big. max size is {max_bytes}"
    return MessageTooBigError(text, values={"size_bytes": str(size_bytes), "max_bytes": str(max_bytes)})


def blob_not_found(key: str) -> BlobNotFoundError:
    """Return the error for a printed key that a blob store does not have."""
    return BlobNotFoundError(values={"key": key})


def duplicate_message(mid: str) -> DuplicateMessageError:
    """Return the error for a message that was sent before, by its printed id."""
    text = f"the message {mid} was sent before: treat it as sent, or change its body or client time"
    return DuplicateMessageError(text, values={"mid": mid})


def invalid_status_code(status: int, content: str) -> InvalidStatusCodeError:
    """Return the error for an answer whose status code is not that of a success, with the content of the answer."""
    effect: Effect = "none" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "unknown"
    text = unquote_plus(content.strip().removeprefix("error="))
    values = {"status_code": str(status), "text": text}
    return InvalidStatusCodeError(f"invalid status code: {status}", effect=effect, values=values)
