"""Synchronous twin of ``AsyncRocksMQ``."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tidelog import Client, Message, OnEvent, Tick
from tidelog.rocksmq._async_rocksmq import DEFAULT_ENDPOINT, AsyncRocksMQ, AsyncRocksMQConsumer
from tidelog.rocksmq._behind import client_behind
from tidelog.rocksmq._messages import ConsumerMessage, ProducerMessage
from tidelog.transport.background import background


class RocksMQ:
    """Queues on a Tidelog server. See ``AsyncRocksMQ``. Any thread may use it."""

    def __init__(
        self, client: Client | str = DEFAULT_ENDPOINT, *, name: str = "", on_event: OnEvent | None = None
    ) -> None:
        """Create the queues' client. See ``AsyncRocksMQ``."""
        self.name = name
        self.client = Client(client) if isinstance(client, str) else client
        self._owns_client = isinstance(client, str)
        self._mq = AsyncRocksMQ(client_behind(self.client), name=name, on_event=on_event)

    def create_channel(self, channel: str) -> None:
        """Create a channel unless it exists. See ``AsyncRocksMQ.create_channel``."""
        background.run(self._mq.create_channel(channel))

    def destroy_channel(self, channel: str) -> None:
        """Delete a channel with its messages and group positions. See ``AsyncRocksMQ.destroy_channel``."""
        background.run(self._mq.destroy_channel(channel))

    def check_topic_valid(self, channel: str) -> None:
        """Return if the channel is usable. See ``AsyncRocksMQ.check_topic_valid``."""
        background.run(self._mq.check_topic_valid(channel))

    def get_latest_msg(self, channel: str) -> Tick | None:
        """Return the id of the last message; None without one. See ``AsyncRocksMQ.get_latest_msg``."""
        return background.run(self._mq.get_latest_msg(channel))

    def create_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Create a group, optionally with a position. See ``AsyncRocksMQ.create_consumer_group``."""
        background.run(self._mq.create_consumer_group(group, channel))

    def destroy_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Delete a group, or its position on a channel. See ``AsyncRocksMQ.destroy_consumer_group``."""
        background.run(self._mq.destroy_consumer_group(group, channel))

    def exist_consumer_group(self, group: str, channel: str | None = None) -> bool:
        """Return whether a group, or its position, exists. See ``AsyncRocksMQ.exist_consumer_group``."""
        return background.run(self._mq.exist_consumer_group(group, channel))

    def register_consumer(self, group: str, channel: str) -> "RocksMQConsumer":
        """Return a consumer of a group on a channel. See ``AsyncRocksMQ.register_consumer``."""
        return RocksMQConsumer(background.run(self._mq.register_consumer(group, channel)))

    def produce(self, channel: str, messages: Iterable[bytes | ProducerMessage | Message]) -> list[Tick]:
        """Append messages, all or none, and return their ids. See ``AsyncRocksMQ.produce``."""
        return background.run(self._mq.produce(channel, messages))

    def consume(self, group: str, channel: str, n: int, *, wait_s: float = 0.0) -> list[ConsumerMessage]:
        """Return and acknowledge the next messages. See ``AsyncRocksMQ.consume``."""
        return background.run(self._mq.consume(group, channel, n, wait_s=wait_s))

    def wait(self, group: str, channel: str, timeout_s: float | None = None) -> bool:
        """Return True once a group has something to consume. See ``AsyncRocksMQ.wait``."""
        return background.run(self._mq.wait(group, channel, timeout_s))

    def notify(self, group: str, channel: str) -> None:
        """End one wait early. See ``AsyncRocksMQ.notify``."""
        background.run(self._mq.notify(group, channel))

    def seek(self, group: str, channel: str, msg_id: int) -> None:
        """Set a group's position to a message. See ``AsyncRocksMQ.seek``."""
        background.run(self._mq.seek(group, channel, msg_id))

    def force_seek(self, group: str, channel: str, msg_id: int) -> None:
        """Set a group's position to a message, or to the next one. See ``AsyncRocksMQ.force_seek``."""
        background.run(self._mq.force_seek(group, channel, msg_id))

    def seek_to_latest(self, group: str, channel: str) -> None:
        """Set a group's position after the last message. See ``AsyncRocksMQ.seek_to_latest``."""
        background.run(self._mq.seek_to_latest(group, channel))

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


class RocksMQConsumer:
    """A consumer of a group on a channel. See ``AsyncRocksMQConsumer``. Any thread may use it."""

    def __init__(self, consumer: AsyncRocksMQConsumer) -> None:
        self.group = consumer.group
        self.channel = consumer.channel
        self._consumer = consumer

    def consume(self, n: int, *, wait_s: float = 0.0) -> list[ConsumerMessage]:
        """Return the next messages. See ``AsyncRocksMQ.consume``."""
        return background.run(self._consumer.consume(n, wait_s=wait_s))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True once there is something to consume. See ``AsyncRocksMQ.wait``."""
        return background.run(self._consumer.wait(timeout_s))

    def notify(self) -> None:
        """End one wait early. See ``AsyncRocksMQ.notify``."""
        background.run(self._consumer.notify())
