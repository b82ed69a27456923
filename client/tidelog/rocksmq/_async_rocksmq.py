"""RocksMQ on a Tidelog server: queues whose consumer groups acknowledge by consuming."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tidelog import (
    AsyncClient,
    At,
    ChannelNotFoundError,
    ClosedError,
    GroupAlreadyExistsError,
    GroupNotFoundError,
    InvalidRequestError,
    Message,
    OnEvent,
    PositionTrimmedError,
    StorageFailedError,
    Tick,
)
from tidelog._closing import AsyncClosing
from tidelog.rocksmq._group_reader import GroupReader
from tidelog.rocksmq._messages import (
    ConsumerMessage,
    ProducerMessage,
    checked_count,
    checked_messages,
    checked_msg_id,
)
from tidelog.txn.together import append_together
from tidelog.wire.durations import Duration, check_seconds

DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
# Names contain no dot: the first dot ends the name, so two queues never share a channel.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PARTS: Final = {"channel": re.compile(r"[a-z0-9][a-z0-9._-]*"), "group": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")}


class AsyncRocksMQ(AsyncClosing):
    """Queues on a Tidelog server. ``RocksMQ`` is the synchronous twin: same names, no ``await``.

    A channel is a Tidelog channel with one vchannel, ``<name>.<channel>``, and a group is a consumer group,
    ``<name>.<group>``. Without a name they have no prefix, so that other clients can use them too. A message's id is
    its tick. The constructor does no I/O.

    Each call raises TypeError for an argument of the wrong type, InvalidRequestError for an invalid name, id or number,
    ChannelNotFoundError and GroupNotFoundError for what does not exist, ClosedError after ``aclose``, and another
    TidelogError if the request to the server fails; its ``effect`` states what may have happened.
    """

    def __init__(
        self, client: AsyncClient | str = DEFAULT_ENDPOINT, *, name: str = "", on_event: OnEvent | None = None
    ) -> None:
        """Create the queues' client.

        Args:
            client: A client, which the caller closes; or ``host:port``, for a client that ``aclose`` closes.
            name: Prefix of these channels and groups: ``[a-z0-9][a-z0-9_-]*``. Default: no prefix.
            on_event: Called with each ReaderEvent of calls that consume or wait; default None.

        Raises:
            ValueError: ``name`` is invalid.
        """
        if name and not _NAME.fullmatch(name):
            raise ValueError(f"the name is {name!r}, expected to match {_NAME.pattern}")
        self.name = name
        self.client = AsyncClient(client) if isinstance(client, str) else client
        self._owns_client = isinstance(client, str)
        self._on_event = on_event
        self._prefix = f"{name}." if name else ""
        # One per group and channel that this process has used, until either is destroyed.
        self._readers: dict[tuple[str, str], GroupReader] = {}
        self._pid = os.getpid()
        self._is_closed = False

    # -- Channels ------------------------------------------------------------------------------------------

    async def create_channel(self, channel: str) -> None:
        """Durably create a channel; an existing one does not change.

        Raises:
            ChannelAlreadyExistsError: The channel exists with several vchannels, so it is not a queue.
        """
        await self.client.create_channel(self._channel(channel), vchannels=1, if_not_exists=True)

    async def destroy_channel(self, channel: str) -> None:
        """Durably delete a channel with its messages and all group positions on it, and free its disk space.

        Groups remain, without a position there.

        Raises:
            GroupInUseError: A member of a group (``client.consumer``) holds the channel. Nothing happened.
        """
        name = self._channel(channel)
        await self.client.destroy_channels([name])
        self._readers = {key: each for key, each in self._readers.items() if key[1] != name}

    async def check_topic_valid(self, channel: str) -> None:
        """Return if the channel can be used to produce and consume.

        Raises:
            InvalidRequestError: It has several vchannels, so it is not a queue.
            StorageFailedError: It accepts no messages, after a failure of the server's storage.
        """
        name = self._channel(channel)
        [described] = await self.client.describe_channels([name])
        if len(described.vchannels) != 1:
            raise InvalidRequestError(
                f"channel '{name}' has {len(described.vchannels)} vchannels, a queue has one: create another channel",
                values={"name": name},
            )
        if described.stopped_by:
            raise StorageFailedError(f"channel '{name}' accepts no messages: {described.stopped_by}")

    async def get_latest_msg(self, channel: str) -> Tick | None:
        """Return the id of the last message produced, even if it was trimmed since; None if there was no message."""
        [described] = await self.client.describe_channels([self._channel(channel)])
        return described.vchannels[0].last_tick or None

    # -- Groups --------------------------------------------------------------------------------------------

    async def create_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Durably create a group; with a channel, the group consumes it from its first message.

        On each other channel the group starts at the first message available when it first consumes or seeks there.
        Once it has a position on a channel, retention keeps what it has not consumed.

        Raises:
            GroupAlreadyExistsError: The group exists; with a channel: it has a position there. Nothing happened.
        """
        name, channels = self._group(group), () if channel is None else (self._channel(channel),)
        try:
            await self.client.create_group(name, channels)
        except GroupAlreadyExistsError:
            if not channels or f"{channels[0]}/0" in (await self.client.describe_group(name)).positions:
                raise
            await self.client.subscribe_group(name, channels)

    async def destroy_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Durably delete a group, or its position on a channel; the group is deleted with its last position.

        A missing group is not an error.

        Raises:
            ChannelNotFoundError: The channel does not exist. Nothing happened.
            GroupInUseError: The group has members (``client.consumer``). Nothing happened.
        """
        name, channel_name = self._group(group), None if channel is None else self._channel(channel)
        if channel_name is None:
            await self.client.destroy_group(name, ignore_missing=True)
        else:
            await self.client.describe_channels([channel_name])
            try:
                left = await self.client.unsubscribe_group(name, channel_name)
            except GroupNotFoundError:
                return
            if not left.positions and not left.members:
                await self.client.destroy_group(name, ignore_missing=True)
        gone = {key for key in self._readers if key[0] == name and channel_name in (None, key[1])}
        self._readers = {key: each for key, each in self._readers.items() if key not in gone}

    async def exist_consumer_group(self, group: str, channel: str | None = None) -> bool:
        """Return whether a group exists; with a channel: whether it has a position there."""
        name, channel_name = self._group(group), None if channel is None else self._channel(channel)
        try:
            described = await self.client.describe_group(name)
        except GroupNotFoundError:
            return False
        return channel_name is None or f"{channel_name}/0" in described.positions

    async def register_consumer(self, group: str, channel: str) -> "AsyncRocksMQConsumer":
        """Return a consumer of a group on a channel, after subscribing the group if necessary. Idempotent.

        Any number of consumers, in any number of processes, share the messages: each message goes to one of them.
        """
        name, channel_name = self._group(group), self._channel(channel)
        await self.client.subscribe_group(name, channel_name)
        return AsyncRocksMQConsumer(self, group, channel)

    # -- Messages ------------------------------------------------------------------------------------------

    async def produce(self, channel: str, messages: Iterable[bytes | ProducerMessage | Message]) -> list[Tick]:
        """Durably append messages, all or none, and return their ids in order, which are consecutive.

        Messages are appended exactly once, even if connections break meanwhile. Together they may have up to 1 GiB, the
        server's limit for a transaction. An empty list appends nothing.

        Raises:
            TypeError: ``messages`` is not a list of messages. Nothing was appended.
            AppendUnknownError: The server was away for too long: all messages are in the channel, or none.
        """
        vchannel = f"{self._channel(channel)}/0"
        appended = checked_messages(messages)
        if not appended:
            return []
        # Why no plain append: a transaction can be resent after a lost answer, and can be larger than a batch.
        result = (await append_together(self.client, {vchannel: appended})).results[vchannel]
        return [Tick(tick) for tick in range(result.first_tick, result.last_tick + 1)]

    async def consume(self, group: str, channel: str, n: int, *, wait_s: Duration = 0.0) -> list[ConsumerMessage]:
        """Return the next messages of a group, at most ``n`` and about 4 MiB; empty if nothing is available.

        Consuming acknowledges: the position is durably past the messages before they are returned, and no other
        consumer of the group gets them. If this process ends before processing them, they are not delivered again; use
        ``client.consumer`` for that. A call that is cancelled, or fails with effect unknown, loses nothing: the next
        call on this object returns its messages, unless more than 16 consumers share the channel. While the server is
        away the call retries, for up to ``Retry.give_up_s``.

        Args:
            group: Name of the group.
            channel: Name of the channel.
            n: Maximum number of messages, at least 1.
            wait_s: Time to wait for a first message, in seconds.

        Raises:
            PositionTrimmedError: Messages were trimmed before they were consumed: seek to continue.
            GroupInUseError: A member of the group (``client.consumer``) holds the channel.
            TypeError, ValueError: ``wait_s`` is no number, negative, not finite or above 100 years.
        """
        wait_s = check_seconds("wait_s", wait_s)
        with self._reader(group, channel) as reader:
            return await reader.consume(checked_count(n, "n"), wait_s)

    async def wait(self, group: str, channel: str, timeout_s: Duration | None = None) -> bool:
        """Return True once a group has something to consume; False after ``timeout_s`` or a ``notify``.

        Another consumer of the group may consume it first. While the server is away the call retries, for up to
        ``timeout_s`` or ``Retry.give_up_s``, whichever is less.

        Raises:
            TypeError, ValueError: ``timeout_s`` is no number, negative, not finite or above 100 years.
        """
        if timeout_s is not None:
            timeout_s = check_seconds("timeout_s", timeout_s)
        with self._reader(group, channel) as reader:
            return await reader.wait(timeout_s)

    async def notify(self, group: str, channel: str) -> None:
        """End one ``wait``, or one waiting ``consume``, of this object early: a running one, or else the next.

        New messages need no ``notify``: the server wakes waiting calls. Does no I/O.
        """
        with self._reader(group, channel) as reader:
            reader.notify()

    # -- Positions -----------------------------------------------------------------------------------------

    async def seek(self, group: str, channel: str, msg_id: int) -> None:
        """Durably set a group's position to a message, forward or back.

        The id after the last message is allowed too: the group then consumes what is produced from now on.

        Raises:
            MessageNotFoundError: The channel has no message with this id; another channel may have it.
            PositionTrimmedError: The message was trimmed.
            PositionBeyondEndError: No message was ever given such an id.
        """
        tick = checked_msg_id(msg_id)
        with self._reader(group, channel) as reader:
            await reader.seek(At.tick(tick), must_exist=tick)

    async def force_seek(self, group: str, channel: str, msg_id: int) -> None:
        """Durably set a group's position to a message, or to the next one available. Otherwise as ``seek``.

        For an id that was trimmed, or 0, that is the first available message.

        Raises:
            PositionBeyondEndError: As for ``seek``.
        """
        tick = checked_msg_id(msg_id)
        with self._reader(group, channel) as reader:
            try:
                await reader.seek(At.tick(tick))
            except PositionTrimmedError:
                await reader.seek(At.earliest())

    async def seek_to_latest(self, group: str, channel: str) -> None:
        """Durably set a group's position after the last message."""
        with self._reader(group, channel) as reader:
            await reader.seek(At.latest())

    # -- The end -------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End waiting calls with ClosedError, and close the client if this object created it. Idempotent."""
        self._is_closed = True
        for reader in self._readers.values():
            reader.close()
        if self._owns_client:
            await self.client.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    def _channel(self, channel: str) -> str:
        return self._named(channel, "channel")

    def _group(self, group: str) -> str:
        return self._named(group, "group")

    def _named(self, given: str, what: str) -> str:
        """Return a name on the server. Raises the errors that every call raises."""
        if self._is_closed:
            raise ClosedError("the queues are closed: create a new object")
        if not isinstance(given, str):
            raise TypeError(f"{what} is {type(given).__name__}, expected a name of type str")
        if not _PARTS[what].fullmatch(given):
            raise InvalidRequestError(
                f"{what} is {given!r}, expected a name that matches {_PARTS[what].pattern}", values={"field": what}
            )
        return self._prefix + given

    @contextmanager
    def _reader(self, group: str, channel: str) -> Iterator[GroupReader]:
        """Provide the reader of a group on a channel; discard it if one of them does not exist."""
        key = self._group(group), self._channel(channel)
        if self._pid != os.getpid():
            # The parent's pending calls belong to the parent.
            self._readers, self._pid = {}, os.getpid()
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = GroupReader(self.client, *key, self._on_event)
        try:
            yield reader
        except (GroupNotFoundError, ChannelNotFoundError):
            # Nothing is left to repeat, and callers may try many names that do not exist.
            self._readers.pop(key, None)
            raise


class AsyncRocksMQConsumer:
    """A consumer of a group on a channel. It holds no resources and needs no close.

    Attributes:
        group: Name of the group, as registered.
        channel: Name of the channel, as registered.
    """

    def __init__(self, mq: AsyncRocksMQ, group: str, channel: str) -> None:
        self.group = group
        self.channel = channel
        self._mq = mq

    async def consume(self, n: int, *, wait_s: Duration = 0.0) -> list[ConsumerMessage]:
        """Return the next messages. See ``AsyncRocksMQ.consume``."""
        return await self._mq.consume(self.group, self.channel, n, wait_s=wait_s)

    async def wait(self, timeout_s: Duration | None = None) -> bool:
        """Return True once there is something to consume. See ``AsyncRocksMQ.wait``."""
        return await self._mq.wait(self.group, self.channel, timeout_s)

    async def notify(self) -> None:
        """End one wait early. See ``AsyncRocksMQ.notify``."""
        await self._mq.notify(self.group, self.channel)
