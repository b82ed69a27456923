from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GazetteCheckpoint(_message.Message):
    __slots__ = ("version", "journals", "intents")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOURNALS_FIELD_NUMBER: _ClassVar[int]
    INTENTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    journals: _containers.RepeatedCompositeFieldContainer[GazetteJournalCheckpoint]
    intents: _containers.RepeatedCompositeFieldContainer[GazetteAckIntent]
    def __init__(self, version: _Optional[int] = ..., journals: _Optional[_Iterable[_Union[GazetteJournalCheckpoint, _Mapping]]] = ..., intents: _Optional[_Iterable[_Union[GazetteAckIntent, _Mapping]]] = ...) -> None: ...

class GazetteJournalCheckpoint(_message.Message):
    __slots__ = ("journal", "read_through", "producers")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    READ_THROUGH_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    journal: str
    read_through: int
    producers: _containers.RepeatedCompositeFieldContainer[GazetteProducerState]
    def __init__(self, journal: _Optional[str] = ..., read_through: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[GazetteProducerState, _Mapping]]] = ...) -> None: ...

class GazetteProducerState(_message.Message):
    __slots__ = ("producer", "last_ack", "begin", "max_clock")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    LAST_ACK_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    MAX_CLOCK_FIELD_NUMBER: _ClassVar[int]
    producer: bytes
    last_ack: int
    begin: int
    max_clock: int
    def __init__(self, producer: _Optional[bytes] = ..., last_ack: _Optional[int] = ..., begin: _Optional[int] = ..., max_clock: _Optional[int] = ...) -> None: ...

class GazetteAckIntent(_message.Message):
    __slots__ = ("journal", "intent")
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    journal: str
    intent: bytes
    def __init__(self, journal: _Optional[str] = ..., intent: _Optional[bytes] = ...) -> None: ...
