"""The audit log: administrative calls and denials, as JSON in the channel ``_audit``, chained by hashes.

Each event is one message with one line of JSON. Its ``previous`` is the SHA-256 of the previous line, so a reader of
all lines detects missing and changed ones. No caller can append to the channel or destroy it. Administrators can trim
old events, which is an event itself; the newest event is always kept, so the chain continues.

A denied call costs its caller nothing, so denials must not fill the disk: ``audit_limits`` decides which are written.
"""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.channels.vchannels import Vchannels
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.errors.access import AuditFailedError
from tidelog_server.core.limits import LOST_EVENT_INTERVAL_S, MIB
from tidelog_server.core.names import AUDIT_CHANNEL
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.fold.events import EventCodec
from tidelog_server.log.append import Append
from tidelog_server.log.batch import AppendOptions
from tidelog_server.log.batch_append import BatchAppend
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.log.scan.scanner import ScanParameters, ScanSource
from tidelog_server.security.audit_limits import DiskReserve, Refusals

# Audit events that wait to be written; further ones are only counted.
MAX_WAITING_AUDIT_EVENTS: Final = 10_000
MAX_AUDIT_GROUP_EVENTS: Final = 256
AUDIT_WITHIN_S: Final = 5.0

_log = structlog.get_logger()

_NO_EVENT: Final = ""
# Type of the messages that are lines.
_LINE: Final = 0
_SYNCED: Final = AppendOptions(needs_sync=True)
# Maximum length of the request in an event; longer requests are truncated.
_MAX_REQUEST_CHARACTERS: Final = 2_048


def encode_event(event: Mapping[str, object], number: int, time_ms: int, previous: str) -> bytes:
    """Return one line: fields in a fixed order, with all characters escaped that are not printable ASCII."""
    request = event.get("request")
    if request is not None and len(text := json.dumps(request)) > _MAX_REQUEST_CHARACTERS:
        event = {**event, "request": {"cut": text[:_MAX_REQUEST_CHARACTERS]}}
    fields = {"number": number, "time_ms": time_ms, **event, "previous": previous}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode()


def _hash_of_line(line: bytes) -> str:
    """Return the value of ``previous`` in the next line."""
    return hashlib.sha256(line).hexdigest()


@dataclass(slots=True)
class _Waiting:
    """An event that is queued for writing."""

    event: Mapping[str, object]
    time_ms: int
    written: asyncio.Future[None] | None = field(default=None)
    caller: str = ""


class AuditLog:
    """Writes events in order, queued events in groups. Lives on the event loop."""

    def __init__(
        self, lifecycle: Lifecycle, directory: Directory, vchannels: Vchannels, node: LogNode, codec: EventCodec
    ) -> None:
        self._codec = codec
        self._lifecycle = lifecycle
        self._directory = directory
        self._vchannels = vchannels
        self._node = node
        self._now_s, self._now_ms = node.shared.clock.monotonic_s, node.shared.clock.wall_ms
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._number = 0
        self._previous = _NO_EVENT
        self._refusals = Refusals(self._now_s())
        self._reserve = DiskReserve()
        self._log: ChannelLog
        self._vchannel: VchannelLog

    async def open(self) -> None:
        """Create the channel if needed, and read the last event. Raises DataLossError if it cannot be read."""
        await self._lifecycle.ensure_system_channel(AUDIT_CHANNEL)
        self._log, self._vchannel = self._directory.find_to_read(AUDIT_CHANNEL)
        if self._vchannel.durable_tick > NO_TICK:
            last = await self._last_line()
            self._number, self._previous = json.loads(last)["number"], _hash_of_line(last)

    def note(self, event: Mapping[str, object]) -> None:
        """Queue an event, regardless of free disk space. For rare events only."""
        self._waiting.append(_Waiting(event, self._now_ms()))
        self._wake.set()

    def note_refusal(self, event: Mapping[str, object], caller: str) -> None:
        """Queue a denial, or only count it if its caller exceeds its rate or the disk is full."""
        is_full = self._node.admission.is_disk_full or len(self._waiting) >= MAX_WAITING_AUDIT_EVENTS
        if is_full or not self._refusals.admits(caller, self._now_s()):
            self._lose(caller)
            return
        self._waiting.append(_Waiting(event, self._now_ms(), caller=caller))
        self._wake.set()

    async def write(self, event: Mapping[str, object], *, is_administrator: bool = True) -> None:
        """Write an event, durably.

        Raises:
            AuditFailedError: The event cannot be written, so the operation that it records must not be executed. While
                the disk is too full for appends, events use a reserve, half of which is for administrators.
        """
        if len(self._waiting) >= MAX_WAITING_AUDIT_EVENTS:
            raise AuditFailedError(f"{MAX_WAITING_AUDIT_EVENTS} events wait to be written, the maximum: retry later")
        self._check_disk(event, is_administrator=is_administrator)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(event, self._now_ms(), written))
        self._wake.set()
        try:
            async with asyncio.timeout(AUDIT_WITHIN_S):
                await written
        except TimeoutError:
            raise AuditFailedError(f"it took longer than {AUDIT_WITHIN_S:.0f} s") from None

    async def run(self) -> None:
        """Write queued events. Never returns."""
        while True:
            await self._woken()
            if not self._waiting and self._may_tell_lost():
                await self._write(())
            while self._waiting:
                count = min(len(self._waiting), MAX_AUDIT_GROUP_EVENTS)
                await self._write([self._waiting.popleft() for _ in range(count)])

    async def _write(self, group: Sequence[_Waiting]) -> None:
        number, previous = self._number, self._previous
        lines = []
        if self._may_tell_lost():
            group = [_Waiting(self._refusals.take_lost(self._now_s()), self._now_ms()), *group]
        for waiting in group:
            number += 1
            lines.append(encode_event(waiting.event, number, waiting.time_ms, previous))
            previous = _hash_of_line(lines[-1])
        try:
            await self._append(lines)
        except TidelogServerError as error:
            self._failed(group, error)
            return
        self._number, self._previous = number, previous
        self._node.metrics.audit_failing.set(0)
        self._node.metrics.audit_events.inc(len(lines))
        for waiting in group:
            if waiting.written is not None and not waiting.written.done():
                waiting.written.set_result(None)

    def _failed(self, group: Sequence[_Waiting], error: TidelogServerError) -> None:
        """Fail the administrative calls of ``group``. Data calls are still served; the metric audit_failing is set."""
        self._node.metrics.audit_failing.set(1)
        _log.error("audit_not_written", events=len(group), cause=error.message)
        for waiting in group:
            if waiting.event.get("event") == "lost":
                self._refusals.give_back(waiting.event)
            elif waiting.written is None:
                self._lose(waiting.caller)
            elif not waiting.written.done():
                waiting.written.set_exception(AuditFailedError(error.message))

    def _lose(self, caller: str) -> None:
        is_first = not self._refusals.lost
        self._refusals.lose(caller)
        self._node.metrics.audit_lost.inc()
        if is_first:
            # Wake the writer, so that the count is recorded in time even without further events.
            self._wake.set()

    def _may_tell_lost(self) -> bool:
        return self._refusals.due_in_s(self._now_s()) == 0.0 and not self._node.admission.is_disk_full

    async def _woken(self) -> None:
        """Wait until there is an event to write, or the count of lost denials is due."""
        due_in_s = self._refusals.due_in_s(self._now_s())
        # Wait at least one interval: the count is always due while the disk is full or storage fails.
        within_s = None if due_in_s is None else max(due_in_s, LOST_EVENT_INTERVAL_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        self._wake.clear()

    def _check_disk(self, event: Mapping[str, object], *, is_administrator: bool) -> None:
        """Raise AuditFailedError if the disk is too full for an event."""
        admission = self._node.admission
        if not admission.is_disk_full:
            self._reserve.refill()
            return
        line_bytes = len(encode_event(event, self._number, self._now_ms(), self._previous))
        if not self._reserve.take(line_bytes, admission.limits.min_free_disk_bytes, is_administrator=is_administrator):
            raise AuditFailedError(
                "the disk is nearly full, and the reserve of the audit log is used up: trim channels as an "
                "administrator with `tidelog channel trim`, or enlarge the disk"
            )

    async def _append(self, lines: Sequence[bytes]) -> None:
        """Append lines as one batch, durably. Raises TidelogServerError."""
        batch = self._codec.encode([_LINE] * len(lines), lines)
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_settled(_: Append) -> None:
            if not settled.done():
                settled.set_result(None)

        append = BatchAppend(Place(self._log, self._vchannel), batch, _SYNCED, on_settled, is_system=True)
        await self._node.shared.submit(append)
        await settled
        if append.failure is not None:
            raise append.failure

    async def _last_line(self) -> bytes:
        tick = Tick(self._vchannel.durable_tick)
        plan = ScanParameters(
            ends_at_durable=True, end_tick=None, message_types=None, max_page_bytes=MIB, watermark_interval_s=1.0,
        )  # fmt: skip
        async with self._vchannels.scanner([ScanSource(0, self._log, self._vchannel, tick)], plan) as scanner:
            async for page in scanner.pages():
                for piece in page.pieces:
                    return self._codec.decode(piece.columns)[1][piece.end - 1]
        raise AuditFailedError("its last event was not found")
