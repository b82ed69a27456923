from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_SYNC: _ClassVar[Durability]
    DURABILITY_OS: _ClassVar[Durability]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_SYNC: Durability
DURABILITY_OS: Durability

class Message(_message.Message):
    __slots__ = ("payload", "key", "type", "properties", "event_time_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    key: bytes
    type: int
    properties: _containers.ScalarMap[str, str]
    event_time_ms: int
    def __init__(self, payload: _Optional[bytes] = ..., key: _Optional[bytes] = ..., type: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., event_time_ms: _Optional[int] = ...) -> None: ...

class Columns(_message.Message):
    __slots__ = ("count", "payload_offsets", "payloads", "key_offsets", "keys", "key_validity", "uniform_type", "types", "property_list_offsets", "property_key_offsets", "property_keys", "property_value_offsets", "property_values", "event_times_ms", "event_time_validity", "crc32c", "txn_ends")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    KEY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEY_VALIDITY_FIELD_NUMBER: _ClassVar[int]
    UNIFORM_TYPE_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_LIST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_KEY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_VALUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_VALUES_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_VALIDITY_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    TXN_ENDS_FIELD_NUMBER: _ClassVar[int]
    count: int
    payload_offsets: bytes
    payloads: bytes
    key_offsets: bytes
    keys: bytes
    key_validity: bytes
    uniform_type: int
    types: bytes
    property_list_offsets: bytes
    property_key_offsets: bytes
    property_keys: bytes
    property_value_offsets: bytes
    property_values: bytes
    event_times_ms: bytes
    event_time_validity: bytes
    crc32c: int
    txn_ends: bytes
    def __init__(self, count: _Optional[int] = ..., payload_offsets: _Optional[bytes] = ..., payloads: _Optional[bytes] = ..., key_offsets: _Optional[bytes] = ..., keys: _Optional[bytes] = ..., key_validity: _Optional[bytes] = ..., uniform_type: _Optional[int] = ..., types: _Optional[bytes] = ..., property_list_offsets: _Optional[bytes] = ..., property_key_offsets: _Optional[bytes] = ..., property_keys: _Optional[bytes] = ..., property_value_offsets: _Optional[bytes] = ..., property_values: _Optional[bytes] = ..., event_times_ms: _Optional[bytes] = ..., event_time_validity: _Optional[bytes] = ..., crc32c: _Optional[int] = ..., txn_ends: _Optional[bytes] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("source", "base_tick", "tick_deltas", "columns", "txn_id", "broadcast_id")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BASE_TICK_FIELD_NUMBER: _ClassVar[int]
    TICK_DELTAS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    source: int
    base_tick: int
    tick_deltas: bytes
    columns: Columns
    txn_id: int
    broadcast_id: int
    def __init__(self, source: _Optional[int] = ..., base_tick: _Optional[int] = ..., tick_deltas: _Optional[bytes] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ..., txn_id: _Optional[int] = ..., broadcast_id: _Optional[int] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("vchannel", "tick", "message_id", "message", "txn_id", "broadcast_id")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_ID_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    tick: int
    message_id: bytes
    message: Message
    txn_id: int
    broadcast_id: int
    def __init__(self, vchannel: _Optional[str] = ..., tick: _Optional[int] = ..., message_id: _Optional[bytes] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., txn_id: _Optional[int] = ..., broadcast_id: _Optional[int] = ...) -> None: ...
