"""Keeps the logs of mailboxes short: snapshots, copies of old messages, and trims.

A snapshot is written once the events since the last one would take long to replay. Then everything below it can be
trimmed, except messages whose bodies are there. If more than half of the log is of no use, because a few old messages
hold it back, these are copied to its end first. So the log of a mailbox is at most about twice as large as its
messages and a snapshot, and LOG_SLACK_BYTES.

Source of the copies: the segment cleaning of log-structured file systems (Rosenblum and Ousterhout, 1992).
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final

import structlog

from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.limits import MIB
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.blobs.trimming import kept_bytes, trim_below
from tidelog_server.mailboxes.bodies import BodyReader
from tidelog_server.mailboxes.calls import Call
from tidelog_server.mailboxes.events import EventType, encode_relocated, stored_message
from tidelog_server.mailboxes.mailbox import MailboxLog
from tidelog_server.mailboxes.messages.rows import pick
from tidelog_server.mailboxes.operations import Step
from tidelog_server.mailboxes.snapshot import PAGE_BYTES, FrozenState
from tidelog_server.mailboxes.wanted import Wanted
from tidelog_server.runtime.failpoints import Failpoint, hit

# A snapshot is due after this number of changes, and twice as many as there are messages; or after these bytes, and
# as many as the last one had.
SNAPSHOT_AFTER_CHANGES: Final = 100_000
SNAPSHOT_AFTER_BYTES: Final = 64 * MIB
_SNAPSHOT_RATIO: Final = 2
# A log is trimmed if at least this number of bytes is of no use.
TRIM_ABOVE_BYTES: Final = 8 * MIB
# A log is cleaned if it has more than twice the bytes of its messages, and this number more.
CLEAN_ABOVE_BYTES: Final = 16 * MIB
LOG_SLACK_BYTES: Final = SNAPSHOT_AFTER_BYTES + CLEAN_ABOVE_BYTES
"""What the log of a mailbox may have beyond twice its messages and a snapshot."""
_COPY_BYTES: Final = 1 * MIB
_COPY_MESSAGES: Final = 1_000
# Rows that are looked at in one turn of the event loop.
_COPY_ROWS: Final = 20_000
_SCAN_ROWS: Final = 65_536
# Bytes of a message in the log beyond its body, about, if it has no headers.
_MESSAGE_BYTES: Final = 16
_log = structlog.get_logger()


class Housekeeper:
    """Does the housekeeping of all mailboxes of a node, one at a time. Lives on the event loop."""

    def __init__(self, node: LogNode, reader: BodyReader) -> None:
        self._node = node
        self._reader = reader
        self._wanted = Wanted[MailboxLog]()
        # Of two snapshots at a time, the older one could be completed last, when the log is trimmed above it.
        self._keeps = asyncio.Lock()

    def look(self, log: MailboxLog) -> None:
        """Queue a mailbox if its log has grown enough. Called after each step, so it is cheap."""
        if log.changes > max(SNAPSHOT_AFTER_CHANGES, _SNAPSHOT_RATIO * log.state.rows.live) or (
            log.written_bytes > max(SNAPSHOT_AFTER_BYTES, log.snapshot_bytes)
        ):
            self.want(log)

    def want(self, log: MailboxLog) -> None:
        """Queue a mailbox for housekeeping."""
        self._wanted.add(log)

    async def run(self) -> None:
        """Do the housekeeping of queued mailboxes. Never returns."""
        while True:
            log = await self._wanted.next()
            if log.is_closed:
                continue
            try:
                await self.keep(log)
            except TidelogServerError as error:
                # The mailbox was deleted, its log is damaged, the disk is full or the node stops: calls report it.
                _log.warning("mailbox_housekeeping_failed", mailbox=log.name, problem=error.message)

    async def keep(self, log: MailboxLog) -> None:
        """Write a snapshot of a mailbox, and trim its log as far as possible.

        Raises:
            TidelogServerError: The mailbox was deleted, or the log failed. What was done is consistent.
        """
        async with self._keeps:
            await self._write_snapshot(log)
            await self._trim(log)
            if self._is_mostly_garbage(log):
                await self._copy_old_messages(log)
                await self._write_snapshot(log)
                await self._trim(log)

    async def _write_snapshot(self, log: MailboxLog) -> None:
        """Write a snapshot; the last page also sets the tick from which the next start loads."""
        written_bytes, changes = log.written_bytes, log.changes
        log.written_bytes = log.changes = 0
        try:
            await self._write_pages(log)
        except BaseException:
            # It is still due.
            log.written_bytes += written_bytes
            log.changes += changes
            raise

    async def _write_pages(self, log: MailboxLog) -> None:
        def first_page(step: Step) -> tuple[int, FrozenState]:
            frozen = FrozenState(step.state)
            tick = step.outbox.next_tick
            step.outbox.add(EventType.SNAPSHOT, frozen.next_page())
            return tick, frozen

        # In the step of the first page, no event comes between the state and its snapshot.
        tick, frozen = await log.run(Call(first_page, events=1, size_bytes=PAGE_BYTES))
        hit(Failpoint.MAILBOX_SNAPSHOT_PAGE)
        for _ in range(1, frozen.pages - 1):
            await log.run(Call(_adds_page(frozen.next_page()), events=1, size_bytes=PAGE_BYTES))
            hit(Failpoint.MAILBOX_SNAPSHOT_PAGE)
        # The row of a snapshot of one page is written without an event of its own.
        execute = _adds_page(frozen.next_page()) if frozen.pages > 1 else _adds_nothing
        last = Call(execute, events=1, size_bytes=PAGE_BYTES)
        last.rows = (SNAPSHOTS.row(log.place.vchannel.vchannel_id, tick),)
        await log.run(last)
        log.snapshot_tick, log.snapshot_bytes = tick, frozen.size_bytes
        self._node.metrics.mailbox_snapshots.inc()

    async def _trim(self, log: MailboxLog) -> None:
        """Trim what neither the snapshot nor a body needs."""
        log.check_open()
        vchannel = log.place.vchannel
        tick = min(log.snapshot_tick, _oldest_place(log))
        if tick > vchannel.trim_tick and kept_bytes(self._node, vchannel) >= TRIM_ABOVE_BYTES:
            await trim_below(self._node, vchannel, tick)
            self._node.metrics.mailbox_trims.inc()

    def _is_mostly_garbage(self, log: MailboxLog) -> bool:
        log.check_open()
        rows, blobs = log.state.rows, log.state.blobs.keys
        # Blobs are not in this log.
        blob_bytes = sum(pick(rows.sizes, rows.locate_all(sorted(blobs)))) if blobs else 0
        used_bytes = log.copied_ratio * _accounted_bytes(log.state.body_bytes - blob_bytes, rows.live)
        return kept_bytes(self._node, log.place.vchannel) > 2 * (used_bytes + log.snapshot_bytes) + CLEAN_ABOVE_BYTES

    async def _copy_old_messages(self, log: MailboxLog) -> None:
        """Copy every message that lies below the present end of the log to the end that it has then."""
        end_tick = log.place.vchannel.submitted_tick + 1
        last_id: int | None = 0
        copied_bytes = accounted_bytes = untrimmed_bytes = 0
        while last_id is not None:
            part, last_id = _next_part(log, last_id, end_tick)
            if not part:
                # A turn for others.
                await asyncio.sleep(0)
                continue
            blobs = log.state.blobs.keys
            blob_bytes = sum(size for message_id, _, size in part if message_id in blobs) if blobs else 0
            size_bytes = await self._copy(log, part)
            hit(Failpoint.MAILBOX_COPIED)
            copied_bytes += size_bytes
            accounted_bytes += _accounted_bytes(sum(size for _, _, size in part) - blob_bytes, len(part))
            untrimmed_bytes += size_bytes
            if untrimmed_bytes >= CLEAN_ABOVE_BYTES:
                # So that the copies of a large mailbox need little disk space.
                await self._trim(log)
                untrimmed_bytes = 0
        if copied_bytes:
            log.copied_ratio = max(1.0, copied_bytes / accounted_bytes)

    async def _copy(self, log: MailboxLog, part: "Sequence[_Old]") -> int:
        """Copy messages; return the size of the copies. Raises DiskFullError."""
        payloads = await self._reader.read(log, [place for _, place, _ in part], keep=False)
        copies = [
            (message_id, encode_relocated(message_id, stored_message(message_id, place, payloads[place])))
            for message_id, place, _ in part
            if place in payloads
        ]
        size_bytes = sum(len(payload) for _, payload in copies)
        await log.run(Call(_copies(copies), events=len(copies), size_bytes=size_bytes, needs_disk=True))
        self._node.metrics.mailbox_copied_bytes.inc(size_bytes)
        return size_bytes


_Old = tuple[int, int, int]
"""A message to copy: its id, its place, and the size of its body."""


def _adds_nothing(_: Step) -> None:
    """Write a row without an event."""


def _adds_page(page: bytes) -> Callable[[Step], None]:
    return lambda step: step.outbox.add(EventType.SNAPSHOT, page)


def _copies(copies: Sequence[tuple[int, bytes]]) -> Callable[[Step], None]:
    def execute(step: Step) -> None:
        for message_id, payload in copies:
            # A message that was deleted since needs no copy.
            if step.state.rows.find(message_id) >= 0:
                place = step.outbox.next_tick
                step.outbox.add(EventType.RELOCATED, payload)
                step.state.relocated(message_id, place)

    return execute


def _accounted_bytes(body_bytes: int, messages: int) -> int:
    return body_bytes + _MESSAGE_BYTES * messages


def _oldest_place(log: MailboxLog) -> int:
    """Return the smallest tick of the log that has the body of a message; the end of the log without messages."""
    rows = log.state.rows
    live, oldest = rows.live_flags(), log.place.vchannel.durable_tick + 1
    for begin in range(0, len(rows), _SCAN_ROWS):
        # A message lies at its id or, once it was copied, above it.
        if rows.ids[begin] >= oldest:
            break
        end = begin + _SCAN_ROWS
        oldest = min(oldest, min(compress(rows.places[begin:end], live[begin:end]), default=oldest))
    return oldest


def _next_part(log: MailboxLog, after_id: int, end_tick: int) -> tuple[list[_Old], int | None]:
    """Return messages with ids above ``after_id`` to copy, and the last id that was looked at; None at the end.

    At most _COPY_MESSAGES messages with about _COPY_BYTES bytes, that lie below ``end_tick``.
    """
    rows, part, size_bytes = log.state.rows, list[_Old](), 0
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
