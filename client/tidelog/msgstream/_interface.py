"""The interface of message streams."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self

from tidelog.errors import TidelogError
from tidelog.msgstream._dispatcher import UnmarshalDispatcher
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._repack import RepackFunc


class SubscriptionPosition(StrEnum):
    """Where a subscription begins on a channel without a position."""

    EARLIEST = "earliest"
    """At the first available message."""
    LATEST = "latest"
    """After the last message."""
    UNKNOWN = "unknown"
    """Nowhere; a ``seek`` must follow."""


class AsyncMsgStream(ABC):
    """Sends packs of typed messages to channels, and receives packs from channels.

    One stream can do both. It belongs to one event loop, which for a synchronous stream is that of the synchronous
    clients: any thread may use it. Several callers may use it at the same time, and each pack goes to one consumer.
    ``async with`` starts it, and closes it at the end of the block. A repack function and the templates of the
    dispatcher run on the event loop, so they must not block or use a synchronous client.

    Attributes:
        dispatcher: Decodes received messages; add templates for custom types.
    """

    dispatcher: UnmarshalDispatcher

    @abstractmethod
    async def start(self) -> None:
        """Allow packs to be consumed. Idempotent.

        Raises:
            ClosedError: The stream was closed.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop the stream; waiting consumers get ClosedError. Idempotent.

        The pack handed out last does not count as handled.
        """

    @abstractmethod
    async def as_producer(self, channels: Iterable[str]) -> None:
        """Add channels to send to; existing ones keep their indexes.

        Raises:
            ChannelNotFoundError: A channel does not exist. Nothing changed.
        """

    @abstractmethod
    async def as_consumer(
        self,
        channels: Iterable[str],
        sub_name: str,
        position: SubscriptionPosition = SubscriptionPosition.EARLIEST,
    ) -> None:
        """Add channels to receive from, under the name of a subscription; existing ones do not change.

        Reading resumes at the subscription's position. On channels without one, ``position`` selects the start, which
        is fixed when this returns: everything sent later is received.

        Raises:
            ChannelNotFoundError: A channel does not exist. Nothing changed.
            StreamStateError: The stream already has another subscription, or the name is empty.
            ValueError: ``position`` is not a SubscriptionPosition.
        """

    @abstractmethod
    def set_repack_func(self, repack_func: RepackFunc | None) -> None:
        """Divide messages among channels with ``repack_func`` from now on; None restores the default."""

    @abstractmethod
    def compute_produce_channel_indexes(self, msgs: Iterable[TsMsg]) -> list[list[int]]:
        """Return, per message, the channel index of each of its hash keys: key % number of channels.

        Raises:
            StreamStateError: The stream has no producers.
        """

    @abstractmethod
    async def produce(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Divide a pack among the channels, send all of it or nothing, and return the message ids of each channel.

        A broker whose factory lacks the capability ``atomic_produce`` sends to each channel on its own. Elsewhere a
        pack for one channel costs one append, a pack for several one transaction. Messages of one call to a channel
        stay in order, and an awaited call precedes later ones. None and empty packs send nothing. Cancelling only ends
        the wait.

        Raises:
            StreamStateError: The stream has no producers.
            RepackError: The messages cannot be divided. Nothing was sent.
            MessageTooLargeError, MalformedMessageError: A message cannot be sent. Nothing was sent.
            AppendUnknownError: Whether the pack was sent, as a whole, is unknown.
            PartialProduceError: A part was sent, without ``atomic_produce``.
            ClosedError: The stream was closed.
            TidelogError: The log refused the pack; see ``effect``.
        """

    @abstractmethod
    async def broadcast(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Send every message of a pack to every channel, to all or to none, and return the message ids of each channel.

        Without the capability ``atomic_produce`` each channel is sent to on its own. Elsewhere a time-tick stream that
        consumes several of the channels receives all of it in one pack.

        Raises:
            EmptyPackError: The pack has no messages.
            StreamStateError, MessageTooLargeError, MalformedMessageError: Nothing was sent.
            AppendUnknownError, ClosedError, TidelogError: As for ``produce``.
        """

    @abstractmethod
    async def consume(self) -> MsgPack:
        """Return the next pack. Cancelling loses nothing.

        Packs handed out earlier then count as handled.

        Raises:
            ClosedError: The stream was closed.
            StreamStateError: The stream was not started, has no consumers, or lacks a position on a channel.
            UnknownMsgTypeError, MalformedMessageError: A message of the pack cannot be decoded. The next call retries:
                add a template first, or ``seek`` beyond the message.
            PositionTrimmedError: Messages were trimmed before they were consumed.
            TidelogError: The log cannot be read. The next call retries.
        """

    @abstractmethod
    async def seek(self, positions: Iterable[MsgPosition], *, include_message: bool = False) -> None:
        """Continue at these positions, forward or back; channels without a position are not changed.

        With the ``end_positions`` of a pack, the next pack follows. A plain stream continues after the message with
        the id; a time-tick stream at the id, but not before the first message above the timestamp. With
        ``include_message`` a plain stream starts with the message itself, and a time-tick stream with the messages at
        the timestamp.

        Raises:
            NotSubscribedError: The stream does not consume the channel of a position. Nothing changed.
            BadPositionError: An id is invalid, or a position lies in the future. Nothing changed.
        """

    @abstractmethod
    async def get_latest_msg_id(self, channel: str) -> bytes:
        """Return the id of the last message of a channel; the id of tick 0 if it is empty.

        Raises:
            ChannelNotFoundError: The channel does not exist.
        """

    @abstractmethod
    async def check_topic_valid(self, channel: str) -> None:
        """Return if the channel exists.

        Raises:
            ChannelNotFoundError: The channel does not exist.
        """

    @abstractmethod
    def chan(self) -> AsyncIterator[MsgPack]:
        """Return an iterator that yields packs, as ``consume`` returns them, until the stream is closed."""

    async def pause(self) -> bool:
        """Return whether the stream works on after its event loop was replaced by another one, in a fork."""
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except TidelogError as failure:
            if error is None:
                raise
            # The block raised, and the caller must see that error.
            error.add_note(f"closing the stream also failed: {failure!r}")
