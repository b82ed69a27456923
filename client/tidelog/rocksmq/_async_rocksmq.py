"""RocksMQ on a Tidelog server: queues with consumer groups that acknowledge by consuming."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar

from tidelog import (
    AsyncClient,
    At,
    ChannelNotFoundError,
    ClosedError,
    GroupAlreadyExistsError,
    GroupNotFoundError,
    GroupNotSubscribedError,
    InvalidRequestError,
    Message,
    OnEvent,
    PositionTrimmedError,
    StorageFailedError,
    Tick,
    VchannelDescription,
)
from tidelog._append_together import append_together
from tidelog.rocksmq._lane import Lane
from tidelog.rocksmq._messages import (
    ConsumerMessage,
    MessageNotFoundError,
    ProducerMessage,
    checked_count,
    checked_messages,
    checked_msg_id,
)

DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
# Without a dot, so that the first one ends it and no two queues meet in one channel.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PARTS: Final = {"channel": re.compile(r"[a-z0-9][a-z0-9._-]*"), "group": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")}

_Result = TypeVar("_Result")


class AsyncRocksMQ:
    """Queues on a Tidelog server. ``RocksMQ`` is the synchronous twin: same names, no ``await``.

    A channel is a Tidelog channel with one vchannel, ``<name>.<channel>``, and a group is a consumer group,
    ``<name>.<group>``; without a name they are called as they are, so that others can consume and produce there too. A
    message's id is its tick. Making one does no I/O.

    Each call raises TypeError for what is no text or no number, InvalidRequestError for a name, id or number that
    cannot be, ChannelNotFoundError and GroupNotFoundError for what does not exist, ClosedError after ``aclose``, and
    another TidelogError when the server cannot be asked; its ``effect`` says what may have happened.
    """

    def __init__(
        self, client: AsyncClient | str = DEFAULT_ENDPOINT, *, name: str = "", on_event: OnEvent | None = None
    ) -> None:
        """Name the server and the queues.

        Args:
            client: A client, which stays the caller's; or ``host:port``, for one that ``aclose`` closes.
            name: Keeps these channels and groups apart from those of others: ``[a-z0-9][a-z0-9_-]*``. Default: none.
            on_event: Is called with each ReaderEvent of calls that consume or wait; default None.

        Raises:
            ValueError: The name is none.
        """
        if name and not _NAME.fullmatch(name):
            raise ValueError(f"the name is {name!r}, expected to match {_NAME.pattern}")
        self.name = name
        self.client = AsyncClient(client) if isinstance(client, str) else client
        self._owns_client = isinstance(client, str)
        self._on_event = on_event
        self._prefix = f"{name}." if name else ""
        # One for each group and channel that this process has used, until either is destroyed.
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._pid = os.getpid()
        self._is_closed = False

    # -- Channels ------------------------------------------------------------------------------------------

    async def create_channel(self, channel: str) -> None:
        """Create a channel, durably; one that exists stays as it is.

        Raises:
            ChannelAlreadyExistsError: Somebody made it with several vchannels, so it is no queue.
        """
        await self.client.create_channel(self._channel(channel), if_not_exists=True)

    async def destroy_channel(self, channel: str) -> None:
        """Remove a channel with its messages and all positions of groups on it, durably; its disk is given back.

        Groups stay, without a position there.

        Raises:
            GroupInUseError: A consumer that joined a group, see ``client.consumer``, holds it. Nothing happened.
        """
        name = self._channel(channel)
        await self.client.destroy_channels([name])
        self._forget(lambda _, lane_channel: lane_channel == name)

    async def check_topic_valid(self, channel: str) -> None:
        """Return if a channel can be produced to and consumed from.

        Raises:
            InvalidRequestError: It has several vchannels, so it is no queue.
            StorageFailedError: It takes no messages, after a failure of the server's storage.
        """
        name = self._channel(channel)
        [described] = await self.client.describe_channels([name])
        if len(described.vchannels) != 1:
            raise InvalidRequestError(
                f"channel '{name}' has {len(described.vchannels)} vchannels, a queue has one: create another channel",
                values={"name": name},
            )
        if described.stopped_by:
            raise StorageFailedError(f"channel '{name}' takes no messages: {described.stopped_by}")

    async def get_latest_msg(self, channel: str) -> Tick | None:
        """Return the id of the last message that was produced, also if it was trimmed since; None for none."""
        return (await self._described(channel)).last_tick or None

    # -- Groups --------------------------------------------------------------------------------------------

    async def create_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Create a group, durably; with a channel, it is to consume that one from its first message on.

        Without a channel it begins on each one where it first consumes or seeks, at the first message that is there
        then. Once it has a position on a channel, retention keeps what it has not consumed.

        Raises:
            GroupAlreadyExistsError: It exists; with a channel, it has a position on it. Nothing happened.
        """
        name, channels = self._group(group), () if channel is None else (self._channel(channel),)
        try:
            await self.client.create_group(name, channels)
        except GroupAlreadyExistsError:
            if not channels or await self._has_position(name, channels[0]):
                raise
            await self.client.subscribe_group(name, channels)

    async def destroy_consumer_group(self, group: str, channel: str | None = None) -> None:
        """Remove a group, or its position on a channel, durably; with the last position the group goes as well.

        A group that does not exist is no error.

        Raises:
            ChannelNotFoundError: The channel does not exist. Nothing happened.
            GroupInUseError: The group has members, see ``client.consumer``. Nothing happened.
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
        self._forget(lambda lane_group, on: lane_group == name and channel_name in (None, on))

    async def exist_consumer_group(self, group: str, channel: str | None = None) -> bool:
        """Tell whether a group exists; with a channel, whether it has a position on it."""
        name, channel_name = self._group(group), None if channel is None else self._channel(channel)
        try:
            described = await self.client.describe_group(name)
        except GroupNotFoundError:
            return False
        return channel_name is None or f"{channel_name}/0" in described.positions

    async def register_consumer(self, group: str, channel: str) -> "AsyncRocksMQConsumer":
        """Return a consumer of a group on a channel, which it subscribes if it is not; repeating it changes nothing.

        Any number of them, in any number of processes, share the messages: each message goes to one.
        """
        name, channel_name = self._group(group), self._channel(channel)
        await self.client.subscribe_group(name, channel_name)
        return AsyncRocksMQConsumer(self, group, channel)

    # -- Messages ------------------------------------------------------------------------------------------

    async def produce(self, channel: str, messages: Iterable[bytes | ProducerMessage | Message]) -> list[Tick]:
        """Append messages, all or none, and return their ids in order, which are consecutive; durable then.

        They are in the channel once, also if connections break meanwhile. Of any size together, up to what the server
        takes as a transaction, 1 GiB. None for none.

        Raises:
            TypeError: It is no list of messages. Nothing was appended.
            AppendUnknownError: The server stayed away too long: they are there all, or none is.
        """
        vchannel = self._vchannel(channel)
        appended = checked_messages(messages)
        if not appended:
            return []
        # Why no plain append: a transaction may be sent again after a lost answer, and may be larger than a batch.
        result = (await append_together(self.client, {vchannel: appended})).results[vchannel]
        return [Tick(tick) for tick in range(result.first_tick, result.last_tick + 1)]

    async def consume(self, group: str, channel: str, n: int, *, wait_s: float = 0.0) -> list[ConsumerMessage]:
        """Return the next messages of a group, at most ``n`` and about 4 MiB; none if there are none.

        Consuming is acknowledging: the position is behind the messages, durably, before they come, and nobody else of
        the group gets them. If this process ends before it has processed them, they are not delivered again; see
        ``client.consumer`` for that. A call that was cancelled or failed with effect unknown loses nothing: the next
        one of this object gets what that one would have got, unless more than sixteen consumers share the channel.
        While the server is away the call tries again, for up to ``Retry.give_up_s``.

        Args:
            group: The group.
            channel: The channel.
            n: At least 1.
            wait_s: How long to wait for a first message.

        Raises:
            PositionTrimmedError: Messages that were not consumed are gone: seek to go on.
            GroupInUseError: A consumer that joined the group, see ``client.consumer``, holds the channel.
        """
        lane, n = self._lane(group, channel), checked_count(n, "n")
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        while True:
            messages = await self._positioned(group, channel, lambda: lane.consume(n))
            if messages or clock() >= deadline:
                return messages
            found = await lane.wait(deadline - clock())
            self._check_open()
            if not found:
                return []

    async def wait(self, group: str, channel: str, timeout_s: float | None = None) -> bool:
        """Return True once a group has something to consume; False after ``timeout_s`` or a ``notify``.

        Another consumer of the group may consume it first. While the server is away it tries again, for up to
        ``timeout_s`` or ``Retry.give_up_s``, whichever is less.
        """
        lane = self._lane(group, channel)
        found = await self._positioned(group, channel, lambda: lane.wait(timeout_s))
        self._check_open()
        return found

    async def notify(self, group: str, channel: str) -> None:
        """Let one ``wait``, or one ``consume`` that waits, of this object end early: one that runs, or else the next.

        New messages need no notice: whoever waits learns of them from the server. Does no I/O.
        """
        self._lane(group, channel).notify()

    # -- Positions -----------------------------------------------------------------------------------------

    async def seek(self, group: str, channel: str, msg_id: int) -> None:
        """Let a group consume from a message on, forward or back, durably.

        The id behind the last message is allowed too: what is produced from now on.

        Raises:
            MessageNotFoundError: The channel has no such message, which may be one of another channel.
            PositionTrimmedError: It was trimmed.
            PositionBeyondEndError: No message has ever had such an id.
        """
        tick = checked_msg_id(msg_id)
        await self._seek(group, channel, At.tick(tick), must_be_there=tick)

    async def force_seek(self, group: str, channel: str, msg_id: int) -> None:
        """Let a group consume from a message on, or from the next one that there is. Otherwise as ``seek``.

        Behind an id that was trimmed, 0 included, that is the first message that is left.

        Raises:
            PositionBeyondEndError: As ``seek``.
        """
        tick = checked_msg_id(msg_id)
        try:
            await self._seek(group, channel, At.tick(tick))
        except PositionTrimmedError:
            await self._seek(group, channel, At.earliest())

    async def seek_to_latest(self, group: str, channel: str) -> None:
        """Let a group consume what is produced from now on, durably."""
        await self._seek(group, channel, At.latest())

    # -- The end -------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End waits with ClosedError, and close the client if this object made it. Idempotent."""
        self._is_closed = True
        for lane in self._lanes.values():
            lane.notify()
        if self._owns_client:
            await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    def _channel(self, channel: str) -> str:
        return self._named(channel, "channel")

    def _group(self, group: str) -> str:
        return self._named(group, "group")

    def _vchannel(self, channel: str) -> str:
        return f"{self._channel(channel)}/0"

    def _named(self, given: str, what: str) -> str:
        """Return a name on the server. Raises as every call does."""
        self._check_open()
        if not isinstance(given, str):
            raise TypeError(f"{what} is a name of type str, not {type(given).__name__}")
        if not _PARTS[what].fullmatch(given):
            raise InvalidRequestError(
                f"{what} is {given!r}, expected a name that matches {_PARTS[what].pattern}", values={"field": what}
            )
        return self._prefix + given

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the queues are closed: make a new object")

    def _lane(self, group: str, channel: str) -> Lane:
        key = self._group(group), self._channel(channel)
        if self._pid != os.getpid():
            # What the parent has under way is the parent's.
            self._lanes, self._pid = {}, os.getpid()
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(self.client, key[0], f"{key[1]}/0", self._on_event)
        return lane

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for key in [key for key in self._lanes if is_gone(*key)]:
            del self._lanes[key]

    async def _seek(self, group: str, channel: str, to: At, *, must_be_there: Tick | None = None) -> None:
        """Move the position, durably; nobody of this process consumes there meanwhile."""
        lane, group_name, channel_name = self._lane(group, channel), self._group(group), self._channel(channel)

        async def seek() -> None:
            if must_be_there is not None:
                await self._find(channel, must_be_there)
            await self.client.seek_group(group_name, to, channel_name)

        async with lane.moving():
            await self._positioned(group, channel, seek)

    async def _positioned(self, group: str, channel: str, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return what ``call`` returns, after a position was made if the group has none on the channel."""
        key = self._group(group), self._channel(channel)
        try:
            try:
                return await call()
            except GroupNotSubscribedError:
                await self.client.subscribe_group(*key)
                return await call()
        except (GroupNotFoundError, ChannelNotFoundError):
            # There is nothing left to repeat, and names that do not exist may be many.
            self._lanes.pop(key, None)
            raise

    async def _has_position(self, group_name: str, channel_name: str) -> bool:
        return f"{channel_name}/0" in (await self.client.describe_group(group_name)).positions

    async def _described(self, channel: str) -> VchannelDescription:
        [described] = await self.client.describe_channels([self._channel(channel)])
        return described.vchannels[0]

    async def _find(self, channel: str, tick: Tick) -> None:
        """Return if a message has this tick, or the last one has the tick before it. Raises as ``seek``."""
        vchannel = self._vchannel(channel)
        async with self.client.scan(vchannel, start=At.tick(tick), until=At.inside(tick + 1)) as scan:
            async for _ in scan:
                return
        last_tick = (await self._described(channel)).last_tick
        if tick != last_tick + 1:
            raise MessageNotFoundError(
                f"channel '{self._channel(channel)}' has no message with the id {tick}, its last one is {last_tick}: "
                "seek to the id of one of its messages, or use force_seek",
                values={"msg_id": str(tick), "last_msg_id": str(last_tick), "vchannel": vchannel},
            )


class AsyncRocksMQConsumer:
    """A consumer of a group on a channel. It holds nothing, and needs no close.

    Attributes:
        group: The group, as it was registered.
        channel: The channel, as it was registered.
    """

    def __init__(self, mq: AsyncRocksMQ, group: str, channel: str) -> None:
        self.group = group
        self.channel = channel
        self._mq = mq

    async def consume(self, n: int, *, wait_s: float = 0.0) -> list[ConsumerMessage]:
        """Return the next messages. See ``AsyncRocksMQ.consume``."""
        return await self._mq.consume(self.group, self.channel, n, wait_s=wait_s)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return True once there is something to consume. See ``AsyncRocksMQ.wait``."""
        return await self._mq.wait(self.group, self.channel, timeout_s)

    async def notify(self) -> None:
        """Let one wait end early. See ``AsyncRocksMQ.notify``."""
        await self._mq.notify(self.group, self.channel)
