"""The sending half of a stream."""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.message import Message
from tidelog.msgstream._backends.backend import Backend
from tidelog.msgstream._errors import EmptyPackError, MalformedMessageError, MessageTooLargeError, StreamStateError
from tidelog.msgstream._messages import InsertMsg, TsMsg
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._repack import RepackFunc, checked_packs, compute_produce_channel_indexes, default_repack
from tidelog.tick import Tick

MessageIds = Mapping[str, Sequence[bytes]]


class Sending:
    """Divides packs among channels and appends them."""

    def __init__(self, backend: Backend, max_message_bytes: int) -> None:
        self.repack_func: RepackFunc | None = None
        self._backend = backend
        self._max_message_bytes = max_message_bytes
        # In the order of as_producer, which determines their indexes.
        self._channels: list[str] = []

    async def add(self, channels: Iterable[str]) -> None:
        """See ``AsyncMsgStream.as_producer``."""
        for channel in await self._backend.resolve(channels):
            if channel not in self._channels:
                self._channels.append(channel)

    def indexes(self, msgs: Iterable[TsMsg]) -> list[list[int]]:
        """See ``AsyncMsgStream.compute_produce_channel_indexes``."""
        return compute_produce_channel_indexes(msgs, len(self._producers()))

    async def produce(self, pack: MsgPack | None) -> MessageIds:
        """See ``AsyncMsgStream.produce``."""
        channels = self._producers()
        if pack is None or is_empty(pack):
            return {}
        indexes = self.indexes(pack.msgs)
        if self.repack_func is None:
            packs = default_repack(pack.msgs, indexes, len(channels))
        else:
            packs = checked_packs(self.repack_func(pack.msgs, indexes), len(channels))
        return await self._append(
            {channels[index]: self._encoded(part) for index, part in packs.items() if not part.is_empty}
        )

    async def broadcast(self, pack: MsgPack | None) -> MessageIds:
        """See ``AsyncMsgStream.broadcast``."""
        channels = self._producers()
        if pack is None or is_empty(pack):
            raise EmptyPackError("the pack to broadcast has no messages: expected at least one message")
        encoded = self._encoded(pack)
        return await self._append(dict.fromkeys(channels, encoded))

    async def _append(self, parts: Mapping[str, Sequence[Message]]) -> MessageIds:
        if not parts:
            return {}
        ticks = await self._backend.append(parts)
        return {channel: [Tick(tick).message_id for tick in each] for channel, each in ticks.items()}

    def _producers(self) -> Sequence[str]:
        if not self._channels:
            raise StreamStateError("the stream has no producers: call as_producer with the channels first")
        return self._channels

    def _encoded(self, pack: MsgPack) -> list[Message]:
        """Return the encoded messages, after checking all of them."""
        return [self._checked(msg) for msg in pack.msgs]

    def _checked(self, msg: TsMsg) -> Message:
        if not 0 <= msg.type < 1 << 32:
            raise MalformedMessageError(
                f"the {type(msg).__name__} with id {msg.id} has type {msg.type}: expected 0 to {(1 << 32) - 1}, "
                "such as a MsgType"
            )
        if isinstance(msg, InsertMsg) and len(set(msg.column_lengths.values())) > 1:
            # Reached by broadcasts, and by the results of repack functions.
            raise MalformedMessageError(
                f"the InsertMsg with id {msg.id} has columns of different lengths, {msg.column_lengths}: expected one "
                "element per row in each column that is not empty"
            )
        message = Message(msg.marshal(), type=int(msg.type))
        if message.size_bytes > self._max_message_bytes:
            raise MessageTooLargeError(
                f"the {type(msg).__name__} with id {msg.id} has {message.size_bytes} bytes, expected at most "
                f"{self._max_message_bytes}: split it, or raise max_message_bytes here and in the server's limits",
                values={"size_bytes": str(message.size_bytes), "max_bytes": str(self._max_message_bytes)},
            )
        return message


def is_empty(pack: object) -> bool:
    """Return whether a pack has no messages.

    Raises:
        TypeError: ``pack`` is not a MsgPack.
        MalformedMessageError: ``pack`` contains something that is not a message.
    """
    if not isinstance(pack, MsgPack):
        raise TypeError(f"the pack is {type(pack).__name__}, expected a MsgPack: MsgPack(msgs=[...])")
    found: Sequence[object] = pack.msgs
    strangers = [each for each in found if not isinstance(each, TsMsg)]
    if strangers:
        raise MalformedMessageError(f"a message of the pack is {type(strangers[0]).__name__}: expected a TsMsg")
    return pack.is_empty
