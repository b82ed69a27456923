from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StreamMessageBase(_message.Message):
    __slots__ = ("id", "begin_ts", "end_ts", "source_id", "hash_keys", "trace_context")
    class TraceContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TS_FIELD_NUMBER: _ClassVar[int]
    END_TS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_KEYS_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    begin_ts: int
    end_ts: int
    source_id: int
    hash_keys: _containers.RepeatedScalarFieldContainer[int]
    trace_context: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[int] = ..., begin_ts: _Optional[int] = ..., end_ts: _Optional[int] = ..., source_id: _Optional[int] = ..., hash_keys: _Optional[_Iterable[int]] = ..., trace_context: _Optional[_Mapping[str, str]] = ...) -> None: ...

class InsertBody(_message.Message):
    __slots__ = ("base", "database_name", "collection_name", "partition_name", "collection_id", "partition_id", "segment_id", "timestamps", "row_ids", "row_data")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    ROW_DATA_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    collection_name: str
    partition_name: str
    collection_id: int
    partition_id: int
    segment_id: int
    timestamps: _containers.RepeatedScalarFieldContainer[int]
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    row_data: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., collection_name: _Optional[str] = ..., partition_name: _Optional[str] = ..., collection_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., segment_id: _Optional[int] = ..., timestamps: _Optional[_Iterable[int]] = ..., row_ids: _Optional[_Iterable[int]] = ..., row_data: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DeleteBody(_message.Message):
    __slots__ = ("base", "database_name", "collection_name", "partition_name", "collection_id", "partition_id", "timestamps", "row_ids", "expression")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    collection_name: str
    partition_name: str
    collection_id: int
    partition_id: int
    timestamps: _containers.RepeatedScalarFieldContainer[int]
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    expression: str
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., collection_name: _Optional[str] = ..., partition_name: _Optional[str] = ..., collection_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., timestamps: _Optional[_Iterable[int]] = ..., row_ids: _Optional[_Iterable[int]] = ..., expression: _Optional[str] = ...) -> None: ...

class FlushBody(_message.Message):
    __slots__ = ("base", "database_name", "collection_ids", "segment_ids")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_IDS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    collection_ids: _containers.RepeatedScalarFieldContainer[int]
    segment_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., collection_ids: _Optional[_Iterable[int]] = ..., segment_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryBody(_message.Message):
    __slots__ = ("base", "result_channel", "database_name", "collection_name", "collection_id", "partition_ids", "query", "placeholders", "output_field_ids", "travel_ts", "guarantee_ts")
    BASE_FIELD_NUMBER: _ClassVar[int]
    RESULT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    PLACEHOLDERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_IDS_FIELD_NUMBER: _ClassVar[int]
    TRAVEL_TS_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_TS_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    result_channel: str
    database_name: str
    collection_name: str
    collection_id: int
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    query: bytes
    placeholders: bytes
    output_field_ids: _containers.RepeatedScalarFieldContainer[int]
    travel_ts: int
    guarantee_ts: int
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., result_channel: _Optional[str] = ..., database_name: _Optional[str] = ..., collection_name: _Optional[str] = ..., collection_id: _Optional[int] = ..., partition_ids: _Optional[_Iterable[int]] = ..., query: _Optional[bytes] = ..., placeholders: _Optional[bytes] = ..., output_field_ids: _Optional[_Iterable[int]] = ..., travel_ts: _Optional[int] = ..., guarantee_ts: _Optional[int] = ...) -> None: ...

class QueryResultBody(_message.Message):
    __slots__ = ("base", "request_id", "result_channel", "results", "segment_ids", "error")
    BASE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    request_id: int
    result_channel: str
    results: _containers.RepeatedScalarFieldContainer[bytes]
    segment_ids: _containers.RepeatedScalarFieldContainer[int]
    error: str
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., request_id: _Optional[int] = ..., result_channel: _Optional[str] = ..., results: _Optional[_Iterable[bytes]] = ..., segment_ids: _Optional[_Iterable[int]] = ..., error: _Optional[str] = ...) -> None: ...

class CollectionBody(_message.Message):
    __slots__ = ("base", "database_name", "database_id", "collection_name", "collection_id", "schema", "virtual_channels", "physical_channels")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    database_id: int
    collection_name: str
    collection_id: int
    schema: bytes
    virtual_channels: _containers.RepeatedScalarFieldContainer[str]
    physical_channels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., database_id: _Optional[int] = ..., collection_name: _Optional[str] = ..., collection_id: _Optional[int] = ..., schema: _Optional[bytes] = ..., virtual_channels: _Optional[_Iterable[str]] = ..., physical_channels: _Optional[_Iterable[str]] = ...) -> None: ...

class AliasBody(_message.Message):
    __slots__ = ("base", "database_name", "collection_name", "alias")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    collection_name: str
    alias: str
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., collection_name: _Optional[str] = ..., alias: _Optional[str] = ...) -> None: ...

class PartitionBody(_message.Message):
    __slots__ = ("base", "database_name", "collection_name", "collection_id", "partition_names", "partition_ids")
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_NAMES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    collection_name: str
    collection_id: int
    partition_names: _containers.RepeatedScalarFieldContainer[str]
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., collection_name: _Optional[str] = ..., collection_id: _Optional[int] = ..., partition_names: _Optional[_Iterable[str]] = ..., partition_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SegmentBody(_message.Message):
    __slots__ = ("base", "collection_id", "partition_id", "segment_ids", "source_node_id", "target_node_id", "info")
    BASE_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    collection_id: int
    partition_id: int
    segment_ids: _containers.RepeatedScalarFieldContainer[int]
    source_node_id: int
    target_node_id: int
    info: bytes
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., collection_id: _Optional[int] = ..., partition_id: _Optional[int] = ..., segment_ids: _Optional[_Iterable[int]] = ..., source_node_id: _Optional[int] = ..., target_node_id: _Optional[int] = ..., info: _Optional[bytes] = ...) -> None: ...

class IndexBody(_message.Message):
    __slots__ = ("base", "database_name", "collection_name", "collection_id", "segment_id", "field_name", "field_id", "index_name", "index_id", "parameters", "paths")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_NAME_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    FIELD_NAME_FIELD_NUMBER: _ClassVar[int]
    FIELD_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    database_name: str
    collection_name: str
    collection_id: int
    segment_id: int
    field_name: str
    field_id: int
    index_name: str
    index_id: int
    parameters: _containers.ScalarMap[str, str]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., database_name: _Optional[str] = ..., collection_name: _Optional[str] = ..., collection_id: _Optional[int] = ..., segment_id: _Optional[int] = ..., field_name: _Optional[str] = ..., field_id: _Optional[int] = ..., index_name: _Optional[str] = ..., index_id: _Optional[int] = ..., parameters: _Optional[_Mapping[str, str]] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchBody(_message.Message):
    __slots__ = ("base", "collection_id", "node_id", "channel_names", "result_channel")
    BASE_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_NAMES_FIELD_NUMBER: _ClassVar[int]
    RESULT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    collection_id: int
    node_id: int
    channel_names: _containers.RepeatedScalarFieldContainer[str]
    result_channel: str
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., collection_id: _Optional[int] = ..., node_id: _Optional[int] = ..., channel_names: _Optional[_Iterable[str]] = ..., result_channel: _Optional[str] = ...) -> None: ...

class TimeTickBody(_message.Message):
    __slots__ = ("base", "channel_name")
    BASE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_NAME_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    channel_name: str
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., channel_name: _Optional[str] = ...) -> None: ...

class StatisticsBody(_message.Message):
    __slots__ = ("base", "segment_ids", "row_counts", "memory_bytes", "measures")
    class MeasuresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    BASE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    segment_ids: _containers.RepeatedScalarFieldContainer[int]
    row_counts: _containers.RepeatedScalarFieldContainer[int]
    memory_bytes: _containers.RepeatedScalarFieldContainer[int]
    measures: _containers.ScalarMap[str, float]
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., segment_ids: _Optional[_Iterable[int]] = ..., row_counts: _Optional[_Iterable[int]] = ..., memory_bytes: _Optional[_Iterable[int]] = ..., measures: _Optional[_Mapping[str, float]] = ...) -> None: ...

class GeneralBody(_message.Message):
    __slots__ = ("base", "fields", "body")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BASE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    base: StreamMessageBase
    fields: _containers.ScalarMap[str, str]
    body: bytes
    def __init__(self, base: _Optional[_Union[StreamMessageBase, _Mapping]] = ..., fields: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ...) -> None: ...

class StreamMessagePack(_message.Message):
    __slots__ = ("types", "times", "bodies")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[int]
    times: _containers.RepeatedScalarFieldContainer[int]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, types: _Optional[_Iterable[int]] = ..., times: _Optional[_Iterable[int]] = ..., bodies: _Optional[_Iterable[bytes]] = ...) -> None: ...
