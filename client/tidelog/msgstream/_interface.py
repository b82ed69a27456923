"""The interface of message streams; ``_sync_stream`` has its synchronous twin."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self

from tidelog.msgstream._dispatcher import UnmarshalDispatcher
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack, MsgPosition
from tidelog.msgstream._repack import RepackFunc


class SubscriptionPosition(StrEnum):
    """Where a subscription begins on a channel where it has no position yet."""

    EARLIEST = "earliest"
    """At the first message that is still there."""
    LATEST = "latest"
    """Behind the last message."""
    UNKNOWN = "unknown"
    """Nowhere: ``seek`` will say."""


class AsyncMsgStream(ABC):
    """Sends packs of typed messages to channels, and receives packs from channels.

    A stream may do both. It is used from one event loop; several tasks may use it at the same time, and each pack goes
    to one of those that consume. ``async with`` starts it, and closes it at the end of the block.

    Attributes:
        dispatcher: Makes messages of what is received; add templates for types of your own.
    """

    dispatcher: UnmarshalDispatcher

    @abstractmethod
    async def start(self) -> None:
        """Let packs be consumed. Starting twice is starting once.

        Raises:
            ClosedError: The stream was closed.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop: whoever consumes is told. Closing twice is closing once.

        What was handed out last does not count as handled.
        """

    @abstractmethod
    async def as_producer(self, channels: Iterable[str]) -> None:
        """Send to these channels too; those that the stream has already stay where they are.

        Raises:
            ChannelNotFoundError: One does not exist. Nothing changed.
        """

    @abstractmethod
    async def as_consumer(
        self,
        channels: Iterable[str],
        sub_name: str,
        position: SubscriptionPosition = SubscriptionPosition.EARLIEST,
    ) -> None:
        """Receive from these channels too, under the name of a subscription; those it has already stay as they are.

        Reading goes on where the subscription got to. Where it has no position yet, ``position`` says where it begins,
        which is settled when this returns: everything sent later comes.

        Raises:
            ChannelNotFoundError: One does not exist. Nothing changed.
            StreamStateError: The stream has another subscription already, or the name is empty.
            ValueError: ``position`` is none.
        """

    @abstractmethod
    def set_repack_func(self, repack_func: RepackFunc | None) -> None:
        """Let ``repack_func`` divide messages among channels from now on; None for the default."""

    @abstractmethod
    def compute_produce_channel_indexes(self, msgs: Iterable[TsMsg]) -> list[list[int]]:
        """Return for each message, for each of its hash keys, the index of the channel: key % number of channels.

        Raises:
            StreamStateError: The stream has no producers.
        """

    @abstractmethod
    async def produce(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Divide a pack among the channels, send all of it or nothing, and return the message ids of each channel.

        That it is all or nothing is more than message streams promise elsewhere, where a failure leaves the channels
        that were sent to before. A pack for one channel costs one append; one for several costs one transaction. What
        one call sends to a channel stays in its order, and a call that is awaited comes before one that is made later.
        None, and a pack without messages, are sent as nothing. Cancelling ends the wait only: the pack is then there as
        a whole, or not at all.

        Raises:
            StreamStateError: The stream has no producers.
            RepackError: The messages cannot be divided. Nothing was sent.
            MessageTooLargeError, MalformedMessageError: A message cannot be sent. Nothing was sent.
            AppendUnknownError: The pack may be there, as a whole, or not.
            ClosedError: The stream was closed.
            TidelogError: The log did not take it; see ``effect``.
        """

    @abstractmethod
    async def broadcast(self, pack: MsgPack | None) -> Mapping[str, Sequence[bytes]]:
        """Send every message of a pack to every channel, to all or to none, and return the message ids of each channel.

        A time-tick stream that consumes several of the channels has all of it in one pack.

        Raises:
            EmptyPackError: There are no messages.
            StreamStateError, MessageTooLargeError, MalformedMessageError: Nothing was sent.
            AppendUnknownError, ClosedError, TidelogError: As ``produce``.
        """

    @abstractmethod
    async def consume(self) -> MsgPack:
        """Return the next pack. Cancelling loses nothing.

        Everything that was handed out before counts as handled now.

        Raises:
            ClosedError: The stream was closed.
            StreamStateError: It was not started, has no consumers, or a channel has no position yet.
            UnknownMsgTypeError, MalformedMessageError: A message of the pack cannot be read. The next call tries again:
                add a template before, or ``seek`` beyond it.
            PositionTrimmedError: Messages that were not consumed yet are gone.
            TidelogError: The log cannot be read. The next call tries again.
        """

    @abstractmethod
    async def seek(self, positions: Iterable[MsgPosition], *, include_message: bool = False) -> None:
        """Go on at these positions, forwards or backwards; channels without a position go on where they are.

        With the ``end_positions`` of a pack, the next pack comes next. A plain stream goes on behind the message with
        the id; a time-tick stream at the id, but not before the first message above the timestamp. With
        ``include_message`` a plain stream begins with the message itself, and a time-tick stream with those at the
        timestamp.

        Raises:
            NotSubscribedError: A position is of another channel. Nothing changed.
            BadPositionError: An id is none, or a position lies in the future. Nothing changed.
        """

    @abstractmethod
    async def get_latest_msg_id(self, channel: str) -> bytes:
        """Return the id of the last message of a channel; the id of tick 0 where there is none.

        Raises:
            ChannelNotFoundError: It does not exist.
        """

    @abstractmethod
    async def check_topic_valid(self, channel: str) -> None:
        """Return if the channel exists.

        Raises:
            ChannelNotFoundError: It does not.
        """

    @abstractmethod
    def chan(self) -> AsyncIterator[MsgPack]:
        """Return the packs, as ``consume`` does, until the stream is closed."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
