"""Synchronous twin of ``AsyncRocksMQ``."""

from types import TracebackType
from typing import Self

from tidelog import Client, OnEvent
from tidelog.rocksmq._async_rocksmq import DEFAULT_ENDPOINT, AsyncRocksMQ, AsyncRocksMQConsumer
from tidelog.rocksmq._behind import client_behind
from tidelog.rocksmq._generated_consumer import ConsumerCalls
from tidelog.rocksmq._generated_rocksmq import RocksMQCalls
from tidelog.transport.background import background


class RocksMQ(RocksMQCalls):
    """Queues on a Tidelog server. See ``AsyncRocksMQ``. Any thread may use it."""

    def __init__(
        self, client: Client | str = DEFAULT_ENDPOINT, *, name: str = "", on_event: OnEvent | None = None
    ) -> None:
        """Create the queues' client. See ``AsyncRocksMQ``."""
        self.name = name
        self.client = Client(client) if isinstance(client, str) else client
        self._owns_client = isinstance(client, str)
        self._mq = AsyncRocksMQ(client_behind(self.client), name=name, on_event=on_event)

    def register_consumer(self, group: str, channel: str) -> "RocksMQConsumer":
        """Return a consumer of a group on a channel. See ``AsyncRocksMQ.register_consumer``."""
        return RocksMQConsumer(background.run(self._mq.register_consumer(group, channel)))

    def close(self) -> None:
        """End waiting calls, and close the client if this object created it. See ``AsyncRocksMQ.aclose``."""
        background.run(self._mq.aclose())
        if self._owns_client:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RocksMQConsumer(ConsumerCalls):
    """A consumer of a group on a channel. See ``AsyncRocksMQConsumer``. Any thread may use it."""

    def __init__(self, consumer: AsyncRocksMQConsumer) -> None:
        self.group = consumer.group
        self.channel = consumer.channel
        self._consumer = consumer
