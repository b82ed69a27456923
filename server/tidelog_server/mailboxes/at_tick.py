"""Mailboxes and blobs of a backup as of a tick, for a restore up to it. See ``fold.at_tick``."""

from collections.abc import Mapping
from typing import Any, Final

from tidelog_server.blobs.events import BLOBS
from tidelog_server.channels.catalog import ROOT, ChannelRecord
from tidelog_server.core.entries import NewEntry
from tidelog_server.core.mailboxes import MailboxAtTick
from tidelog_server.core.names import BLOB_CHANNEL
from tidelog_server.core.ticks import MAX_TICK, NO_TICK, Tick, physical_ms
from tidelog_server.fold.at_tick import at_tick
from tidelog_server.fold.events import EventCodec, events_between
from tidelog_server.fold.loading import Fold, State
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.mailboxes.events import MAILBOX
from tidelog_server.metadata.store import Versioned
from tidelog_server.storage.rocksdb.snapshot import StoredLog

_PREFIX: Final = f"{ROOT}/mailbox/"
_BLOBS_KEY: Final = f"{ROOT}/channel/{BLOB_CHANNEL}"
_BLOBS_VCHANNEL: Final = f"{BLOB_CHANNEL}/0"


class MailboxHistory:
    """Tells which mailboxes of a log can be restored as of a tick, and from where their logs are loaded then."""

    def __init__(self, codec: EventCodec) -> None:
        self._codec = codec

    def at(self, log: StoredLog, records: Mapping[str, Versioned], tick: int) -> list[MailboxAtTick]:
        """Return all mailboxes in the metadata ``records``, and the blobs if there are any.

        Args:
            log: The log; a batch or transaction is entirely at or below ``tick``, or entirely above it.
            records: Records of the metadata, by key.
            tick: The last tick to keep.

        Raises:
            DataLossError: A record or an event is damaged.
        """
        found: list[MailboxAtTick] = []
        for key, value in records.items():
            if key.startswith(_PREFIX):
                record = MailboxRecord.decode(key.removeprefix(_PREFIX), value.value, value.revision)
                # The events of a mailbox that was created later have greater ticks: the oracle is never behind the
                # wall clock.
                mailbox = MailboxAtTick(
                    record.name, f"{record.channel}/0", record.mailbox_id,
                    is_new=record.created_ms > physical_ms(tick),
                )  # fmt: skip
                found.append(self._at(log, MAILBOX, mailbox, tick))
            elif key == _BLOBS_KEY:
                [vchannel_id] = ChannelRecord.decode(key, value.value).vchannel_ids
                found.append(self._at(log, BLOBS, MailboxAtTick(BLOB_CHANNEL, _BLOBS_VCHANNEL, vchannel_id), tick))
        return found

    def empty(self, mailbox: MailboxAtTick, tick: int) -> NewEntry:
        """Return an entry with the snapshot of a mailbox without messages, or of no blobs."""
        fold: Fold[Any] = MAILBOX if mailbox.vchannel != _BLOBS_VCHANNEL else BLOBS
        batch = self._codec.encode([fold.snapshot_kind], [fold.freeze(fold.empty()).next_page()])
        return NewEntry(
            mailbox.vchannel_id, Tick(tick), batch.count, batch.message_type, batch.columns_crc32c, batch.columns
        )

    def _at(self, log: StoredLog, fold: Fold[State], mailbox: MailboxAtTick, tick: int) -> MailboxAtTick:
        trim_tick = log.tails[mailbox.vchannel_id].trim_tick
        if trim_tick == NO_TICK:
            return mailbox._replace(is_new=False)
        if mailbox.is_new:
            return mailbox
        events = events_between(log.reader.read, self._codec, mailbox.vchannel_id, trim_tick, MAX_TICK)
        snapshot_tick, restorable_from = at_tick(fold, events, trim_tick, tick)
        return mailbox._replace(snapshot_tick=snapshot_tick, restorable_from=restorable_from)
