from tidelog.v1 import error_pb2 as _error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliveryStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_STATUS_UNSPECIFIED: _ClassVar[DeliveryStatus]
    DELIVERY_STATUS_CONFIRMED: _ClassVar[DeliveryStatus]
    DELIVERY_STATUS_REJECTED: _ClassVar[DeliveryStatus]
    DELIVERY_STATUS_TIMEOUT: _ClassVar[DeliveryStatus]
    DELIVERY_STATUS_NOT_DELIVERED: _ClassVar[DeliveryStatus]

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_AVAILABLE: _ClassVar[MessageState]
    MESSAGE_STATE_DELAYED: _ClassVar[MessageState]
    MESSAGE_STATE_LEASED: _ClassVar[MessageState]
    MESSAGE_STATE_DEAD: _ClassVar[MessageState]
DELIVERY_STATUS_UNSPECIFIED: DeliveryStatus
DELIVERY_STATUS_CONFIRMED: DeliveryStatus
DELIVERY_STATUS_REJECTED: DeliveryStatus
DELIVERY_STATUS_TIMEOUT: DeliveryStatus
DELIVERY_STATUS_NOT_DELIVERED: DeliveryStatus
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_AVAILABLE: MessageState
MESSAGE_STATE_DELAYED: MessageState
MESSAGE_STATE_LEASED: MessageState
MESSAGE_STATE_DEAD: MessageState

class MailboxSettings(_message.Message):
    __slots__ = ("lease_ms", "max_lease_ms", "max_deliveries", "dead_letter", "backoff", "delay_ms", "ttl_ms", "dedup_window_ms", "max_in_flight", "max_messages", "max_body_bytes")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    max_lease_ms: int
    max_deliveries: int
    dead_letter: str
    backoff: Backoff
    delay_ms: int
    ttl_ms: int
    dedup_window_ms: int
    max_in_flight: int
    max_messages: int
    max_body_bytes: int
    def __init__(self, lease_ms: _Optional[int] = ..., max_lease_ms: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., dead_letter: _Optional[str] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., delay_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_body_bytes: _Optional[int] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("delays_ms",)
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Mailbox(_message.Message):
    __slots__ = ("name", "channel", "settings", "revision", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    channel: str
    settings: MailboxSettings
    revision: int
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., channel: _Optional[str] = ..., settings: _Optional[_Union[MailboxSettings, _Mapping]] = ..., revision: _Optional[int] = ..., created_ms: _Optional[int] = ...) -> None: ...

class MailboxCounts(_message.Message):
    __slots__ = ("available", "delayed", "leased", "dead", "oldest_age_ms", "body_bytes", "is_paused")
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    available: int
    delayed: int
    leased: int
    dead: int
    oldest_age_ms: int
    body_bytes: int
    is_paused: bool
    def __init__(self, available: _Optional[int] = ..., delayed: _Optional[int] = ..., leased: _Optional[int] = ..., dead: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., body_bytes: _Optional[int] = ..., is_paused: _Optional[bool] = ...) -> None: ...

class CreateMailboxRequest(_message.Message):
    __slots__ = ("name", "settings", "if_not_exists")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: MailboxSettings
    if_not_exists: bool
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[MailboxSettings, _Mapping]] = ..., if_not_exists: _Optional[bool] = ...) -> None: ...

class CreateMailboxResponse(_message.Message):
    __slots__ = ("mailbox", "is_created")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    IS_CREATED_FIELD_NUMBER: _ClassVar[int]
    mailbox: Mailbox
    is_created: bool
    def __init__(self, mailbox: _Optional[_Union[Mailbox, _Mapping]] = ..., is_created: _Optional[bool] = ...) -> None: ...

class ConfigureMailboxRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: MailboxSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[MailboxSettings, _Mapping]] = ...) -> None: ...

class ConfigureMailboxResponse(_message.Message):
    __slots__ = ("mailbox",)
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    mailbox: Mailbox
    def __init__(self, mailbox: _Optional[_Union[Mailbox, _Mapping]] = ...) -> None: ...

class DescribeMailboxRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeMailboxResponse(_message.Message):
    __slots__ = ("mailbox", "counts")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    mailbox: Mailbox
    counts: MailboxCounts
    def __init__(self, mailbox: _Optional[_Union[Mailbox, _Mapping]] = ..., counts: _Optional[_Union[MailboxCounts, _Mapping]] = ...) -> None: ...

class ListMailboxesRequest(_message.Message):
    __slots__ = ("prefix", "page_size", "page_token")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMailboxesResponse(_message.Message):
    __slots__ = ("mailboxes", "next_page_token")
    MAILBOXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    mailboxes: _containers.RepeatedCompositeFieldContainer[Mailbox]
    next_page_token: str
    def __init__(self, mailboxes: _Optional[_Iterable[_Union[Mailbox, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteMailboxRequest(_message.Message):
    __slots__ = ("name", "ignore_missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IGNORE_MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    ignore_missing: bool
    def __init__(self, name: _Optional[str] = ..., ignore_missing: _Optional[bool] = ...) -> None: ...

class DeleteMailboxResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class PurgeMailboxRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PurgeMailboxResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class PauseMailboxRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PauseMailboxResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeMailboxRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeMailboxResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OutgoingMessage(_message.Message):
    __slots__ = ("body", "headers", "delay_ms", "due_ms", "overdue_ms", "priority", "group", "dedup_key", "ttl_ms", "blob_key")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    BLOB_KEY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    headers: _containers.ScalarMap[str, str]
    delay_ms: int
    due_ms: int
    overdue_ms: int
    priority: int
    group: str
    dedup_key: str
    ttl_ms: int
    blob_key: bytes
    def __init__(self, body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., delay_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., overdue_ms: _Optional[int] = ..., priority: _Optional[int] = ..., group: _Optional[str] = ..., dedup_key: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., blob_key: _Optional[bytes] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("mailbox", "messages", "bodies")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    messages: _containers.RepeatedCompositeFieldContainer[OutgoingMessage]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, mailbox: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[OutgoingMessage, _Mapping]]] = ..., bodies: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("ids", "duplicates")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    duplicates: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., duplicates: _Optional[_Iterable[int]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("mailbox", "max_messages", "lease_ms", "wait_ms", "max_bytes")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    max_messages: int
    lease_ms: int
    wait_ms: int
    max_bytes: int
    def __init__(self, mailbox: _Optional[str] = ..., max_messages: _Optional[int] = ..., lease_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("id", "lock_id", "body", "delivery_count", "headers", "due_ms", "priority", "group", "status", "dead_letter", "blob_key", "blob_bytes", "blob_is_missing")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    BLOB_KEY_FIELD_NUMBER: _ClassVar[int]
    BLOB_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOB_IS_MISSING_FIELD_NUMBER: _ClassVar[int]
    id: int
    lock_id: bytes
    body: bytes
    delivery_count: int
    headers: _containers.ScalarMap[str, str]
    due_ms: int
    priority: int
    group: str
    status: DeliveryStatus
    dead_letter: DeadLetter
    blob_key: bytes
    blob_bytes: int
    blob_is_missing: bool
    def __init__(self, id: _Optional[int] = ..., lock_id: _Optional[bytes] = ..., body: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., due_ms: _Optional[int] = ..., priority: _Optional[int] = ..., group: _Optional[str] = ..., status: _Optional[_Union[DeliveryStatus, str]] = ..., dead_letter: _Optional[_Union[DeadLetter, _Mapping]] = ..., blob_key: _Optional[bytes] = ..., blob_bytes: _Optional[int] = ..., blob_is_missing: _Optional[bool] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("mailbox", "id", "delivery_count")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    id: int
    delivery_count: int
    def __init__(self, mailbox: _Optional[str] = ..., id: _Optional[int] = ..., delivery_count: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("deliveries", "leased_until_ms")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    LEASED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    leased_until_ms: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., leased_until_ms: _Optional[int] = ...) -> None: ...

class StreamDeliveriesRequest(_message.Message):
    __slots__ = ("mailbox", "max_in_flight", "lease_ms")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    max_in_flight: int
    lease_ms: int
    def __init__(self, mailbox: _Optional[str] = ..., max_in_flight: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class StreamDeliveriesResponse(_message.Message):
    __slots__ = ("deliveries", "leased_until_ms")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    LEASED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    leased_until_ms: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., leased_until_ms: _Optional[int] = ...) -> None: ...

class Rejection(_message.Message):
    __slots__ = ("lock_id", "delay_ms", "is_final")
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    lock_id: bytes
    delay_ms: int
    is_final: bool
    def __init__(self, lock_id: _Optional[bytes] = ..., delay_ms: _Optional[int] = ..., is_final: _Optional[bool] = ...) -> None: ...

class AckDeliveriesRequest(_message.Message):
    __slots__ = ("mailbox", "confirmed", "rejected")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    confirmed: _containers.RepeatedScalarFieldContainer[bytes]
    rejected: _containers.RepeatedCompositeFieldContainer[Rejection]
    def __init__(self, mailbox: _Optional[str] = ..., confirmed: _Optional[_Iterable[bytes]] = ..., rejected: _Optional[_Iterable[_Union[Rejection, _Mapping]]] = ...) -> None: ...

class DeliveryFailure(_message.Message):
    __slots__ = ("lock_id", "error")
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lock_id: bytes
    error: _error_pb2.CallError
    def __init__(self, lock_id: _Optional[bytes] = ..., error: _Optional[_Union[_error_pb2.CallError, _Mapping]] = ...) -> None: ...

class AckDeliveriesResponse(_message.Message):
    __slots__ = ("failures",)
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    failures: _containers.RepeatedCompositeFieldContainer[DeliveryFailure]
    def __init__(self, failures: _Optional[_Iterable[_Union[DeliveryFailure, _Mapping]]] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("mailbox", "lock_ids", "lease_ms")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    LOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    lock_ids: _containers.RepeatedScalarFieldContainer[bytes]
    lease_ms: int
    def __init__(self, mailbox: _Optional[str] = ..., lock_ids: _Optional[_Iterable[bytes]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class ExtendResponse(_message.Message):
    __slots__ = ("leased_until_ms", "failures")
    LEASED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    leased_until_ms: int
    failures: _containers.RepeatedCompositeFieldContainer[DeliveryFailure]
    def __init__(self, leased_until_ms: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[DeliveryFailure, _Mapping]]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("number", "send", "fetch", "ack", "extend")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    number: int
    send: SendRequest
    fetch: FetchRequest
    ack: AckDeliveriesRequest
    extend: ExtendRequest
    def __init__(self, number: _Optional[int] = ..., send: _Optional[_Union[SendRequest, _Mapping]] = ..., fetch: _Optional[_Union[FetchRequest, _Mapping]] = ..., ack: _Optional[_Union[AckDeliveriesRequest, _Mapping]] = ..., extend: _Optional[_Union[ExtendRequest, _Mapping]] = ...) -> None: ...

class OperateRequest(_message.Message):
    __slots__ = ("operations", "ended_waits")
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_WAITS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    ended_waits: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., ended_waits: _Optional[_Iterable[int]] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("number", "error", "sent", "fetched", "acked", "extended")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_FIELD_NUMBER: _ClassVar[int]
    number: int
    error: _error_pb2.CallError
    sent: SendResponse
    fetched: FetchResponse
    acked: AckDeliveriesResponse
    extended: ExtendResponse
    def __init__(self, number: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.CallError, _Mapping]] = ..., sent: _Optional[_Union[SendResponse, _Mapping]] = ..., fetched: _Optional[_Union[FetchResponse, _Mapping]] = ..., acked: _Optional[_Union[AckDeliveriesResponse, _Mapping]] = ..., extended: _Optional[_Union[ExtendResponse, _Mapping]] = ...) -> None: ...

class OperateResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OperationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OperationResult, _Mapping]]] = ...) -> None: ...

class MessageHeader(_message.Message):
    __slots__ = ("id", "due_ms", "delivery_count", "status", "priority", "group", "body_bytes", "state", "leased_until_ms", "expires_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEASED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    due_ms: int
    delivery_count: int
    status: DeliveryStatus
    priority: int
    group: str
    body_bytes: int
    state: MessageState
    leased_until_ms: int
    expires_ms: int
    def __init__(self, id: _Optional[int] = ..., due_ms: _Optional[int] = ..., delivery_count: _Optional[int] = ..., status: _Optional[_Union[DeliveryStatus, str]] = ..., priority: _Optional[int] = ..., group: _Optional[str] = ..., body_bytes: _Optional[int] = ..., state: _Optional[_Union[MessageState, str]] = ..., leased_until_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ...) -> None: ...

class FetchHeadersRequest(_message.Message):
    __slots__ = ("mailbox", "after_ms", "max_messages", "after_id")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    after_ms: int
    max_messages: int
    after_id: int
    def __init__(self, mailbox: _Optional[str] = ..., after_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., after_id: _Optional[int] = ...) -> None: ...

class FetchHeadersResponse(_message.Message):
    __slots__ = ("headers",)
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.RepeatedCompositeFieldContainer[MessageHeader]
    def __init__(self, headers: _Optional[_Iterable[_Union[MessageHeader, _Mapping]]] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("mailbox", "state", "max_messages", "after_id", "id")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    state: MessageState
    max_messages: int
    after_id: int
    id: int
    def __init__(self, mailbox: _Optional[str] = ..., state: _Optional[_Union[MessageState, str]] = ..., max_messages: _Optional[int] = ..., after_id: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class PeekedMessage(_message.Message):
    __slots__ = ("header", "body", "headers", "dead_letter", "blob_key", "blob_is_missing")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    BLOB_KEY_FIELD_NUMBER: _ClassVar[int]
    BLOB_IS_MISSING_FIELD_NUMBER: _ClassVar[int]
    header: MessageHeader
    body: bytes
    headers: _containers.ScalarMap[str, str]
    dead_letter: DeadLetter
    blob_key: bytes
    blob_is_missing: bool
    def __init__(self, header: _Optional[_Union[MessageHeader, _Mapping]] = ..., body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., dead_letter: _Optional[_Union[DeadLetter, _Mapping]] = ..., blob_key: _Optional[bytes] = ..., blob_is_missing: _Optional[bool] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PeekedMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[PeekedMessage, _Mapping]]] = ...) -> None: ...

class ReenqueueRequest(_message.Message):
    __slots__ = ("mailbox", "ids")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mailbox: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ReenqueueResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("mailbox", "ids", "destination", "max_per_s")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_S_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    destination: str
    max_per_s: int
    def __init__(self, mailbox: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., destination: _Optional[str] = ..., max_per_s: _Optional[int] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("moved", "total")
    MOVED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    moved: int
    total: int
    def __init__(self, moved: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...
