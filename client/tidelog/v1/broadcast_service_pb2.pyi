from tidelog.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_MODE_UNSPECIFIED: _ClassVar[AckMode]
    ACK_MODE_ONCE: _ClassVar[AckMode]
    ACK_MODE_ALL: _ClassVar[AckMode]

class BroadcastState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROADCAST_STATE_UNSPECIFIED: _ClassVar[BroadcastState]
    BROADCAST_STATE_PENDING: _ClassVar[BroadcastState]
    BROADCAST_STATE_WAIT_ACK: _ClassVar[BroadcastState]
    BROADCAST_STATE_DONE: _ClassVar[BroadcastState]
    BROADCAST_STATE_ABORTED: _ClassVar[BroadcastState]
ACK_MODE_UNSPECIFIED: AckMode
ACK_MODE_ONCE: AckMode
ACK_MODE_ALL: AckMode
BROADCAST_STATE_UNSPECIFIED: BroadcastState
BROADCAST_STATE_PENDING: BroadcastState
BROADCAST_STATE_WAIT_ACK: BroadcastState
BROADCAST_STATE_DONE: BroadcastState
BROADCAST_STATE_ABORTED: BroadcastState

class ResourceKey(_message.Message):
    __slots__ = ("domain", "key", "shared")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    domain: str
    key: str
    shared: bool
    def __init__(self, domain: _Optional[str] = ..., key: _Optional[str] = ..., shared: _Optional[bool] = ...) -> None: ...

class BroadcastRequest(_message.Message):
    __slots__ = ("vchannels", "message", "resource_keys", "wait_timeout_ms", "barrier_tick", "broadcast_id")
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_KEYS_FIELD_NUMBER: _ClassVar[int]
    WAIT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TICK_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    message: _message_pb2.Message
    resource_keys: _containers.RepeatedCompositeFieldContainer[ResourceKey]
    wait_timeout_ms: int
    barrier_tick: int
    broadcast_id: int
    def __init__(self, vchannels: _Optional[_Iterable[str]] = ..., message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ..., resource_keys: _Optional[_Iterable[_Union[ResourceKey, _Mapping]]] = ..., wait_timeout_ms: _Optional[int] = ..., barrier_tick: _Optional[int] = ..., broadcast_id: _Optional[int] = ...) -> None: ...

class BroadcastResponse(_message.Message):
    __slots__ = ("broadcast_id", "tick", "duplicate")
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    broadcast_id: int
    tick: int
    duplicate: bool
    def __init__(self, broadcast_id: _Optional[int] = ..., tick: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class WithdrawBroadcastRequest(_message.Message):
    __slots__ = ("broadcast_id",)
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    broadcast_id: int
    def __init__(self, broadcast_id: _Optional[int] = ...) -> None: ...

class WithdrawBroadcastResponse(_message.Message):
    __slots__ = ("waited",)
    WAITED_FIELD_NUMBER: _ClassVar[int]
    waited: bool
    def __init__(self, waited: _Optional[bool] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("broadcast_id", "vchannels")
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    broadcast_id: int
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, broadcast_id: _Optional[int] = ..., vchannels: _Optional[_Iterable[str]] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WaitAckedRequest(_message.Message):
    __slots__ = ("resource_key", "broadcast_ids", "mode", "timeout_ms")
    RESOURCE_KEY_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_IDS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    resource_key: ResourceKey
    broadcast_ids: _containers.RepeatedScalarFieldContainer[int]
    mode: AckMode
    timeout_ms: int
    def __init__(self, resource_key: _Optional[_Union[ResourceKey, _Mapping]] = ..., broadcast_ids: _Optional[_Iterable[int]] = ..., mode: _Optional[_Union[AckMode, str]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class WaitAckedResponse(_message.Message):
    __slots__ = ("acked", "broadcast_ids")
    ACKED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_IDS_FIELD_NUMBER: _ClassVar[int]
    acked: bool
    broadcast_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, acked: _Optional[bool] = ..., broadcast_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class BroadcastSummary(_message.Message):
    __slots__ = ("broadcast_id", "state", "tick", "vchannels", "acked_vchannels", "resource_keys", "created_time_ms", "finished_time_ms", "abort_reason", "age_ms")
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    ACKED_VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_KEYS_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ABORT_REASON_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    broadcast_id: int
    state: BroadcastState
    tick: int
    vchannels: int
    acked_vchannels: int
    resource_keys: _containers.RepeatedCompositeFieldContainer[ResourceKey]
    created_time_ms: int
    finished_time_ms: int
    abort_reason: str
    age_ms: int
    def __init__(self, broadcast_id: _Optional[int] = ..., state: _Optional[_Union[BroadcastState, str]] = ..., tick: _Optional[int] = ..., vchannels: _Optional[int] = ..., acked_vchannels: _Optional[int] = ..., resource_keys: _Optional[_Iterable[_Union[ResourceKey, _Mapping]]] = ..., created_time_ms: _Optional[int] = ..., finished_time_ms: _Optional[int] = ..., abort_reason: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

class ListBroadcastsRequest(_message.Message):
    __slots__ = ("states", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[BroadcastState]
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[BroadcastState, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBroadcastsResponse(_message.Message):
    __slots__ = ("broadcasts", "next_page_token")
    BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    broadcasts: _containers.RepeatedCompositeFieldContainer[BroadcastSummary]
    next_page_token: str
    def __init__(self, broadcasts: _Optional[_Iterable[_Union[BroadcastSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DescribeBroadcastRequest(_message.Message):
    __slots__ = ("broadcast_id",)
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    broadcast_id: int
    def __init__(self, broadcast_id: _Optional[int] = ...) -> None: ...

class DescribeBroadcastResponse(_message.Message):
    __slots__ = ("summary", "acked", "missing")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    summary: BroadcastSummary
    acked: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, summary: _Optional[_Union[BroadcastSummary, _Mapping]] = ..., acked: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class AbortBroadcastRequest(_message.Message):
    __slots__ = ("broadcast_id", "reason")
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    broadcast_id: int
    reason: str
    def __init__(self, broadcast_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortBroadcastResponse(_message.Message):
    __slots__ = ("summary",)
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    summary: BroadcastSummary
    def __init__(self, summary: _Optional[_Union[BroadcastSummary, _Mapping]] = ...) -> None: ...
