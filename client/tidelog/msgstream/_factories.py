"""Factories of streams."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidelog.client import AsyncClient
from tidelog.msgstream._backends.group_subscriptions import GroupSubscriptionStore
from tidelog.msgstream._backends.log import LogBackend
from tidelog.msgstream._backends.mem_broker import MemBackend, MemBroker
from tidelog.msgstream._backends.rmq_backend import RmqBackend
from tidelog.msgstream._backends.subscriptions import SubscriptionStore
from tidelog.msgstream._base_stream import StreamTools
from tidelog.msgstream._dispatcher import ProtoUDFactory, UnmarshalDispatcherFactory
from tidelog.msgstream._interface import AsyncMsgStream
from tidelog.msgstream._log.plain_stream import AsyncPlainMsgStream
from tidelog.msgstream._log.tt_stream import AsyncTtMsgStream
from tidelog.msgstream._settings import StreamSettings
from tidelog.read.reader_events import OnEvent


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of broker can do.

    Attributes:
        atomic_produce: A pack for several channels is sent as a whole or not at all.
        log_ticks: The log gives each message a tick: one order over all channels, and packs without a ``TimeTicker``.
    """

    atomic_produce: bool = True
    log_ticks: bool = True


class AsyncMsgStreamFactory(ABC):
    """Creates streams on one broker. Derive from it for another kind of broker.

    Attributes:
        capabilities: What the broker can do.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    @abstractmethod
    def set_params(self, params: Mapping[str, object]) -> None:
        """Change settings of streams created from now on; the names are those of StreamSettings.

        Raises:
            ValueError: A name is unknown or a value is invalid. Nothing changed.
        """

    @abstractmethod
    def new_msg_stream(self) -> AsyncMsgStream:
        """Return a stream with one pack per message. Does no I/O."""

    @abstractmethod
    def new_tt_msg_stream(self) -> AsyncMsgStream:
        """Return a stream with one pack per interval of time. Does no I/O."""

    @abstractmethod
    async def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        """Delete the positions of a subscription on these channels, and on request the channels with their messages.

        Missing channels and positions are skipped. Close the streams of the subscription first. A server's channel
        can only be destroyed with all of its vchannels.

        Raises:
            InvalidRequestError: ``channels`` lists some, but not all, vchannels of a channel. Nothing was destroyed.
        """


class LogFactory(AsyncMsgStreamFactory):
    """A factory on a broker with a log."""

    def __init__(
        self,
        backend: LogBackend,
        subscriptions: SubscriptionStore,
        unmarshal_factory: UnmarshalDispatcherFactory | None,
    ) -> None:
        self._backend = backend
        self._subscriptions = subscriptions
        self._unmarshal_factory = unmarshal_factory or ProtoUDFactory()
        self._settings = StreamSettings()

    def set_params(self, params: Mapping[str, object]) -> None:
        self._settings = self._settings.with_params(params)

    def new_msg_stream(self) -> AsyncMsgStream:
        return AsyncPlainMsgStream(self._backend, self._tools())

    def new_tt_msg_stream(self) -> AsyncMsgStream:
        return AsyncTtMsgStream(self._backend, self._tools())

    async def dispose(self, channels: Iterable[str], sub_name: str, *, destroys_channels: bool = False) -> None:
        names = list(channels)
        # A channel with one vchannel has two names.
        full_names = {name if "/" in name else f"{name}/0" for name in names}
        await self._subscriptions.delete(sub_name, [*names, *full_names])
        if destroys_channels:
            await self._backend.destroy(names)

    def _tools(self) -> StreamTools[int]:
        dispatcher = self._unmarshal_factory.new_unmarshal_dispatcher()
        return StreamTools(self._settings, dispatcher, self._subscriptions)


class AsyncRmqMsgStreamFactory(LogFactory):
    """Creates streams on a Tidelog server. Channels are existing vchannels.

    A subscription is the consumer group of the same name, unless another store is passed. ``on_event`` is called
    with each ReaderEvent of the streams.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        subscriptions: SubscriptionStore | None = None,
        unmarshal_factory: UnmarshalDispatcherFactory | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        store = subscriptions or GroupSubscriptionStore(client)
        super().__init__(RmqBackend(client, on_event), store, unmarshal_factory)


class AsyncMemMsgStreamFactory(LogFactory):
    """Creates streams on a broker in memory, which also stores their subscriptions."""

    def __init__(self, broker: MemBroker, *, unmarshal_factory: UnmarshalDispatcherFactory | None = None) -> None:
        super().__init__(MemBackend(broker), broker.subscriptions, unmarshal_factory)
