from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor
SHARED_ERROR_FIELD_NUMBER: _ClassVar[int]
shared_error: _descriptor.FieldDescriptor
CODE_FIELD_NUMBER: _ClassVar[int]
code: _descriptor.FieldDescriptor
ERROR_FIELD_NUMBER: _ClassVar[int]
error: _descriptor.FieldDescriptor
RAISES_FIELD_NUMBER: _ClassVar[int]
raises: _descriptor.FieldDescriptor

class ErrorClass(_message.Message):
    __slots__ = ("name", "parents", "advice", "attributes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    parents: _containers.RepeatedScalarFieldContainer[str]
    advice: str
    attributes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., parents: _Optional[_Iterable[str]] = ..., advice: _Optional[str] = ..., attributes: _Optional[_Iterable[str]] = ...) -> None: ...
