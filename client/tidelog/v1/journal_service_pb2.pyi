from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JournalLabel(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class JournalSpec(_message.Message):
    __slots__ = ("name", "labels", "revision", "channel")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.RepeatedCompositeFieldContainer[JournalLabel]
    revision: int
    channel: str
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[JournalLabel, _Mapping]]] = ..., revision: _Optional[int] = ..., channel: _Optional[str] = ...) -> None: ...

class JournalChange(_message.Message):
    __slots__ = ("upsert", "delete", "expected_revision")
    UPSERT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    upsert: JournalSpec
    delete: str
    expected_revision: int
    def __init__(self, upsert: _Optional[_Union[JournalSpec, _Mapping]] = ..., delete: _Optional[str] = ..., expected_revision: _Optional[int] = ...) -> None: ...

class ApplyJournalsRequest(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[JournalChange]
    def __init__(self, changes: _Optional[_Iterable[_Union[JournalChange, _Mapping]]] = ...) -> None: ...

class ApplyJournalsResponse(_message.Message):
    __slots__ = ("journals",)
    JOURNALS_FIELD_NUMBER: _ClassVar[int]
    journals: _containers.RepeatedCompositeFieldContainer[JournalSpec]
    def __init__(self, journals: _Optional[_Iterable[_Union[JournalSpec, _Mapping]]] = ...) -> None: ...

class JournalLabelTerm(_message.Message):
    __slots__ = ("name", "value", "is_prefix")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_PREFIX_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    is_prefix: bool
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., is_prefix: _Optional[bool] = ...) -> None: ...

class JournalSelector(_message.Message):
    __slots__ = ("include", "exclude")
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    include: _containers.RepeatedCompositeFieldContainer[JournalLabelTerm]
    exclude: _containers.RepeatedCompositeFieldContainer[JournalLabelTerm]
    def __init__(self, include: _Optional[_Iterable[_Union[JournalLabelTerm, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[JournalLabelTerm, _Mapping]]] = ...) -> None: ...

class ListJournalsRequest(_message.Message):
    __slots__ = ("selector", "page_size", "page_token")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    selector: JournalSelector
    page_size: int
    page_token: str
    def __init__(self, selector: _Optional[_Union[JournalSelector, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJournalsResponse(_message.Message):
    __slots__ = ("journals", "next_page_token")
    JOURNALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    journals: _containers.RepeatedCompositeFieldContainer[JournalSpec]
    next_page_token: str
    def __init__(self, journals: _Optional[_Iterable[_Union[JournalSpec, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchJournalsRequest(_message.Message):
    __slots__ = ("selector", "heartbeat_interval_ms")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    selector: JournalSelector
    heartbeat_interval_ms: int
    def __init__(self, selector: _Optional[_Union[JournalSelector, _Mapping]] = ..., heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class WatchJournalsResponse(_message.Message):
    __slots__ = ("journals", "gone", "is_complete", "heartbeat_interval_ms")
    JOURNALS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    journals: _containers.RepeatedCompositeFieldContainer[JournalSpec]
    gone: _containers.RepeatedScalarFieldContainer[str]
    is_complete: bool
    heartbeat_interval_ms: int
    def __init__(self, journals: _Optional[_Iterable[_Union[JournalSpec, _Mapping]]] = ..., gone: _Optional[_Iterable[str]] = ..., is_complete: _Optional[bool] = ..., heartbeat_interval_ms: _Optional[int] = ...) -> None: ...
