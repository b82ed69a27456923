"""The UUIDs of frames, by the content type of their journal; the rest of a frame stays as it is."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias
from uuid import UUID

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tidelog.gazette import JournalSpec
from tidelog.gazette.errors import unknown_content_type
from tidelog.gazette.framings.csv_framing import CSV_CONTENT_TYPE, CSV_CONTENT_TYPE_OF_SEED
from tidelog.gazette.framings.fixed_framing import FIXED_CONTENT_TYPE
from tidelog.gazette.framings.framing import frame_decoder, framing_by_content_type
from tidelog.gazette.framings.json_framing import JSON_CONTENT_TYPE
from tidelog.gazette.messages import Journal
from tidelog.gazette.records import CSVRecord, JSONRecord, ProtoRecord

UUIDReader: TypeAlias = Callable[[bytes], UUID]
"""Returns the UUID of a whole frame, or the nil UUID if it has no UUID; raises FramingError for an invalid frame."""

_CONTENT_TYPES: Final = (JSON_CONTENT_TYPE, CSV_CONTENT_TYPE, CSV_CONTENT_TYPE_OF_SEED, FIXED_CONTENT_TYPE)


class Frame:
    """A message of which only the UUID was decoded.

    Attributes:
        uuid: Its UUID, or the nil UUID.
        payload: The frame, byte for byte.
    """

    __slots__ = ("payload", "uuid")

    def __init__(self, uuid: UUID, payload: bytes) -> None:
        self.uuid = uuid
        self.payload = payload

    def get_uuid(self) -> UUID:
        """Return the UUID."""
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        """Set the attribute; the frame keeps its own."""
        self.uuid = uuid

    def new_acknowledgement(self, _: Journal) -> "Frame":
        """Raise RuntimeError: frames are only read."""
        raise RuntimeError("a frame that was read cannot be published: use a message of gazette.records")


def check_content_type(spec: JournalSpec) -> None:
    """Return if the frames of a journal can be read.

    Raises:
        UnknownContentTypeError: They cannot.
    """
    if spec.content_type not in _CONTENT_TYPES:
        error = unknown_content_type(spec.content_type)
        raise type(error)(
            f"{error}: the label content-type of the journal '{spec.name}' must be one of {', '.join(_CONTENT_TYPES)}",
            values=error.values,
        )


def uuid_reader(content_type: str, uuid_field: str, uuid_field_number: int) -> UUIDReader:
    """Return the function that reads the UUIDs of the frames of one journal, in their order.

    Args:
        content_type: One that ``check_content_type`` accepts.
        uuid_field: Field of JSON objects with the UUID.
        uuid_field_number: Number of the field of protobuf messages with the UUID.
    """
    new = _maker(content_type, uuid_field, uuid_field_number)
    decode = frame_decoder(framing_by_content_type(content_type))

    def read(frame: bytes) -> UUID:
        message = new()
        decode(frame, message)
        uuid: UUID = message.get_uuid()
        return uuid

    return read


def _maker(content_type: str, uuid_field: str, uuid_field_number: int) -> Callable[[], Any]:
    if content_type == JSON_CONTENT_TYPE:
        return type("JSONFrame", (JSONRecord,), {"uuid_field": uuid_field})
    if content_type == FIXED_CONTENT_TYPE:
        kind = _protobuf_type(uuid_field_number)
        return lambda: ProtoRecord(kind())
    return CSVRecord


@cache
def _protobuf_type(uuid_field_number: int) -> Any:
    """Return a protobuf message with the UUID as its only known field; all others are skipped."""
    file = descriptor_pb2.FileDescriptorProto(name="frame.proto", package="tidelog.spark", syntax="proto3")
    field = file.message_type.add(name="Frame").field.add(name="uuid", number=uuid_field_number)
    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tidelog.spark.Frame"))
