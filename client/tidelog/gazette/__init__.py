"""Exactly-once messages over journals: the rules of Gazette's ``message`` package on a Tidelog server."""

from uuid import UUID

from tidelog.admin.journal_types import JournalSpec
from tidelog.admin.labels import LabelSet
from tidelog.gazette.ack_intents import AckIntent
from tidelog.gazette.checkpoints import Checkpoint, JournalProducer, ProducerState
from tidelog.gazette.messages import (
    NO_BEGIN,
    Envelope,
    Frameable,
    Journal,
    Mappable,
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
    "NIL_UUID",
    "NO_BEGIN",
    "UUID",
    "AckIntent",
    "Checkpoint",
    "Clock",
    "Envelope",
    "Flags",
    "Frameable",
    "Journal",
    "JournalProducer",
    "JournalSpec",
    "LabelSet",
    "Mappable",
    "Message",
    "NewMessageFunc",
    "Offset",
    "Offsets",
    "ProducerID",
    "ProducerState",
    "Validator",
    "build_uuid",
    "clock_at",
    "get_clock",
    "get_flags",
    "get_producer_id",
    "new_clock",
    "new_producer_id",
    "time_of_clock",
]

for _value in [globals()[name] for name in __all__]:
    if isinstance(_value, type) and _value.__module__.startswith("tidelog."):
        # Show the public import path in messages and documentation.
        _value.__module__ = __name__
del _value
