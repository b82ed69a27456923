"""Synchronous twins of streams and factories, on the background event loop of the synchronous client."""

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from tidelog.errors import ClosedError
from tidelog.msgstream._backends.mem_broker import MemBroker
from tidelog.msgstream._backends.subscriptions import SubscriptionStore
from tidelog.msgstream._dispatcher import UnmarshalDispatcherFactory
from tidelog.msgstream._factories import AsyncMemMsgStreamFactory, AsyncMsgStreamFactory, AsyncRmqMsgStreamFactory
from tidelog.msgstream._generated_stream import MsgStreamCalls
from tidelog.msgstream._interface import AsyncMsgStream
from tidelog.msgstream._pack import MsgPack
from tidelog.read.reader_events import OnEvent
from tidelog.sync.client import Client
from tidelog.transport.background import background


class MsgStream(MsgStreamCalls):
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

    def close(self) -> None:
        """Stop. See ``AsyncMsgStream.close``."""
        self._is_closed = True
        background.run(self._stream.close())

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
