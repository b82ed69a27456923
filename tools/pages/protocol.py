"""The pages of the protocol, one for each file of proto/, from its declarations and their comments."""

from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf import descriptor_pb2

from generated import ROOT, described

FOLDER: Final = "docs/reference/protocol"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
# Numbers of fields in paths of `SourceCodeInfo`.
_MESSAGE, _ENUM, _SERVICE, _NESTED, _NESTED_ENUM, _PART = 4, 5, 6, 3, 4, 2
_INDEX: Final = """\
# Messages and services

Each file of `proto/tidelog/v1`, with its comments. [The protocol](../../../proto/README.md) has the rules that a schema
cannot express.

| file | declares |
|---|---|
{rows}
"""


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page, the index first."""
    names = sorted(path.relative_to(ROOT / "proto").as_posix() for path in ROOT.glob("proto/tidelog/v1/*.proto"))
    files = [_Page(file) for file in described(*names)]
    rows = "\n".join(f"| [{each.name}]({each.name}.md) | {', '.join(each.declared())} |" for each in files)
    yield f"{FOLDER}/index.md", _INDEX.format(rows=rows)
    for each in files:
        yield f"{FOLDER}/{each.name}.md", "\n".join((f"# {each.name}.proto\n", *each.blocks()))


class _Page:
    """The page of one file."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.name = file.name.rpartition("/")[2].removesuffix(".proto")
        self._file = file
        self._comments = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}

    def declared(self) -> list[str]:
        """Return the names that the file declares, services first."""
        services, messages, enums = self._file.service, self._file.message_type, self._file.enum_type
        names = [*(each.name for each in services), *(each.name for each in messages), *(each.name for each in enums)]
        return [f"`{name}`" for name in names]

    def blocks(self) -> Iterator[str]:
        """Yield services, messages and enumerations, in order."""
        for index, service in enumerate(self._file.service):
            yield from self._service(service, (_SERVICE, index))
        for index, message in enumerate(self._file.message_type):
            yield from self._message(message, message.name, (_MESSAGE, index))
        for index, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, enum.name, (_ENUM, index))

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        yield f"## {service.name}\n\n{self._text(path)}\n"
        for index, method in enumerate(service.method):
            given = f"{'stream ' * method.client_streaming}{_short(method.input_type)}"
            answered = f"{'stream ' * method.server_streaming}{_short(method.output_type)}"
            yield f"### {service.name}.{method.name}\n\n`{given}` returns `{answered}`\n"
            yield f"{self._text((*path, _PART, index))}\n"

    def _message(self, message: descriptor_pb2.DescriptorProto, name: str, path: tuple[int, ...]) -> Iterator[str]:
        yield f"## {name}\n\n{self._text(path)}\n"
        entries = {each.name for each in message.nested_type if each.options.map_entry}
        for index, field in enumerate(message.field):
            comment = " ".join(self._text((*path, _PART, index)).split())
            yield f"- `{field.name}` = {field.number}, {_type(field, entries)}: {comment}"
        yield ""
        for index, each in enumerate(message.nested_type):
            if each.name not in entries:
                yield from self._message(each, f"{name}.{each.name}", (*path, _NESTED, index))
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(enum, f"{name}.{enum.name}", (*path, _NESTED_ENUM, index))

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto, name: str, path: tuple[int, ...]) -> Iterator[str]:
        yield f"## {name}\n\n{self._text(path)}\n"
        for index, value in enumerate(enum.value):
            comment = " ".join(self._text((*path, _PART, index)).split())
            yield f"- `{value.name}` = {value.number}: {comment}"
        yield ""

    def _text(self, path: Sequence[int]) -> str:
        """Return a comment. Indented lines are code; angle brackets and square ones outside of code are no markup."""
        lines = self._comments.get(tuple(path), "").splitlines()
        text = "\n".join(line.removeprefix(" ") for line in lines).strip()
        parts = text.split("`")
        table = str.maketrans({each: f"\\{each}" for each in "<>[]*"})
        return "`".join(part if index % 2 else part.translate(table) for index, part in enumerate(parts))


def _type(field: descriptor_pb2.FieldDescriptorProto, entries: set[str]) -> str:
    kind = _short(field.type_name) or _FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
    if kind in entries:
        return "`map`"
    return f"`{'repeated ' * (field.label == _FIELD.LABEL_REPEATED)}{kind}`"


def _short(name: str) -> str:
    """Return the last part of a full name."""
    return name.rpartition(".")[2]
