from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateCheckpointRequest(_message.Message):
    __slots__ = ("lease_ms",)
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class CreateCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("checkpoint_id", "folder", "tick", "sequence", "chain_hash", "incarnation", "last_tick", "created_ms", "lease_ms")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_HASH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    folder: str
    tick: int
    sequence: int
    chain_hash: bytes
    incarnation: bytes
    last_tick: int
    created_ms: int
    lease_ms: int
    def __init__(self, checkpoint_id: _Optional[str] = ..., folder: _Optional[str] = ..., tick: _Optional[int] = ..., sequence: _Optional[int] = ..., chain_hash: _Optional[bytes] = ..., incarnation: _Optional[bytes] = ..., last_tick: _Optional[int] = ..., created_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class KeepCheckpointRequest(_message.Message):
    __slots__ = ("checkpoint_id",)
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    def __init__(self, checkpoint_id: _Optional[str] = ...) -> None: ...

class KeepCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseCheckpointRequest(_message.Message):
    __slots__ = ("checkpoint_id", "is_backed_up")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    IS_BACKED_UP_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    is_backed_up: bool
    def __init__(self, checkpoint_id: _Optional[str] = ..., is_backed_up: _Optional[bool] = ...) -> None: ...

class ReleaseCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoints",)
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ...) -> None: ...
