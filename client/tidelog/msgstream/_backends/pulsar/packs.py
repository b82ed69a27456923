"""Messages of streams as messages of Pulsar.

A message of Pulsar has one message of a stream, or a pack: several, which take the library and the broker as long as
one. A message on its own has its type and its time as properties, so that other programs can read it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from tidelog.message import Message
from tidelog.msgstream._backends.pulsar.ids import MessageKey, key_of
from tidelog.msgstream._position import MsgPosition, PositionSource
from tidelog.tick import LOGICAL_BITS
from tidelog.v1.message_stream_pb2 import StreamMessagePack

_TYPE: Final = "type"
_TIME: Final = "time"
_PACK: Final = "pack"
_OF_OTHER_PROGRAMS: Final = 0
# What a pack has for each message besides its body: its type, its time, and the length and tag of its body, at most.
_OVERHEAD_BYTES: Final = 21


class Sendable(NamedTuple):
    """A message of Pulsar to send.

    Attributes:
        content: Its content.
        properties: Its properties.
        number: Number of messages in its pack; 0 for a message on its own.
    """

    content: bytes
    properties: Mapping[str, str]
    number: int


class Contents(NamedTuple):
    """The messages of a message of Pulsar.

    Attributes:
        types, times, bodies: Number of the type, time and content of each.
        is_pack: Whether it is a pack.
    """

    types: Sequence[int]
    times: Sequence[int]
    bodies: Sequence[bytes]
    is_pack: bool


class Origin(PositionSource[int]):
    """The message of Pulsar with which messages came; they are numbers in its pack."""

    __slots__ = ("_is_pack", "_message_id", "_sub_name", "_topic")

    def __init__(self, topic: str, message_id: Any, sub_name: str, *, is_pack: bool) -> None:
        """Keep the id of the library; serializing it costs as much as the message."""
        self._topic = topic
        self._message_id = message_id
        self._sub_name = sub_name
        self._is_pack = is_pack

    def position_of(self, found: int, time: int) -> MsgPosition:
        key = key_of(self._message_id, found if self._is_pack else -1)
        return MsgPosition(self._topic, key.to_bytes(), self._sub_name, time)


def sendables(messages: Sequence[Message], times: Sequence[int], max_bytes: int) -> Iterator[Sendable]:
    """Divide messages into packs of at most ``max_bytes``; a larger message is on its own. A time is 0 without one."""
    begin = size_bytes = 0
    for at, message in enumerate(messages):
        size_bytes += len(message.payload) + _OVERHEAD_BYTES
        if size_bytes > max_bytes and at > begin:
            yield _sendable(messages[begin:at], times[begin:at])
            begin, size_bytes = at, len(message.payload) + _OVERHEAD_BYTES
    if begin < len(messages):
        yield _sendable(messages[begin:], times[begin:])


def contents_of(message: Any) -> Contents:
    """Return the messages of a message of the library. Type 0 stands for messages of other programs.

    The time of a message is that of its producer or, without one, the moment of its sending.
    """
    properties = message.properties()
    if _PACK in properties and (pack := _pack_of(message)) is not None:
        return pack
    msg_type, time = properties.get(_TYPE, ""), properties.get(_TIME, "")
    return Contents(
        (int(msg_type) if msg_type.isdecimal() else _OF_OTHER_PROGRAMS,),
        (int(time) if time.isdecimal() else _sent(message),),
        (message.data(),),
        is_pack=False,
    )


def last_key_of(message: Any) -> MessageKey:
    """Return the key of the last message of a message of the library."""
    contents = contents_of(message)
    return key_of(message.message_id(), len(contents.types) - 1 if contents.is_pack else -1)


def _sendable(messages: Sequence[Message], times: Sequence[int]) -> Sendable:
    if len(messages) == 1:
        [message], [time] = messages, times
        own = {_TYPE: str(message.type)}
        return Sendable(message.payload, {**own, _TIME: str(time)} if time else own, 0)
    pack = StreamMessagePack(
        types=[each.type for each in messages], times=times, bodies=[each.payload for each in messages]
    )
    return Sendable(pack.SerializeToString(), {_PACK: str(len(messages))}, len(messages))


def _pack_of(message: Any) -> Contents | None:
    try:
        pack = StreamMessagePack.FromString(message.data())
    except DecodeError:
        return None
    types, times, bodies = pack.types[:], pack.times[:], pack.bodies[:]
    if not len(types) == len(times) == len(bodies) > 0:
        return None
    if 0 in times:
        sent = _sent(message)
        times = [time or sent for time in times]
    return Contents(types, times, bodies, is_pack=True)


def _sent(message: Any) -> int:
    sent: int = message.publish_timestamp() << LOGICAL_BITS
    return sent
