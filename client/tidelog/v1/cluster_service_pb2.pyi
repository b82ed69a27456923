from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "node_id", "leader_node_id", "nodes", "standbys")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    STANDBYS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: str
    leader_node_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeDescription]
    standbys: _containers.RepeatedCompositeFieldContainer[StandbyDescription]
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[str] = ..., leader_node_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeDescription, _Mapping]]] = ..., standbys: _Optional[_Iterable[_Union[StandbyDescription, _Mapping]]] = ...) -> None: ...

class StandbyDescription(_message.Message):
    __slots__ = ("process", "address", "http_address", "version", "follows")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    process: str
    address: str
    http_address: str
    version: str
    follows: _containers.RepeatedCompositeFieldContainer[FollowedNode]
    def __init__(self, process: _Optional[str] = ..., address: _Optional[str] = ..., http_address: _Optional[str] = ..., version: _Optional[str] = ..., follows: _Optional[_Iterable[_Union[FollowedNode, _Mapping]]] = ...) -> None: ...

class FollowedNode(_message.Message):
    __slots__ = ("node_id", "lag_positions", "lag_seconds")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LAG_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    lag_positions: int
    lag_seconds: float
    def __init__(self, node_id: _Optional[str] = ..., lag_positions: _Optional[int] = ..., lag_seconds: _Optional[float] = ...) -> None: ...

class NodeDescription(_message.Message):
    __slots__ = ("node_id", "address", "http_address", "term", "version", "channels", "vchannels")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    address: str
    http_address: str
    term: int
    version: str
    channels: int
    vchannels: int
    def __init__(self, node_id: _Optional[str] = ..., address: _Optional[str] = ..., http_address: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[str] = ..., channels: _Optional[int] = ..., vchannels: _Optional[int] = ...) -> None: ...

class ChannelOwner(_message.Message):
    __slots__ = ("channel", "node_id", "address", "term")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    channel: str
    node_id: str
    address: str
    term: int
    def __init__(self, channel: _Optional[str] = ..., node_id: _Optional[str] = ..., address: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class LocateChannelsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class LocateChannelsResponse(_message.Message):
    __slots__ = ("owners", "missing")
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedCompositeFieldContainer[ChannelOwner]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, owners: _Optional[_Iterable[_Union[ChannelOwner, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchOwnersRequest(_message.Message):
    __slots__ = ("heartbeat_interval_ms",)
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval_ms: int
    def __init__(self, heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class WatchOwnersResponse(_message.Message):
    __slots__ = ("owners", "gone", "is_complete", "heartbeat_interval_ms")
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedCompositeFieldContainer[ChannelOwner]
    gone: _containers.RepeatedScalarFieldContainer[str]
    is_complete: bool
    heartbeat_interval_ms: int
    def __init__(self, owners: _Optional[_Iterable[_Union[ChannelOwner, _Mapping]]] = ..., gone: _Optional[_Iterable[str]] = ..., is_complete: _Optional[bool] = ..., heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class AllocateTickRangeRequest(_message.Message):
    __slots__ = ("count", "node_id", "term")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    count: int
    node_id: str
    term: int
    def __init__(self, count: _Optional[int] = ..., node_id: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class AllocateTickRangeResponse(_message.Message):
    __slots__ = ("first_tick",)
    FIRST_TICK_FIELD_NUMBER: _ClassVar[int]
    first_tick: int
    def __init__(self, first_tick: _Optional[int] = ...) -> None: ...

class NoteChannelsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class NoteChannelsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadMetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadMetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    def __init__(self, text: _Optional[bytes] = ...) -> None: ...
