"""Divides what a transaction has gathered for channels among their vchannels."""

from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import cast

from tidelog.append.dividing import KnownChannels, Share, check_partitioner, divide, of_one_vchannel
from tidelog.append.options import AppendConditions
from tidelog.append.queue import TransactionPart
from tidelog.errors import ChannelNotFoundError, InvalidRequestError, TidelogError
from tidelog.transport.deadline import Deadline
from tidelog.txn.conditions import one_value
from tidelog.wire.batch import Batch
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH
from tidelog.wire.partitioning import Partitioner


class ChannelParts:
    """The parts of a transaction whose names are those of channels.

    Messages stay under the name of a channel until they are sent. A commit in one request sends them so if the channel
    is not known to have several vchannels, and the server refuses it with their number otherwise. A staged transaction
    asks for the number once, and keeps it.

    Attributes:
        indices: For each divided channel and each of its vchannels, the places of the vchannel's messages among those
            of the channel.
    """

    def __init__(
        self,
        parts: dict[str, TransactionPart],
        known: Callable[[], KnownChannels],
        count_vchannels: Callable[[str], Awaitable[int]],
    ) -> None:
        """Create it for ``parts``, by name, which it changes."""
        self._parts = parts
        self._known = known
        self._count_vchannels = count_vchannels
        self.indices: dict[str, dict[str, array[int]]] = {}
        # Of a staged transaction.
        self._counts: dict[str, int] = {}

    def divide_known(self) -> None:
        """Divide the parts of channels that are known to have several vchannels. Raises InvalidRequestError."""
        for channel in self._channels():
            if (count := self._known().get(channel)) is not None:
                self._divide(channel, count)

    async def divide(self, deadline: Deadline) -> None:
        """Divide the parts of all channels with several vchannels; asks the server for their numbers.

        Raises:
            InvalidRequestError: See ``_divide``. Nothing was divided of that channel.
            TidelogError: The server cannot be asked.
        """
        for channel in self._channels():
            if (count := await self.count_of(channel, deadline)) > 1:
                self._divide(channel, count)

    async def count_of(self, channel: str, deadline: Deadline) -> int:
        """Return the number of vchannels of a channel for a staged transaction. Raises TidelogError."""
        count = self._counts.get(channel)
        if count is None:
            async with deadline.bounded("the next batch of the transaction"):
                count = self._counts[channel] = await self._count_vchannels(channel)
            self._known().note(channel, count)
        return count

    async def divided(
        self,
        name: str,
        rows: Batch,
        conditions: AppendConditions,
        partitioner: Partitioner | None,
        timeout_s: float,
    ) -> list[tuple[str, Batch]]:
        """Return a batch for each vchannel of ``name`` that gets some of ``rows``, by the name of the vchannel.

        Raises:
            InvalidRequestError: The channel has several, and a condition is for one; or the partitioner fails.
            TidelogError: The server cannot be asked.
        """
        check_partitioner(partitioner, name)
        if "/" in name or (count := await self.count_of(name, Deadline(timeout_s))) <= 1:
            return [(name, rows)]
        if conditions.get("expected_last_tick") is not None:
            raise of_one_vchannel(name, count)
        shares = divide(rows, count, partitioner, self._known().turns(name))
        self._note(name, [(0, share) for share in shares])
        return [(f"{name}/{share.index}", cast("Batch", share.messages)) for share in shares]

    def has_learned(self, error: TidelogError) -> bool:
        """Learn from the failure of the commit; return whether it says how many vchannels a channel of it has."""
        if isinstance(error, ChannelNotFoundError):
            # Another channel may have the name now, with fewer vchannels: the next transaction learns their number.
            for name in self._parts:
                self._known().forget(name.partition("/")[0])
        if not isinstance(error, InvalidRequestError):
            return False
        channel, count = error.values.get("name", ""), int(error.values.get("vchannels", "0"))
        if error.effect != "none" or channel not in self._parts or count <= 1:
            return False
        self._known().note(channel, count)
        return True

    def _channels(self) -> list[str]:
        return [name for name, part in self._parts.items() if "/" not in name and part.messages]

    def _divide(self, channel: str, count: int) -> None:
        """Move the messages of a channel to its vchannels.

        Raises:
            InvalidRequestError: It has a condition on the last tick, or the partitioner fails. Nothing was moved.
        """
        part = self._parts[channel]
        if part.expected_last_tick is not None:
            raise of_one_vchannel(channel, count)
        shares = list(self._shares(channel, part, count))
        del self._parts[channel]
        self._note(channel, shares)
        # The size of the transaction stays as it is.
        left_bytes, left = part.size_bytes, len(part.messages)
        for _, share in shares:
            name = f"{channel}/{share.index}"
            target = self._parts.setdefault(name, TransactionPart())
            target.fencing_token = one_value("fencing_token", name, target.fencing_token, part.fencing_token)
            target.messages.extend(share.messages)
            target.is_plain = target.is_plain and part.is_plain
            target.count += len(share.messages)
            size_bytes = left_bytes * len(share.messages) // left
            target.size_bytes += size_bytes
            left_bytes, left = left_bytes - size_bytes, left - len(share.messages)

    def _note(self, channel: str, shares: Iterable[tuple[int, Share]]) -> None:
        """Record where messages went: shares of parts that begin at a place, after those of earlier calls."""
        indices = self.indices.setdefault(channel, {})
        first = sum(map(len, indices.values()))
        for begin, share in shares:
            places = indices.setdefault(f"{channel}/{share.index}", array("Q"))
            places.extend(first + begin + place for place in share.places)

    def _shares(self, channel: str, part: TransactionPart, count: int) -> Iterator[tuple[int, Share]]:
        turns = self._known().turns(channel)
        for begin in range(0, len(part.messages), MAX_MESSAGES_PER_BATCH):
            messages = part.messages[begin : begin + MAX_MESSAGES_PER_BATCH]
            for share in divide(messages, count, part.partitioner, turns, is_plain=part.is_plain):
                yield begin, share
