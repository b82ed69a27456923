"""Copies the fields of a protobuf message to a dataclass.

Every message that a stream receives passes here. So each class has a function of its own, generated as the methods of
dataclasses are: with descriptors or ``setattr`` for each field, decoding takes twice as long.
"""

from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from typing import Any

from google.protobuf.message import Message

Copier = Callable[[Message, object], None]
"""Sets the fields of its second argument to those of its first."""


def copier(kind: type, body: type[Message], names: Collection[str]) -> Copier:
    """Return the function that copies the fields ``names`` of a protobuf message to the dataclass ``kind``.

    Lists and dicts are new ones. A field that protobuf has as unset gets the default of the dataclass.

    Raises:
        TypeError: ``body`` lacks a field.
    """
    chosen = [each for each in body.DESCRIPTOR.fields if each.name in names]
    missing = sorted(set(names) - {each.name for each in chosen})
    if missing:
        raise TypeError(f"{kind.__name__} has the fields {', '.join(missing)}, which {body.__name__} lacks")
    source = "def copy(body, target):\n" + "".join(f"    target.{each.name} = {_value(each)}\n" for each in chosen)
    namespace: dict[str, Any] = {"defaults": {each.name: _default(each) for each in fields(kind)}}
    exec(source + "    return None\n", namespace)
    copy: Copier = namespace["copy"]
    return copy


def _value(found: Any) -> str:
    """Return the expression for the value of a field, from its descriptor."""
    value = f"body.{found.name}"
    if found.has_presence:
        return f"{value} if body.HasField({found.name!r}) else defaults[{found.name!r}]()"
    if found.is_repeated and found.message_type is not None and found.message_type.GetOptions().map_entry:
        # An empty one is the usual case, and costs less.
        return f"dict({value}) if {value} else {{}}"
    return f"{value}[:]" if found.is_repeated else value


def _default(found: "Field[Any]") -> Callable[[], object]:
    default = found.default
    return found.default_factory if found.default_factory is not MISSING else lambda: default
