"""Appends of a client that wait for their answer: to one vchannel, or divided among those of a channel."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.append.contents import as_messages
from tidelog.append.dividing import FailedPart, Share, check_partitioner, divide, of_one_vchannel
from tidelog.append.errors import result_of
from tidelog.append.numbered_channel import NumberedChannel, NumberedChannels
from tidelog.append.sizes import Appendable
from tidelog.append.stream import AppendStream
from tidelog.errors import ChannelNotFoundError, InvalidRequestError, TidelogError
from tidelog.transport import tracing as _tracing
from tidelog.transport.deadline import Deadline
from tidelog.types import AppendPart, AppendResult, ChannelSequence, ProducerSequence
from tidelog.v1 import wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.append_terms import DEFAULT_TERMS, AppendTerms
from tidelog.wire.partitioning import Partitioner

CountVchannels = Callable[[str], Awaitable[int]]
"""Asks the server for the number of vchannels of a channel; 0 if another node has it. Raises ChannelNotFoundError."""


class Several(NamedTuple):
    """Messages of an append, whether all are bytes, and their approximate size in a batch."""

    messages: Sequence[Appendable]
    is_plain: bool
    size_bytes: int

    def share(self, share: Share) -> "Several":
        """Return those for one vchannel."""
        size_bytes = self.size_bytes * len(share.messages) // len(self.messages)
        return Several(share.messages, self.is_plain, size_bytes)


class Conditions(NamedTuple):
    """How messages are appended: see ``AsyncClient.append``."""

    terms: AppendTerms = DEFAULT_TERMS
    barrier_tick: int = 0
    expected_last_tick: int | None = None
    producer: ProducerSequence | ChannelSequence | None = None
    partitioner: Partitioner | None = None

    @property
    def are_alone(self) -> bool:
        """True if the append cannot share a batch or a stream."""
        return bool(self.barrier_tick) or self.expected_last_tick is not None or self.producer is not None


class AppendCalls:
    """The appends of a client in one event loop.

    The name of a channel stands for its only vchannel until the server refuses it, with their number: that is how a
    client learns it, at no cost for channels with one vchannel.
    """

    def __init__(self, stream: AppendStream, numbered: NumberedChannels, count_vchannels: CountVchannels) -> None:
        self._stream = stream
        self._known = stream.known
        self._numbered = numbered
        self._count_vchannels = count_vchannels

    def append(self, name: str, several: Several, conditions: Conditions, timeout_s: float) -> Awaitable[AppendResult]:
        """Append messages to a vchannel, or to a channel. Raises as ``AsyncClient.append``."""
        check_partitioner(conditions.partitioner, name)
        if "/" not in name:
            return self._to_channel(name, several, conditions, Deadline(timeout_s))
        return self._to_vchannel(name, several, conditions, timeout_s)

    def _to_vchannel(
        self, vchannel: str, several: Several, conditions: Conditions, timeout_s: float
    ) -> Awaitable[AppendResult]:
        if conditions.are_alone or not several.messages:
            return self._alone(vchannel, several.messages, conditions, timeout_s)
        return self._stream.append(
            vchannel, several.messages, is_plain=several.is_plain, size_bytes=several.size_bytes,
            terms=conditions.terms, timeout_s=timeout_s,
        )  # fmt: skip

    async def _alone(
        self, vchannel: str, messages: Sequence[Appendable], conditions: Conditions, timeout_s: float
    ) -> AppendResult:
        """Append in a unary call instead of on the shared stream.

        On the stream, an append that waits for a barrier would delay all answers behind it, and an append that depends
        on the last tick must not share a batch with others.
        """
        transport = self._stream.transport
        request = wal_service_pb2.AppendRequest(
            vchannel=vchannel,
            messages=[_wire.message_to_wire(message) for message in as_messages(messages)],
            options=_wire.append_options(
                conditions.terms, barrier_tick=conditions.barrier_tick,
                expected_last_tick=conditions.expected_last_tick, producer=conditions.producer,
            ),
        )  # fmt: skip
        answer = await transport.call(
            transport.services.wal.Append, request, timeout_s=timeout_s, is_read=False, is_append=True,
            is_idempotent=conditions.producer is not None,
        )  # fmt: skip
        self._known.note(vchannel, answer.result.vchannels)
        return _wire.append_result(answer.result)

    async def _to_channel(
        self, channel: str, several: Several, conditions: Conditions, deadline: Deadline
    ) -> AppendResult:
        producer = conditions.producer
        numbered = None if producer is None else self._numbered.get(channel, producer.producer_id)
        if numbered is not None:
            return await self._numbered_append(numbered, several, conditions, deadline)
        count = self._known.get(channel)
        if count is None or not several.messages:
            try:
                return await self._to_vchannel(channel, several, conditions, deadline.left_s)
            except InvalidRequestError as error:
                count = await self._count_after(channel, error, deadline)
        _check_divisible(channel, count, conditions)
        return await self._divided(channel, count, several, conditions, deadline)

    async def _count_after(self, channel: str, error: InvalidRequestError, deadline: Deadline) -> int:
        """Return the number of vchannels after a refusal of the channel's name; raise ``error`` if it is another one.

        Servers before protocol field ``AppendResult.vchannels`` do not say the number: they are asked.
        """
        if error.values.get("field") != "vchannel" or error.effect != "none":
            raise error
        count = int(error.values.get("vchannels") or await self._asked(channel, deadline))
        if count <= 1:
            raise error
        self._known.note(channel, count)
        return count

    async def _asked(self, channel: str, deadline: Deadline) -> int:
        async with deadline.bounded("the append"):
            return await self._count_vchannels(channel)

    async def _divided(
        self, channel: str, count: int, several: Several, conditions: Conditions, deadline: Deadline
    ) -> AppendResult:
        """Append each share, again if the number of vchannels was that of an earlier channel of the name."""
        turns = self._known.turns(channel)
        done: list[AppendPart] = []
        shares = divide(several.messages, count, conditions.partitioner, turns, is_plain=several.is_plain)
        while True:
            added, failed = await self._sent(channel, [(share, conditions) for share in shares], several, deadline)
            done += added
            if not any(isinstance(part.error, ChannelNotFoundError) for part in failed):
                break
            self._known.forget(channel)
            try:
                former, count = count, await self._asked(channel, deadline)
            except TidelogError:
                # The append has errors of its own.
                break
            if count in (0, former):
                break
            self._known.note(channel, count)
            missing = [part for part in failed if isinstance(part.error, ChannelNotFoundError)]
            if len(missing) < len(failed):
                break
            places = sorted(place for part in missing for place in part.indices)
            again = [several.messages[place] for place in places]
            shares = [
                replace(share, places=[places[place] for place in share.places])
                for share in divide(again, count, conditions.partitioner, turns, is_plain=several.is_plain)
            ]
        return result_of(done, failed)

    async def _numbered_append(
        self, numbered: NumberedChannel, several: Several, conditions: Conditions, deadline: Deadline
    ) -> AppendResult:
        """Append a numbered call: each share under the number that the producer has on its vchannel."""
        producer, channel = conditions.producer, numbered.channel
        assert isinstance(producer, ProducerSequence)
        if numbered.vchannels == 1:
            return await self._to_vchannel(f"{channel}/0", several, conditions, deadline.left_s)
        _check_divisible(channel, numbered.vchannels, conditions._replace(producer=None))
        if not several.messages:
            raise InvalidRequestError("there are no messages: append at least one")
        shares = divide(several.messages, numbered.vchannels, conditions.partitioner, None, is_plain=several.is_plain)
        with numbered.call(producer.sequence, [share.index for share in shares]) as sequences:
            numbers = [
                conditions._replace(
                    producer=ChannelSequence(producer.producer_id, producer.epoch, sequence, producer.sequence)
                )
                for sequence in sequences
            ]
            done, failed = await self._sent(channel, list(zip(shares, numbers, strict=True)), several, deadline)
            for part in done:
                numbered.acknowledged(int(part.vchannel.rpartition("/")[2]))
        return result_of(done, failed)

    async def _sent(
        self, channel: str, shares: Sequence[tuple[Share, Conditions]], several: Several, deadline: Deadline
    ) -> tuple[list[AppendPart], list[FailedPart]]:
        """Append shares at the same time; return those that are in the log, and the others with their errors."""
        names = [f"{channel}/{share.index}" for share, _ in shares]
        outcomes = await asyncio.gather(
            *(
                self._to_vchannel(name, several.share(share), conditions, deadline.left_s)
                for name, (share, conditions) in zip(names, shares, strict=True)
            ),
            return_exceptions=True,
        )
        done: list[AppendPart] = []
        failed: list[FailedPart] = []
        for name, (share, _), outcome in zip(names, shares, outcomes, strict=True):
            if isinstance(outcome, AppendResult):
                done.append(AppendPart(name, outcome, share.places))
            elif isinstance(outcome, TidelogError):
                failed.append(FailedPart(name, outcome, share.places))
            else:
                raise outcome
        return done, failed


def traced(appending: Awaitable[AppendResult], name: str, messages: int, endpoint: str) -> Awaitable[AppendResult]:
    """Return an append within a span, if tracing or metrics are enabled."""
    hooks = _tracing.hooks
    return appending if hooks is None else _in_span(hooks, appending, name, messages, endpoint)


async def _in_span(
    hooks: _tracing.Hooks, appending: Awaitable[AppendResult], name: str, messages: int, endpoint: str
) -> AppendResult:
    with hooks.within(_tracing.Operation.APPEND, [name], endpoint, messages=messages) as span:
        result = await appending
        span.note(first_tick=result.first_tick)
        return result


def _check_divisible(channel: str, count: int, conditions: Conditions) -> None:
    """Raise InvalidRequestError if the options are for one vchannel."""
    producer = conditions.producer
    if producer is not None:
        raise InvalidRequestError(
            f"'{channel}' has {count} vchannels, and producer '{producer.producer_id}' numbers batches of one: open it "
            f"on the channel with open_producer('{channel}', '{producer.producer_id}') of this client, or name a "
            f"vchannel, such as '{channel}/0'",
            values={"field": "producer", "vchannels": str(count)},
        )
    if conditions.expected_last_tick is not None:
        raise of_one_vchannel(channel, count)
