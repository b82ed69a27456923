"""The descriptors that reflection serves, with the JSON names of fields.

Source: protoc's own descriptors have a ``json_name`` for every field, which its generated Python code leaves out.
Clients that translate JSON by reflection, such as gateways, expect the name.
"""

from collections.abc import Iterable

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool


def reflected_pool(files: Iterable[FileDescriptor]) -> DescriptorPool:
    """Return a pool with these files and what they import."""
    pool = DescriptorPool()
    added: set[str] = set()
    for each in files:
        _add(each, pool, added)
    return pool


def _add(file: FileDescriptor, pool: DescriptorPool, added: set[str]) -> None:
    if file.name in added:
        return
    added.add(file.name)
    for each in file.dependencies:
        _add(each, pool, added)
    copy = FileDescriptorProto()
    file.CopyToProto(copy)
    for message in copy.message_type:
        _name(message, file.message_types_by_name[message.name])
    pool.Add(copy)


def _name(message: DescriptorProto, descriptor: Descriptor) -> None:
    for field in message.field:
        field.json_name = descriptor.fields_by_name[field.name].json_name
    for nested in message.nested_type:
        _name(nested, descriptor.nested_types_by_name[nested.name])
