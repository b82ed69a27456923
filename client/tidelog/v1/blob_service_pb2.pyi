from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlobAlgorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLOB_ALGORITHM_UNSPECIFIED: _ClassVar[BlobAlgorithm]
    BLOB_ALGORITHM_SHA256: _ClassVar[BlobAlgorithm]
    BLOB_ALGORITHM_SHA1: _ClassVar[BlobAlgorithm]
BLOB_ALGORITHM_UNSPECIFIED: BlobAlgorithm
BLOB_ALGORITHM_SHA256: BlobAlgorithm
BLOB_ALGORITHM_SHA1: BlobAlgorithm

class PutBlobRequest(_message.Message):
    __slots__ = ("data", "algorithm", "mailbox")
    DATA_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    algorithm: BlobAlgorithm
    mailbox: str
    def __init__(self, data: _Optional[bytes] = ..., algorithm: _Optional[_Union[BlobAlgorithm, str]] = ..., mailbox: _Optional[str] = ...) -> None: ...

class PutBlobResponse(_message.Message):
    __slots__ = ("key", "size_bytes", "is_created")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_CREATED_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    size_bytes: int
    is_created: bool
    def __init__(self, key: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., is_created: _Optional[bool] = ...) -> None: ...

class GetBlobRequest(_message.Message):
    __slots__ = ("key", "mailbox", "lock_id", "message_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    mailbox: str
    lock_id: bytes
    message_id: int
    def __init__(self, key: _Optional[bytes] = ..., mailbox: _Optional[str] = ..., lock_id: _Optional[bytes] = ..., message_id: _Optional[int] = ...) -> None: ...

class GetBlobResponse(_message.Message):
    __slots__ = ("data", "size_bytes")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    size_bytes: int
    def __init__(self, data: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class UpdateBlobRefCountRequest(_message.Message):
    __slots__ = ("key", "delta")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    delta: int
    def __init__(self, key: _Optional[bytes] = ..., delta: _Optional[int] = ...) -> None: ...

class UpdateBlobRefCountResponse(_message.Message):
    __slots__ = ("references",)
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    references: int
    def __init__(self, references: _Optional[int] = ...) -> None: ...

class DescribeBlobRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    def __init__(self, key: _Optional[bytes] = ...) -> None: ...

class DescribeBlobResponse(_message.Message):
    __slots__ = ("size_bytes", "references", "messages")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    references: int
    messages: int
    def __init__(self, size_bytes: _Optional[int] = ..., references: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...
