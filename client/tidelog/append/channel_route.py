"""The way of a producer's batches to a channel: to its only vchannel, or divided among several by their keys.

The first batch goes to the channel by its name, while the others wait for the answer. A channel with one vchannel
accepts it, and one with several refuses it with their number. From then on answers to batches have the number.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from tidelog.append.dividing import KnownChannels, Share, VchannelTurns, divide
from tidelog.append.oversized import PartlyAppended
from tidelog.append.sender import ProducerBatch, Sender
from tidelog.append.sizes import Appendable
from tidelog.errors import ChannelNotFoundError, InvalidRequestError, TidelogError, copy_of
from tidelog.types import AppendPart, AppendResult, TransactionResult, VchannelTotal
from tidelog.wire.batch import Batch
from tidelog.wire.partitioning import Partitioner

Put = Callable[[str, ProducerBatch], None]
"""Passes a batch to the append stream, to a vchannel or to a channel by its name. Raises ClosedError."""


@dataclass(frozen=True, slots=True)
class DividedOutcome:
    """The outcome of a batch that was divided.

    Attributes:
        parts: The vchannel, the places and the settled batch of each part.
    """

    parts: Sequence[tuple[str, Sequence[int], ProducerBatch]]

    def part(self, begin: int, end: int) -> AppendResult:
        """Return the position of message ``begin``. Raises its error."""
        assert end == begin + 1
        vchannel, at, batch = next(
            (vchannel, at, batch)
            for vchannel, places, batch in self.parts
            if (at := bisect_left(places, begin)) < len(places) and places[at] == begin
        )
        if (error := batch.future.exception()) is not None:
            raise copy_of(error) if isinstance(error, TidelogError) else error
        outcome: AppendResult | PartlyAppended = batch.future.result()
        return AppendResult.of_parts([AppendPart(vchannel, outcome.part(at, at + 1), range(1))])


class ChannelRoute:
    """The way of the batches of one producer. Lives on the event loop.

    Attributes:
        totals: What is acknowledged, by vchannel; of a channel with several.
        has_one: True once the channel has accepted a batch by its name, as its first vchannel.
    """

    def __init__(
        self,
        channel: str,
        put: Put,
        known: Callable[[], KnownChannels],
        sender: Sender[ProducerBatch],
        partitioner: Partitioner | None,
    ) -> None:
        self._channel = channel
        self._put = put
        self._known = known
        self._sender = sender
        self._partitioner = partitioner
        self._turns = VchannelTurns()
        self.totals: dict[str, VchannelTotal] = {}
        self.has_one = self._is_asking = False
        # Batches that wait for the number of vchannels.
        self._held: deque[ProducerBatch] = deque()

    def send(self, batch: ProducerBatch) -> None:
        """Send ``batch``, or hold it until the number of vchannels is known. It fails by itself."""
        if self._is_asking:
            self._held.append(batch)
        elif (count := self._known().get(self._channel)) is not None:
            self._divide(batch, count)
        elif self.has_one:
            self._send(f"{self._channel}/0", batch)
        else:
            self._is_asking = True
            batch.on_answer = self._answered
            self._send(self._channel, batch)

    def _send(self, vchannel: str, batch: ProducerBatch) -> None:
        if batch.is_abandoned:
            return
        try:
            self._put(vchannel, batch)
        except TidelogError as error:
            batch.fail(error)

    def _answered(self, batch: ProducerBatch, error: TidelogError | None) -> bool:
        """Note the answer to the first batch; return whether it is sent again instead of failing."""
        if error is None:
            self.has_one = True
            asyncio.get_running_loop().call_soon(self._release, [])
            return False
        if not isinstance(error, InvalidRequestError) or error.effect != "none" or "vchannels" not in error.values:
            # The sender stops, and fails what is held.
            return False
        self._known().note(self._channel, int(error.values["vchannels"]))
        # Ordering: later, because the queue of the refused batch is being settled.
        asyncio.get_running_loop().call_soon(self._release, [batch])
        return True

    def _release(self, first: list[ProducerBatch]) -> None:
        """Send what was refused and held, in order."""
        batches = [*first, *self._held]
        self._held.clear()
        self._is_asking = False
        for batch in batches:
            batch.is_sent = False
            if not batch.is_abandoned:
                self.send(batch)

    def _divide(self, batch: ProducerBatch, count: int) -> None:
        try:
            shares = divide(batch.messages, count, self._partitioner, self._turns, is_plain=batch.is_plain)
        except TidelogError as error:
            batch.fail(error)
            return
        parts = [self._part(batch, share) for share in shares]
        # What rounding left over, so that the room that was taken is freed.
        parts[0].size_bytes += batch.size_bytes - sum(part.size_bytes for part in parts)
        self._sender.replace(batch, parts)
        outcome = DividedOutcome(
            [(part.vchannel, share.places, part) for share, part in zip(shares, parts, strict=True)]
        )
        left = len(parts)

        def settled(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                with suppress(asyncio.InvalidStateError):
                    batch.future.set_result(outcome)

        for part in parts:
            part.future.add_done_callback(settled)
        for part in parts:
            self._send(part.vchannel, part)

    def note_result(self, vchannel: str, result: AppendResult) -> None:
        """Count messages that are acknowledged."""
        messages = result.last_tick - result.first_tick + 1
        before = self.totals.get(vchannel) or VchannelTotal(0, result.first_tick, result.last_tick)
        self.totals[vchannel] = VchannelTotal(before.messages + messages, before.first_tick, result.last_tick)

    def note_missing(self) -> None:
        """Note that a vchannel does not exist: another channel has the name now, with fewer of them."""
        self._known().forget(self._channel)

    def _part(self, batch: ProducerBatch, share: Share) -> "_Part":
        size_bytes = batch.size_bytes * len(share.messages) // len(batch.messages)
        is_kept = isinstance(share.messages, list | Batch)
        messages = cast("list[Appendable]", share.messages if is_kept else list(share.messages))
        part = _Part(
            messages, batch.is_plain, size_bytes, asyncio.get_running_loop().create_future(), sender=self._sender,
            vchannel=f"{self._channel}/{share.index}", route=self,
        )  # fmt: skip
        part.travels_alone = part.is_divisible = True
        return part


@dataclass(slots=True, eq=False)
class _Part(ProducerBatch):
    """The part of a batch for one vchannel."""

    vchannel: str = field(kw_only=True)
    route: ChannelRoute = field(kw_only=True)

    def succeed(self, result: AppendResult | TransactionResult | None) -> None:
        """Count it first: a flush ends with the last one."""
        if isinstance(result, AppendResult):
            self.route.note_result(self.vchannel, result)
        ProducerBatch.succeed(self, result)

    def fail(self, error: TidelogError) -> None:
        if isinstance(error, ChannelNotFoundError):
            self.route.note_missing()
        ProducerBatch.fail(self, error)
