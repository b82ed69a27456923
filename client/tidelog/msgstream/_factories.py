"""Factories of streams."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from tidelog._async_client import AsyncClient
from tidelog._reader_events import OnEvent
from tidelog.msgstream._backend import Backend
from tidelog.msgstream._base_stream import StreamParts
from tidelog.msgstream._dispatcher import ProtoUDFactory, UnmarshalDispatcherFactory
from tidelog.msgstream._group_subscriptions import GroupSubscriptionStore
from tidelog.msgstream._interface import AsyncMsgStream
from tidelog.msgstream._mem_broker import MemBackend, MemBroker
from tidelog.msgstream._plain_stream import AsyncPlainMsgStream
from tidelog.msgstream._rmq_backend import RmqBackend
from tidelog.msgstream._settings import StreamSettings
from tidelog.msgstream._subscriptions import SubscriptionStore
from tidelog.msgstream._tt_stream import AsyncTtMsgStream


class AsyncMsgStreamFactory(ABC):
    """Makes streams on one broker. Derive from it for another kind of broker."""

    @abstractmethod
    def set_params(self, params: Mapping[str, object]) -> None:
        """Change settings of the streams that are made from now on; the names are those of StreamSettings.

        Raises:
            ValueError: A name or a value is none. Nothing changed.
        """

    @abstractmethod
    def new_msg_stream(self) -> AsyncMsgStream:
        """Return a stream with a pack for each message. Does no I/O."""

    @abstractmethod
    def new_tt_msg_stream(self) -> AsyncMsgStream:
        """Return a stream with a pack for each interval of time. Does no I/O."""

    @abstractmethod
    async def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        """Forget the positions of a subscription on these channels, and if asked the channels with all their messages.

        What does not exist is passed over. Close the streams of the subscription before. A channel of a server is
        destroyed as a whole or not at all.

        Raises:
            InvalidRequestError: Only some vchannels of a channel are to be destroyed. None was.
        """


class BackendFactory(AsyncMsgStreamFactory):
    """A factory on a Backend."""

    def __init__(
        self, backend: Backend, subscriptions: SubscriptionStore, unmarshal_factory: UnmarshalDispatcherFactory | None
    ) -> None:
        self._backend = backend
        self._subscriptions = subscriptions
        self._unmarshal_factory = unmarshal_factory or ProtoUDFactory()
        self._settings = StreamSettings()

    def set_params(self, params: Mapping[str, object]) -> None:
        """Change settings. See ``AsyncMsgStreamFactory.set_params``."""
        self._settings = self._settings.with_params(params)

    def new_msg_stream(self) -> AsyncMsgStream:
        """Return a stream with a pack for each message."""
        return AsyncPlainMsgStream(self._parts())

    def new_tt_msg_stream(self) -> AsyncMsgStream:
        """Return a stream with a pack for each interval of time."""
        return AsyncTtMsgStream(self._parts())

    async def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        """Forget positions. See ``AsyncMsgStreamFactory.dispose``."""
        names = list(channels)
        # A channel with one vchannel goes by two names.
        full_names = {name if "/" in name else f"{name}/0" for name in names}
        await self._subscriptions.delete(sub_name, [*names, *full_names])
        if destroys_channels:
            await self._backend.destroy(names)

    def _parts(self) -> StreamParts:
        dispatcher = self._unmarshal_factory.new_unmarshal_dispatcher()
        return StreamParts(self._backend, self._settings, dispatcher, self._subscriptions)


class AsyncRmqMsgStreamFactory(BackendFactory):
    """Makes streams on a Tidelog server; channels are vchannels that exist.

    Subscriptions are the consumer groups of their names, unless it is given another store. ``on_event`` is called with
    each ReaderEvent of what the streams read.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        subscriptions: SubscriptionStore | None = None,
        unmarshal_factory: UnmarshalDispatcherFactory | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        kept = subscriptions or GroupSubscriptionStore(client)
        super().__init__(RmqBackend(client, on_event), kept, unmarshal_factory)


class AsyncMemMsgStreamFactory(BackendFactory):
    """Makes streams on a broker in memory, which also keeps their subscriptions."""

    def __init__(self, broker: MemBroker, *, unmarshal_factory: UnmarshalDispatcherFactory | None = None) -> None:
        super().__init__(MemBackend(broker), broker.subscriptions, unmarshal_factory)
