"""The reading of a stream: the delivery that callers wait for, and where it continues on each channel."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from tidelog.msgstream._backends.subscriptions import MarkT, Subscriptions
from tidelog.msgstream._errors import StreamStateError
from tidelog.transport.stream_end import look_at

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

    async def aclose(self) -> None:
        """Stop reading."""


class Reading(Generic[DeliveryT]):
    """Reads while callers wait, and holds at most one delivery.

    Attributes:
        reader: The reader; None before reading begins and after ``stop``.
    """

    def __init__(self) -> None:
        self.reader: StepReader[DeliveryT] | None = None
        self._step: asyncio.Task[DeliveryT] | None = None

    async def receive(self, reader: StepReader[DeliveryT]) -> DeliveryT | None:
        """Wait for the next delivery and return it; None for all callers but one, and if reading was stopped meanwhile.

        Why a task: waiting callers can be cancelled, and several can wait; the delivery is for the next caller.
        """
        step = self._step
        if step is None:
            step = self._step = asyncio.create_task(reader.step(), name="tidelog-msgstream")
        await asyncio.wait((step,))
        if self._step is not step:
            return None
        self._step = None
        return None if step.cancelled() else step.result()

    async def stop(self) -> None:
        """Discard what was received, and close the reader."""
        reader, self.reader = self.reader, None
        step, self._step = self._step, None
        try:
            if step is not None:
                step.cancel()
                await asyncio.wait((step,))
                # A step that failed fails again.
                look_at(step)
        finally:
            # Also if this is cancelled: the reader has no other owner.
            if reader is not None:
                await reader.aclose()


class Progress(Generic[PlaceT, MarkT]):
    """Where reading continues.

    Attributes:
        places: Where each channel continues after the packs handed out; None until a seek sets it.
    """

    def __init__(self, subscriptions: Subscriptions[MarkT], mark_of: Callable[[PlaceT], MarkT]) -> None:
        self.places: dict[str, PlaceT | None] = {}
        self._subscriptions = subscriptions
        self._mark_of = mark_of
        # Position that the last pack commits once it is handled.
        self._unsaved: Mapping[str, MarkT] = {}

    def handed_out(self, places: Mapping[str, PlaceT]) -> None:
        """Record where channels continue: after the pack being handed out, or elsewhere after a seek."""
        self.places |= places
        self._unsaved = {**self._unsaved, **{channel: self._mark_of(place) for channel, place in places.items()}}

    def known(self) -> Mapping[str, PlaceT]:
        """Return where each channel continues.

        Raises:
            StreamStateError: There is no channel, or one without a place.
        """
        if not self.places:
            raise StreamStateError("the stream has no consumers: call as_consumer with the channels first")
        places = {name: place for name, place in self.places.items() if place is not None}
        if len(places) < len(self.places):
            missing = ", ".join(name for name in self.places if name not in places)
            raise StreamStateError(
                f"the stream has no position on {missing}: seek there, or subscribe at earliest or latest"
            )
        return places

    async def save(self, sub_name: str) -> None:
        """Store what was handed out before."""
        if self._unsaved:
            unsaved, self._unsaved = self._unsaved, {}
            try:
                await self._subscriptions.save(sub_name, unsaved)
            except BaseException:
                self._unsaved = {**unsaved, **self._unsaved}
                raise
