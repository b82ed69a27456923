"""The mailboxes that this node owns: opened at their first use, and in the background after a start."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from typing import Final

import structlog

from tidelog_server.blobs.store import BlobChannel, Blobs
from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors import DataLossError, ShutdownError, TidelogServerError
from tidelog_server.core.errors.cluster import NotOwnerError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.limits import DEFAULT_BLOB_GRACE_S, MIB
from tidelog_server.core.names import mailbox_channel
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.fold.calls import Call
from tidelog_server.fold.events import EventCodec
from tidelog_server.fold.loading import Loaded, load
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.mailboxes.bodies import BodyBudget
from tidelog_server.mailboxes.bounds import Bounds
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.mailboxes.dead_letters import Mover
from tidelog_server.mailboxes.events import MAILBOX, EventType
from tidelog_server.mailboxes.figures import Figures
from tidelog_server.mailboxes.housekeeping import Housekeeper
from tidelog_server.mailboxes.mailbox import Mailbox, Shared
from tidelog_server.mailboxes.reader import BodyReader
from tidelog_server.mailboxes.state import MailboxState
from tidelog_server.runtime.tasks import TaskOwner

BODIES_BYTES: Final = 64 * MIB
"""Memory for messages that were sent or read lately, of all mailboxes together."""
# The wall clock is compared with the event loop's this often; a greater difference than before means that it was set.
_CLOCK_EVERY_S: Final = 1.0
_CLOCK_MOVED_S: Final = 0.1
Find = Callable[[str], tuple[MailboxRecord, Place]]
"""Returns the record and the vchannel of a mailbox. Raises MailboxNotExistError, NotOwnerError."""
TenantOf = Callable[[str], Tenant]
"""Returns the tenant of the principal that created a channel."""
_log = structlog.get_logger()


class Mailboxes:
    """The mailboxes of this node that are open. Lives on the event loop."""

    def __init__(
        self, node: LogNode, tasks: TaskOwner, readers: Executor, codec: EventCodec, find: Find, *,
        tenant_of: TenantOf, channel: BlobChannel, blob_grace_s: float = DEFAULT_BLOB_GRACE_S,
    ) -> None:  # fmt: skip
        self._node = node
        self._tasks = tasks
        self._readers = readers
        self._codec = codec
        self._find = find
        self._tenant_of = tenant_of
        bounds = Bounds(lambda: node.admission.limits)
        self.blobs = Blobs(
            node, tasks, readers, codec, channel,
            check_memory=bounds.check_memory, charge=bounds.memory.add, snapshot_of=self._snapshot_of,
            grace_s=blob_grace_s,
        )  # fmt: skip
        self.shared = Shared(
            node, tasks, codec, BodyBudget(BODIES_BYTES), os.urandom, self.blobs, Figures(node.metrics),
            bounds,
        )  # fmt: skip
        self.reader = BodyReader(node.store, codec, readers)
        self.housekeeper = Housekeeper(node, self.reader)
        self.mover = Mover(node, self.reader, self.open)
        self.blobs.are_references_known = lambda: self._unread is not None and not self._unread
        # Names of mailboxes whose messages may refer to blobs and are not known yet; None before ``open_all``.
        self._unread: set[str] | None = None
        # Opened mailboxes, and those that are being opened, by id. None has failed.
        self._logs: dict[int, asyncio.Future[Mailbox]] = {}
        # Mailboxes whose logs are damaged, by id, with the damage. A restart reads them again.
        self._unloadable: dict[int, str] = {}
        bounds.mailboxes = lambda: len(self._logs) + len(self._unread or ())
        # Ticks of the last complete snapshots, by vchannel id, as of the start.
        self._snapshots: dict[int, int] = {}

    def start(self) -> None:
        """Begin the work in the background. The log of the node must be open."""
        self._snapshots = self._node.store.rows(SNAPSHOTS)
        self.blobs.start()
        self._tasks.keep("mailbox-housekeeping", self.housekeeper.run())
        self._tasks.keep("mailbox-dead-letters", self.mover.run())
        self._tasks.keep("mailbox-watch", self._watch())
        self._tasks.keep("mailbox-clock", self._watch_clock())

    def _snapshot_of(self, vchannel_id: int) -> int:
        return self._snapshots.get(vchannel_id, NO_TICK)

    async def _watch(self) -> None:
        """Wake all mailboxes when the node begins to stop or its log stops, so that waiting fetches are refused.

        Never returns.
        """
        changed = asyncio.Event()
        self._node.watchers.add(changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for log in self.all_opened():
                    log.wake()
        finally:
            self._node.watchers.discard(changed)

    async def _watch_clock(self) -> None:
        """Set the timers of all mailboxes again if the wall clock was set, or the machine was suspended. Never returns.

        Why: timers of the event loop count its own time, and leases end by the wall clock.
        """
        loop, clock = asyncio.get_running_loop(), self._node.clock
        offset_s = clock.wall_ms() / 1_000 - loop.time()
        while True:
            await asyncio.sleep(_CLOCK_EVERY_S)
            now_s = clock.wall_ms() / 1_000 - loop.time()
            if abs(now_s - offset_s) > _CLOCK_MOVED_S:
                offset_s = now_s
                for log in self.all_opened():
                    log.arm_timer()

    async def open(self, name: str) -> Mailbox:
        """Return the mailbox called ``name``, and load its state if it was not used since the start.

        Raises:
            MailboxNotExistError, NotOwnerError: See ``Find``.
            DataLossError: Its log is damaged.
            ShutdownError: The node stops.
        """
        # Loaded first, so that a step of the mailbox knows the blobs.
        await self.blobs.open()
        record, place = self._find(name)
        if (damage := self._unloadable.get(record.mailbox_id)) is not None:
            raise _unloadable(name, damage)
        found = self._logs.get(record.mailbox_id)
        if found is not None and found.done():
            return found.result()
        if found is None:
            found = asyncio.get_running_loop().create_future()
            self._logs[record.mailbox_id] = found
            self._tasks.start(f"mailbox-{record.mailbox_id}", self._load(record, place, found))
        # Shielded: other callers wait for it, too.
        return await asyncio.shield(found)

    def opened_by_name(self, name: str) -> Mailbox | None:
        """Return the mailbox called ``name`` if it is open. Raises MailboxNotExistError, NotOwnerError."""
        return self.opened(self._find(name)[0].mailbox_id)

    def opened(self, mailbox_id: int) -> Mailbox | None:
        """Return a mailbox if it is open."""
        found = self._logs.get(mailbox_id)
        return found.result() if found is not None and found.done() else None

    def all_opened(self) -> list[Mailbox]:
        """Return the mailboxes that are open."""
        return [log for mailbox_id in self._logs if (log := self.opened(mailbox_id)) is not None]

    def configured(self, record: MailboxRecord) -> None:
        """Apply changed settings, and record the change in the log of the mailbox."""
        if (log := self.opened(record.mailbox_id)) is not None:
            log.settings = record.settings
        self._tasks.start("mailbox-configured", self._record_settings(record))

    async def _record_settings(self, record: MailboxRecord) -> None:
        payload = json.dumps(asdict(record.settings), separators=(",", ":")).encode()
        try:
            log = await self.open(record.name)
            await log.run(Call(lambda step: step.outbox.add(EventType.CONFIGURED, payload), 1, len(payload)))
        except TidelogServerError as error:
            # The record has the settings. The mailbox was deleted, or the log failed and reports that itself.
            _log.warning("mailbox_settings_not_recorded", mailbox=record.name, problem=error.message)

    def deleted(self, record: MailboxRecord) -> None:
        """Refuse further operations on a deleted mailbox."""
        if (log := self.opened(record.mailbox_id)) is not None:
            log.close()
            log.state.blobs.detach()
        self._read(record.name)
        # One that is being opened is closed then: ``_load`` does not find it any more.
        self._logs.pop(record.mailbox_id, None)
        self._unloadable.pop(record.mailbox_id, None)

    def refresh_metrics(self, *, per_mailbox: bool) -> None:
        """Update the metrics that are computed on demand; with ``per_mailbox``, also those of each mailbox."""
        states = {log.name: log.state for log in self.all_opened()}
        self.shared.figures.refresh_metrics(states, self._node.clock.wall_ms(), per_mailbox=per_mailbox)
        metrics = self._node.metrics
        metrics.mailboxes_unloadable.set(len(self._unloadable))
        metrics.mailbox_waiting_fetches.set(self.shared.bounds.waiting.total)
        metrics.mailbox_memory_bytes.set(self.shared.bounds.memory.total)
        metrics.mailbox_recent_bytes.set(self.shared.budget.size_bytes)

    async def open_all(self, names: Sequence[str]) -> None:
        """Open mailboxes one after another, so that their leases end in time. Damaged ones are skipped."""
        self._unread = {name for name in names if self._opened_or_none(name) is None}
        for name in names:
            try:
                await self.open(name)
            except (MailboxNotExistError, NotOwnerError):
                # Deleted meanwhile, or it belongs to another node.
                self._read(name)
            except TidelogServerError as error:
                _log.error("mailbox_not_opened", mailbox=name, problem=error.message)

    def _read(self, name: str) -> None:
        """Note that the references of a mailbox are known."""
        if self._unread:
            self._unread.discard(name)

    def _opened_or_none(self, name: str) -> Mailbox | None:
        try:
            return self.opened_by_name(name)
        except TidelogServerError:
            return None

    async def _load(self, record: MailboxRecord, place: Place, opened: "asyncio.Future[Mailbox]") -> None:
        try:
            loaded = await asyncio.get_running_loop().run_in_executor(
                self._readers, load, self._node.store, self._codec, place.vchannel.vchannel_id,
                self._snapshot_of(place.vchannel.vchannel_id), MAILBOX,
            )  # fmt: skip
            log = self._opened(record, place, loaded)
        except TidelogServerError as error:
            if isinstance(error, DataLossError):
                self._unloadable[record.mailbox_id] = error.message
                error = _unloadable(record.name, error.message)
            self._not_opened(record, opened, error)
        except BaseException as error:
            if isinstance(error, KeyError) and place.log.is_closed:
                # The store has dropped the log of a deleted mailbox.
                self._not_opened(record, opened, MailboxNotExistError(record.name))
                return
            self._not_opened(record, opened, ShutdownError() if isinstance(error, asyncio.CancelledError) else error)
            raise
        else:
            opened.set_result(log)

    def _not_opened(self, record: MailboxRecord, opened: "asyncio.Future[Mailbox]", error: BaseException) -> None:
        # Damage lasts until a restart; after other errors, the next call tries again.
        if self._logs.get(record.mailbox_id) is opened:
            del self._logs[record.mailbox_id]
        opened.set_exception(error)
        # Retrieved here, in case that no caller waits any more.
        opened.exception()

    def _opened(self, record: MailboxRecord, place: Place, loaded: Loaded[MailboxState]) -> Mailbox:
        """Return the mailbox that was loaded. Raises MailboxNotExistError if it was deleted meanwhile."""
        current, _ = self._find(record.name)
        if current.mailbox_id != record.mailbox_id:
            raise MailboxNotExistError(record.name)
        # With the settings of now: they may have changed while the log was read.
        tenant = self._tenant_of(mailbox_channel(current.mailbox_id))
        log = Mailbox(self.shared, current, place, loaded, tenant)
        log.on_step = self._look
        log.state.blobs.attach(self.blobs.live.count)
        self._read(record.name)
        self._look(log)
        return log

    def _look(self, log: Mailbox) -> None:
        self.housekeeper.look(log)
        self.mover.look(log)


def _unloadable(name: str, damage: str) -> DataLossError:
    return DataLossError(
        f"mailbox '{name}' cannot be loaded, because its log is damaged ({damage}): restore the server from a backup, "
        "or delete the mailbox if its messages may be lost",
        mailbox=name,
    )
