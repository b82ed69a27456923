"""The base class of all streams: producers, subscriptions, and a reader behind ``consume``."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from tidelog.errors import ClosedError
from tidelog.msgstream._backends.backend import Backend
from tidelog.msgstream._backends.subscriptions import MarkT, Subscriptions
from tidelog.msgstream._dispatcher import UnmarshalDispatcher
from tidelog.msgstream._errors import BadPositionError, EmptyPackError, NotSubscribedError, StreamStateError
from tidelog.msgstream._interface import AsyncMsgStream, SubscriptionPosition
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
from tidelog.msgstream._reading import DeliveryT, PlaceT, Progress, Reading, StepReader
from tidelog.msgstream._repack import (
    RepackFunc,
    checked_packs,
    compute_produce_channel_indexes,
    default_repack,
    encoded,
    is_empty,
)
from tidelog.msgstream._settings import StreamSettings

MessageIds = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class StreamTools(Generic[MarkT]):
    """What a factory passes to each of its streams, besides its backend."""

    settings: StreamSettings
    dispatcher: UnmarshalDispatcher
    subscriptions: Subscriptions[MarkT]


class BaseStream(AsyncMsgStream, Generic[PlaceT, MarkT, DeliveryT]):
    """A stream without a definition of packs and positions.

    A *place* is where reading a channel begins; a *mark* is what a subscription stores of it.

    It has no background work: ``consume`` reads, so a stream without consumers holds at most one delivery.
    """

    def __init__(self, backend: Backend, tools: StreamTools[MarkT]) -> None:
        self.dispatcher = tools.dispatcher
        self.settings = tools.settings
        self.sub_name = ""
        self._backend = backend
        self._subscriptions = tools.subscriptions
        self._repack_func: RepackFunc | None = None
        # Channels to send to, in the order of as_producer, which determines their indexes.
        self._produced: list[str] = []
        self._progress: Progress[PlaceT, MarkT] = Progress(tools.subscriptions, self._mark_of)
        self._reading: Reading[DeliveryT] = Reading()
        # Held while subscriptions change, which involves awaits.
        self._changing = asyncio.Lock()
        self._is_started = False
        self._is_closed = False

    async def start(self) -> None:
        self._check_open()
        self._is_started = True

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._reading.stop()
        if self.sub_name:
            await self._subscriptions.flush(self.sub_name)

    async def as_producer(self, channels: Iterable[str]) -> None:
        self._check_open()
        for channel in await self._backend.resolve(_names(channels)):
            if channel not in self._produced:
                self._produced.append(channel)

    async def as_consumer(
        self,
        channels: Iterable[str],
        sub_name: str,
        position: SubscriptionPosition = SubscriptionPosition.EARLIEST,
    ) -> None:
        self._check_open()
        begin = SubscriptionPosition(position)
        async with self._changing:
            _check_subscription(self.sub_name, sub_name)
            names = await self._backend.resolve(_names(channels))
            new = list(dict.fromkeys(name for name in names if name not in self._progress.places))
            if not new:
                return
            try:
                places = await self._first_places(begin, sub_name, new)
            except BaseException:
                await self._release(sub_name, new)
                raise
            # Ordering: before reading stops, because a waiting consumer restarts at once.
            self.sub_name = sub_name
            self._progress.places |= places
            await self._reading.stop()

    def set_repack_func(self, repack_func: RepackFunc | None) -> None:
        self._repack_func = repack_func

    def compute_produce_channel_indexes(self, msgs: Iterable[TsMsg]) -> list[list[int]]:
        return compute_produce_channel_indexes(msgs, len(self._producers()))

    async def produce(self, pack: MsgPack | None) -> MessageIds:
        self._check_open()
        channels = self._producers()
        if pack is None or is_empty(pack):
            return {}
        indexes = compute_produce_channel_indexes(pack.msgs, len(channels))
        if self._repack_func is None:
            packs = default_repack(pack.msgs, indexes, len(channels))
        else:
            packs = checked_packs(self._repack_func(pack.msgs, indexes), len(channels))
        return await self._append({channels[index]: part for index, part in packs.items() if not part.is_empty})

    async def broadcast(self, pack: MsgPack | None) -> MessageIds:
        self._check_open()
        channels = self._producers()
        if pack is None or is_empty(pack):
            raise EmptyPackError("the pack to broadcast has no messages: expected at least one message")
        return await self._append(dict.fromkeys(channels, pack))

    async def consume(self) -> MsgPack:
        if not self._is_closed:
            await self._progress.save(self.sub_name)
        while True:
            self._check_open()
            reader = self._reading.reader or self._begin_reading()
            if not self._has_next():
                if (delivery := await self._reading.receive(reader)) is not None:
                    self._take(delivery)
            elif (pack := await self._take_next()) is not None:
                return pack

    async def seek(self, positions: Iterable[MsgPosition], *, include_message: bool = False) -> None:
        self._check_open()
        async with self._changing:
            wanted = [(self._subscribed(position), position) for position in positions]
            places = dict(await self._latest({channel for channel, _ in wanted}))
            latest = dict(places)
            for channel, position in wanted:
                try:
                    places[channel] = self._sought_place(position, latest[channel], include_message=include_message)
                except BadPositionError:
                    if not self.settings.ignore_bad_positions:
                        raise
                    places[channel] = latest[channel]
            # Ordering: before reading stops, because a waiting consumer restarts at once.
            self._progress.handed_out(places)
            await self._reading.stop()

    async def get_latest_msg_id(self, channel: str) -> bytes:
        self._check_open()
        [name] = await self._backend.resolve([channel])
        return await self._backend.last_id(name)

    async def check_topic_valid(self, channel: str) -> None:
        self._check_open()
        await self._backend.resolve([channel])

    async def chan(self) -> AsyncIterator[MsgPack]:
        while True:
            try:
                pack = await self.consume()
            except ClosedError:
                if self._is_closed:
                    return
                raise
            yield pack

    @property
    @abstractmethod
    def _earliest(self) -> PlaceT:
        """The place before the first available message."""

    @abstractmethod
    async def _latest(self, channels: Iterable[str]) -> Mapping[str, PlaceT]:
        """Return the present place of each channel: after its last message."""

    @abstractmethod
    def _place_of(self, mark: MarkT) -> PlaceT:
        """Return the place that a mark stands for."""

    @abstractmethod
    def _mark_of(self, place: PlaceT) -> MarkT:
        """Return what a subscription stores of a place."""

    @abstractmethod
    def _sought_place(self, position: MsgPosition, latest: PlaceT, *, include_message: bool) -> PlaceT:
        """Return the place of a position on a channel with this present place. Raises BadPositionError."""

    @abstractmethod
    def _open(self, places: Mapping[str, PlaceT]) -> StepReader[DeliveryT]:
        """Discard what was received, and return a reader that begins at these places."""

    @abstractmethod
    def _take(self, delivery: DeliveryT) -> None:
        """Add what the reader delivered."""

    @abstractmethod
    def _has_next(self) -> bool:
        """Return whether a pack is complete."""

    @abstractmethod
    async def _take_next(self) -> MsgPack | None:
        """Return the complete pack, after recording its end positions in the progress.

        None if another task took it meanwhile, or a seek has moved the position. A pack that cannot be decoded stays.
        """

    async def _release(self, sub_name: str, channels: Sequence[str]) -> None:
        """Release what a subscription holds of channels that ``as_consumer`` did not complete."""

    async def _first_places(
        self, position: SubscriptionPosition, sub_name: str, channels: Sequence[str]
    ) -> Mapping[str, PlaceT | None]:
        """Return where a subscription begins on each channel: where it was, or where it begins from now on."""
        stored = await self._subscriptions.load(sub_name, channels)
        new = [name for name in channels if name not in stored]
        places: dict[str, PlaceT | None] = {name: self._place_of(mark) for name, mark in stored.items()}
        if position is SubscriptionPosition.UNKNOWN:
            return places | dict.fromkeys(new)
        if new:
            is_first = position is SubscriptionPosition.EARLIEST
            first = dict.fromkeys(new, self._earliest) if is_first else await self._latest(new)
            await self._subscriptions.begin(sub_name, {name: self._mark_of(place) for name, place in first.items()})
            places |= first
        return {name: places[name] for name in channels}

    async def _append(self, packs: Mapping[str, MsgPack]) -> MessageIds:
        """Encode the pack of each channel, and append them."""
        parts = encoded(packs, self.settings.max_message_bytes)
        return await self._backend.append(parts) if parts else {}

    def _producers(self) -> Sequence[str]:
        if not self._produced:
            raise StreamStateError("the stream has no producers: call as_producer with the channels first")
        return self._produced

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the stream is closed: create a new one")

    def _begin_reading(self) -> StepReader[DeliveryT]:
        if not self._is_started:
            raise StreamStateError("the stream was not started: call start, or use it with async with")
        reader = self._reading.reader = self._open(self._progress.known())
        return reader

    def _subscribed(self, position: MsgPosition) -> str:
        """Return the full name of the position's channel. Raises NotSubscribedError."""
        for name in (position.channel_name, f"{position.channel_name}/0"):
            if name in self._progress.places:
                return name
        raise NotSubscribedError(
            f"the stream does not consume {position.channel_name!r}: expected one of "
            f"{', '.join(self._progress.places) or 'no channel'}; call as_consumer with it first",
            values={"channel": position.channel_name},
        )


def _names(channels: Iterable[str]) -> list[str]:
    """Return the names of channels. Raises TypeError for a single string."""
    if isinstance(channels, str):
        raise TypeError(f"channels is the string {channels!r}, expected several names: [{channels!r}]")
    return list(channels)


def _check_subscription(present: str, sub_name: str) -> None:
    """Check the name of a subscription against that of the stream. Raises StreamStateError."""
    if not sub_name:
        raise StreamStateError("the name of the subscription is empty: pass a name")
    if present and sub_name != present:
        raise StreamStateError(
            f"the stream has the subscription {present!r}, expected the same: use another stream for {sub_name!r}"
        )
