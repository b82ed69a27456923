from tidelog.v1 import mailbox_service_pb2 as _mailbox_service_pb2
from tidelog.v1 import message_pb2 as _message_pb2
from tidelog.v1 import wal_service_pb2 as _wal_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TxnState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TXN_STATE_UNSPECIFIED: _ClassVar[TxnState]
    TXN_STATE_OPEN: _ClassVar[TxnState]
    TXN_STATE_COMMITTING: _ClassVar[TxnState]
    TXN_STATE_COMMITTED: _ClassVar[TxnState]
    TXN_STATE_PREPARED: _ClassVar[TxnState]
TXN_STATE_UNSPECIFIED: TxnState
TXN_STATE_OPEN: TxnState
TXN_STATE_COMMITTING: TxnState
TXN_STATE_COMMITTED: TxnState
TXN_STATE_PREPARED: TxnState

class BeginTxnRequest(_message.Message):
    __slots__ = ("vchannels", "keepalive_us")
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_US_FIELD_NUMBER: _ClassVar[int]
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    keepalive_us: int
    def __init__(self, vchannels: _Optional[_Iterable[str]] = ..., keepalive_us: _Optional[int] = ...) -> None: ...

class BeginTxnResponse(_message.Message):
    __slots__ = ("txn_id", "keepalive_us")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_US_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    keepalive_us: int
    def __init__(self, txn_id: _Optional[int] = ..., keepalive_us: _Optional[int] = ...) -> None: ...

class CommitTxnRequest(_message.Message):
    __slots__ = ("txn_id", "batches", "conditions", "barrier_tick", "durability", "positions", "sends", "acks")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TICK_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    batches: int
    conditions: _containers.RepeatedCompositeFieldContainer[CommitCondition]
    barrier_tick: int
    durability: _message_pb2.Durability
    positions: _containers.RepeatedCompositeFieldContainer[_wal_service_pb2.PositionCommit]
    sends: _containers.RepeatedCompositeFieldContainer[_mailbox_service_pb2.SendRequest]
    acks: _containers.RepeatedCompositeFieldContainer[_mailbox_service_pb2.AckDeliveriesRequest]
    def __init__(self, txn_id: _Optional[int] = ..., batches: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[CommitCondition, _Mapping]]] = ..., barrier_tick: _Optional[int] = ..., durability: _Optional[_Union[_message_pb2.Durability, str]] = ..., positions: _Optional[_Iterable[_Union[_wal_service_pb2.PositionCommit, _Mapping]]] = ..., sends: _Optional[_Iterable[_Union[_mailbox_service_pb2.SendRequest, _Mapping]]] = ..., acks: _Optional[_Iterable[_Union[_mailbox_service_pb2.AckDeliveriesRequest, _Mapping]]] = ...) -> None: ...

class CommitCondition(_message.Message):
    __slots__ = ("vchannel", "expected_last_tick", "fencing_token")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    expected_last_tick: int
    fencing_token: int
    def __init__(self, vchannel: _Optional[str] = ..., expected_last_tick: _Optional[int] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class CommitTxnResponse(_message.Message):
    __slots__ = ("result", "vchannels")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    result: _wal_service_pb2.TransactionResult
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, result: _Optional[_Union[_wal_service_pb2.TransactionResult, _Mapping]] = ..., vchannels: _Optional[_Iterable[str]] = ...) -> None: ...

class RollbackTxnRequest(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    def __init__(self, txn_id: _Optional[int] = ...) -> None: ...

class RollbackTxnResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeepaliveTxnRequest(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    def __init__(self, txn_id: _Optional[int] = ...) -> None: ...

class KeepaliveTxnResponse(_message.Message):
    __slots__ = ("keepalive_us",)
    KEEPALIVE_US_FIELD_NUMBER: _ClassVar[int]
    keepalive_us: int
    def __init__(self, keepalive_us: _Optional[int] = ...) -> None: ...

class PrepareTxnRequest(_message.Message):
    __slots__ = ("txn_id", "batches", "keepalive_us", "app_id", "app_version")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_US_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    APP_VERSION_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    batches: int
    keepalive_us: int
    app_id: str
    app_version: int
    def __init__(self, txn_id: _Optional[int] = ..., batches: _Optional[int] = ..., keepalive_us: _Optional[int] = ..., app_id: _Optional[str] = ..., app_version: _Optional[int] = ...) -> None: ...

class PrepareTxnResponse(_message.Message):
    __slots__ = ("keepalive_us",)
    KEEPALIVE_US_FIELD_NUMBER: _ClassVar[int]
    keepalive_us: int
    def __init__(self, keepalive_us: _Optional[int] = ...) -> None: ...

class PreparedTxn(_message.Message):
    __slots__ = ("txn_id", "client_id")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    client_id: str
    def __init__(self, txn_id: _Optional[int] = ..., client_id: _Optional[str] = ...) -> None: ...

class CommitPreparedTxnsRequest(_message.Message):
    __slots__ = ("txns", "app_id", "app_version", "barrier_tick", "durability", "is_last", "is_first", "query_id", "any_vchannel")
    TXNS_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    APP_VERSION_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TICK_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ANY_VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    txns: _containers.RepeatedCompositeFieldContainer[PreparedTxn]
    app_id: str
    app_version: int
    barrier_tick: int
    durability: _message_pb2.Durability
    is_last: bool
    is_first: bool
    query_id: str
    any_vchannel: bool
    def __init__(self, txns: _Optional[_Iterable[_Union[PreparedTxn, _Mapping]]] = ..., app_id: _Optional[str] = ..., app_version: _Optional[int] = ..., barrier_tick: _Optional[int] = ..., durability: _Optional[_Union[_message_pb2.Durability, str]] = ..., is_last: _Optional[bool] = ..., is_first: _Optional[bool] = ..., query_id: _Optional[str] = ..., any_vchannel: _Optional[bool] = ...) -> None: ...

class CommitPreparedTxnsResponse(_message.Message):
    __slots__ = ("first_tick", "last_tick", "messages", "durability", "duplicate")
    FIRST_TICK_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    first_tick: int
    last_tick: int
    messages: int
    durability: _message_pb2.Durability
    duplicate: bool
    def __init__(self, first_tick: _Optional[int] = ..., last_tick: _Optional[int] = ..., messages: _Optional[int] = ..., durability: _Optional[_Union[_message_pb2.Durability, str]] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class RollbackPreparedTxnsRequest(_message.Message):
    __slots__ = ("txns",)
    TXNS_FIELD_NUMBER: _ClassVar[int]
    txns: _containers.RepeatedCompositeFieldContainer[PreparedTxn]
    def __init__(self, txns: _Optional[_Iterable[_Union[PreparedTxn, _Mapping]]] = ...) -> None: ...

class RollbackPreparedTxnsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTxnsRequest(_message.Message):
    __slots__ = ("page_token",)
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_token: str
    def __init__(self, page_token: _Optional[str] = ...) -> None: ...

class ListTxnsResponse(_message.Message):
    __slots__ = ("txns", "next_page_token")
    TXNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    txns: _containers.RepeatedCompositeFieldContainer[TxnDescription]
    next_page_token: str
    def __init__(self, txns: _Optional[_Iterable[_Union[TxnDescription, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DescribeTxnRequest(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    def __init__(self, txn_id: _Optional[int] = ...) -> None: ...

class DescribeTxnResponse(_message.Message):
    __slots__ = ("txn",)
    TXN_FIELD_NUMBER: _ClassVar[int]
    txn: TxnDescription
    def __init__(self, txn: _Optional[_Union[TxnDescription, _Mapping]] = ...) -> None: ...

class TxnDescription(_message.Message):
    __slots__ = ("txn_id", "state", "client_id", "vchannels", "batches", "messages", "bytes", "keepalive_us", "expires_in_us", "result", "principal")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_US_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    state: TxnState
    client_id: str
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    batches: int
    messages: int
    bytes: int
    keepalive_us: int
    expires_in_us: int
    result: _wal_service_pb2.TransactionResult
    principal: str
    def __init__(self, txn_id: _Optional[int] = ..., state: _Optional[_Union[TxnState, str]] = ..., client_id: _Optional[str] = ..., vchannels: _Optional[_Iterable[str]] = ..., batches: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., keepalive_us: _Optional[int] = ..., expires_in_us: _Optional[int] = ..., result: _Optional[_Union[_wal_service_pb2.TransactionResult, _Mapping]] = ..., principal: _Optional[str] = ...) -> None: ...

class AbortTxnRequest(_message.Message):
    __slots__ = ("txn_id", "reason")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    reason: str
    def __init__(self, txn_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortTxnResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
