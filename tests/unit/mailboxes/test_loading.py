"""A mailbox that is loaded from its log is the mailbox that wrote it, whenever the server ended.

Method: random operations with housekeeping at random moments, on a store that is opened again as a crash would leave
it: between operations the loaded state equals the live one; at any other moment it has every answered operation. And
logs with damaged events.

Promises of docs/reference/guarantees.md: G49.
"""

import asyncio
import random
import struct
from collections.abc import Callable

import pytest

from tidelog_server.core.dedup_keys import DedupKeys, hash_of
from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.core.ticks import Tick
from tidelog_server.fold import keeping
from tidelog_server.fold.calls import Call
from tidelog_server.fold.loading import Loaded
from tidelog_server.fold.loading import load as load_fold
from tidelog_server.fold.pages import decode_page, frozen
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.mailboxes import housekeeping
from tidelog_server.mailboxes.events import MAILBOX, EventType, MessageIds, encode_ids
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import (
    Fetched,
    Outgoing,
    Rejection,
    pause,
    purge,
    redrive_here,
    reenqueue,
)
from tidelog_server.mailboxes.snapshot import decode_snapshot, freeze
from tidelog_server.mailboxes.state import MailboxState
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.clocks import SetClock
from tidelog_testing.parts.mailbox_nodes import (
    CODEC,
    MailboxNode,
    acking,
    content,
    copied,
    extending,
    fetching,
    loaded,
    locks_of,
    running_mailboxes,
    sending,
    sending_with,
    taken_in_order,
)
from tidelog_testing.parts.mailboxes import encode_snapshot, pages_of
from tidelog_testing.parts.stores import CrashingStore

SMALL_PAGE = 100
VCHANNEL = 5


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small logs have housekeeping, and snapshots of many pages."""
    monkeypatch.setattr("tidelog_server.fold.pages.PAGE_BYTES", SMALL_PAGE)
    for name, value in {
        "TRIM_ABOVE_BYTES": 1_000, "CLEAN_ABOVE_BYTES": 500, "_COPY_MESSAGES": 5, "_COPY_ROWS": 7, "_SCAN_ROWS": 5
    }.items():  # fmt: skip
        monkeypatch.setattr(keeping if hasattr(keeping, name) else housekeeping, name, value)


def load(store: MemoryLogStore, vchannel_id: int, snapshot_tick: int) -> Loaded[MailboxState]:
    return load_fold(store, CODEC, vchannel_id, snapshot_tick, MAILBOX)


class Program:
    """Random operations on a mailbox.

    Attributes:
        sent, gone: Ids of messages whose send was answered, and of those that an operation of this program may have
            deleted.
    """

    def __init__(self, log: Mailbox, clock: SetClock, chance: random.Random, *, may_purge: bool = True) -> None:
        self.log = log
        self._may_purge = may_purge
        self.sent = set[int]()
        self.gone = set[int]()
        self._clock = clock
        self._chance = chance
        self._locks: list[tuple[bytes, int]] = []

    async def run(self, operations: int) -> None:
        """Execute some operations, one after another."""
        for _ in range(operations):
            self._clock.now_ms += self._chance.choice((0, 1, 5, 40, 200))
            await self._chance.choices(
                (self._send, self._fetch, self._confirm, self._reject, self._extend, self._administer),
                (5, 5, 4, 3, 1, 1),
            )[0]()

    async def _send(self) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            ids = (await self.log.run(sending(*(b"plain" for _ in range(chance.randint(1, 20)))))).ids
        else:
            messages = [
                Outgoing(
                    chance.randbytes(chance.randint(0, 60)),
                    {"header": "x"} if chance.random() < 0.2 else {},
                    delay_ms=chance.choice((None, 0, 30, 500)),
                    priority=chance.choice((0, 0, 0, 7)),
                    group=chance.choice(("", "", "red", "blue")),
                    key=chance.choice(("", "", "k1", "k2", "k3")),
                    ttl_ms=chance.choice((None, None, 100)),
                )
                for _ in range(chance.randint(1, 5))
            ]
            ids = (await self.log.run(sending_with(*messages))).ids
            self.gone.update(message_id for message_id, each in zip(ids, messages, strict=True) if each.ttl_ms)
        self.sent.update(ids)

    async def _fetch(self) -> None:
        lease_ms = self._chance.choice((20, 300, 5_000))
        fetched: Fetched = await self.log.run(fetching(self._chance.randint(1, 15), lease_ms=lease_ms))
        self._locks += ((grant.lock_id, grant.message_id) for grant in fetched.grants)

    def _take_locks(self) -> list[tuple[bytes, int]]:
        self._chance.shuffle(self._locks)
        taken = [self._locks.pop() for _ in range(min(len(self._locks), self._chance.randint(0, 8)))]
        return taken or [(b"?" * 20, 0)]

    async def _confirm(self) -> None:
        taken = self._take_locks()
        self.gone.update(message_id for _, message_id in taken)
        await self.log.run(acking([lock for lock, _ in taken]))

    async def _reject(self) -> None:
        rejections = [
            Rejection(lock, self._chance.choice((None, 0, 100)), self._chance.random() < 0.1)
            for lock, _ in self._take_locks()
        ]
        await self.log.run(acking([], *rejections))

    async def _extend(self) -> None:
        taken = self._take_locks()
        self._locks += taken
        await self.log.run(extending([lock for lock, _ in taken], self._chance.choice((10, 1_000))))

    async def _administer(self) -> None:
        rows = self.log.state.rows
        match self._chance.randint(0, 9):
            case 0 if self._may_purge:
                self.gone |= {rows.ids[row] for row in rows.live_rows()}
                await self.log.run(Call(purge, 1))
            case 1 | 2:
                is_paused = not self.log.state.is_paused
                await self.log.run(Call(lambda step: pause(step, is_paused=is_paused), 1))
            case 3 | 4 | 5:
                ids = [rows.ids[row] for row in rows.live_rows()]
                await self.log.run(Call(lambda step: reenqueue(step, ids[:3]), 1 + len(ids)))
            case _:
                dead = [rows.ids[row] for row in rows.live_rows() if rows.states[row] == MessageState.DEAD]
                if dead:
                    await self.log.run(Call(lambda step: redrive_here(step, dead), 1))


async def keep_house(node: MailboxNode, log: Mailbox, until: asyncio.Event) -> None:
    """Do the housekeeping of a mailbox again and again."""
    while not until.is_set():
        await node.mailboxes.housekeeper.keep(log)
        await asyncio.sleep(0)


def check_bodies_are_there(store: MemoryLogStore, log: Mailbox, state: MailboxState) -> None:
    vchannel_id = log.place.vchannel.vchannel_id
    for row in state.rows.live_rows():
        assert state.rows.places[row] >= store.tail(vchannel_id).trim_tick


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("seed", range(8))
async def test_a_loaded_mailbox_equals_the_one_that_wrote_the_log(seed: int) -> None:
    chance, clock, store = random.Random(seed), SetClock(), CrashingStore()
    async with running_mailboxes(store, clock) as node:
        log = await node.create("a", max_deliveries=chance.choice((0, 3)), backoff_ms=(0, 50))
        program = Program(log, clock, chance)
        for _ in range(15):
            await program.run(12)
            if chance.random() < 0.5:
                # Interleaved: pages and copies share steps with operations.
                done = asyncio.Event()
                keeping = asyncio.create_task(keep_house(node, log, done))
                await program.run(6)
                done.set()
                await keeping
            await log.let_time_pass()
            crashed = store.crashed()
            found = loaded(crashed, log)
            assert content(found.state, log.state.now) == content(log.state, log.state.now)
            check_bodies_are_there(crashed, log, found.state)
            assert taken_in_order(found.state) == taken_in_order(copied(log.state))
        assert node.reports == []
        assert log.place.vchannel.trim_tick > 0


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("seed", range(4))
async def test_a_crash_at_any_moment_loses_no_answered_operation(seed: int) -> None:
    chance, clock, store = random.Random(seed), SetClock(), CrashingStore()
    async with running_mailboxes(store, clock) as node:
        log = await node.create("a")
        programs = [Program(log, clock, random.Random(100 * seed + number), may_purge=False) for number in range(4)]
        done = asyncio.Event()
        keeping = asyncio.create_task(keep_house(node, log, done))
        running = asyncio.gather(*(program.run(40) for program in programs))
        while not running.done():
            for _ in range(chance.randint(1, 30)):
                await asyncio.sleep(0)
            kept = set[int]().union(*(each.sent for each in programs))
            crashed = store.crashed()
            state = loaded(crashed, log).state
            check_bodies_are_there(crashed, log, state)
            found = {state.rows.ids[row] for row in state.rows.live_rows()}
            assert kept.difference(*(each.gone for each in programs)) <= found
        await running
        done.set()
        await keeping
        assert node.reports == []


@pytest.mark.usefixtures("_small")
async def test_a_housekeeping_that_is_cancelled_leaves_a_log_that_can_be_loaded() -> None:
    store = CrashingStore()
    async with running_mailboxes(store) as node:
        log = await node.create("a")
        await log.run(sending(*[b"x"] * 200))
        await node.mailboxes.housekeeper.keep(log)
        for turns in range(0, 60, 3):
            (grant,) = (await log.run(fetching(1))).grants
            await log.run(acking([grant.lock_id]))
            keeping = asyncio.create_task(node.mailboxes.housekeeper.keep(log))
            for _ in range(turns):
                await asyncio.sleep(0)
            keeping.cancel()
            await log.run(Call(lambda _: None, events=0))
            found = loaded(store.crashed(), log)
            assert content(found.state, log.state.now) == content(log.state, log.state.now)


async def test_exhausted_messages_survive_a_snapshot() -> None:
    store = CrashingStore()
    async with running_mailboxes(store) as node:
        await node.create("letters")
        log = await node.create("a", dead_letter="letters")
        await log.run(sending(b"x", b"y"))
        locks = locks_of(await log.run(fetching()))
        # In the same turn, so that nothing was moved yet.
        rejected = acking([], *(Rejection(lock, is_final=True) for lock in locks))
        log.submit(rejected)
        await asyncio.sleep(0)
        state = decode_snapshot(encode_snapshot(log.state))
        assert sorted(state.exhausted) == sorted(log.state.exhausted)
        assert len(state.exhausted) == 2
        await rejected.done


async def test_a_restart_counts_what_it_has_replayed() -> None:
    store = CrashingStore()
    async with running_mailboxes(store) as node:
        log = await node.create("a")
        await log.run(sending(*[b"x" * 100] * 30))
        locks = locks_of(await log.run(fetching(10)))
        await log.run(acking(locks))
        found = loaded(store, log)
        assert found.changes == log.changes == 50
        assert 0.8 * log.written_bytes < found.written_bytes <= log.written_bytes
        await node.mailboxes.housekeeper.keep(log)
        found = loaded(store, log)
        assert (found.changes, found.written_bytes) == (log.changes, log.written_bytes) == (0, 0)
        assert found.snapshot_bytes == log.snapshot_bytes > 20 * 55


# -- Damage ------------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> MemoryLogStore:
    store = MemoryLogStore()
    store.create_vchannels([VCHANNEL])
    return store


def write(store: MemoryLogStore, base: int, kind: int, payload: bytes, *, columns: bytes | None = None) -> None:
    batch = CODEC.encode([kind], [payload])
    entry = NewEntry(
        VCHANNEL, Tick(base), 1, batch.message_type, batch.columns_crc32c, batch.columns if columns is None else columns
    )
    store.write([entry])


def damage_of(store: MemoryLogStore, snapshot_tick: int = 0) -> DataLossError:
    with pytest.raises(DataLossError) as error:
        load(store, VCHANNEL, snapshot_tick)
    assert error.value.values["vchannel_id"] == str(VCHANNEL)
    assert str(VCHANNEL) in error.value.message
    return error.value


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (99, b""),
        (EventType.CONFIRMED, b"short"),
        (EventType.CONFIRMED, encode_ids(MessageIds(0, [7]))),
        (EventType.LEASED, encode_ids(MessageIds(5, [7]))),
        (EventType.SENT, b""),
        (EventType.RELOCATED, b"x"),
    ],
)
def test_an_unreadable_event_is_data_loss(store: MemoryLogStore, kind: int, payload: bytes) -> None:
    write(store, 100, kind, payload)
    assert damage_of(store).values["tick"] == "100"


@pytest.mark.parametrize("columns", [b"", b"\xff", b"\x08\x02", b"\x12\x07abc"])
def test_an_unreadable_batch_is_data_loss(store: MemoryLogStore, columns: bytes) -> None:
    write(store, 100, EventType.PURGED, b"", columns=columns)
    assert damage_of(store).values["tick"] == "100"


def a_snapshot() -> bytes:
    state = MailboxState()
    state.sent_plain(10, [3, 4])
    state.leased(500, [10], [b"l" * 20])
    return encode_snapshot(state)


@pytest.mark.parametrize(
    "damage",
    [
        lambda encoded: encoded[:-1],
        lambda encoded: encoded + b"x",
        lambda encoded: b"\x09" + encoded[1:],
        lambda encoded: encoded[:60],
        lambda encoded: encoded.replace(bytes((MessageState.LEASED, MessageState.AVAILABLE)), b"\x4d\x01"),
        lambda encoded: encoded.replace(b"l" * 20, b""),
    ],
)
def test_an_unreadable_snapshot_is_data_loss(store: MemoryLogStore, damage: Callable[[bytes], bytes]) -> None:
    damaged = damage(a_snapshot())
    assert damaged != a_snapshot()
    write(store, 100, EventType.SNAPSHOT, frozen(damaged).next_page())
    damage_of(store, 100)


def test_an_unreadable_page_is_data_loss(store: MemoryLogStore) -> None:
    write(store, 100, EventType.SNAPSHOT, b"x")
    damage_of(store, 100)


def test_an_incomplete_snapshot_of_a_trimmed_log_is_data_loss(store: MemoryLogStore) -> None:
    write(store, 50, EventType.PURGED, b"")
    write(store, 100, EventType.SNAPSHOT, struct.pack("<II", 0, 2) + b"x")
    assert len(load(store, VCHANNEL, 100).state.rows) == 0
    store.trim(VCHANNEL, 100)
    damage_of(store, 100)
    damage_of(store)


def test_a_lock_without_its_message_is_data_loss(store: MemoryLogStore) -> None:
    state = MailboxState()
    state.locks.add(b"l" * 20, 10)
    write(store, 100, EventType.SNAPSHOT, frozen(encode_snapshot(state)).next_page())
    damage_of(store, 100)


def test_a_row_without_its_snapshot_replays_the_whole_log(store: MemoryLogStore) -> None:
    write(store, 50, EventType.PAUSED, b"")
    store.write([], [SNAPSHOTS.row(VCHANNEL, 70)])
    assert load(store, VCHANNEL, 70).state.is_paused


def test_pages_have_their_number_and_the_number_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.fold.pages.PAGE_BYTES", 4)
    pages = list(map(decode_page, pages_of(b"0123456789")))
    assert [(page.number, page.pages) for page in pages] == [(0, 3), (1, 3), (2, 3)]
    assert b"".join(page.content for page in pages) == b"0123456789"
    assert [decode_page(page).pages for page in pages_of(b"")] == [1]


def test_a_frozen_state_is_encoded_in_pages_while_the_state_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    state = MailboxState()
    state.sent_plain(10, [3] * 500)
    state.leased(700, range(10, 60), [bytes([number]) * 20 for number in range(50)])
    state.confirmed(range(10, 30))
    for number in range(200):
        state.keys.add(hash_of(f"ключ {number}"), number, 1_000)
    encoded = encode_snapshot(state)
    # Without the rows of deleted messages.
    compact = encode_snapshot(decode_snapshot(encoded))
    for size in (64, 1_000, len(compact) - 1, len(compact), len(compact) + 1):
        monkeypatch.setattr("tidelog_server.fold.pages.PAGE_BYTES", size)
        changed = decode_snapshot(encoded)
        assert encode_snapshot(changed) == compact
        snapshot = freeze(changed)
        pages = [snapshot.next_page()]
        changed.purged()
        changed.keys = DedupKeys()
        pages += (snapshot.next_page() for _ in range(1, snapshot.pages))
        assert pages == pages_of(compact)
        assert snapshot.size_bytes == len(compact)
