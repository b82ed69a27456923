from tidelog.v1 import error_pb2 as _error_pb2
from tidelog.v1 import mailbox_service_pb2 as _mailbox_service_pb2
from tidelog.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScanFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCAN_FORMAT_UNSPECIFIED: _ClassVar[ScanFormat]
    SCAN_FORMAT_ROWS: _ClassVar[ScanFormat]
    SCAN_FORMAT_COLUMNS: _ClassVar[ScanFormat]
SCAN_FORMAT_UNSPECIFIED: ScanFormat
SCAN_FORMAT_ROWS: ScanFormat
SCAN_FORMAT_COLUMNS: ScanFormat

class GetWalNameRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWalNameResponse(_message.Message):
    __slots__ = ("wal_name",)
    WAL_NAME_FIELD_NUMBER: _ClassVar[int]
    wal_name: str
    def __init__(self, wal_name: _Optional[str] = ...) -> None: ...

class AllocateTicksRequest(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class AllocateTicksResponse(_message.Message):
    __slots__ = ("first_tick", "count")
    FIRST_TICK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first_tick: int
    count: int
    def __init__(self, first_tick: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class GetLatestMvccTickRequest(_message.Message):
    __slots__ = ("vchannel",)
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    def __init__(self, vchannel: _Optional[str] = ...) -> None: ...

class GetLatestMvccTickResponse(_message.Message):
    __slots__ = ("mvcc_tick",)
    MVCC_TICK_FIELD_NUMBER: _ClassVar[int]
    mvcc_tick: int
    def __init__(self, mvcc_tick: _Optional[int] = ...) -> None: ...

class AppendOptions(_message.Message):
    __slots__ = ("barrier_tick", "durability", "expected_last_tick", "fencing_token", "producer", "txn_id", "txn_sequence")
    BARRIER_TICK_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    barrier_tick: int
    durability: _message_pb2.Durability
    expected_last_tick: int
    fencing_token: int
    producer: ProducerSequence
    txn_id: int
    txn_sequence: int
    def __init__(self, barrier_tick: _Optional[int] = ..., durability: _Optional[_Union[_message_pb2.Durability, str]] = ..., expected_last_tick: _Optional[int] = ..., fencing_token: _Optional[int] = ..., producer: _Optional[_Union[ProducerSequence, _Mapping]] = ..., txn_id: _Optional[int] = ..., txn_sequence: _Optional[int] = ...) -> None: ...

class ProducerSequence(_message.Message):
    __slots__ = ("producer_id", "epoch", "sequence", "is_repeated", "call")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IS_REPEATED_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    producer_id: str
    epoch: int
    sequence: int
    is_repeated: bool
    call: int
    def __init__(self, producer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., is_repeated: _Optional[bool] = ..., call: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("vchannel", "messages", "options")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.Message]
    options: AppendOptions
    def __init__(self, vchannel: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_message_pb2.Message, _Mapping]]] = ..., options: _Optional[_Union[AppendOptions, _Mapping]] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: AppendResult
    def __init__(self, result: _Optional[_Union[AppendResult, _Mapping]] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("message_id", "first_tick", "last_tick", "durability", "duplicate", "txn_sequence", "vchannels")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_TICK_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    TXN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    message_id: bytes
    first_tick: int
    last_tick: int
    durability: _message_pb2.Durability
    duplicate: bool
    txn_sequence: int
    vchannels: int
    def __init__(self, message_id: _Optional[bytes] = ..., first_tick: _Optional[int] = ..., last_tick: _Optional[int] = ..., durability: _Optional[_Union[_message_pb2.Durability, str]] = ..., duplicate: _Optional[bool] = ..., txn_sequence: _Optional[int] = ..., vchannels: _Optional[int] = ...) -> None: ...

class AppendStreamRequest(_message.Message):
    __slots__ = ("request_id", "vchannel", "columns", "options", "transaction", "more")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    vchannel: str
    columns: _message_pb2.Columns
    options: AppendOptions
    transaction: Transaction
    more: _containers.RepeatedCompositeFieldContainer[AppendStreamRequest]
    def __init__(self, request_id: _Optional[int] = ..., vchannel: _Optional[str] = ..., columns: _Optional[_Union[_message_pb2.Columns, _Mapping]] = ..., options: _Optional[_Union[AppendOptions, _Mapping]] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ..., more: _Optional[_Iterable[_Union[AppendStreamRequest, _Mapping]]] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("parts", "positions", "sends", "acks")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[TransactionPart]
    positions: _containers.RepeatedCompositeFieldContainer[PositionCommit]
    sends: _containers.RepeatedCompositeFieldContainer[_mailbox_service_pb2.SendRequest]
    acks: _containers.RepeatedCompositeFieldContainer[_mailbox_service_pb2.AckDeliveriesRequest]
    def __init__(self, parts: _Optional[_Iterable[_Union[TransactionPart, _Mapping]]] = ..., positions: _Optional[_Iterable[_Union[PositionCommit, _Mapping]]] = ..., sends: _Optional[_Iterable[_Union[_mailbox_service_pb2.SendRequest, _Mapping]]] = ..., acks: _Optional[_Iterable[_Union[_mailbox_service_pb2.AckDeliveriesRequest, _Mapping]]] = ...) -> None: ...

class PositionCommit(_message.Message):
    __slots__ = ("group", "vchannel", "next_tick", "member_id", "epoch", "expected_tick")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    NEXT_TICK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TICK_FIELD_NUMBER: _ClassVar[int]
    group: str
    vchannel: str
    next_tick: int
    member_id: str
    epoch: int
    expected_tick: int
    def __init__(self, group: _Optional[str] = ..., vchannel: _Optional[str] = ..., next_tick: _Optional[int] = ..., member_id: _Optional[str] = ..., epoch: _Optional[int] = ..., expected_tick: _Optional[int] = ...) -> None: ...

class TransactionPart(_message.Message):
    __slots__ = ("vchannel", "batches", "expected_last_tick", "fencing_token")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    batches: _containers.RepeatedCompositeFieldContainer[_message_pb2.Columns]
    expected_last_tick: int
    fencing_token: int
    def __init__(self, vchannel: _Optional[str] = ..., batches: _Optional[_Iterable[_Union[_message_pb2.Columns, _Mapping]]] = ..., expected_last_tick: _Optional[int] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class AppendStreamResponse(_message.Message):
    __slots__ = ("request_id", "result", "error", "transaction", "more")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    result: AppendResult
    error: AppendError
    transaction: TransactionResult
    more: _containers.RepeatedCompositeFieldContainer[AppendStreamResponse]
    def __init__(self, request_id: _Optional[int] = ..., result: _Optional[_Union[AppendResult, _Mapping]] = ..., error: _Optional[_Union[AppendError, _Mapping]] = ..., transaction: _Optional[_Union[TransactionResult, _Mapping]] = ..., more: _Optional[_Iterable[_Union[AppendStreamResponse, _Mapping]]] = ...) -> None: ...

class TransactionResult(_message.Message):
    __slots__ = ("txn_id", "first_tick", "last_tick", "parts", "sent")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_TICK_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    txn_id: int
    first_tick: int
    last_tick: int
    parts: _containers.RepeatedCompositeFieldContainer[AppendResult]
    sent: _containers.RepeatedCompositeFieldContainer[_mailbox_service_pb2.SendResponse]
    def __init__(self, txn_id: _Optional[int] = ..., first_tick: _Optional[int] = ..., last_tick: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[AppendResult, _Mapping]]] = ..., sent: _Optional[_Iterable[_Union[_mailbox_service_pb2.SendResponse, _Mapping]]] = ...) -> None: ...

class AppendError(_message.Message):
    __slots__ = ("code", "message", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    detail: _error_pb2.ErrorDetail
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., detail: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class DeliverPolicy(_message.Message):
    __slots__ = ("all", "latest", "from_tick", "after_tick", "from_message_id", "after_message_id", "from_time_ms")
    ALL_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    FROM_TICK_FIELD_NUMBER: _ClassVar[int]
    AFTER_TICK_FIELD_NUMBER: _ClassVar[int]
    FROM_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    all: DeliverAll
    latest: DeliverLatest
    from_tick: int
    after_tick: int
    from_message_id: bytes
    after_message_id: bytes
    from_time_ms: int
    def __init__(self, all: _Optional[_Union[DeliverAll, _Mapping]] = ..., latest: _Optional[_Union[DeliverLatest, _Mapping]] = ..., from_tick: _Optional[int] = ..., after_tick: _Optional[int] = ..., from_message_id: _Optional[bytes] = ..., after_message_id: _Optional[bytes] = ..., from_time_ms: _Optional[int] = ...) -> None: ...

class DeliverAll(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliverLatest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliverFilter(_message.Message):
    __slots__ = ("tick_gt", "tick_gte", "message_types")
    TICK_GT_FIELD_NUMBER: _ClassVar[int]
    TICK_GTE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPES_FIELD_NUMBER: _ClassVar[int]
    tick_gt: int
    tick_gte: int
    message_types: MessageTypes
    def __init__(self, tick_gt: _Optional[int] = ..., tick_gte: _Optional[int] = ..., message_types: _Optional[_Union[MessageTypes, _Mapping]] = ...) -> None: ...

class MessageTypes(_message.Message):
    __slots__ = ("types", "hides_broadcasts")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    HIDES_BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[int]
    hides_broadcasts: bool
    def __init__(self, types: _Optional[_Iterable[int]] = ..., hides_broadcasts: _Optional[bool] = ...) -> None: ...

class ScanEnd(_message.Message):
    __slots__ = ("before_tick", "watermark", "follow", "inside_tick")
    BEFORE_TICK_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    INSIDE_TICK_FIELD_NUMBER: _ClassVar[int]
    before_tick: int
    watermark: ScanEndWatermark
    follow: ScanEndFollow
    inside_tick: int
    def __init__(self, before_tick: _Optional[int] = ..., watermark: _Optional[_Union[ScanEndWatermark, _Mapping]] = ..., follow: _Optional[_Union[ScanEndFollow, _Mapping]] = ..., inside_tick: _Optional[int] = ...) -> None: ...

class ScanEndWatermark(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScanEndFollow(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScanSource(_message.Message):
    __slots__ = ("vchannel", "policy", "created_tick")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICK_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    policy: DeliverPolicy
    created_tick: int
    def __init__(self, vchannel: _Optional[str] = ..., policy: _Optional[_Union[DeliverPolicy, _Mapping]] = ..., created_tick: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("sources", "policy", "filters", "end", "format", "max_response_bytes", "watermark_interval_ms", "whole_channels")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MAX_RESPONSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[ScanSource]
    policy: DeliverPolicy
    filters: _containers.RepeatedCompositeFieldContainer[DeliverFilter]
    end: ScanEnd
    format: ScanFormat
    max_response_bytes: int
    watermark_interval_ms: int
    whole_channels: _containers.RepeatedCompositeFieldContainer[ChannelSize]
    def __init__(self, sources: _Optional[_Iterable[_Union[ScanSource, _Mapping]]] = ..., policy: _Optional[_Union[DeliverPolicy, _Mapping]] = ..., filters: _Optional[_Iterable[_Union[DeliverFilter, _Mapping]]] = ..., end: _Optional[_Union[ScanEnd, _Mapping]] = ..., format: _Optional[_Union[ScanFormat, str]] = ..., max_response_bytes: _Optional[int] = ..., watermark_interval_ms: _Optional[int] = ..., whole_channels: _Optional[_Iterable[_Union[ChannelSize, _Mapping]]] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("entries", "rows", "watermark", "caught_up", "created_ticks", "end_tick", "grown")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICKS_FIELD_NUMBER: _ClassVar[int]
    END_TICK_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_message_pb2.Entry]
    rows: _containers.RepeatedCompositeFieldContainer[_message_pb2.Row]
    watermark: int
    caught_up: bool
    created_ticks: _containers.RepeatedScalarFieldContainer[int]
    end_tick: int
    grown: _containers.RepeatedCompositeFieldContainer[ChannelSize]
    def __init__(self, entries: _Optional[_Iterable[_Union[_message_pb2.Entry, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[_message_pb2.Row, _Mapping]]] = ..., watermark: _Optional[int] = ..., caught_up: _Optional[bool] = ..., created_ticks: _Optional[_Iterable[int]] = ..., end_tick: _Optional[int] = ..., grown: _Optional[_Iterable[_Union[ChannelSize, _Mapping]]] = ...) -> None: ...

class ChannelSize(_message.Message):
    __slots__ = ("name", "vchannels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    vchannels: int
    def __init__(self, name: _Optional[str] = ..., vchannels: _Optional[int] = ...) -> None: ...

class PlanScanRequest(_message.Message):
    __slots__ = ("vchannels", "begin_tick", "end_tick", "min_splits", "max_messages_per_split", "max_bytes_per_split", "created_ticks", "whole_channels")
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TICK_FIELD_NUMBER: _ClassVar[int]
    END_TICK_FIELD_NUMBER: _ClassVar[int]
    MIN_SPLITS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_PER_SPLIT_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_PER_SPLIT_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICKS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    vchannels: _containers.RepeatedScalarFieldContainer[str]
    begin_tick: int
    end_tick: int
    min_splits: int
    max_messages_per_split: int
    max_bytes_per_split: int
    created_ticks: _containers.RepeatedScalarFieldContainer[int]
    whole_channels: _containers.RepeatedCompositeFieldContainer[ChannelSize]
    def __init__(self, vchannels: _Optional[_Iterable[str]] = ..., begin_tick: _Optional[int] = ..., end_tick: _Optional[int] = ..., min_splits: _Optional[int] = ..., max_messages_per_split: _Optional[int] = ..., max_bytes_per_split: _Optional[int] = ..., created_ticks: _Optional[_Iterable[int]] = ..., whole_channels: _Optional[_Iterable[_Union[ChannelSize, _Mapping]]] = ...) -> None: ...

class PlanScanResponse(_message.Message):
    __slots__ = ("end_tick", "splits", "grown")
    END_TICK_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    end_tick: int
    splits: _containers.RepeatedCompositeFieldContainer[Split]
    grown: _containers.RepeatedCompositeFieldContainer[ChannelSize]
    def __init__(self, end_tick: _Optional[int] = ..., splits: _Optional[_Iterable[_Union[Split, _Mapping]]] = ..., grown: _Optional[_Iterable[_Union[ChannelSize, _Mapping]]] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("vchannel", "begin_tick", "end_tick", "estimated_messages", "estimated_bytes", "created_tick")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TICK_FIELD_NUMBER: _ClassVar[int]
    END_TICK_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_TICK_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    begin_tick: int
    end_tick: int
    estimated_messages: int
    estimated_bytes: int
    created_tick: int
    def __init__(self, vchannel: _Optional[str] = ..., begin_tick: _Optional[int] = ..., end_tick: _Optional[int] = ..., estimated_messages: _Optional[int] = ..., estimated_bytes: _Optional[int] = ..., created_tick: _Optional[int] = ...) -> None: ...

class OpenProducerRequest(_message.Message):
    __slots__ = ("vchannel", "producer_id", "accept_forgotten")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    producer_id: str
    accept_forgotten: bool
    def __init__(self, vchannel: _Optional[str] = ..., producer_id: _Optional[str] = ..., accept_forgotten: _Optional[bool] = ...) -> None: ...

class OpenProducerResponse(_message.Message):
    __slots__ = ("epoch", "last_sequence", "last_tick", "vchannels")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    VCHANNELS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    last_sequence: int
    last_tick: int
    vchannels: _containers.RepeatedCompositeFieldContainer[ProducerVchannel]
    def __init__(self, epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_tick: _Optional[int] = ..., vchannels: _Optional[_Iterable[_Union[ProducerVchannel, _Mapping]]] = ...) -> None: ...

class ProducerVchannel(_message.Message):
    __slots__ = ("last_sequence", "last_tick", "last_call")
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    LAST_CALL_FIELD_NUMBER: _ClassVar[int]
    last_sequence: int
    last_tick: int
    last_call: int
    def __init__(self, last_sequence: _Optional[int] = ..., last_tick: _Optional[int] = ..., last_call: _Optional[int] = ...) -> None: ...

class SetFencingTokenRequest(_message.Message):
    __slots__ = ("vchannel", "fencing_token")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    fencing_token: int
    def __init__(self, vchannel: _Optional[str] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class SetFencingTokenResponse(_message.Message):
    __slots__ = ("fencing_token",)
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    fencing_token: int
    def __init__(self, fencing_token: _Optional[int] = ...) -> None: ...

class TrimRequest(_message.Message):
    __slots__ = ("vchannel", "before_tick", "before_time_ms", "all")
    VCHANNEL_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TICK_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    vchannel: str
    before_tick: int
    before_time_ms: int
    all: TrimAll
    def __init__(self, vchannel: _Optional[str] = ..., before_tick: _Optional[int] = ..., before_time_ms: _Optional[int] = ..., all: _Optional[_Union[TrimAll, _Mapping]] = ...) -> None: ...

class TrimAll(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrimResponse(_message.Message):
    __slots__ = ("first_available_tick",)
    FIRST_AVAILABLE_TICK_FIELD_NUMBER: _ClassVar[int]
    first_available_tick: int
    def __init__(self, first_available_tick: _Optional[int] = ...) -> None: ...
