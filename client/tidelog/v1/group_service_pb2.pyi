from tidelog.v1 import wal_service_pb2 as _wal_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConsumeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSUME_MODE_UNSPECIFIED: _ClassVar[ConsumeMode]
    CONSUME_MODE_EXPLICIT: _ClassVar[ConsumeMode]
    CONSUME_MODE_AT_ONCE: _ClassVar[ConsumeMode]
CONSUME_MODE_UNSPECIFIED: ConsumeMode
CONSUME_MODE_EXPLICIT: ConsumeMode
CONSUME_MODE_AT_ONCE: ConsumeMode

class CreateGroupRequest(_message.Message):
    __slots__ = ("group", "channels", "start", "if_not_exists")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    start: _wal_service_pb2.DeliverPolicy
    if_not_exists: bool
    def __init__(self, group: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ..., start: _Optional[_Union[_wal_service_pb2.DeliverPolicy, _Mapping]] = ..., if_not_exists: _Optional[bool] = ...) -> None: ...

class CreateGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: GroupDescription
    def __init__(self, group: _Optional[_Union[GroupDescription, _Mapping]] = ...) -> None: ...

class AlterGroupRequest(_message.Message):
    __slots__ = ("group", "subscribe", "unsubscribe", "start")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    group: str
    subscribe: _containers.RepeatedScalarFieldContainer[str]
    unsubscribe: _containers.RepeatedScalarFieldContainer[str]
    start: _wal_service_pb2.DeliverPolicy
    def __init__(self, group: _Optional[str] = ..., subscribe: _Optional[_Iterable[str]] = ..., unsubscribe: _Optional[_Iterable[str]] = ..., start: _Optional[_Union[_wal_service_pb2.DeliverPolicy, _Mapping]] = ...) -> None: ...

class AlterGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: GroupDescription
    def __init__(self, group: _Optional[_Union[GroupDescription, _Mapping]] = ...) -> None: ...

class DestroyGroupRequest(_message.Message):
    __slots__ = ("group", "ignore_missing", "force")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_MISSING_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    ignore_missing: bool
    force: bool
    def __init__(self, group: _Optional[str] = ..., ignore_missing: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class DestroyGroupResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: GroupDescription
    def __init__(self, group: _Optional[_Union[GroupDescription, _Mapping]] = ...) -> None: ...

class GroupDescription(_message.Message):
    __slots__ = ("name", "created_tick", "positions", "members")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICK_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_tick: int
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    def __init__(self, name: _Optional[str] = ..., created_tick: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ...) -> None: ...

class GroupPosition(_message.Message):
    __slots__ = ("vchannel", "next_tick", "committed_time_ms", "member_id", "lag_messages", "lag_bytes", "lag_ms", "is_trimmed", "holds_retention")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    NEXT_TICK_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    LAG_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    IS_TRIMMED_FIELD_NUMBER: _ClassVar[int]
    HOLDS_RETENTION_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    next_tick: int
    committed_time_ms: int
    member_id: str
    lag_messages: int
    lag_bytes: int
    lag_ms: int
    is_trimmed: bool
    holds_retention: bool
    def __init__(self, vchannel: _Optional[str] = ..., next_tick: _Optional[int] = ..., committed_time_ms: _Optional[int] = ..., member_id: _Optional[str] = ..., lag_messages: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., is_trimmed: _Optional[bool] = ..., holds_retention: _Optional[bool] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "description", "channels", "vchannels", "expires_in_ms")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    description: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    expires_in_ms: int
    def __init__(self, member_id: _Optional[str] = ..., description: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ..., vchannels: _Optional[_Iterable[str]] = ..., expires_in_ms: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("prefix", "channel", "page_size", "page_token")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    channel: str
    page_size: int
    page_token: str
    def __init__(self, prefix: _Optional[str] = ..., channel: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("name", "created_tick", "vchannels", "members", "committed_time_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICK_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    created_tick: int
    vchannels: int
    members: int
    committed_time_ms: int
    def __init__(self, name: _Optional[str] = ..., created_tick: _Optional[int] = ..., vchannels: _Optional[int] = ..., members: _Optional[int] = ..., committed_time_ms: _Optional[int] = ...) -> None: ...

class CommitPositionsRequest(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[_wal_service_pb2.PositionCommit]
    def __init__(self, positions: _Optional[_Iterable[_Union[_wal_service_pb2.PositionCommit, _Mapping]]] = ...) -> None: ...

class CommitPositionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeekGroupRequest(_message.Message):
    __slots__ = ("group", "vchannels", "to", "from_ticks")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    FROM_TICKS_FIELD_NUMBER: _ClassVar[int]
    group: str
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    to: _wal_service_pb2.DeliverPolicy
    from_ticks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., vchannels: _Optional[_Iterable[str]] = ..., to: _Optional[_Union[_wal_service_pb2.DeliverPolicy, _Mapping]] = ..., from_ticks: _Optional[_Iterable[int]] = ...) -> None: ...

class SeekGroupResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("group", "vchannel", "max_messages", "max_bytes", "wait_ms", "mode", "consume_id", "format", "is_repeated")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    IS_REPEATED_FIELD_NUMBER: _ClassVar[int]
    group: str
    vchannel: str
    max_messages: int
    max_bytes: int
    wait_ms: int
    mode: ConsumeMode
    consume_id: int
    format: _wal_service_pb2.ScanFormat
    is_repeated: bool
    def __init__(self, group: _Optional[str] = ..., vchannel: _Optional[str] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., mode: _Optional[_Union[ConsumeMode, str]] = ..., consume_id: _Optional[int] = ..., format: _Optional[_Union[_wal_service_pb2.ScanFormat, str]] = ..., is_repeated: _Optional[bool] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("messages", "next_tick")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_TICK_FIELD_NUMBER: _ClassVar[int]
    messages: _wal_service_pb2.ScanResponse
    next_tick: int
    def __init__(self, messages: _Optional[_Union[_wal_service_pb2.ScanResponse, _Mapping]] = ..., next_tick: _Optional[int] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("join", "heartbeat", "commit", "release")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    join: JoinGroupStart
    heartbeat: JoinGroupHeartbeat
    commit: JoinGroupCommit
    release: JoinGroupRelease
    def __init__(self, join: _Optional[_Union[JoinGroupStart, _Mapping]] = ..., heartbeat: _Optional[_Union[JoinGroupHeartbeat, _Mapping]] = ..., commit: _Optional[_Union[JoinGroupCommit, _Mapping]] = ..., release: _Optional[_Union[JoinGroupRelease, _Mapping]] = ...) -> None: ...

class JoinGroupStart(_message.Message):
    __slots__ = ("group", "channels", "member_id", "description", "lease_ms", "release_within_ms", "incarnation", "accepts_changes")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_CHANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    member_id: str
    description: str
    lease_ms: int
    release_within_ms: int
    incarnation: int
    accepts_changes: bool
    def __init__(self, group: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ..., member_id: _Optional[str] = ..., description: _Optional[str] = ..., lease_ms: _Optional[int] = ..., release_within_ms: _Optional[int] = ..., incarnation: _Optional[int] = ..., accepts_changes: _Optional[bool] = ...) -> None: ...

class JoinGroupHeartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JoinGroupCommit(_message.Message):
    __slots__ = ("commit_id", "positions")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    commit_id: int
    positions: _containers.RepeatedCompositeFieldContainer[_wal_service_pb2.PositionCommit]
    def __init__(self, commit_id: _Optional[int] = ..., positions: _Optional[_Iterable[_Union[_wal_service_pb2.PositionCommit, _Mapping]]] = ...) -> None: ...

class JoinGroupRelease(_message.Message):
    __slots__ = ("vchannels",)
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    vchannels: _containers.RepeatedCompositeFieldContainer[GroupAssignment]
    def __init__(self, vchannels: _Optional[_Iterable[_Union[GroupAssignment, _Mapping]]] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ("welcome", "assignments", "committed", "changes")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    welcome: JoinGroupWelcome
    assignments: GroupAssignments
    committed: _containers.RepeatedCompositeFieldContainer[JoinGroupCommitted]
    changes: GroupAssignmentChanges
    def __init__(self, welcome: _Optional[_Union[JoinGroupWelcome, _Mapping]] = ..., assignments: _Optional[_Union[GroupAssignments, _Mapping]] = ..., committed: _Optional[_Iterable[_Union[JoinGroupCommitted, _Mapping]]] = ..., changes: _Optional[_Union[GroupAssignmentChanges, _Mapping]] = ...) -> None: ...

class JoinGroupWelcome(_message.Message):
    __slots__ = ("member_id", "lease_ms")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    lease_ms: int
    def __init__(self, member_id: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class GroupAssignments(_message.Message):
    __slots__ = ("vchannels",)
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    vchannels: _containers.RepeatedCompositeFieldContainer[GroupAssignment]
    def __init__(self, vchannels: _Optional[_Iterable[_Union[GroupAssignment, _Mapping]]] = ...) -> None: ...

class GroupAssignmentChanges(_message.Message):
    __slots__ = ("vchannels", "lost")
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    vchannels: _containers.RepeatedCompositeFieldContainer[GroupAssignment]
    lost: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, vchannels: _Optional[_Iterable[_Union[GroupAssignment, _Mapping]]] = ..., lost: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupAssignment(_message.Message):
    __slots__ = ("vchannel", "epoch", "next_tick", "is_revoked")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_TICK_FIELD_NUMBER: _ClassVar[int]
    IS_REVOKED_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    epoch: int
    next_tick: int
    is_revoked: bool
    def __init__(self, vchannel: _Optional[str] = ..., epoch: _Optional[int] = ..., next_tick: _Optional[int] = ..., is_revoked: _Optional[bool] = ...) -> None: ...

class JoinGroupCommitted(_message.Message):
    __slots__ = ("commit_id", "error")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    commit_id: int
    error: _wal_service_pb2.AppendError
    def __init__(self, commit_id: _Optional[int] = ..., error: _Optional[_Union[_wal_service_pb2.AppendError, _Mapping]] = ...) -> None: ...
