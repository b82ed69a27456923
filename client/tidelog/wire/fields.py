"""Messages of protobuf from the arguments of callers, with errors that name the argument."""

import reprlib
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_Message = TypeVar("_Message", bound=Message)

_EXPECTED: Final = {
    FieldDescriptor.CPPTYPE_BOOL: "a bool",
    FieldDescriptor.CPPTYPE_DOUBLE: "a float",
    FieldDescriptor.CPPTYPE_ENUM: "a member of the enumeration",
    FieldDescriptor.CPPTYPE_FLOAT: "a float",
    FieldDescriptor.CPPTYPE_INT32: "an integer of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "an integer of 64 bits",
    FieldDescriptor.CPPTYPE_UINT32: "an integer from 0 to 4294967295",
    FieldDescriptor.CPPTYPE_UINT64: "an integer from 0 to 18446744073709551615",
}


class FieldRangeError(ValueError):
    """A number is out of the range of its field.

    Attributes:
        name: Name of the argument.
    """

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


def with_fields(message_type: type[_Message], names: Mapping[str, str] | None = None, /, **fields: Any) -> _Message:
    """Return a message with ``fields``; those that are None are not set.

    Args:
        message_type: Type of the message.
        names: Names of arguments, by field, for those that differ.
        fields: Values by field.

    Raises:
        FieldRangeError: A number is out of the range of its field.
        TypeError: A value has another type.
    """
    try:
        return message_type(**fields)
    except (ValueError, TypeError):
        for field in message_type.DESCRIPTOR.fields:
            if field.name in fields:
                _check(message_type, field, fields[field.name], (names or {}).get(field.name, field.name))
        raise


def _check(message_type: type[Message], field: Any, value: Any, name: str) -> None:
    """Raise the error of a field, if it has one. ``field`` is its descriptor, of which protobuf has two classes."""
    try:
        message_type(**{field.name: value})
    except (ValueError, TypeError) as error:
        text = f"{name} is {reprlib.repr(value)}, expected {_expected(field)}"
        # Protobuf raises ValueError for a dict with an unknown field, too.
        if isinstance(error, ValueError) and field.message_type is None:
            raise FieldRangeError(text, name) from error
        raise TypeError(text) from error


def _expected(field: Any) -> str:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (_expected(entry.fields_by_name[part]) for part in ("key", "value"))
        return f"a mapping, each key {key} and each value {value}"
    if entry is not None:
        one = f"a {entry.name}"
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        one = "bytes" if field.type == FieldDescriptor.TYPE_BYTES else "a str"
    else:
        one = _EXPECTED[field.cpp_type]
    return f"a sequence, each item {one}" if field.is_repeated else one
