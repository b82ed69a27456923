"""Writes the types of messages, and their classes from message_stream.proto: ``make proto`` runs it after protoc.

A class has the fields of its body. A test proves that the output is fresh.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from generated import ROOT, write_modules
from tidelog.v1 import message_stream_pb2 as pb

MODULE: Final = "tidelog.msgstream._generated_messages"
TYPES_MODULE: Final = "tidelog.msgstream._generated_types"


class Message(NamedTuple):
    """A class of messages, whose body is that of its name.

    Attributes:
        text: Its docstring.
        types: The types with this body, and their numbers; none for a class of any type.
        default: Type of a message that is created without one; empty if it must be given.
        base: Further base class.
    """

    text: str
    types: Mapping[str, int] = MappingProxyType({})
    default: str = ""
    base: str = ""


MESSAGES: Final = {
    "Insert": Message(
        "Rows for a collection. ``hash_keys`` and the columns have one element per row; a column may be empty.",
        {"INSERT": 400},
        default="INSERT", base="Columns",
    ),
    "Delete": Message(
        "Deletes rows from a collection, by their ids or by an expression.",
        {"DELETE": 401},
        default="DELETE",
    ),
    "Flush": Message(
        "Requests that collections or segments are persisted.",
        {"FLUSH": 402},
        default="FLUSH",
    ),
    "Query": Message(
        "Requests rows: ``SEARCH`` or ``RETRIEVE``.",
        {"SEARCH": 500, "RETRIEVE": 506},
        default="SEARCH",
    ),
    "QueryResult": Message(
        "Answers a query: ``SEARCH_RESULT``, ``RETRIEVE_RESULT``, or ``LEGACY_SEARCH_RESULT``.",
        {"SEARCH_RESULT": 501, "RETRIEVE_RESULT": 507, "LEGACY_SEARCH_RESULT": 1000},
        default="SEARCH_RESULT",
    ),
    "Collection": Message(
        "Defines, loads or requests a collection, depending on ``type``.",
        {
            "CREATE_COLLECTION": 100, "DROP_COLLECTION": 101, "HAS_COLLECTION": 102, "DESCRIBE_COLLECTION": 103,
            "SHOW_COLLECTIONS": 104, "LOAD_COLLECTION": 106, "RELEASE_COLLECTION": 107,
        },
    ),
    "Alias": Message(
        "Defines an alias of a collection; ``type`` selects the operation.",
        {"CREATE_ALIAS": 108, "DROP_ALIAS": 109, "ALTER_ALIAS": 110},
    ),
    "Partition": Message(
        "Defines, loads or requests partitions of a collection, depending on ``type``.",
        {
            "CREATE_PARTITION": 200, "DROP_PARTITION": 201, "HAS_PARTITION": 202, "DESCRIBE_PARTITION": 203,
            "SHOW_PARTITIONS": 204, "LOAD_PARTITIONS": 205, "RELEASE_PARTITIONS": 206,
        },
    ),
    "Segment": Message(
        "Describes segments of a collection; ``type`` selects the operation.",
        {
            "SHOW_SEGMENTS": 250, "DESCRIBE_SEGMENT": 251, "LOAD_SEGMENTS": 252, "RELEASE_SEGMENTS": 253,
            "HANDOFF_SEGMENTS": 254, "LOAD_BALANCE_SEGMENTS": 255, "SEGMENT_INFO": 600, "ALLOCATE_SEGMENT": 1205,
            "SEGMENT_FLUSH_DONE": 1207,
        },
    ),
    "Index": Message(
        "Defines, loads or requests an index, depending on ``type``.",
        {
            "CREATE_INDEX": 300, "DESCRIBE_INDEX": 301, "DROP_INDEX": 302, "GET_INDEX_STATE": 502,
            "GET_INDEX_BUILD_PROGRESS": 503, "LOAD_INDEX": 1202,
        },
    ),
    "Watch": Message(
        "Instructs a node to start or stop reading channels, depending on ``type``.",
        {
            "WATCH_DM_CHANNELS": 508, "REMOVE_DM_CHANNELS": 509, "WATCH_QUERY_CHANNELS": 510,
            "REMOVE_QUERY_CHANNELS": 511,
        },
    ),
    "TimeTick": Message(
        "States that its producer sends no further message with a smaller tick. Time-tick streams do not need it.",
        {"TIME_TICK": 1200, "DATA_NODE_TT": 1208},
        default="TIME_TICK",
    ),
    "Statistics": Message(
        "Reports sizes of segments and other objects, depending on ``type``.",
        {
            "SEGMENT_STATISTICS": 1206, "LEGACY_SEG_STATISTICS": 1100, "QUERY_NODE_STATS": 1201,
            "GET_COLLECTION_STATISTICS": 504, "GET_PARTITION_STATISTICS": 505,
        },
    ),
    "General": Message(
        "A message of any type, with named strings and bytes: for types without their own body, and for custom types.",
    ),
}  # fmt: skip
OTHER_TYPES: Final = {
    "UNDEFINED": 0, "GET_SYSTEM_CONFIGS": 105, "TIME_SYNC": 1201, "REQUEST_ID": 1203, "REQUEST_TSO": 1204,
}  # fmt: skip
"""Types without a body of their own, and an alias."""
_ENUM: Final = '''class MsgType(IntEnum):
    """Type of a message. It travels as ``Message.type``, so a scan can filter by it without decoding anything.

    The names are those of the newer protocol. The older one numbers two of them differently: see
    ``LEGACY_SEARCH_RESULT`` and ``LEGACY_SEG_STATISTICS``. It also calls 1201 TimeSync, which in the newer one is the
    statistics of a query node: ``TIME_SYNC`` is therefore an alias of ``QUERY_NODE_STATS``.
    """

'''
_NOTE: Final = (
    "Generated by `make proto`: change the sources, and run `make proto`.\n\n"
    "The sources are ``proto/tidelog/v1/message_stream.proto``, and the table in ``tools/make_messages.py``.\n"
)
_IMPORTS: Final = (
    "from dataclasses import dataclass, field\nfrom typing import Final\n"
    "from tidelog.msgstream._generated_types import MsgType\n"
    "from tidelog.msgstream._messages import Columns, ProtoMsg\n"
    "from tidelog.v1 import message_stream_pb2 as pb"
)
_TYPES: Final = {
    FieldDescriptor.CPPTYPE_STRING: "str",
    FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_UINT64: "int",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
}
_DEFAULTS: Final = {"str": '""', "int": "0", "bytes": 'b""'}


def class_text(name: str, message: Message) -> str:
    """Return the class of a message, unformatted."""
    bases = ", ".join(filter(None, (message.base, "ProtoMsg")))
    lines = ["@dataclass(kw_only=True)", f"class {name}Msg({bases}):", f'    """{message.text}"""', ""]
    if message.types:
        lines.append(f"    TYPES = frozenset({{{', '.join(f'MsgType.{each}' for each in message.types)}}})")
    lines += [f"    BODY = pb.{name}Body", ""]
    if message.default:
        lines.append(f"    type: MsgType | int = MsgType.{message.default}")
    body: Descriptor = pb.DESCRIPTOR.message_types_by_name[f"{name}Body"]
    lines += [f"    {each.name}: {_declared(each)}" for each in body.fields if each.name != "base"]
    return "\n".join(lines)


def _declared(found: FieldDescriptor) -> str:
    """Return the type and the default of a field."""
    if not found.is_repeated:
        kind = _kind(found)
        return f"{kind} = {_DEFAULTS[kind]}"
    entry = found.message_type
    if entry is None:
        return f"list[{_kind(found)}] = field(default_factory=list)"
    return f"dict[{', '.join(map(_kind, entry.fields))}] = field(default_factory=dict)"


def _kind(found: FieldDescriptor) -> str:
    return "bytes" if found.type == FieldDescriptor.TYPE_BYTES else _TYPES[found.cpp_type]


def types_text() -> str:
    """Return the enumeration of types, in the order of their numbers."""
    types = {name: number for message in MESSAGES.values() for name, number in message.types.items()} | OTHER_TYPES
    return _ENUM + "\n".join(f"    {name} = {types[name]}" for name in sorted(types, key=lambda name: types[name]))


def write(folder: Path) -> list[Path]:
    """Write the modules below ``folder``, which stands for the client's folder; return their paths."""
    classes = "\n\n\n".join(class_text(name, message) for name, message in MESSAGES.items())
    bodies = ", ".join(f"{name}Msg" for name, message in MESSAGES.items() if message.types)
    texts = {
        MODULE: f"{_IMPORTS}\n\n\n{classes}\n\n\nBODIES: Final = ({bodies})\n",
        TYPES_MODULE: f"from enum import IntEnum\n\n\n{types_text()}\n",
    }
    return write_modules(folder, {name: f'"""{_NOTE}"""\n\n{text}' for name, text in texts.items()})


if __name__ == "__main__":
    write(ROOT / "client")
