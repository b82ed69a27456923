"""Stored messages of mailboxes: a cache of those used lately, and reads of the others.

Why not the tail ring: it has batches in columns, and decoding one for each delivery takes longer than the delivery.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.limits import MIB
from tidelog_server.mailboxes.calls import Call
from tidelog_server.mailboxes.events import Sent, decode_message, stored_message
from tidelog_server.mailboxes.loading import EventCodec
from tidelog_server.storage.log_store import LogStore

if TYPE_CHECKING:
    from tidelog_server.mailboxes.mailbox import MailboxLog

# Approximate memory of a step without its payloads, and of a payload without its bytes.
_ENTRY_BYTES: Final = 256
_PAYLOAD_BYTES: Final = 48
# Payloads of a read that are kept for later reads, about.
_KEPT_BYTES: Final = 4 * MIB
# Places at the beginning of a list that may be unused before they are removed.
_MAX_UNUSED: Final = 1_024


class RecentBodies:
    """The payloads of some steps of one mailbox: the latest ones, and those that were read lately."""

    __slots__ = ("_bases", "_begin", "_budget", "_steps")

    def __init__(self, budget: "BodyBudget") -> None:
        self._budget = budget
        # Base ticks of the steps, in order, from index ``_begin`` on: the oldest step is usually evicted first, and
        # removing the first item of a long list takes long.
        self._bases: list[int] = []
        self._begin = 0
        self._steps: dict[int, Sequence[bytes]] = {}

    def add(self, base_tick: int, payloads: Sequence[bytes]) -> None:
        """Add the payloads of a step; the message at ``base_tick + i`` has payload ``i``."""
        if base_tick in self._steps:
            return
        self._bases.insert(bisect_left(self._bases, base_tick, self._begin), base_tick)
        self._steps[base_tick] = payloads
        self._budget.add(self, base_tick, sum(map(len, payloads)) + _PAYLOAD_BYTES * len(payloads) + _ENTRY_BYTES)

    def get(self, tick: int) -> bytes | None:
        """Return the payload of the message at ``tick``; None if it is not in memory."""
        base, payloads = self._step_of(tick)
        return payloads[tick - base] if tick - base < len(payloads) else None

    def get_all(self, ticks: Sequence[int]) -> list[bytes] | None:
        """Return the payloads of the messages at ``ticks``; None if some are not in memory."""
        if not ticks:
            return []
        base, payloads = self._step_of(ticks[0])
        begin = ticks[0] - base
        found = list(payloads[begin : begin + len(ticks)])
        # Mostly the messages of a request have consecutive ticks in one step.
        if len(found) == len(ticks) and list(ticks) == list(range(ticks[0], ticks[0] + len(ticks))):
            return found
        found.clear()
        for tick in ticks:
            if not 0 <= tick - base < len(payloads):
                base, payloads = self._step_of(tick)
                if tick - base >= len(payloads):
                    return None
            found.append(payloads[tick - base])
        return found

    def _step_of(self, tick: int) -> tuple[int, Sequence[bytes]]:
        """Return the base tick and the payloads of the last step that begins at or before ``tick``."""
        index = bisect_right(self._bases, tick, self._begin) - 1
        if index < self._begin:
            return 0, ()
        base = self._bases[index]
        return base, self._steps[base]

    def evict(self, base_tick: int) -> None:
        """Remove a step."""
        del self._steps[base_tick]
        bases = self._bases
        if bases[self._begin] != base_tick:
            del bases[bisect_left(bases, base_tick, self._begin)]
            return
        self._begin += 1
        if self._begin >= _MAX_UNUSED and 2 * self._begin >= len(bases):
            del bases[: self._begin]
            self._begin = 0


class BodyBudget:
    """Bounds the memory of all mailboxes' payloads together: first in, first out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._order: deque[tuple[RecentBodies, int, int]] = deque()
        self.size_bytes = 0

    def add(self, bodies: RecentBodies, base_tick: int, size_bytes: int) -> None:
        """Count a step that was added to ``bodies``, and evict the oldest steps above the bound."""
        self._order.append((bodies, base_tick, size_bytes))
        self.size_bytes += size_bytes
        self.shrink(self._max_bytes)

    def shrink(self, max_bytes: int) -> None:
        """Evict the oldest steps until at most ``max_bytes`` are left."""
        while self.size_bytes > max_bytes:
            oldest, oldest_base, oldest_bytes = self._order.popleft()
            oldest.evict(oldest_base)
            self.size_bytes -= oldest_bytes


class BodyReader:
    """Reads stored messages of mailboxes from memory or the store."""

    def __init__(self, store: LogStore, codec: EventCodec, readers: Executor) -> None:
        self._store = store
        self._codec = codec
        self._readers = readers

    async def read(self, log: "MailboxLog", ticks: Sequence[int], *, keep: bool = True) -> dict[int, bytes]:
        """Return the payloads of the events at ``ticks``, by tick; those of trimmed and unwritten events are missing.

        Args:
            log: The mailbox.
            ticks: The events.
            keep: True to keep what was read in memory, for later reads.

        Raises:
            DataLossError: An entry is damaged or missing.
            MailboxNotExistError: The mailbox was deleted meanwhile.
        """
        found = {tick: payload for tick in ticks if (payload := log.recent.get(tick)) is not None}
        missing = sorted(set(ticks).difference(found))
        if not missing:
            return found
        vchannel_id = log.place.vchannel.vchannel_id
        try:
            read, steps = await asyncio.get_running_loop().run_in_executor(
                self._readers, self._read, vchannel_id, missing, _KEPT_BYTES if keep else 0
            )
        except KeyError as error:
            if not log.place.log.is_closed:
                raise
            raise MailboxNotExistError(log.name) from error
        for base_tick, payloads in steps:
            log.recent.add(base_tick, payloads)
        return found | read

    async def messages(self, log: "MailboxLog", message_ids: Sequence[int]) -> dict[int, Sent]:
        """Return the messages of a mailbox, as sent, by id. Those that were deleted meanwhile may be missing.

        Raises:
            DataLossError: A message is damaged or missing.
            TidelogServerError: The mailbox was deleted, or the log failed.
        """
        found: dict[int, Sent] = {}
        wanted = list(message_ids)
        while wanted:
            durable_tick = log.place.vchannel.durable_tick
            places = {each: log.state.rows.places[row] for each in wanted if (row := log.state.rows.find(each)) >= 0}
            payloads = await self.read(log, list(places.values()))
            for message_id, place in places.items():
                if place in payloads:
                    found[message_id] = decode_message(stored_message(message_id, place, payloads[place]), place)
            wanted = [each for each in places if each not in found]
            if any(places[each] > durable_tick for each in wanted):
                # A copy that was in flight; an operation without events is answered after it.
                await log.run(Call(lambda _: None, events=0))
            else:
                # A message that was copied and trimmed during the read is at another place now.
                wanted = [each for each in wanted if self._has_moved(log, each, places[each])]
        return found

    def _has_moved(self, log: "MailboxLog", message_id: int, place: int) -> bool:
        row = log.state.rows.find(message_id)
        if row >= 0 and log.state.rows.places[row] == place:
            raise DataLossError(
                f"message {message_id} of mailbox '{log.name}' is not in its log at tick {place}: restore the server "
                "from a backup",
                mailbox=log.name, message_id=message_id, tick=place,
            )  # fmt: skip
        return row >= 0

    def _read(
        self, vchannel_id: int, ticks: Sequence[int], keep_bytes: int
    ) -> tuple[dict[int, bytes], list[tuple[int, Sequence[bytes]]]]:
        """Read events on a reader's thread.

        Return their payloads by tick; and whole steps, by base tick, of about ``keep_bytes``.
        """
        found: dict[int, bytes] = {}
        steps: list[tuple[int, Sequence[bytes]]] = []
        at = 0
        while at < len(ticks):
            entries = self._store.read(vchannel_id, ticks[at], ticks[at] + 1, 1)
            if not entries:
                at += 1
                continue
            # One entry at a time is in memory: the messages of a request may be in as many entries.
            header, payloads = entries[0].header, self._codec.decode(entries[0].columns)[1]
            while at < len(ticks) and ticks[at] <= header.last_tick:
                found[ticks[at]] = payloads[ticks[at] - header.base_tick]
                at += 1
            if keep_bytes > 0:
                steps.append((header.base_tick, payloads))
                keep_bytes -= len(entries[0].columns)
        return found, steps
