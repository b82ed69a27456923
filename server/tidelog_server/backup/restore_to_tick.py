"""Restoring up to a tick: a backup's messages up to the tick are replayed into a new store.

The unit is the append. A batch is kept if all of its messages are at or below the tick; a transaction, if all of its
messages on all vchannels are; a broadcast has one tick. So none is cut in half, and the kept messages are a prefix of
the log in the order in which it was written. The state of a mailbox is the fold of its log, which may be trimmed beyond
the tick: then the mailbox cannot be restored.

Why replay and not truncate in place: replay uses the code of every append, so the sequence, the chain of hashes, chunks
and tails of the new store are correct by construction, and every kept message is read and checked.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, TypeVar

from tidelog_server.backup.files import Meter
from tidelog_server.backup.manifest import BackupError
from tidelog_server.broadcast.records import Progress, Tombstone
from tidelog_server.core.entries import EntryHeader, NewEntry, StagedBatch, StagedColumns
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT, MAX_GROUP_BATCHES, MAX_GROUP_BYTES
from tidelog_server.core.mailboxes import MailboxAtTick
from tidelog_server.core.ticks import MAX_TICK
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.rows import WINDOWS
from tidelog_server.metadata.embedded import EmbeddedMetadataStore, MetadataRows, stored_values
from tidelog_server.metadata.store import Put, Versioned
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.recovery.view import make_recovery_view
from tidelog_server.storage.rocksdb.snapshot import StoredLog, open_stored_log
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_server.storage.rows import Table, tables
from tidelog_server.txn.rows import APP_COMMITS

_ROOT: Final = "tidelog"
_HEADERS_PER_PAGE: Final = 256
_ROWS_PER_WRITE: Final = 1_000
_NAMES_IN_TEXT: Final = 10
_MAX_UNUSED_TICKS: Final = 1 << 20
_Item = TypeVar("_Item")


@dataclass(slots=True)
class RestoreReport:
    """The result of a restore up to a tick.

    Attributes:
        incarnation: Incarnation of the new store, hexadecimal.
        sequence: Number of entries in the new store.
        last_tick: Greatest tick of a kept message; 0 if no message was kept.
        kept_messages, removed_messages: Numbers of messages on all vchannels.
        kept_batches, removed_batches: Numbers of batches on all vchannels; a batch is an append.
        end_tick: Everything below this tick was kept and nothing else. At most the requested tick plus 1; lower if a
            batch or a transaction would have been cut in half.
        removed_broadcasts: Number of broadcasts whose message, or whose acceptance, came after the tick.
        moved_positions: Number of group positions beyond the tick, which were moved back to it.
        cut_producers: Number of windows whose last batches are removed; their producers get missing-sequence errors.
        forgotten_apps: Number of applications whose last commit came after the tick. Their earlier commits are unknown,
            so retrying one would commit it again.
        trimmed_vchannels: Ids of vchannels that were trimmed beyond the tick before the backup; their messages are
            lost.
        emptied_mailboxes: Names of mailboxes whose messages at the tick are lost, and that were restored without any.
    """

    incarnation: str = ""
    sequence: int = 0
    last_tick: int = 0
    kept_messages: int = 0
    removed_messages: int = 0
    kept_batches: int = 0
    removed_batches: int = 0
    end_tick: int = 0
    removed_broadcasts: int = 0
    moved_positions: int = 0
    cut_producers: int = 0
    forgotten_apps: int = 0
    trimmed_vchannels: list[int] = field(default_factory=list)
    emptied_mailboxes: list[str] = field(default_factory=list)


class MailboxHistory(Protocol):
    """Finds the state of the mailboxes of a log; ``mailboxes.at_tick`` implements it."""

    def at(self, log: StoredLog, records: Mapping[str, Versioned], tick: int) -> Sequence[MailboxAtTick]:
        """Return all mailboxes in the metadata ``records`` as of ``tick``, which no batch or transaction contains."""
        ...

    def empty(self, mailbox: MailboxAtTick, tick: int) -> NewEntry:
        """Return an entry after which a mailbox has no messages."""
        ...


class MailboxesLostError(BackupError):
    """The state of mailboxes at the tick is lost. Nothing was written.

    Attributes:
        restorable_from: The first tick as of which all mailboxes can be restored; MAX_TICK without such a tick.
    """

    def __init__(self, tick: int, lost: Sequence[MailboxAtTick]) -> None:
        names = ", ".join(f"'{each.name}'" for each in lost[:_NAMES_IN_TEXT])
        more = f" and {len(lost) - _NAMES_IN_TEXT} more" if len(lost) > _NAMES_IN_TEXT else ""
        from_tick = max(each.restorable_from for each in lost)
        later = f"choose tick {from_tick} or a later one, " if from_tick < MAX_TICK else ""
        super().__init__(
            f"the logs of mailboxes {names}{more} were trimmed beyond tick {tick} before the backup, so messages or "
            f"bodies that they had at that tick are lost: {later}restore an earlier backup, or add --empty-mailboxes "
            "to restore them without messages"
        )
        self.restorable_from = from_tick


async def replay(
    source: Path,
    target: Path,
    tick: int,
    meter: Meter,
    mailboxes: MailboxHistory,
    *,
    may_empty: bool = False,
) -> RestoreReport:
    """Create a new store in ``target`` from the messages of data folder ``source`` up to ``tick``, inclusive.

    Args:
        source: A copy that passed a check; it is not modified.
        target: An empty folder.
        tick: The last tick to keep.
        meter: Called with the number of bytes replayed.
        mailboxes: Finds the state of mailboxes.
        may_empty: True to restore mailboxes without messages if their messages at the tick are lost.

    Raises:
        DataLossError: A message is damaged.
        MailboxesLostError: Messages of mailboxes at the tick are lost. ``target`` is empty.
        OSError, StorageFailedError: The system failed; ``target`` is unusable.
    """
    assert 0 <= tick < MAX_TICK
    report = RestoreReport(end_tick=tick + 1)
    with TemporaryDirectory(prefix="tidelog-view-") as view_path:
        make_recovery_view(source / "db", Path(view_path))
        with open_stored_log(Path(view_path)) as log:
            tick = _uncut(log, tick)
            found = mailboxes.at(log, stored_values(log.metadata), tick)
            lost = [mailbox for mailbox in found if mailbox.restorable_from]
            if lost and not may_empty:
                raise MailboxesLostError(tick, lost)
            report.emptied_mailboxes = sorted(mailbox.name for mailbox in lost)
            store = open_rocksdb_log_store(target)
            try:
                _replay_log(log, store, tick, report, meter)
                # The new store has no message between this tick and the requested one, so the two are equivalent.
                last_tick = report.end_tick - 1
                _replay_rows(log, store, last_tick, report, found)
                _empty_mailboxes(store, mailboxes, found, report.end_tick)
                await _replay_metadata(log.metadata, store, last_tick, report)
                store.sync()
                head = store.head
                report.incarnation = store.incarnation.hex()
                report.sequence, report.last_tick = head.sequence, head.last_tick
            finally:
                store.close()
    return report


def _uncut(log: StoredLog, tick: int) -> int:
    """Return ``tick``, lowered until it is within no batch or transaction.

    A transaction may have entries with different spans: those of mailboxes include the others, and come after them.
    """
    while True:
        begin_ticks = (
            header.base_tick if header.txn is None else header.txn.first_tick
            for vchannel_id in log.tails
            for header in _around(log, vchannel_id, tick)
            if not _is_kept(header, tick)
        )  # fmt: skip
        lowest = min(begin_ticks, default=MAX_TICK)
        if tick < lowest:
            return tick
        tick = lowest - 1


def _around(log: StoredLog, vchannel_id: int, tick: int) -> Iterator[EntryHeader]:
    """Yield the last headers of a vchannel up to ``tick``, and the first one above it."""
    # A span may extend beyond its last message, by less than this.
    next_tick = max(0, tick - _MAX_UNUSED_TICKS)
    while page := log.reader.page_of_headers(vchannel_id, next_tick, tick + 1, _HEADERS_PER_PAGE):
        yield from page
        next_tick = page[-1].last_tick + 1
    yield from log.reader.page_of_headers(vchannel_id, tick + 1, MAX_TICK, 1)


def _replay_log(log: StoredLog, store: RocksdbLogStore, tick: int, report: RestoreReport, meter: Meter) -> None:
    trim_ticks = {vchannel_id: tail.trim_tick for vchannel_id, tail in log.tails.items()}
    report.trimmed_vchannels = [vchannel_id for vchannel_id, trimmed in trim_ticks.items() if tick + 1 < trimmed]
    cuts = {vchannel_id: min(trimmed, tick + 1) for vchannel_id, trimmed in trim_ticks.items()}
    adopted = {vchannel_id: _before_first(log, vchannel_id, cut, tick) for vchannel_id, cut in cuts.items()}
    store.adopt_vchannels(adopted)
    runs = [_entries(log, vchannel_id) for vchannel_id in trim_ticks]
    page: list[EntryHeader] = []
    page_bytes = 0
    for header in heapq.merge(*runs, key=lambda header: header.sequence):
        if not _is_kept(header, tick):
            report.removed_batches += 1
            report.removed_messages += header.count
            report.end_tick = min(report.end_tick, header.base_tick if header.txn is None else header.txn.first_tick)
            continue
        if report.removed_batches:
            # Ticks grow with the sequence, so the kept entries are a prefix. The chain of hashes proves the sequence.
            raise DataLossError(
                f"entry {header.sequence} is at tick {header.base_tick}, below that of an earlier entry that is "
                "removed: this log cannot be cut at a tick; restore all of it",
                sequence=header.sequence, tick=header.base_tick,
            )  # fmt: skip
        if page and (page_bytes + header.columns_bytes > MAX_GROUP_BYTES or len(page) == MAX_GROUP_BATCHES):
            _write(log, store, page, report, meter)
            page, page_bytes = [], 0
        page.append(header)
        page_bytes += header.columns_bytes
    _write(log, store, page, report, meter)
    for vchannel_id, cut in cuts.items():
        if store.tail(vchannel_id).batches:
            # This may cut within the first entry, as the original trim did.
            store.trim(vchannel_id, cut)
            report.kept_messages -= cut - adopted[vchannel_id]


def _before_first(log: StoredLog, vchannel_id: int, trim_tick: int, tick: int) -> int:
    """Return ``trim_tick``, lowered to the first kept entry of a vchannel if the trim cuts within that entry."""
    first = log.reader.page_of_headers(vchannel_id, 0, MAX_TICK, 1)
    return min(trim_tick, first[0].base_tick) if first and _is_kept(first[0], tick) else trim_tick


def _is_kept(header: EntryHeader, tick: int) -> bool:
    last_tick = header.last_tick if header.txn is None else header.txn.last_tick
    return last_tick <= tick


def _entries(log: StoredLog, vchannel_id: int) -> Iterator[EntryHeader]:
    """Yield the headers of a vchannel, oldest first, a page at a time."""
    next_tick = 0
    while page := log.reader.page_of_headers(vchannel_id, next_tick, MAX_TICK, _HEADERS_PER_PAGE):
        yield from page
        next_tick = page[-1].last_tick + 1


def _write(
    log: StoredLog, store: RocksdbLogStore, headers: Sequence[EntryHeader], report: RestoreReport, meter: Meter
) -> None:
    if not headers:
        return
    entries, staged, size_bytes = [], [], 0
    for header, columns in zip(headers, log.reader.columns(headers), strict=True):
        assert columns is not None, "nothing is trimmed during a restore"
        place = None
        if header.staged_sequence and header.txn is not None:
            place = StagedColumns(header.staged_sequence, header.columns_bytes, header.stored_crc32c)
            staged.append(StagedBatch(header.vchannel_id, header.txn.txn_id, header.staged_sequence, columns))
        entries.append(
            NewEntry(
                header.vchannel_id, header.base_tick, header.count, header.message_type, header.columns_crc32c,
                columns if place is None else b"", header.txn, place, header.broadcast_id,
            )
        )  # fmt: skip
        report.kept_batches += 1
        report.kept_messages += header.count
        size_bytes += header.columns_bytes
    store.write(entries, staged=staged)
    meter(size_bytes)


def _replay_rows(
    log: StoredLog, store: RocksdbLogStore, tick: int, report: RestoreReport, mailboxes: Sequence[MailboxAtTick]
) -> None:
    """Write the rows of all tables as they were at ``tick``."""
    changed: dict[Table[Any, Any], int] = {}
    for table in tables():
        before = log.rows(table)
        rows = [
            table.row(key, after) for key, value in before.items() if (after := table.until(value, tick)) is not None
        ]
        changed[table] = sum(row.value != before[row.key] for row in rows) + len(before) - len(rows)
        for page in _pages(rows, _ROWS_PER_WRITE):
            store.write([], page)
    report.cut_producers, report.moved_positions = changed[WINDOWS], changed[POSITIONS]
    report.forgotten_apps = changed[APP_COMMITS]
    # The last snapshot may have been written, or completed, later than the one from which the log is replayed.
    store.write([], [SNAPSHOTS.row(each.vchannel_id, each.snapshot_tick) for each in mailboxes if each.snapshot_tick])
    for vchannel_id, fencing_token in log.fencing_tokens.items():
        store.fence(vchannel_id, fencing_token)


def _empty_mailboxes(
    store: RocksdbLogStore, history: MailboxHistory, mailboxes: Sequence[MailboxAtTick], tick: int
) -> None:
    """Write a snapshot without messages, at ticks from ``tick`` on, for mailboxes that have no state at the tick."""
    for mailbox in mailboxes:
        if mailbox.restorable_from or mailbox.is_new:
            store.write([history.empty(mailbox, tick)], [SNAPSHOTS.row(mailbox.vchannel_id, tick)])
            tick += 1


def _pages(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def _replay_metadata(table: MetadataRows, store: RocksdbLogStore, tick: int, report: RestoreReport) -> None:
    with ThreadPoolExecutor(1) as executor:

        async def write(call: Callable[[], int]) -> int:
            return await asyncio.get_running_loop().run_in_executor(executor, call)

        target = await EmbeddedMetadataStore.open(store.metadata_rows(), executor, write)
        records = stored_values(table)
        gone = _broadcasts_after(records, tick)
        report.removed_broadcasts = len(gone)
        puts = [
            Put(key, found.value, expected_revision=0)
            for key, found in records.items()
            if _broadcast_of(key) not in gone
        ]
        for page in _pages(puts, MAX_CHANGES_PER_COMMIT):
            await target.commit(page)


def _broadcast_of(key: str) -> int | None:
    """Return the id of the broadcast to which a metadata record belongs; None for other records."""
    number, slash, _ = key.removeprefix(f"{_ROOT}/broadcast/").partition("/")
    return int(number) if slash and key.startswith(f"{_ROOT}/broadcast/") and number.isdecimal() else None


def _broadcasts_after(records: dict[str, Versioned], tick: int) -> set[int]:
    """Return the broadcasts whose message came after ``tick``, and pending ones that were accepted after it.

    Pending broadcasts accepted before it are kept: an accepted broadcast always reaches every vchannel.
    """
    gone: set[int] = set()
    for key, found in records.items():
        broadcast_id = _broadcast_of(key)
        if broadcast_id is None:
            continue
        if key.endswith("/progress"):
            message_tick = Progress.decode(key, found.value).tick
            if tick < (message_tick or broadcast_id):
                gone.add(broadcast_id)
        elif key.endswith("/tombstone") and tick < Tombstone.decode(key, found.value).tick:
            gone.add(broadcast_id)
    return gone
