from google.protobuf import any_pb2 as _any_pb2
from tidelog.v1 import error_options_pb2 as _error_options_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Effect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EFFECT_UNSPECIFIED: _ClassVar[Effect]
    EFFECT_NONE: _ClassVar[Effect]
    EFFECT_UNKNOWN: _ClassVar[Effect]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_CHANNEL_NOT_EXIST: _ClassVar[Reason]
    REASON_ON_SHUTDOWN: _ClassVar[Reason]
    REASON_INVALID_ARGUMENT: _ClassVar[Reason]
    REASON_CHANNEL_ALREADY_EXISTS: _ClassVar[Reason]
    REASON_INVALID_NAME: _ClassVar[Reason]
    REASON_EMPTY_BATCH: _ClassVar[Reason]
    REASON_MESSAGE_TOO_LARGE: _ClassVar[Reason]
    REASON_BATCH_TOO_LARGE: _ClassVar[Reason]
    REASON_MALFORMED_COLUMNS: _ClassVar[Reason]
    REASON_CHECKSUM_MISMATCH: _ClassVar[Reason]
    REASON_RESERVED_PROPERTY: _ClassVar[Reason]
    REASON_BARRIER_NOT_REACHED: _ClassVar[Reason]
    REASON_POSITION_TRIMMED: _ClassVar[Reason]
    REASON_POSITION_BEYOND_END: _ClassVar[Reason]
    REASON_WAL_NAME_MISMATCH: _ClassVar[Reason]
    REASON_RATE_LIMIT_REJECTED: _ClassVar[Reason]
    REASON_STORAGE_FAILED: _ClassVar[Reason]
    REASON_DATA_LOSS: _ClassVar[Reason]
    REASON_DISK_FULL: _ClassVar[Reason]
    REASON_INNER: _ClassVar[Reason]
    REASON_MALFORMED_REQUEST: _ClassVar[Reason]
    REASON_LAST_TICK_MISMATCH: _ClassVar[Reason]
    REASON_FENCING_TOKEN_MISMATCH: _ClassVar[Reason]
    REASON_PRODUCER_FENCED: _ClassVar[Reason]
    REASON_SEQUENCE_GAP: _ClassVar[Reason]
    REASON_SEQUENCE_REUSED: _ClassVar[Reason]
    REASON_SEQUENCE_FORGOTTEN: _ClassVar[Reason]
    REASON_TRANSACTION_EXPIRED: _ClassVar[Reason]
    REASON_INVALID_TRANSACTION_STATE: _ClassVar[Reason]
    REASON_TRANSACTION_NOT_EXIST: _ClassVar[Reason]
    REASON_TRANSACTION_FOREIGN: _ClassVar[Reason]
    REASON_VCHANNEL_NOT_IN_TRANSACTION: _ClassVar[Reason]
    REASON_TRANSACTION_TOO_LARGE: _ClassVar[Reason]
    REASON_TRANSACTION_OUTCOME_FORGOTTEN: _ClassVar[Reason]
    REASON_TRANSACTION_INCOMPLETE: _ClassVar[Reason]
    REASON_TRANSACTION_SEQUENCE_GAP: _ClassVar[Reason]
    REASON_TRANSACTION_SEQUENCE_REUSED: _ClassVar[Reason]
    REASON_APP_VERSION_PASSED: _ClassVar[Reason]
    REASON_APP_COMMIT_MISMATCH: _ClassVar[Reason]
    REASON_RESOURCE_ACQUIRED: _ClassVar[Reason]
    REASON_BROADCAST_VCHANNEL_UNKNOWN: _ClassVar[Reason]
    REASON_BROADCAST_NOT_EXIST: _ClassVar[Reason]
    REASON_BROADCAST_REUSED: _ClassVar[Reason]
    REASON_BROADCAST_FORGOTTEN: _ClassVar[Reason]
    REASON_BROADCAST_ABORTED: _ClassVar[Reason]
    REASON_GROUP_NOT_EXIST: _ClassVar[Reason]
    REASON_GROUP_ALREADY_EXISTS: _ClassVar[Reason]
    REASON_GROUP_IN_USE: _ClassVar[Reason]
    REASON_GROUP_NOT_SUBSCRIBED: _ClassVar[Reason]
    REASON_GROUP_MEMBER_FENCED: _ClassVar[Reason]
    REASON_GROUP_POSITION_MOVED: _ClassVar[Reason]
    REASON_CONSUME_FORGOTTEN: _ClassVar[Reason]
    REASON_METADATA_UNAVAILABLE: _ClassVar[Reason]
    REASON_OWNERSHIP_LOST: _ClassVar[Reason]
    REASON_NOT_OWNER: _ClassVar[Reason]
    REASON_NOT_LEADER: _ClassVar[Reason]
    REASON_UNAUTHENTICATED: _ClassVar[Reason]
    REASON_CREDENTIALS_EXPIRED: _ClassVar[Reason]
    REASON_PERMISSION_DENIED: _ClassVar[Reason]
    REASON_TOKEN_NOT_EXIST: _ClassVar[Reason]
    REASON_AUDIT_FAILED: _ClassVar[Reason]
    REASON_CHECKPOINT_UNSUPPORTED: _ClassVar[Reason]
    REASON_CHECKPOINT_NOT_EXIST: _ClassVar[Reason]
    REASON_CHECKPOINT_FAILED: _ClassVar[Reason]
    REASON_STORAGE_UNREADABLE: _ClassVar[Reason]
    REASON_APPLICATION_FORGOTTEN: _ClassVar[Reason]
    REASON_PRODUCER_FORGOTTEN: _ClassVar[Reason]
    REASON_JOURNAL_REVISION_MISMATCH: _ClassVar[Reason]
    REASON_MAILBOX_NOT_EXIST: _ClassVar[Reason]
    REASON_MAILBOX_ALREADY_EXISTS: _ClassVar[Reason]
    REASON_LOCK_UNKNOWN: _ClassVar[Reason]
    REASON_LOCK_EXPIRED: _ClassVar[Reason]
    REASON_ALREADY_ACKNOWLEDGED: _ClassVar[Reason]
    REASON_MAILBOX_FULL: _ClassVar[Reason]
    REASON_DEAD_LETTER_CYCLE: _ClassVar[Reason]
    REASON_LEASE_TOO_LONG: _ClassVar[Reason]
    REASON_BODY_TOO_LARGE: _ClassVar[Reason]
    REASON_INVALID_DELAY: _ClassVar[Reason]
    REASON_MAILBOX_IN_USE: _ClassVar[Reason]
    REASON_BLOB_NOT_EXIST: _ClassVar[Reason]
    REASON_BLOB_TOO_LARGE: _ClassVar[Reason]
    REASON_LOG_SILENT: _ClassVar[Reason]
EFFECT_UNSPECIFIED: Effect
EFFECT_NONE: Effect
EFFECT_UNKNOWN: Effect
REASON_UNSPECIFIED: Reason
REASON_CHANNEL_NOT_EXIST: Reason
REASON_ON_SHUTDOWN: Reason
REASON_INVALID_ARGUMENT: Reason
REASON_CHANNEL_ALREADY_EXISTS: Reason
REASON_INVALID_NAME: Reason
REASON_EMPTY_BATCH: Reason
REASON_MESSAGE_TOO_LARGE: Reason
REASON_BATCH_TOO_LARGE: Reason
REASON_MALFORMED_COLUMNS: Reason
REASON_CHECKSUM_MISMATCH: Reason
REASON_RESERVED_PROPERTY: Reason
REASON_BARRIER_NOT_REACHED: Reason
REASON_POSITION_TRIMMED: Reason
REASON_POSITION_BEYOND_END: Reason
REASON_WAL_NAME_MISMATCH: Reason
REASON_RATE_LIMIT_REJECTED: Reason
REASON_STORAGE_FAILED: Reason
REASON_DATA_LOSS: Reason
REASON_DISK_FULL: Reason
REASON_INNER: Reason
REASON_MALFORMED_REQUEST: Reason
REASON_LAST_TICK_MISMATCH: Reason
REASON_FENCING_TOKEN_MISMATCH: Reason
REASON_PRODUCER_FENCED: Reason
REASON_SEQUENCE_GAP: Reason
REASON_SEQUENCE_REUSED: Reason
REASON_SEQUENCE_FORGOTTEN: Reason
REASON_TRANSACTION_EXPIRED: Reason
REASON_INVALID_TRANSACTION_STATE: Reason
REASON_TRANSACTION_NOT_EXIST: Reason
REASON_TRANSACTION_FOREIGN: Reason
REASON_VCHANNEL_NOT_IN_TRANSACTION: Reason
REASON_TRANSACTION_TOO_LARGE: Reason
REASON_TRANSACTION_OUTCOME_FORGOTTEN: Reason
REASON_TRANSACTION_INCOMPLETE: Reason
REASON_TRANSACTION_SEQUENCE_GAP: Reason
REASON_TRANSACTION_SEQUENCE_REUSED: Reason
REASON_APP_VERSION_PASSED: Reason
REASON_APP_COMMIT_MISMATCH: Reason
REASON_RESOURCE_ACQUIRED: Reason
REASON_BROADCAST_VCHANNEL_UNKNOWN: Reason
REASON_BROADCAST_NOT_EXIST: Reason
REASON_BROADCAST_REUSED: Reason
REASON_BROADCAST_FORGOTTEN: Reason
REASON_BROADCAST_ABORTED: Reason
REASON_GROUP_NOT_EXIST: Reason
REASON_GROUP_ALREADY_EXISTS: Reason
REASON_GROUP_IN_USE: Reason
REASON_GROUP_NOT_SUBSCRIBED: Reason
REASON_GROUP_MEMBER_FENCED: Reason
REASON_GROUP_POSITION_MOVED: Reason
REASON_CONSUME_FORGOTTEN: Reason
REASON_METADATA_UNAVAILABLE: Reason
REASON_OWNERSHIP_LOST: Reason
REASON_NOT_OWNER: Reason
REASON_NOT_LEADER: Reason
REASON_UNAUTHENTICATED: Reason
REASON_CREDENTIALS_EXPIRED: Reason
REASON_PERMISSION_DENIED: Reason
REASON_TOKEN_NOT_EXIST: Reason
REASON_AUDIT_FAILED: Reason
REASON_CHECKPOINT_UNSUPPORTED: Reason
REASON_CHECKPOINT_NOT_EXIST: Reason
REASON_CHECKPOINT_FAILED: Reason
REASON_STORAGE_UNREADABLE: Reason
REASON_APPLICATION_FORGOTTEN: Reason
REASON_PRODUCER_FORGOTTEN: Reason
REASON_JOURNAL_REVISION_MISMATCH: Reason
REASON_MAILBOX_NOT_EXIST: Reason
REASON_MAILBOX_ALREADY_EXISTS: Reason
REASON_LOCK_UNKNOWN: Reason
REASON_LOCK_EXPIRED: Reason
REASON_ALREADY_ACKNOWLEDGED: Reason
REASON_MAILBOX_FULL: Reason
REASON_DEAD_LETTER_CYCLE: Reason
REASON_LEASE_TOO_LONG: Reason
REASON_BODY_TOO_LARGE: Reason
REASON_INVALID_DELAY: Reason
REASON_MAILBOX_IN_USE: Reason
REASON_BLOB_NOT_EXIST: Reason
REASON_BLOB_TOO_LARGE: Reason
REASON_LOG_SILENT: Reason

class ErrorDetail(_message.Message):
    __slots__ = ("reason", "effect", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    effect: Effect
    values: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., effect: _Optional[_Union[Effect, str]] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CallError(_message.Message):
    __slots__ = ("code", "message", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    detail: ErrorDetail
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., detail: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class RpcStatus(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class RpcErrorInfo(_message.Message):
    __slots__ = ("reason", "domain", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: str
    domain: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[str] = ..., domain: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...
