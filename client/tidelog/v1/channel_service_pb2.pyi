from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OwnerDescription(_message.Message):
    __slots__ = ("role", "address", "description_text")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_TEXT_FIELD_NUMBER: _ClassVar[int]
    role: str
    address: str
    description_text: str
    def __init__(self, role: _Optional[str] = ..., address: _Optional[str] = ..., description_text: _Optional[str] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("age_ms", "bytes", "hard_bytes")
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HARD_BYTES_FIELD_NUMBER: _ClassVar[int]
    age_ms: int
    bytes: int
    hard_bytes: int
    def __init__(self, age_ms: _Optional[int] = ..., bytes: _Optional[int] = ..., hard_bytes: _Optional[int] = ...) -> None: ...

class RetentionChange(_message.Message):
    __slots__ = ("age_ms", "bytes", "hard_bytes")
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HARD_BYTES_FIELD_NUMBER: _ClassVar[int]
    age_ms: int
    bytes: int
    hard_bytes: int
    def __init__(self, age_ms: _Optional[int] = ..., bytes: _Optional[int] = ..., hard_bytes: _Optional[int] = ...) -> None: ...

class CreateChannelsRequest(_message.Message):
    __slots__ = ("owner", "names", "number", "vchannels", "if_not_exists", "retention")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    owner: OwnerDescription
    names: _containers.RepeatedScalarFieldContainer[str]
    number: int
    vchannels: int
    if_not_exists: bool
    retention: Retention
    def __init__(self, owner: _Optional[_Union[OwnerDescription, _Mapping]] = ..., names: _Optional[_Iterable[str]] = ..., number: _Optional[int] = ..., vchannels: _Optional[int] = ..., if_not_exists: _Optional[bool] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class CreateChannelsResponse(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelDescription]
    def __init__(self, channels: _Optional[_Iterable[_Union[ChannelDescription, _Mapping]]] = ...) -> None: ...

class AlterChannelsRequest(_message.Message):
    __slots__ = ("names", "retention", "vchannels")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    retention: RetentionChange
    vchannels: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., retention: _Optional[_Union[RetentionChange, _Mapping]] = ..., vchannels: _Optional[int] = ...) -> None: ...

class AlterChannelsResponse(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelDescription]
    def __init__(self, channels: _Optional[_Iterable[_Union[ChannelDescription, _Mapping]]] = ...) -> None: ...

class DestroyChannelsRequest(_message.Message):
    __slots__ = ("names", "ignore_missing", "force")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    IGNORE_MISSING_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    ignore_missing: bool
    force: bool
    def __init__(self, names: _Optional[_Iterable[str]] = ..., ignore_missing: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class DestroyChannelsResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeChannelsRequest(_message.Message):
    __slots__ = ("names", "ignore_missing")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    IGNORE_MISSING_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    ignore_missing: bool
    def __init__(self, names: _Optional[_Iterable[str]] = ..., ignore_missing: _Optional[bool] = ...) -> None: ...

class DescribeChannelsResponse(_message.Message):
    __slots__ = ("channels", "missing")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelDescription]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, channels: _Optional[_Iterable[_Union[ChannelDescription, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class ListChannelsRequest(_message.Message):
    __slots__ = ("prefix", "page_size", "page_token", "include_system", "only_readable")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    ONLY_READABLE_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_size: int
    page_token: str
    include_system: bool
    only_readable: bool
    def __init__(self, prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_system: _Optional[bool] = ..., only_readable: _Optional[bool] = ...) -> None: ...

class ListChannelsResponse(_message.Message):
    __slots__ = ("channels", "next_page_token")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelDescription]
    next_page_token: str
    def __init__(self, channels: _Optional[_Iterable[_Union[ChannelDescription, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ChannelDescription(_message.Message):
    __slots__ = ("name", "owner", "created_tick", "watermark", "stopped_by", "vchannels", "retention", "node_id", "address", "term", "growths")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICK_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    STOPPED_BY_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    GROWTHS_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: OwnerDescription
    created_tick: int
    watermark: int
    stopped_by: str
    vchannels: _containers.RepeatedCompositeFieldContainer[VchannelDescription]
    retention: Retention
    node_id: str
    address: str
    term: int
    growths: _containers.RepeatedCompositeFieldContainer[ChannelGrowth]
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[_Union[OwnerDescription, _Mapping]] = ..., created_tick: _Optional[int] = ..., watermark: _Optional[int] = ..., stopped_by: _Optional[str] = ..., vchannels: _Optional[_Iterable[_Union[VchannelDescription, _Mapping]]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., node_id: _Optional[str] = ..., address: _Optional[str] = ..., term: _Optional[int] = ..., growths: _Optional[_Iterable[_Union[ChannelGrowth, _Mapping]]] = ...) -> None: ...

class ChannelGrowth(_message.Message):
    __slots__ = ("tick", "vchannels")
    TICK_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    tick: int
    vchannels: int
    def __init__(self, tick: _Optional[int] = ..., vchannels: _Optional[int] = ...) -> None: ...

class VchannelDescription(_message.Message):
    __slots__ = ("name", "trim_tick", "last_tick", "messages", "bytes", "fencing_token", "cut")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRIM_TICK_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    trim_tick: int
    last_tick: int
    messages: int
    bytes: int
    fencing_token: int
    cut: RetentionCut
    def __init__(self, name: _Optional[str] = ..., trim_tick: _Optional[int] = ..., last_tick: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., fencing_token: _Optional[int] = ..., cut: _Optional[_Union[RetentionCut, _Mapping]] = ...) -> None: ...

class RetentionCut(_message.Message):
    __slots__ = ("messages", "bytes", "until_tick", "groups")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TICK_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    messages: int
    bytes: int
    until_tick: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ..., until_tick: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...
