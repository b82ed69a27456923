"""The base class of all streams: producers, subscriptions, and a reader behind ``consume``."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidelog.errors import ClosedError
from tidelog.message import Message
from tidelog.msgstream._backends.backend import Backend
from tidelog.msgstream._backends.subscriptions import MarkT, Subscriptions
from tidelog.msgstream._dispatcher import UnmarshalDispatcher
from tidelog.msgstream._errors import EmptyPackError, NotSubscribedError, StreamStateError
from tidelog.msgstream._interface import AsyncMsgStream, SubscriptionPosition
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack
from tidelog.msgstream._position import MsgPosition
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
PlaceT = TypeVar("PlaceT")
DeliveryT = TypeVar("DeliveryT")
DeliveryT_co = TypeVar("DeliveryT_co", covariant=True)


class StepReader(Protocol[DeliveryT_co]):
    """Reads several channels, one delivery after another."""

    async def step(self) -> DeliveryT_co:
        """Wait for the next delivery and return it. Cancelling loses nothing.

        Raises:
            TidelogError: The channels cannot be read. The next call retries.
        """
        ...

    async def aclose(self) -> None:
        """Stop reading."""
        ...


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
        # Where each channel continues after the packs handed out; None until a seek sets it.
        self._places: dict[str, PlaceT | None] = {}
        # Position that the last pack commits once it is handled.
        self._unsaved: Mapping[str, MarkT] = {}
        self._reader: StepReader[DeliveryT] | None = None
        self._step: asyncio.Task[DeliveryT] | None = None
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
        await self._stop_reading()
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
            self._check_subscription(sub_name)
            names = await self._backend.resolve(_names(channels))
            new = list(dict.fromkeys(name for name in names if name not in self._places))
            if not new:
                return
            try:
                places = await self._first_places(begin, sub_name, new)
            except BaseException:
                await self._release(sub_name, new)
                raise
            # Ordering: before reading stops, because a waiting consumer restarts at once.
            self.sub_name = sub_name
            self._places |= places
            await self._stop_reading()

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
        return await self._send({channels[index]: part for index, part in packs.items() if not part.is_empty})

    async def broadcast(self, pack: MsgPack | None) -> MessageIds:
        self._check_open()
        channels = self._producers()
        if pack is None or is_empty(pack):
            raise EmptyPackError("the pack to broadcast has no messages: expected at least one message")
        return await self._send(dict.fromkeys(channels, pack))

    async def consume(self) -> MsgPack:
        await self._save_progress()
        while True:
            self._check_open()
            reader = self._reader or self._begin_reading()
            if not self._has_next():
                await self._receive(reader)
            elif (pack := await self._take_next()) is not None:
                return pack

    async def seek(self, positions: Iterable[MsgPosition], *, include_message: bool = False) -> None:
        self._check_open()
        async with self._changing:
            wanted = [(self._subscribed(position), position) for position in positions]
            places = await self._sought_places(wanted, include_message=include_message)
            # Ordering: before reading stops, because a waiting consumer restarts at once.
            self._handed_out(places)
            await self._stop_reading()

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

    @abstractmethod
    async def _beginning(self, position: SubscriptionPosition, channels: Sequence[str]) -> Mapping[str, PlaceT]:
        """Return the first or the present place of each channel."""

    @abstractmethod
    def _place_of(self, mark: MarkT) -> PlaceT:
        """Return the place that a mark stands for."""

    @abstractmethod
    def _mark_of(self, place: PlaceT) -> MarkT:
        """Return what a subscription stores of a place."""

    @abstractmethod
    async def _sought_places(
        self, wanted: Sequence[tuple[str, MsgPosition]], *, include_message: bool
    ) -> Mapping[str, PlaceT]:
        """Return the place of each position, by channel. Raises BadPositionError."""

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
        """Return the complete pack, after recording its end positions with ``_handed_out``.

        None if another task took it meanwhile, or a seek has moved the position. A pack that cannot be decoded stays.
        """

    def _handed_out(self, places: Mapping[str, PlaceT]) -> None:
        """Record where channels continue: after the pack being handed out, or elsewhere after a seek."""
        self._places |= places
        self._unsaved = {**self._unsaved, **{channel: self._mark_of(place) for channel, place in places.items()}}

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
            first = await self._beginning(position, new)
            await self._subscriptions.begin(sub_name, {name: self._mark_of(place) for name, place in first.items()})
            places |= first
        return {name: places[name] for name in channels}

    async def _send(self, packs: Mapping[str, MsgPack]) -> MessageIds:
        """Encode the pack of each channel, each once, and append them."""
        parts: dict[int, Sequence[Message]] = {}
        for pack in packs.values():
            if id(pack) not in parts:
                parts[id(pack)] = encoded(pack, self.settings.max_message_bytes)
        return await self._append({channel: parts[id(pack)] for channel, pack in packs.items()}, packs)

    async def _append(self, parts: Mapping[str, Sequence[Message]], packs: Mapping[str, MsgPack]) -> MessageIds:
        """Append the encoded messages of packs."""
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
        if not self._places:
            raise StreamStateError("the stream has no consumers: call as_consumer with the channels first")
        places = {name: place for name, place in self._places.items() if place is not None}
        if len(places) < len(self._places):
            missing = ", ".join(name for name in self._places if name not in places)
            raise StreamStateError(
                f"the stream has no position on {missing}: seek there, or subscribe at earliest or latest"
            )
        self._reader = self._open(places)
        return self._reader

    async def _receive(self, reader: StepReader[DeliveryT]) -> None:
        """Wait for the next delivery and add it; return without one if reading was stopped meanwhile.

        Why a task: waiting callers can be cancelled, and several can wait; the delivery is for the next caller.
        """
        step = self._step
        if step is None:
            step = self._step = asyncio.create_task(reader.step(), name="tidelog-msgstream")
        await asyncio.wait((step,))
        if self._step is not step:
            return
        self._step = None
        if not step.cancelled():
            self._take(step.result())

    async def _stop_reading(self) -> None:
        """Discard what was received and not handed out."""
        reader, self._reader = self._reader, None
        step, self._step = self._step, None
        try:
            if step is not None:
                step.cancel()
                await asyncio.wait((step,))
                if not step.cancelled():
                    # Retrieved because asyncio logs unretrieved exceptions; the next step fails again.
                    step.exception()
        finally:
            # Also if this is cancelled: the reader has no other owner.
            if reader is not None:
                await reader.aclose()

    async def _save_progress(self) -> None:
        """Commit what was handed out before."""
        if self._unsaved and not self._is_closed:
            unsaved, self._unsaved = self._unsaved, {}
            try:
                await self._subscriptions.save(self.sub_name, unsaved)
            except BaseException:
                self._unsaved = {**unsaved, **self._unsaved}
                raise

    def _check_subscription(self, sub_name: str) -> None:
        if not sub_name:
            raise StreamStateError("the name of the subscription is empty: pass a name")
        if self.sub_name and sub_name != self.sub_name:
            raise StreamStateError(
                f"the stream has the subscription {self.sub_name!r}, expected the same: use another stream for "
                f"{sub_name!r}"
            )

    def _subscribed(self, position: MsgPosition) -> str:
        """Return the full name of the position's channel. Raises NotSubscribedError."""
        for name in (position.channel_name, f"{position.channel_name}/0"):
            if name in self._places:
                return name
        raise NotSubscribedError(
            f"the stream does not consume {position.channel_name!r}: expected one of "
            f"{', '.join(self._places) or 'no channel'}; call as_consumer with it first",
            values={"channel": position.channel_name},
        )


def _names(channels: Iterable[str]) -> list[str]:
    """Return the names of channels. Raises TypeError for a single string."""
    if isinstance(channels, str):
        raise TypeError(f"channels is the string {channels!r}, expected several names: [{channels!r}]")
    return list(channels)
