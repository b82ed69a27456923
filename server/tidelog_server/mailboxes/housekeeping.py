"""Keeps the logs of mailboxes short. See ``fold.keeping``."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Final

import structlog

from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.limits import MIB
from tidelog_server.fold.calls import Call
from tidelog_server.fold.keeping import Keeper
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.events import EventType, encode_relocated, stored_message
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.messages.rows import pick
from tidelog_server.mailboxes.operations import Step
from tidelog_server.mailboxes.reader import BodyReader
from tidelog_server.mailboxes.wanted import Wanted

_COPY_BYTES: Final = 1 * MIB
_COPY_MESSAGES: Final = 1_000
# Rows that are looked at in one turn of the event loop.
_COPY_ROWS: Final = 20_000
_SCAN_ROWS: Final = 65_536
# Bytes of a message in the log beyond its body, about, if it has no headers.
_MESSAGE_BYTES: Final = 16
_log = structlog.get_logger()

_Old = tuple[int, int, int]
"""A message to copy: its id, its place, and the size of its body."""


class Housekeeper(Keeper[Mailbox, _Old]):
    """Does the housekeeping of all mailboxes of a node, one at a time. Lives on the event loop.

    Attributes:
        wanted: Mailboxes that wait for it.
    """

    def __init__(self, node: LogNode, reader: BodyReader) -> None:
        metrics = node.metrics
        super().__init__(node, on_snapshot=metrics.mailbox_snapshots.inc, on_trim=metrics.mailbox_trims.inc)
        self._reader = reader
        self.wanted = Wanted[Mailbox]()

    def look(self, mailbox: Mailbox) -> None:
        """Queue a mailbox if its log has grown enough. Called after each step, so it is cheap."""
        if self.is_due(mailbox):
            self.wanted.add(mailbox)

    async def run(self) -> None:
        """Do the housekeeping of queued mailboxes. Never returns."""
        while True:
            mailbox = await self.wanted.next()
            if mailbox.is_closed:
                continue
            try:
                await self.keep(mailbox)
            except TidelogServerError as error:
                # The mailbox was deleted, its log is damaged, the disk is full or the node stops: calls report it.
                _log.warning("mailbox_housekeeping_failed", mailbox=mailbox.name, problem=error.message)

    def _items(self, mailbox: Mailbox) -> int:
        return mailbox.state.rows.live

    def _used_bytes(self, mailbox: Mailbox) -> int:
        rows, blobs = mailbox.state.rows, mailbox.state.blobs.keys
        # Blobs are not in this log.
        blob_bytes = sum(pick(rows.sizes, rows.locate_all(sorted(blobs)))) if blobs else 0
        return _accounted_bytes(mailbox.state.body_bytes - blob_bytes, rows.live)

    def _oldest_place(self, mailbox: Mailbox, end_tick: int) -> int:
        rows = mailbox.state.rows
        live, oldest = rows.live_flags(), end_tick
        for begin in range(0, len(rows), _SCAN_ROWS):
            # A message lies at its id or, once it was copied, above it.
            if rows.ids[begin] >= oldest:
                break
            end = begin + _SCAN_ROWS
            oldest = min(oldest, min(compress(rows.places[begin:end], live[begin:end]), default=oldest))
        return oldest

    def _old(self, mailbox: Mailbox, end_tick: int) -> Iterator[Sequence[_Old]]:
        last_id: int | None = 0
        while last_id is not None:
            part, last_id = _next_part(mailbox, last_id, end_tick)
            yield part

    async def _copy(self, mailbox: Mailbox, part: Sequence[_Old]) -> tuple[int, int]:
        blobs = mailbox.state.blobs.keys
        body_bytes = sum(size for message_id, _, size in part if message_id not in blobs)
        payloads = await self._reader.read(mailbox, [place for _, place, _ in part], keep=False)
        copies = [
            (message_id, encode_relocated(message_id, stored_message(message_id, place, payloads[place])))
            for message_id, place, _ in part
            if place in payloads
        ]
        size_bytes = sum(len(payload) for _, payload in copies)
        await mailbox.run(Call(_copying(copies), len(copies), size_bytes, needs_disk=True))
        self._node.metrics.mailbox_copied_bytes.inc(size_bytes)
        return size_bytes, _accounted_bytes(body_bytes, len(part))


def _copying(copies: Sequence[tuple[int, bytes]]) -> Callable[[Step], None]:
    def execute(step: Step) -> None:
        for message_id, payload in copies:
            # A message that was deleted since needs no copy.
            if step.state.rows.find(message_id) >= 0:
                step.state.relocated(message_id, step.outbox.add(EventType.RELOCATED, payload))

    return execute


def _accounted_bytes(body_bytes: int, messages: int) -> int:
    return body_bytes + _MESSAGE_BYTES * messages


def _next_part(mailbox: Mailbox, after_id: int, end_tick: int) -> tuple[list[_Old], int | None]:
    """Return messages with ids above ``after_id`` to copy, and the last id that was looked at; None at the end.

    At most _COPY_MESSAGES messages with about _COPY_BYTES bytes, that lie below ``end_tick``.
    """
    rows, part, size_bytes = mailbox.state.rows, list[_Old](), 0
    first = bisect_right(rows.ids, after_id)
    for row in range(first, min(len(rows), first + _COPY_ROWS)):
        message_id, place = rows.ids[row], rows.places[row]
        if place >= end_tick or rows.find(message_id) < 0:
            continue
        part.append((message_id, place, rows.sizes[row]))
        size_bytes += rows.sizes[row]
        if len(part) == _COPY_MESSAGES or size_bytes >= _COPY_BYTES:
            return part, message_id
    return part, rows.ids[first + _COPY_ROWS - 1] if first + _COPY_ROWS < len(rows) else None
