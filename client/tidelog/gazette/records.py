"""Ready-made messages: records of CSV, objects of JSON without and with declared fields, and protobuf messages."""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Generic, Self, TypeVar
from uuid import UUID

from tidelog.gazette.errors import InvalidUUIDError, MalformedFrameError
from tidelog.gazette.framings.fixed_framing import ProtoFrameable
from tidelog.gazette.framings.json_framing import object_of
from tidelog.gazette.messages import Journal
from tidelog.gazette.uuids import NIL_UUID, parse_uuid, uuid_text

UUID_FIELD: Final = "UUID"
"""The field of JSON with the UUID: that of a Go struct with a field ``UUID``."""

_Proto = TypeVar("_Proto", bound=ProtoFrameable)


class CSVRecord(list[str]):
    """A record of CSV whose first field is the UUID."""

    __slots__ = ()

    def get_uuid(self) -> UUID:
        """Return the UUID in the first field, or the nil UUID if it is empty.

        Raises:
            InvalidUUIDError: The first field has another text.
        """
        return parse_uuid(self[0]) if self and self[0] else NIL_UUID

    def set_uuid(self, uuid: UUID) -> None:
        """Set the first field.

        Raises:
            RuntimeError: The record has no field.
        """
        if not self:
            raise RuntimeError("a CSVRecord without fields has no place for a UUID: create it with its first field")
        self[0] = uuid_text(uuid)

    def new_acknowledgement(self, _: Journal) -> "CSVRecord":
        """Return a record with the same number of fields, all of them empty."""
        return CSVRecord([""] * len(self))

    def marshal_csv(self) -> list[str]:
        """Return the record itself."""
        return self

    def unmarshal_csv(self, fields: list[str]) -> None:
        """Replace the content by a copy of ``fields``.

        Raises:
            MalformedFrameError: There are no fields.
            InvalidUUIDError: The first field is not a UUID.
        """
        if not fields:
            raise MalformedFrameError("fields are empty")
        parse_uuid(fields[0])
        self[:] = fields


class JSONRecord(dict[str, Any]):
    """An object of JSON, with the UUID as a text in the field ``uuid_field`` of its class."""

    uuid_field: ClassVar[str] = UUID_FIELD
    # The text that was parsed last, and its UUID.
    _text: object = None
    _uuid: UUID = NIL_UUID

    def get_uuid(self) -> UUID:
        """Return the UUID, or the nil UUID if the field is absent or empty.

        Raises:
            InvalidUUIDError: The field has another value.
        """
        text = self.get(self.uuid_field)
        if text is not self._text:
            self._uuid = _uuid_of(text)
            self._text = text
        return self._uuid

    def set_uuid(self, uuid: UUID) -> None:
        """Set the field."""
        self[self.uuid_field] = self._text = uuid_text(uuid)
        self._uuid = uuid

    def new_acknowledgement(self, _: Journal) -> Self:
        """Return an empty record of the same class."""
        return type(self)()

    def from_json(self, value: Any) -> None:
        """Replace the content by that of an object.

        Raises:
            ValueError: ``value`` is not an object.
            InvalidUUIDError: The field of the UUID has another value.
        """
        found = object_of(value)
        self.clear()
        self.update(found)
        self.get_uuid()


@dataclass
class JSONMessage:
    """Base of dataclasses that are objects of JSON. Each field needs a default, for acknowledgements.

    A field has the name that its metadata ``json`` states, or its own. Unknown names are ignored when reading. The
    values are those of JSON; types are not checked.

    Attributes:
        uuid: The UUID, in the field ``uuid_field`` of the class.
    """

    uuid_field: ClassVar[str] = UUID_FIELD

    uuid: UUID = field(default=NIL_UUID, kw_only=True)

    def get_uuid(self) -> UUID:
        """Return the UUID."""
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        """Set the UUID."""
        self.uuid = uuid

    def new_acknowledgement(self, _: Journal) -> Self:
        """Return a message whose fields have their defaults."""
        return type(self)()

    def to_json(self) -> dict[str, Any]:
        """Return the object: the UUID, then the fields in the order of the class."""
        value: dict[str, Any] = {self.uuid_field: uuid_text(self.uuid)}
        for name, attribute in _json_fields(type(self)):
            value[name] = getattr(self, attribute)
        return value

    def from_json(self, value: Any) -> None:
        """Set the fields that an object has.

        Raises:
            ValueError: ``value`` is not an object.
            InvalidUUIDError: The field of the UUID has another value.
        """
        found = object_of(value)
        self.uuid = _uuid_of(found.get(self.uuid_field))
        for name, attribute in _json_fields(type(self)):
            if name in found:
                setattr(self, attribute, found[name])


_FIELDS: Final[dict[type, list[tuple[str, str]]]] = {}


def _json_fields(kind: type[JSONMessage]) -> list[tuple[str, str]]:
    """Return the name in JSON and the attribute of each field but the UUID; they are looked up once for a class."""
    known = _FIELDS.get(kind)
    if known is None:
        all_fields = [(each.metadata.get("json", each.name), each.name) for each in fields(kind)]
        known = _FIELDS[kind] = [each for each in all_fields if each[1] != "uuid"]
    return known


def _uuid_of(value: object) -> UUID:
    if value is None or value == "":
        return NIL_UUID
    if not isinstance(value, str):
        raise InvalidUUIDError(f"the UUID is a {type(value).__name__}, expected a text")
    return parse_uuid(value)


class ProtoRecord(Generic[_Proto]):
    """A protobuf message, with the UUID as 16 bytes in one of its fields.

    Args:
        proto: The message; also an empty one, to read into.
        uuid_field: Name of its field of type ``bytes``.
    """

    __slots__ = ("_uuid_field", "proto")

    def __init__(self, proto: _Proto, *, uuid_field: str = "uuid") -> None:
        if not isinstance(getattr(proto, uuid_field, None), bytes):
            raise ValueError(f"{type(proto).__name__} has no field {uuid_field!r} of type bytes for the UUID")
        self.proto = proto
        self._uuid_field = uuid_field

    def get_uuid(self) -> UUID:
        """Return the UUID, or the nil UUID if the field is empty.

        Raises:
            InvalidUUIDError: The field does not have 16 bytes.
        """
        value: bytes = getattr(self.proto, self._uuid_field)
        if not value:
            return NIL_UUID
        if len(value) != 16:
            raise InvalidUUIDError(f"invalid UUID length: {len(value)}")
        return UUID(bytes=value)

    def set_uuid(self, uuid: UUID) -> None:
        """Set the field."""
        setattr(self.proto, self._uuid_field, uuid.bytes)

    def new_acknowledgement(self, _: Journal) -> Self:
        """Return an empty message of the same type."""
        return type(self)(type(self.proto)(), uuid_field=self._uuid_field)

    def SerializeToString(self) -> bytes:
        """Return the message in protobuf's binary form."""
        return self.proto.SerializeToString()

    def ParseFromString(self, serialized: bytes, /) -> int:
        """Replace the content by that of the binary form.

        Raises:
            InvalidUUIDError: The field of the UUID does not have 16 bytes.
            google.protobuf.message.DecodeError: ``serialized`` is invalid.
        """
        size = self.proto.ParseFromString(serialized)
        self.get_uuid()
        return size
