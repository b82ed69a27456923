"""Messages of the protocol as JSON, and the JSON schemas of this form.

Names are those of the protocol. Ids are decimal text, because JavaScript has no exact numbers above 2**53; other
numbers are numbers. Locks are hexadecimal digits. A body is ``body``, text, or ``body_base64`` if it is not UTF-8.
Values of enumerations are lower-case. Answers have every field, except those that are optional and not set.

Why not protobuf's json_format: it writes 64-bit numbers as text, bytes in base64, and names of enumerations as they are
in the protocol, and it does not state which field of a request is invalid and what is expected there.
"""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tidelog.v1 import error_pb2
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.rpc.web.json_reader import Json

# The types of protobuf's descriptors differ between its implementations.
Descriptor = Any
EnumDescriptor = Any
Field = Any

BODY: Final = "body"
BODY_BASE64: Final = "body_base64"
_BLOB_KEY: Final = "blob_key"
LEFT_OUT: Final = frozenset(("tidelog.v1.SendRequest.bodies",))
"""Fields that JSON does not have, by their full names: the messages have their bodies."""
_ERROR: Final = "tidelog.v1.CallError"
_IDS: Final = frozenset((FieldDescriptor.TYPE_FIXED64,))
_WHOLE: Final = frozenset((FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64))  # fmt: skip
_MAX_DIGITS: Final = 20
_BASE64: Final = partial(base64.b64decode, validate=True)

# -- Answers ---------------------------------------------------------------------------------------------------


def to_json(message: Message) -> dict[str, Json]:
    """Return a message as JSON."""
    if message.DESCRIPTOR.full_name == _ERROR:
        error: Any = message
        return error_json(error.message, error.detail)
    found: dict[str, Json] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.name == BODY:
            found |= _body_json(value)
        elif _is_map(field):
            found[field.name] = dict(value)
        elif field.is_repeated:
            found[field.name] = [_value_json(field, each) for each in value]
        else:
            found[field.name] = _value_json(field, value)
    return found


def error_json(text: str, detail: error_pb2.ErrorDetail) -> dict[str, Json]:
    """Return an error of the protocol as JSON: reason, message, effect and values."""
    return {
        "reason": error_pb2.Reason.Name(detail.reason).removeprefix("REASON_"),
        "message": text,
        "effect": error_pb2.Effect.Name(detail.effect).removeprefix("EFFECT_").lower(),
        "values": dict(detail.values),
    }


def _value_json(field: Field, value: Any) -> Json:
    if field.message_type is not None:
        return to_json(value)
    if field.enum_type is not None:
        return _enum_names(field.enum_type).get(value, str(value))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return value.hex()
    return str(value) if field.type in _IDS else value


def _body_json(body: bytes) -> dict[str, Json]:
    try:
        return {BODY: body.decode()}
    except UnicodeDecodeError:
        return {BODY_BASE64: base64.b64encode(body).decode()}


# -- Requests --------------------------------------------------------------------------------------------------


def fill(message: Message, value: Json, where: str = "") -> None:
    """Set the fields of a message to those of JSON. Raises InvalidRequestError."""
    if not isinstance(value, dict):
        raise _invalid(where or "request", value, "an object")
    fields = fields_of(message.DESCRIPTOR)
    if BODY in value and BODY_BASE64 in value:
        raise InvalidRequestError(f"{where}{BODY} and {where}{BODY_BASE64} are both set, expected one", field=BODY)
    for name, each in value.items():
        field = fields.get(BODY if name == BODY_BASE64 else name)
        if field is None:
            known = ", ".join(fields)
            raise InvalidRequestError(
                f"the field '{(where + name)[:80]}' is unknown, expected one of: {known}", field="request"
            )
        _fill_field(message, field, each, where + name, is_base64=name == BODY_BASE64)
    _check_choices(message.DESCRIPTOR, value, where)


def _check_choices(descriptor: Descriptor, value: dict[str, Json], where: str) -> None:
    """Check that a message has one of the fields that exclude one another, and a body if it may have one.

    Protobuf would keep the last of such fields, and send an empty body.

    Raises:
        InvalidRequestError: It has several, or no body.
    """
    for choice in descriptor.oneofs:
        found = [field.name for field in choice.fields if field.name in value]
        if len(found) > 1:
            raise InvalidRequestError(
                f"{' and '.join(where + name for name in found)} are both set, expected one", field=found[0]
            )
    if BODY in descriptor.fields_by_name and value.keys().isdisjoint((BODY, BODY_BASE64, _BLOB_KEY)):
        raise InvalidRequestError(
            f"{where}{BODY} is not set: set it, {BODY_BASE64} or {_BLOB_KEY}; an empty text is a body", field=BODY
        )


def _fill_field(message: Message, field: Field, value: Json, where: str, *, is_base64: bool = False) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        if not isinstance(value, dict):
            raise _invalid(where, value, "an object of texts")
        _set(where, value, lambda: target.update(value))
    elif field.is_repeated:
        if not isinstance(value, list):
            raise _invalid(where, value, "an array")
        for index, each in enumerate(value):
            place = f"{where}[{index}]"
            if field.message_type is not None:
                fill(target.add(), each, place + ".")
            else:
                parsed = _parsed(field, each, place)
                _set(place, parsed, partial(target.append, parsed))
    elif field.message_type is not None:
        target.SetInParent()
        fill(target, value, where + ".")
    else:
        parsed = _bytes(_BASE64, value, where, "base64") if is_base64 else _parsed(field, value, where)
        _set(where, value, lambda: setattr(message, field.name, parsed))


def _set(where: str, value: Json, assign: Callable[[], None]) -> None:
    try:
        assign()
    except (ValueError, TypeError) as error:
        # Out of the range of its type, or text that UTF-8 cannot encode.
        raise _invalid(where, value, "a value in its range") from error


def _parsed(field: Field, value: Json, where: str) -> Any:
    """Return the value of a scalar field."""
    if field.enum_type is not None:
        numbers = {name: number for number, name in _enum_names(field.enum_type).items()}
        if not isinstance(value, str) or value not in numbers:
            raise _invalid(where, value, "one of " + ", ".join(numbers))
        return numbers[value]
    if field.type in _IDS:
        if not isinstance(value, str) or not value.isdecimal() or not value.isascii() or len(value) > _MAX_DIGITS:
            raise _invalid(where, value, "an id as decimal text")
        return int(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        is_text = field.name == BODY
        return _text(value, where).encode() if is_text else _bytes(bytes.fromhex, value, where, "hexadecimal digits")
    if field.cpp_type in _WHOLE:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _invalid(where, value, "a whole number")
        return value
    if field.type == FieldDescriptor.TYPE_BOOL:
        if not isinstance(value, bool):
            raise _invalid(where, value, "true or false")
        return value
    return _text(value, where)


def _text(value: Json, where: str) -> str:
    if not isinstance(value, str):
        raise _invalid(where, value, "text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _invalid(where, value, "text that UTF-8 can encode") from error
    return value


def _bytes(decode: Callable[[str], bytes], value: Json, where: str, form: str) -> bytes:
    try:
        return decode(_text(value, where))
    except ValueError as error:
        raise _invalid(where, value, form) from error


def fill_from_texts(message: Message, texts: Mapping[str, str]) -> None:
    """Set the scalar fields of a message to the texts of a query. Raises InvalidRequestError."""
    fields = fields_of(message.DESCRIPTOR)
    value: dict[str, Json] = {}
    for name, text in texts.items():
        field = fields.get(name)
        value[name] = text
        if field is None or field.enum_type is not None or field.type in _IDS:
            continue
        if field.cpp_type in _WHOLE and text.lstrip("-").isdecimal() and text.isascii() and len(text) <= _MAX_DIGITS:
            value[name] = int(text)
        elif field.type == FieldDescriptor.TYPE_BOOL:
            value[name] = {"true": True, "false": False}.get(text, text)
    fill(message, value)


def _invalid(where: str, value: Json, expected: str) -> InvalidRequestError:
    shown = repr(value)[:80]
    return InvalidRequestError(
        f"{where.rstrip('.')[:200]} is {shown}, expected {expected}", field=where.rstrip(".")[:200]
    )


# -- Schemas ---------------------------------------------------------------------------------------------------


def fields_of(descriptor: Descriptor) -> dict[str, Field]:
    """Return the fields that JSON has, by name."""
    return {field.name: field for field in descriptor.fields if field.full_name not in LEFT_OUT}


def schema_name(descriptor: Descriptor) -> str:
    """Return the name of the schema of a message."""
    return "Error" if descriptor.full_name == _ERROR else descriptor.name


def schema_of(descriptor: Descriptor, without: str = "") -> dict[str, Json]:
    """Return the schema of a message, without the field called ``without``."""
    if descriptor.full_name == _ERROR:
        return ERROR_SCHEMA
    properties: dict[str, Json] = {}
    for name, field in fields_of(descriptor).items():
        if name == without:
            continue
        schema = value_schema(field)
        properties[name] = {"type": "array", "items": schema} if field.is_repeated and not _is_map(field) else schema
        if name == BODY:
            properties[BODY_BASE64] = {"type": "string", "contentEncoding": "base64"}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def value_schema(field: Field) -> dict[str, Json]:
    """Return the schema of a value of a field, of one if it has several."""
    if _is_map(field):
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if field.message_type is not None:
        return {"$ref": f"#/components/schemas/{schema_name(field.message_type)}"}
    if field.enum_type is not None:
        return {"type": "string", "enum": list(_enum_names(field.enum_type).values())}
    if field.type in _IDS:
        return {"type": "string", "pattern": "^[0-9]{1,20}$"}
    if field.type == FieldDescriptor.TYPE_BYTES and field.name != BODY:
        return {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
    if field.cpp_type in _WHOLE:
        is_unsigned = field.cpp_type in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
        return {"type": "integer", **({"minimum": 0} if is_unsigned else {})}
    return {"type": "boolean" if field.type == FieldDescriptor.TYPE_BOOL else "string"}


ERROR_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "required": ["reason", "message", "effect", "values"],
    "properties": {
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "effect": {"type": "string", "enum": ["none", "unknown", "unspecified"]},
        "values": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "additionalProperties": False,
}


def _is_map(field: Field) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _enum_names(descriptor: EnumDescriptor) -> dict[int, str]:
    """Return the names of an enumeration by number, without the prefix that all of them have."""
    prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {value.number: value.name.removeprefix(prefix).lower() for value in descriptor.values}
