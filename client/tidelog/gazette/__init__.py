"""Exactly-once messages over journals: the rules of Gazette's ``message`` package on a Tidelog server."""

from uuid import UUID

from tidelog.admin.journal_types import (
    JournalChange,
    JournalDelete,
    JournalSpec,
    JournalUpsert,
    ListRequest,
    ListResponse,
)
from tidelog.admin.labels import LabelSelector, LabelSet, LabelTerm
from tidelog.admin.selectors import InvalidSelectorError, format_label_selector, parse_label_selector, selector_matches
from tidelog.gazette.ack_intents import AckIntent
from tidelog.gazette.checkpoints import Checkpoint, JournalProducer, ProducerState
from tidelog.gazette.errors import (
    DesyncDetectedError,
    EmptyListResponseError,
    FieldCountError,
    FrameTooLargeError,
    FramingError,
    GazetteError,
    InvalidUUIDError,
    MalformedFrameError,
    MustStartReplayError,
    NotFrameableError,
    UnexpectedEOFError,
    UnknownContentTypeError,
)
from tidelog.gazette.framings.byte_reader import ByteReader
from tidelog.gazette.framings.csv_framing import CSVFrameable, CSVFraming
from tidelog.gazette.framings.fixed_framing import (
    FIXED_FRAME_HEADER_LENGTH,
    FIXED_FRAME_WORD,
    FixedFraming,
    ProtoFrameable,
    encode_fixed_proto_frame,
    unpack_fixed_frame,
)
from tidelog.gazette.framings.framing import (
    FrameFraming,
    Framing,
    UnmarshalFunc,
    frame_decoder,
    frame_encoder,
    framing_by_content_type,
    register_framing,
)
from tidelog.gazette.framings.json_framing import JSONFrameable, JSONFraming, JSONMarshalerTo, JSONUnmarshaler
from tidelog.gazette.framings.lines import unpack_line
from tidelog.gazette.mappings import (
    MappingKeyFunc,
    PartitionsFunc,
    key_func,
    mixed_rendezvous_mapping,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)
from tidelog.gazette.messages import (
    NO_BEGIN,
    Envelope,
    Frameable,
    Journal,
    Mappable,
    MappingFunc,
    Message,
    NewMessageFunc,
    Offset,
    Offsets,
    Validator,
)
from tidelog.gazette.uuids import (
    CLOCK_UNITS_PER_SECOND,
    NIL_UUID,
    Clock,
    Flags,
    ProducerID,
    build_uuid,
    clock_at,
    get_clock,
    get_flags,
    get_producer_id,
    new_clock,
    new_producer_id,
    time_of_clock,
)

__all__ = [
    "CLOCK_UNITS_PER_SECOND",
    "FIXED_FRAME_HEADER_LENGTH",
    "FIXED_FRAME_WORD",
    "NIL_UUID",
    "NO_BEGIN",
    "UUID",
    "AckIntent",
    "ByteReader",
    "CSVFrameable",
    "CSVFraming",
    "Checkpoint",
    "Clock",
    "DesyncDetectedError",
    "EmptyListResponseError",
    "Envelope",
    "FieldCountError",
    "FixedFraming",
    "Flags",
    "FrameFraming",
    "FrameTooLargeError",
    "Frameable",
    "Framing",
    "FramingError",
    "GazetteError",
    "InvalidSelectorError",
    "InvalidUUIDError",
    "JSONFrameable",
    "JSONFraming",
    "JSONMarshalerTo",
    "JSONUnmarshaler",
    "Journal",
    "JournalChange",
    "JournalDelete",
    "JournalProducer",
    "JournalSpec",
    "JournalUpsert",
    "LabelSelector",
    "LabelSet",
    "LabelTerm",
    "ListRequest",
    "ListResponse",
    "MalformedFrameError",
    "Mappable",
    "MappingFunc",
    "MappingKeyFunc",
    "Message",
    "MustStartReplayError",
    "NewMessageFunc",
    "NotFrameableError",
    "Offset",
    "Offsets",
    "PartitionsFunc",
    "ProducerID",
    "ProducerState",
    "ProtoFrameable",
    "UnexpectedEOFError",
    "UnknownContentTypeError",
    "UnmarshalFunc",
    "Validator",
    "build_uuid",
    "clock_at",
    "encode_fixed_proto_frame",
    "format_label_selector",
    "frame_decoder",
    "frame_encoder",
    "framing_by_content_type",
    "get_clock",
    "get_flags",
    "get_producer_id",
    "key_func",
    "mixed_rendezvous_mapping",
    "modulo_mapping",
    "new_clock",
    "new_producer_id",
    "parse_label_selector",
    "random_mapping",
    "register_framing",
    "rendezvous_mapping",
    "selector_matches",
    "time_of_clock",
    "unpack_fixed_frame",
    "unpack_line",
]

for _value in [globals()[name] for name in __all__]:
    if isinstance(_value, type) and _value.__module__.startswith("tidelog."):
        # Show the public import path in messages and documentation.
        _value.__module__ = __name__
del _value
