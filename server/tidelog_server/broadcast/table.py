"""The broadcasts of a node in memory: a durable and a pending state of each. Pure: no clock, no I/O.

A change first updates the pending state (``pending``); the driver persists it, and only then applies it to the durable
state. So callers and other broadcasts see what a restart would find. Changes that arrive during a save share the next.

    PENDING ── appended ──▶ WAIT_ACK ── all acked ──▶ DONE
                                └────── aborted ────▶ ABORTED
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import merge
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog_server.broadcast.records import Progress, TaskRecord, Tombstone
from tidelog_server.broadcast.rows import LoggedKey
from tidelog_server.core.broadcasts import OPEN_STATES, BroadcastState
from tidelog_server.core.callers import Tenant
from tidelog_server.core.shares import Floors, Shares
from tidelog_server.core.sorted_names import SortedItems
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.usage import Usage

# Age and number of finished broadcasts that are remembered.
MAX_TOMBSTONE_AGE_MS: Final = 24 * 60 * 60 * 1_000
MAX_TOMBSTONES: Final = 8_192


@dataclass(slots=True, eq=False)
class Task:
    """An open broadcast.

    Attributes:
        record: The request.
        durable: Durable state, as a restart would find it.
        pending: Pending state; the same object as ``durable`` if there are no pending changes.
    """

    record: TaskRecord
    durable: Progress | Tombstone = field(default_factory=Progress)
    pending: Progress | Tombstone = field(init=False)

    def __post_init__(self) -> None:
        self.pending = self.durable

    @property
    def tick(self) -> int:
        """Tick of the message once it is in the log of every vchannel; 0 before.

        The log makes it durable: a restart finds it there even if the metadata does not have it yet.
        """
        return self.pending.tick

    @property
    def state(self) -> BroadcastState:
        """WAIT_ACK once the message is in the log, as a restart would find; PENDING before."""
        return BroadcastState.WAIT_ACK if self.tick else BroadcastState.PENDING

    @property
    def channels(self) -> set[str]:
        """Names of the channels of its vchannels."""
        return {name.partition("/")[0] for name in self.record.vchannels}

    @property
    def logged_key(self) -> LoggedKey:
        """Key of the row that is written with its message."""
        return LoggedKey(self.record.vchannel_ids[0], self.record.broadcast_id)

    @property
    def is_aligned(self) -> bool:
        """True if there are no pending changes."""
        return self.pending is self.durable

    def mark_appended(self, tick: int, now_ms: int) -> None:
        """Record as pending that the message is in the log of all vchannels."""
        assert 0 < tick
        if isinstance(self.pending, Progress) and not self.pending.tick:
            self._mark(replace(self.pending, tick=tick), now_ms)

    def mark_acked(self, acks: int, now_ms: int) -> None:
        """Record as pending the acknowledgements of a bitmap. No effect on a finished broadcast."""
        assert not acks & ~self.record.all_acks
        if isinstance(self.pending, Progress) and acks & ~self.pending.acks:
            self._mark(replace(self.pending, acks=self.pending.acks | acks), now_ms)

    def mark_aborted(self, reason: str, now_ms: int) -> bool:
        """Record as pending the abort of a broadcast in WAIT_ACK; return False, without effect, for a finished one."""
        assert isinstance(self.pending, Tombstone) or self.pending.tick
        if isinstance(self.pending, Tombstone):
            return False
        self.pending = self._finished(self.pending, BroadcastState.ABORTED, now_ms, reason)
        return True

    def acknowledgements(self) -> Iterator[tuple[str, bool]]:
        """Yield each vchannel with True if it has acknowledged."""
        acks = self.durable.acks if isinstance(self.durable, Progress) else self.record.all_acks
        for position, name in enumerate(self.record.vchannels):
            yield name, bool(acks >> position & 1)

    def acks_by_name(self) -> dict[str, int]:
        """Return the bitmap of each vchannel, and of each channel for all of its vchannels here."""
        found: dict[str, int] = {}
        for position, name in enumerate(self.record.vchannels):
            found[name] = 1 << position
            channel = name.partition("/")[0]
            found[channel] = found.get(channel, 0) | 1 << position
        return found

    def _mark(self, progress: Progress, now_ms: int) -> None:
        assert isinstance(self.pending, Progress), "a finished broadcast does not change"
        assert self.pending.tick in (NO_TICK, progress.tick)
        assert not self.pending.acks & ~progress.acks
        is_over = progress.tick and progress.acks == self.record.all_acks
        self.pending = self._finished(progress, BroadcastState.DONE, now_ms) if is_over else progress

    def _finished(self, progress: Progress, state: BroadcastState, now_ms: int, reason: str = "") -> Tombstone:
        record = self.record
        return Tombstone(
            record.broadcast_id, state, progress.tick, len(record.vchannels), progress.acked, record.digest,
            record.created_ms, now_ms, reason, record.tenant,
        )  # fmt: skip


class Forgotten(NamedTuple):
    """Tombstones that are about to be deleted.

    Attributes:
        broadcast_ids: Ids of the broadcasts.
        floors: Floors to write, by tenant; None for a floor to delete.
        evicted: Number of tombstones deleted before they reach MAX_TOMBSTONE_AGE_MS.
    """

    broadcast_ids: list[int]
    floors: dict[Tenant, int | None]
    evicted: int


class BroadcastTable:
    """All broadcasts that are not forgotten.

    Beyond MAX_TOMBSTONES, the oldest tombstone of the principal with the most tombstones is evicted: see ``Shares``.

    Invariant: an id is in ``open``, or among the tombstones, or in neither; a forgotten id is not above the floor of
    its tenant.

    Attributes:
        open: Unfinished broadcasts by id.
        floors: Greatest forgotten id of each tenant.
        open_usage, vchannels_usage: Number of open broadcasts of each tenant, and of their vchannels.
    """

    def __init__(self, floors: Mapping[Tenant, int] = MappingProxyType({})) -> None:
        self.floors = Floors(floors)
        self.open: dict[int, Task] = {}
        self._tombstones: Shares[int, Tombstone] = Shares()
        # Tombstones whose deletion is not durable yet.
        self._leaving: dict[int, Tombstone] = {}
        self._open_ids = SortedItems[int]()
        # Of tombstones, also of those that are leaving.
        self._finished_ids = SortedItems[int]()
        self._by_channel: dict[str, dict[int, Task]] = {}
        self.open_usage = Usage()
        self.vchannels_usage = Usage()

    @property
    def tombstones(self) -> Mapping[int, Tombstone]:
        """Finished broadcasts by id."""
        return dict(self._tombstones.items()) | self._leaving

    @property
    def finished(self) -> int:
        """Number of finished broadcasts."""
        return len(self._tombstones) + len(self._leaving)

    @property
    def has_excess(self) -> bool:
        """True if there are more than MAX_TOMBSTONES tombstones."""
        return len(self._tombstones) > MAX_TOMBSTONES

    def add(self, task: Task) -> None:
        """Add an open broadcast."""
        broadcast_id = task.record.broadcast_id
        assert broadcast_id not in self.open
        assert self.find(broadcast_id) is None
        self.open[broadcast_id] = task
        self._open_ids.add(broadcast_id)
        self._count(task, 1)
        for channel in task.channels:
            self._by_channel.setdefault(channel, {})[broadcast_id] = task

    def add_tombstone(self, tombstone: Tombstone) -> None:
        """Add a finished broadcast."""
        assert tombstone.broadcast_id not in self.open
        self._tombstones.put(tombstone.broadcast_id, tombstone, bytes.fromhex(tombstone.tenant))
        self._finished_ids.add(tombstone.broadcast_id)

    def discard(self, task: Task) -> None:
        """Remove an open broadcast without a tombstone."""
        broadcast_id = task.record.broadcast_id
        assert self.open.get(broadcast_id) is task
        del self.open[broadcast_id]
        self._open_ids.discard(broadcast_id)
        self._count(task, -1)
        for channel in task.channels:
            tasks = self._by_channel[channel]
            del tasks[broadcast_id]
            if not tasks:
                del self._by_channel[channel]

    def _count(self, task: Task, sign: int) -> None:
        tenant = bytes.fromhex(task.record.tenant)
        self.open_usage.add(tenant, sign)
        self.vchannels_usage.add(tenant, sign * len(task.record.vchannels))

    def find(self, broadcast_id: int) -> Task | Tombstone | None:
        """Return a broadcast; None if the id is unknown."""
        finished = self._tombstones.get(broadcast_id) or self._leaving.get(broadcast_id)
        return self.open.get(broadcast_id) or finished

    def page(
        self, states: frozenset[BroadcastState], after_id: int, max_count: int
    ) -> tuple[list[Task | Tombstone], bool]:
        """Return up to ``max_count`` broadcasts in ``states`` with ids above ``after_id``, and whether more exist."""
        open_ids = self._open_ids.after(after_id) if states.intersection(OPEN_STATES) else ()
        finished_ids = self._finished_ids.after(after_id) if states.difference(OPEN_STATES) else ()
        found: list[Task | Tombstone] = []
        for broadcast_id in merge(open_ids, finished_ids):
            each = self.find(broadcast_id)
            assert each is not None
            if each.state not in states:
                continue
            if len(found) == max_count:
                return found, True
            found.append(each)
        return found, False

    def of_channel(self, channel: str) -> list[Task]:
        """Return the open broadcasts that include a vchannel of ``channel``."""
        return list(self._by_channel.get(channel, {}).values())

    def apply(self, task: Task, durable: Progress | Tombstone) -> None:
        """Make ``durable``, a former pending state of an open broadcast, its durable state."""
        before = task.durable
        assert isinstance(before, Progress)
        assert before.tick in (NO_TICK, durable.tick)
        assert before.acked <= durable.acked
        assert not isinstance(durable, Tombstone) or durable is task.pending
        task.durable = durable
        if isinstance(durable, Tombstone):
            self.discard(task)
            self.add_tombstone(durable)

    def forget_some(self, now_ms: int, max_count: int) -> Forgotten:
        """Choose tombstones to delete, by number or age, and raise the floors; call ``forget`` once that is durable.

        Ordering: the floors rise before anything is written, so a retry of one is not accepted as new meanwhile.
        """
        evicted = self._tombstones.shrink(MAX_TOMBSTONES, max_count)
        chosen = [each.value for each in evicted] or self._old(now_ms, max_count)
        floors: dict[Tenant, int | None] = {}
        for tombstone in chosen:
            self._tombstones.pop(tombstone.broadcast_id)
            self._leaving[tombstone.broadcast_id] = tombstone
            tenant = bytes.fromhex(tombstone.tenant)
            floors |= self.floors.raise_to(tenant, tombstone.broadcast_id)
            assert tombstone.broadcast_id <= self.floors.of(tenant)
        return Forgotten([tombstone.broadcast_id for tombstone in chosen], floors, len(evicted))

    def _old(self, now_ms: int, max_count: int) -> list[Tombstone]:
        """Return tombstones older than MAX_TOMBSTONE_AGE_MS, smallest ids first."""
        old_ms = now_ms - MAX_TOMBSTONE_AGE_MS
        old = (each for _, each in self._tombstones.items() if each.finished_ms < old_ms)
        return sorted(old, key=lambda each: each.broadcast_id)[:max_count]

    def forget(self, broadcast_ids: Iterable[int]) -> None:
        """Remove tombstones that ``forget_some`` chose."""
        for broadcast_id in broadcast_ids:
            del self._leaving[broadcast_id]
            self._finished_ids.discard(broadcast_id)
