"""Synchronous twins of streams and factories, on the background event loop of the synchronous client."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from tidelog.errors import ClosedError
from tidelog.msgstream._backends.mem_broker import MemBroker
from tidelog.msgstream._backends.subscriptions import SubscriptionStore
from tidelog.msgstream._dispatcher import UnmarshalDispatcherFactory
from tidelog.msgstream._factories import AsyncMemMsgStreamFactory, AsyncMsgStreamFactory, AsyncRmqMsgStreamFactory
from tidelog.msgstream._interface import AsyncMsgStream, SubscriptionPosition
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._repack import RepackFunc
from tidelog.read.reader_events import OnEvent
from tidelog.sync.client import Client
from tidelog.transport.background import background


class MsgStream:
    """Sends packs of typed messages to channels, and receives packs from channels. See ``AsyncMsgStream``.

    Any thread may use it. ``with`` starts it, and closes it at the end of the block. A repack function and the
    templates of the dispatcher run on the event loop of the client, so they must not block or use the client.

    Attributes:
        dispatcher: Decodes received messages; add templates for custom types.
    """

    def __init__(self, stream: AsyncMsgStream) -> None:
        self.dispatcher = stream.dispatcher
        self._stream = stream
        self._is_closed = False

    def start(self) -> None:
        """Allow packs to be consumed. See ``AsyncMsgStream.start``."""
        background.run(self._stream.start())

    def close(self) -> None:
        """Stop. See ``AsyncMsgStream.close``."""
        self._is_closed = True
        background.run(self._stream.close())

    def as_producer(self, channels: Iterable[str]) -> None:
        """Add channels to send to. See ``AsyncMsgStream.as_producer``."""
        background.run(self._stream.as_producer(channels))

    def as_consumer(
        self,
        channels: Iterable[str],
        sub_name: str,
        position: SubscriptionPosition = SubscriptionPosition.EARLIEST,
    ) -> None:
        """Add channels to receive from. See ``AsyncMsgStream.as_consumer``."""
        background.run(self._stream.as_consumer(channels, sub_name, position))

    def set_repack_func(self, repack_func: RepackFunc | None) -> None:
        """Divide messages with ``repack_func``. See ``AsyncMsgStream.set_repack_func``."""
        self._stream.set_repack_func(repack_func)

    def compute_produce_channel_indexes(self, msgs: Iterable[TsMsg]) -> list[list[int]]:
        """Return the channel of each hash key. See ``AsyncMsgStream.compute_produce_channel_indexes``."""
        return self._stream.compute_produce_channel_indexes(msgs)

    def produce(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Send a pack, all or nothing. See ``AsyncMsgStream.produce``."""
        return background.run(self._stream.produce(pack))

    def broadcast(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Send a pack to all channels or to none. See ``AsyncMsgStream.broadcast``."""
        return background.run(self._stream.broadcast(pack))

    def consume(self) -> MsgPack:
        """Return the next pack. See ``AsyncMsgStream.consume``."""
        return background.run(self._stream.consume())

    def seek(self, positions: Iterable[MsgPosition], *, include_message: bool = False) -> None:
        """Continue at other positions. See ``AsyncMsgStream.seek``."""
        background.run(self._stream.seek(positions, include_message=include_message))

    def get_latest_msg_id(self, channel: str) -> bytes:
        """Return the id of the last message. See ``AsyncMsgStream.get_latest_msg_id``."""
        return background.run(self._stream.get_latest_msg_id(channel))

    def check_topic_valid(self, channel: str) -> None:
        """Return if the channel exists. See ``AsyncMsgStream.check_topic_valid``."""
        background.run(self._stream.check_topic_valid(channel))

    def chan(self) -> Iterator[MsgPack]:
        """Yield packs until the stream is closed. See ``AsyncMsgStream.chan``."""
        while True:
            try:
                pack = self.consume()
            except ClosedError:
                if self._is_closed:
                    return
                raise
            yield pack

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MsgStreamFactory:
    """Creates streams on one broker; the twin of ``AsyncMsgStreamFactory``."""

    def __init__(self, factory: AsyncMsgStreamFactory) -> None:
        self._factory = factory

    def set_params(self, params: Mapping[str, object]) -> None:
        """Change settings. See ``AsyncMsgStreamFactory.set_params``."""
        self._factory.set_params(params)

    def new_msg_stream(self) -> MsgStream:
        """Return a stream with one pack per message. Does no I/O."""
        return MsgStream(self._factory.new_msg_stream())

    def new_tt_msg_stream(self) -> MsgStream:
        """Return a stream with one pack per interval of time. Does no I/O."""
        return MsgStream(self._factory.new_tt_msg_stream())

    def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        """Delete positions. See ``AsyncMsgStreamFactory.dispose``."""
        background.run(self._factory.dispose(channels, sub_name, destroys_channels=destroys_channels))


class RmqMsgStreamFactory(MsgStreamFactory):
    """Creates streams on a Tidelog server. See ``AsyncRmqMsgStreamFactory``."""

    def __init__(
        self,
        client: Client,
        *,
        subscriptions: SubscriptionStore | None = None,
        unmarshal_factory: UnmarshalDispatcherFactory | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        inner = client._client  # noqa: SLF001 - the streams are a part of the client
        super().__init__(
            AsyncRmqMsgStreamFactory(
                inner, subscriptions=subscriptions, unmarshal_factory=unmarshal_factory, on_event=on_event
            )
        )


class MemMsgStreamFactory(MsgStreamFactory):
    """Creates streams on a broker in memory. See ``AsyncMemMsgStreamFactory``."""

    def __init__(self, broker: MemBroker, *, unmarshal_factory: UnmarshalDispatcherFactory | None = None) -> None:
        super().__init__(AsyncMemMsgStreamFactory(broker, unmarshal_factory=unmarshal_factory))
