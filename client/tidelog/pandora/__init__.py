"""Mailboxes with pandora's API: leased messages with delays, acknowledgements, and bodies in a blob store."""

from tidelog.pandora._generated_memory import MemoryBlobStore, MemoryMessageStore
from tidelog.pandora._generated_on_tidelog import TidelogBlobStore, TidelogMessageStore
from tidelog.pandora._generated_server import Server
from tidelog.pandora._generated_stores import BlobStore, MessageStore
from tidelog.pandora.errors import (
    MAX_SIZE,
    ApiError,
    BlobNotFoundError,
    DuplicateMessageError,
    InputTooShortError,
    InvalidHeaderEncodingError,
    InvalidMailBoxError,
    InvalidStatusCodeError,
    KeyTooShortError,
    MessageTooBigError,
    NilBodyError,
    NoDataAvailableError,
    NoMessagesError,
    PandoraError,
    ReceiverNotFoundError,
    SenderNotFoundError,
    StaleLockError,
    UnableToChangeStatusError,
)
from tidelog.pandora.http_client import AsyncHttpClient, HttpClient
from tidelog.pandora.keys import Key, KeyPrinter, KeyWriter, SHA1Key, SHA1KeyWriter, print_key_string
from tidelog.pandora.memory import DEFAULT_GRACE_PERIOD, AsyncMemoryBlobStore, AsyncMemoryMessageStore
from tidelog.pandora.message import (
    DEFAULT_LEASE_TIME,
    KEY_CLIENT_TIME,
    KEY_LEASE_TIME,
    KEY_RECEIVER,
    KEY_SENDER,
    MAX_MAILBOX_BYTES,
    AckStatus,
    Message,
    check_mailbox,
)
from tidelog.pandora.on_tidelog import AsyncTidelogBlobStore, AsyncTidelogMessageStore
from tidelog.pandora.server import AsyncServer
from tidelog.pandora.stores import AsyncBlobStore, AsyncMessageStore
from tidelog.pandora.times import format_time, parse_time
from tidelog.pandora.values import Values, encode_values, parse_values

__all__ = [
    "DEFAULT_GRACE_PERIOD",
    "DEFAULT_LEASE_TIME",
    "KEY_CLIENT_TIME",
    "KEY_LEASE_TIME",
    "KEY_RECEIVER",
    "KEY_SENDER",
    "MAX_MAILBOX_BYTES",
    "MAX_SIZE",
    "AckStatus",
    "ApiError",
    "AsyncBlobStore",
    "AsyncHttpClient",
    "AsyncMemoryBlobStore",
    "AsyncMemoryMessageStore",
    "AsyncMessageStore",
    "AsyncServer",
    "AsyncTidelogBlobStore",
    "AsyncTidelogMessageStore",
    "BlobNotFoundError",
    "BlobStore",
    "DuplicateMessageError",
    "HttpClient",
    "InputTooShortError",
    "InvalidHeaderEncodingError",
    "InvalidMailBoxError",
    "InvalidStatusCodeError",
    "Key",
    "KeyPrinter",
    "KeyTooShortError",
    "KeyWriter",
    "MemoryBlobStore",
    "MemoryMessageStore",
    "Message",
    "MessageStore",
    "MessageTooBigError",
    "NilBodyError",
    "NoDataAvailableError",
    "NoMessagesError",
    "PandoraError",
    "ReceiverNotFoundError",
    "SHA1Key",
    "SHA1KeyWriter",
    "SenderNotFoundError",
    "Server",
    "StaleLockError",
    "TidelogBlobStore",
    "TidelogMessageStore",
    "UnableToChangeStatusError",
    "Values",
    "check_mailbox",
    "encode_values",
    "format_time",
    "parse_time",
    "parse_values",
    "print_key_string",
]

for _value in [globals()[name] for name in __all__]:
    if isinstance(_value, type) and _value.__module__.startswith("tidelog."):
        # Show the public import path in messages and documentation.
        _value.__module__ = __name__
del _value
