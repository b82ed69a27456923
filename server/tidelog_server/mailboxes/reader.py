"""Reads stored messages of mailboxes, from memory or the store."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.limits import MIB
from tidelog_server.fold.calls import Call
from tidelog_server.fold.events import EventCodec
from tidelog_server.mailboxes.events import Sent, decode_message, stored_message
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.storage.log_store import LogStore

# Payloads of a read that are kept for later reads, about.
_KEPT_BYTES: Final = 4 * MIB


class BodyReader:
    """Reads stored messages of mailboxes from memory or the store."""

    def __init__(self, store: LogStore, codec: EventCodec, readers: Executor) -> None:
        self._store = store
        self._codec = codec
        self._readers = readers

    async def read(self, mailbox: Mailbox, ticks: Sequence[int], *, keep: bool = True) -> dict[int, bytes]:
        """Return the payloads of the events at ``ticks``, by tick; those of trimmed and unwritten events are missing.

        Args:
            mailbox: The mailbox.
            ticks: The events.
            keep: True to keep what was read in memory, for later reads.

        Raises:
            DataLossError: An entry is damaged or missing.
            MailboxNotExistError: The mailbox was deleted meanwhile.
        """
        found = {tick: payload for tick in ticks if (payload := mailbox.recent.get(tick)) is not None}
        missing = sorted(set(ticks).difference(found))
        if not missing:
            return found
        vchannel_id = mailbox.place.vchannel.vchannel_id
        try:
            read, steps = await asyncio.get_running_loop().run_in_executor(
                self._readers, self._read, vchannel_id, missing, _KEPT_BYTES if keep else 0
            )
        except KeyError as error:
            if not mailbox.place.log.is_closed:
                raise
            raise MailboxNotExistError(mailbox.name) from error
        for base_tick, payloads in steps:
            mailbox.recent.add(base_tick, payloads)
        return found | read

    async def messages(self, mailbox: Mailbox, message_ids: Sequence[int]) -> dict[int, Sent]:
        """Return the messages of a mailbox, as sent, by id. Those that were deleted meanwhile may be missing.

        Raises:
            DataLossError: A message is damaged or missing.
            TidelogServerError: The mailbox was deleted, or the log failed.
        """
        found: dict[int, Sent] = {}
        wanted = list(message_ids)
        while wanted:
            durable_tick = mailbox.place.vchannel.durable_tick
            rows = mailbox.state.rows
            places = {each: rows.places[row] for each in wanted if (row := rows.find(each)) >= 0}
            payloads = await self.read(mailbox, list(places.values()))
            for message_id, place in places.items():
                if place in payloads:
                    found[message_id] = decode_message(stored_message(message_id, place, payloads[place]), place)
            wanted = [each for each in places if each not in found]
            if any(places[each] > durable_tick for each in wanted):
                # A copy that was in flight; an operation without events is answered after it.
                await mailbox.run(Call(lambda _: None, events=0))
            else:
                # A message that was copied and trimmed during the read is at another place now.
                wanted = [each for each in wanted if self._has_moved(mailbox, each, places[each])]
        return found

    def _has_moved(self, mailbox: Mailbox, message_id: int, place: int) -> bool:
        row = mailbox.state.rows.find(message_id)
        if row >= 0 and mailbox.state.rows.places[row] == place:
            raise DataLossError(
                f"message {message_id} of mailbox '{mailbox.name}' is not in its log at tick {place}: restore the "
                "server from a backup",
                mailbox=mailbox.name, message_id=message_id, tick=place,
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
