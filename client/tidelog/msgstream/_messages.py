"""Typed messages: their base classes. ``make proto`` writes a class per kind of body.

Every class is a dataclass. Its fields beyond those of TsMsg are those of a message in
proto/tidelog/v1/message_stream.proto, where they are documented.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Final, Self

from google.protobuf.message import DecodeError, Message

from tidelog.msgstream._errors import MalformedMessageError
from tidelog.msgstream._field_copier import Copier, copier
from tidelog.msgstream._generated_types import MsgType
from tidelog.msgstream._position import FoundT, MsgPosition, PositionSource
from tidelog.v1 import message_stream_pb2 as pb


class _Received:
    """Where a message comes from: a position, created when it is asked for; see ``PositionSource``.

    Slots, because attributes that most instances of a class lack cost each instance a dict.
    """

    __slots__ = ("_found", "_position", "_source", "_time")

    _position: MsgPosition | None
    _source: PositionSource[Any] | None
    _found: object
    _time: int

    @property
    def position(self) -> MsgPosition | None:
        """See TsMsg."""
        if self._source is not None:
            self.position = self._source.position_of(self._found, self._time)
        return self._position

    @position.setter
    def position(self, position: MsgPosition | None) -> None:
        self._position, self._source, self._found = position, None, None

    def __getstate__(self) -> tuple[dict[str, object], dict[str, object]]:
        """Return what is copied and pickled: the position, and not its source."""
        return vars(self), {"_position": self.position, "_source": None}


def _nowhere() -> None:
    """Return the default of ``position``. A default that is not a function would hide the property."""


@dataclass(kw_only=True)
class TsMsg(_Received, ABC):
    """A message with a type and a time. Instantiate a subclass; derive from TsMsg or ProtoMsg for custom messages.

    Attributes:
        type: Message type.
        id: The producer's id of the message; 0 if not set. Identifies repetitions of an insert or delete.
        begin_ts: First moment that it covers, as a tick. 0 becomes the message's tick on receipt.
        end_ts: Last moment that it covers, as a tick. 0 becomes the message's tick on receipt.
        source_id: Id of the producer; 0 if not set.
        hash_keys: Keys that select the channel, each 0 to 2^32 - 1: one per row of an insert, else the first counts.
        trace_context: Trace context to continue a trace with, such as ``traceparent``.
        position: Position at which it was received; None before. Ignored in comparisons.
    """

    type: MsgType | int
    id: int = 0
    begin_ts: int = 0
    end_ts: int = 0
    source_id: int = 0
    hash_keys: list[int] = field(default_factory=list)
    trace_context: dict[str, str] = field(default_factory=dict)
    position: MsgPosition | None = field(default_factory=_nowhere, compare=False)

    @property
    def size_bytes(self) -> int:
        """Size of the encoded message in bytes."""
        return len(self.marshal())

    def set_ts(self, ts: int) -> None:
        """Set the message's time to one moment."""
        self.begin_ts = self.end_ts = ts

    def received(self, source: PositionSource[FoundT], found: FoundT, time: int) -> None:
        """Record the id and the tick with which a stream received the message; unset times become the tick."""
        self._source, self._found, self._time = source, found, time
        self.begin_ts = self.begin_ts or time
        self.end_ts = self.end_ts or time

    @abstractmethod
    def marshal(self) -> bytes:
        """Return the message as bytes, without its type and position.

        Raises:
            MalformedMessageError: A field has an invalid value.
        """

    @classmethod
    @abstractmethod
    def unmarshal(cls, data: bytes, msg_type: MsgType | int) -> Self:
        """Return the message of this type that ``marshal`` encoded as ``data``.

        Raises:
            MalformedMessageError: ``data`` is not such a message.
        """


_BASE_FIELDS: Final = ("id", "begin_ts", "end_ts", "source_id", "hash_keys", "trace_context")


@dataclass(kw_only=True)
class ProtoMsg(TsMsg):
    """A message whose body is a protobuf message with a field ``base`` and the other fields of this class.

    Attributes:
        TYPES: Types with this body; empty for any type.
        BODY: Protobuf message class.
    """

    TYPES: ClassVar[frozenset[MsgType]] = frozenset()
    BODY: ClassVar[type[Message]]

    def __post_init__(self) -> None:
        if self.TYPES and self.type not in self.TYPES:
            expected = ", ".join(kind.name for kind in sorted(self.TYPES))
            raise ValueError(f"{type(self).__name__} has the type {self.type!r}, expected one of {expected}")

    def marshal(self) -> bytes:
        """Return the message as bytes, without its type and position. Raises MalformedMessageError."""
        try:
            base = pb.StreamMessageBase(**{name: getattr(self, name) for name in _BASE_FIELDS})
            body = self.BODY(base=base, **{name: getattr(self, name) for name in _own_fields(type(self))})
        except (TypeError, ValueError, OverflowError) as error:
            raise MalformedMessageError(
                f"a {type(self).__name__} of type {int(self.type)} cannot be sent ({error}): correct the field"
            ) from error
        return body.SerializeToString()

    @classmethod
    def unmarshal(cls, data: bytes, msg_type: MsgType | int) -> Self:
        """Return the message that ``marshal`` encoded as ``data``. Raises MalformedMessageError."""
        try:
            body: Any = cls.BODY.FromString(data)
        except (DecodeError, TypeError) as error:
            raise MalformedMessageError(
                f"the body of a message of type {int(msg_type)} is not a {cls.BODY.__name__} ({error}): expected what "
                f"{cls.__name__}.marshal returns; check which other programs append to the channel"
            ) from error
        message = object.__new__(cls)
        message.type = msg_type
        message.position = None
        _copy_base(body.base, message)
        _own_copier(cls)(body, message)
        message.__post_init__()
        return message


@cache
def _own_fields(kind: type[ProtoMsg]) -> tuple[str, ...]:
    """Return the names of the fields that this class adds to TsMsg."""
    return tuple(each.name for each in fields(kind) if each.name not in _COMMON)


@cache
def _own_copier(kind: type[ProtoMsg]) -> Copier:
    return copier(kind, kind.BODY, _own_fields(kind))


_COMMON: Final = {"type", "position", *_BASE_FIELDS}
_copy_base: Final = copier(TsMsg, pb.StreamMessageBase, _BASE_FIELDS)


class Columns:
    """The rows of an insert, in columns."""

    timestamps: list[int]
    row_ids: list[int]
    row_data: list[bytes]

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return max(self.column_lengths.values(), default=0)

    @property
    def column_lengths(self) -> dict[str, int]:
        """Length of each column that is not empty; all equal in a message that can be sent."""
        columns = (("timestamps", self.timestamps), ("row_ids", self.row_ids), ("row_data", self.row_data))
        return {name: len(column) for name, column in columns if len(column)}
