"""Mailboxes and blobs of a backup as of a tick, for a restore up to it.

Housekeeping trims their logs below the last snapshot and the oldest body. So the state at an earlier tick may be lost,
or a body that was deleted since.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final, Generic

from tidelog_server.channels.catalog import ROOT, ChannelRecord
from tidelog_server.core.entries import NewEntry
from tidelog_server.core.mailboxes import MailboxAtTick
from tidelog_server.core.names import BLOB_CHANNEL
from tidelog_server.core.ticks import MAX_TICK, NO_TICK, Tick, physical_ms
from tidelog_server.mailboxes.blobs.events import BlobEvent, decode_blobs, encode_blobs, replay_blobs
from tidelog_server.mailboxes.blobs.state import BlobState
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.mailboxes.events import EventType, replay_all
from tidelog_server.mailboxes.loading import Event, EventCodec, Fold, State, events_of
from tidelog_server.mailboxes.snapshot import decode_page, decode_snapshot, encode_snapshot, pages_of
from tidelog_server.mailboxes.state import MailboxState
from tidelog_server.metadata.store import Versioned
from tidelog_server.storage.rocksdb.snapshot import StoredLog

_PREFIX: Final = f"{ROOT}/mailbox/"
_BLOBS_KEY: Final = f"{ROOT}/channel/{BLOB_CHANNEL}"
_BLOBS_VCHANNEL: Final = f"{BLOB_CHANNEL}/0"
_READ_BYTES: Final = 4 << 20


Places = Iterator[tuple[Hashable, int]]
"""Bodies, and the ticks at which they lie."""


@dataclass(frozen=True, slots=True)
class _Log(Generic[State]):
    """A kind of log whose state is its fold.

    Attributes:
        fold: How the state follows from it.
        encode: Returns the snapshot of a state.
        places: Yields the given bodies that a state refers to, or all.
    """

    fold: Fold[State]
    encode: Callable[[State], bytes]
    places: Callable[[State, Collection[Hashable] | None], Places]


def _places_of_messages(state: MailboxState, wanted: Collection[Hashable] | None) -> Places:
    rows = state.rows
    if wanted is None:
        yield from compress(zip(rows.ids, rows.places, strict=True), rows.live_flags())
        return
    for message_id in wanted:
        assert isinstance(message_id, int)
        if (row := rows.find(message_id)) >= 0:
            yield message_id, rows.places[row]


def _places_of_chunks(state: BlobState, wanted: Collection[Hashable] | None) -> Places:
    for key, blob in state.blobs.items():
        for number, place in enumerate(blob.places if blob.is_complete else ()):
            if wanted is None or (key, number) in wanted:
                yield (key, number), place


_MAILBOX: Final = _Log(
    Fold("a mailbox", MailboxState, decode_snapshot, replay_all, EventType.SNAPSHOT), encode_snapshot,
    _places_of_messages,
)  # fmt: skip
_BLOBS: Final = _Log(
    Fold("the blobs", BlobState, decode_blobs, replay_blobs, BlobEvent.SNAPSHOT), encode_blobs, _places_of_chunks
)


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
                found.append(self._at(log, _MAILBOX, mailbox, tick))
            elif key == _BLOBS_KEY:
                [vchannel_id] = ChannelRecord.decode(key, value.value).vchannel_ids
                found.append(self._at(log, _BLOBS, MailboxAtTick(BLOB_CHANNEL, _BLOBS_VCHANNEL, vchannel_id), tick))
        return found

    def empty(self, mailbox: MailboxAtTick, tick: int) -> NewEntry:
        """Return an entry with the snapshot of a mailbox without messages, or of no blobs."""
        is_mailbox = mailbox.vchannel != _BLOBS_VCHANNEL
        encoded = _MAILBOX.encode(MailboxState()) if is_mailbox else _BLOBS.encode(BlobState())
        [page] = pages_of(encoded)
        batch = self._codec.encode([EventType.SNAPSHOT if is_mailbox else BlobEvent.SNAPSHOT], [page])
        return NewEntry(
            mailbox.vchannel_id, Tick(tick), batch.count, batch.message_type, batch.columns_crc32c, batch.columns
        )

    def _at(self, log: StoredLog, kind: _Log[State], mailbox: MailboxAtTick, tick: int) -> MailboxAtTick:
        trim_tick = log.tails[mailbox.vchannel_id].trim_tick
        if trim_tick == NO_TICK:
            return mailbox._replace(is_new=False)
        if mailbox.is_new:
            return mailbox
        history = _History(kind, trim_tick)
        is_before = True
        for event in self._events(log, mailbox.vchannel_id, trim_tick):
            if is_before and event.tick > tick:
                is_before = False
                if history.is_whole:
                    break
            history.add(event)
            if not is_before and history.is_whole:
                return mailbox._replace(restorable_from=event.tick)
        return mailbox._replace(
            snapshot_tick=history.snapshot_tick, restorable_from=0 if history.is_whole else MAX_TICK
        )

    def _events(self, log: StoredLog, vchannel_id: int, begin_tick: int) -> Iterator[Event]:
        while entries := log.reader.read(vchannel_id, begin_tick, MAX_TICK, _READ_BYTES):
            for entry in entries:
                yield from (event for event in events_of(entry, self._codec) if event.tick >= begin_tick)
            begin_tick = entries[-1].header.last_tick + 1


class _History(Generic[State]):
    """The state of a log that is trimmed, event by event.

    Attributes:
        snapshot_tick: Tick of the last complete snapshot; NO_TICK before the first one.
    """

    def __init__(self, log: _Log[State], trim_tick: int) -> None:
        self._log = log
        self._trim_tick = trim_tick
        self._state: State | None = None
        self.snapshot_tick: int = NO_TICK
        # The snapshot that is being read: its pages so far, and the events between them.
        self._begin_tick: int = NO_TICK
        self._pages: list[bytes] = []
        self._between: list[Event] = []
        # Bodies that are trimmed, as far as something refers to them. None if the state is unknown.
        self._trimmed: set[Hashable] | None = None

    def add(self, event: Event) -> None:
        """Apply the next event. Raises DataLossError."""
        fold = self._log.fold
        if event.kind == fold.snapshot_kind:
            self._add_page(event)
        elif self._state is not None:
            fold.replay(self._state, (event,))
        elif self._pages:
            self._between.append(event)

    @property
    def is_whole(self) -> bool:
        """True if the state is known, and the log has all bodies."""
        if self._state is None:
            return False
        places = self._log.places
        if self._trimmed is None:
            self._trimmed = {body for body, place in places(self._state, None) if place < self._trim_tick}
        # Nothing loses its body later: a copy, or another body, has a greater tick.
        self._trimmed = {body for body, place in places(self._state, self._trimmed) if place < self._trim_tick}
        return not self._trimmed

    def _add_page(self, event: Event) -> None:
        page = decode_page(event.payload)
        if page.number == 0:
            self._begin_tick, self._pages, self._between = event.tick, [], []
        elif not self._pages or page.number != len(self._pages):
            return
        self._pages.append(page.content)
        if len(self._pages) < page.pages:
            return
        self.snapshot_tick = self._begin_tick
        if self._state is None:
            self._state = self._log.fold.decode(b"".join(self._pages))
            self._log.fold.replay(self._state, self._between)
        self._pages, self._between = [], []
