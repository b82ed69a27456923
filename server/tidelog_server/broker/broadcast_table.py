"""The broadcasts of a node in memory: what is durable of each, and what is to become so. Pure: no clock, no I/O.

A change is first wanted, then made durable by the driver, and only then applied: what callers and other broadcasts see
is what a restart would find. Changes that come while one is on its way to the disk are wanted together.

    PENDING ── appended ──▶ WAIT_ACK ── all acked ──▶ DONE
                                └────── aborted ────▶ ABORTED
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from tidelog_server.broker.broadcast_records import Progress, TaskRecord, Tombstone
from tidelog_server.core.broadcasts import BroadcastState
from tidelog_server.core.limits import MAX_TOMBSTONE_AGE_MS, MAX_TOMBSTONES
from tidelog_server.core.shares import Floors, Shares
from tidelog_server.core.tenants import Tenant
from tidelog_server.core.usage import Usage


@dataclass(slots=True, eq=False)
class Task:
    """A broadcast that is not forgotten.

    Attributes:
        record: What was asked for.
        durable: How far it is, as a restart would find it.
        wanted: How far it will be once everything asked for is durable; the same object if it is.
    """

    record: TaskRecord
    durable: Progress | Tombstone = field(default_factory=Progress)
    wanted: Progress | Tombstone = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = self.durable

    @property
    def tick(self) -> int:
        """Of its message, once that is in the log of every vchannel; 0 before.

        The log itself makes it durable: a restart finds it there, whether it has been noted or not.
        """
        return self.wanted.tick

    @property
    def state(self) -> BroadcastState:
        """How far it is, as a restart would find out."""
        return BroadcastState.WAIT_ACK if self.tick else BroadcastState.PENDING

    @property
    def channels(self) -> set[str]:
        """Names of the channels that it is for."""
        return {name.partition("/")[0] for name in self.record.vchannels}

    @property
    def is_aligned(self) -> bool:
        """Whether everything that is wanted is durable."""
        return self.wanted is self.durable

    def want_appended(self, tick: int, now_ms: int) -> None:
        """Note that the message is in the log of all vchannels."""
        if isinstance(self.wanted, Progress) and not self.wanted.tick:
            self._want(replace(self.wanted, tick=tick), now_ms)

    def want_acks(self, acks: int, now_ms: int) -> None:
        """Note that the vchannels of a bitmap have acknowledged. A finished broadcast stays as it is."""
        if isinstance(self.wanted, Progress) and acks & ~self.wanted.acks:
            self._want(replace(self.wanted, acks=self.wanted.acks | acks), now_ms)

    def want_aborted(self, reason: str, now_ms: int) -> bool:
        """Give a broadcast in WAIT_ACK up, and tell whether it was; a finished one stays as it is."""
        assert isinstance(self.wanted, Tombstone) or self.wanted.tick
        if isinstance(self.wanted, Tombstone):
            return False
        self.wanted = self._finished(self.wanted, BroadcastState.ABORTED, now_ms, reason)
        return True

    def acknowledgements(self) -> Iterator[tuple[str, bool]]:
        """Yield each vchannel, and whether it has acknowledged."""
        acks = self.durable.acks if isinstance(self.durable, Progress) else self.record.all_acks
        for position, name in enumerate(self.record.vchannels):
            yield name, bool(acks >> position & 1)

    def positions(self) -> dict[str, int]:
        """Return the bit of each vchannel."""
        return {name: position for position, name in enumerate(self.record.vchannels)}

    def _want(self, progress: Progress, now_ms: int) -> None:
        is_over = progress.tick and progress.acks == self.record.all_acks
        self.wanted = self._finished(progress, BroadcastState.DONE, now_ms) if is_over else progress

    def _finished(self, progress: Progress, state: BroadcastState, now_ms: int, reason: str = "") -> Tombstone:
        record = self.record
        return Tombstone(
            record.broadcast_id, state, progress.tick, len(record.vchannels), progress.acked, record.digest,
            record.created_ms, now_ms, reason, record.tenant,
        )  # fmt: skip


class Forgotten(NamedTuple):
    """Finished broadcasts that are about to be forgotten.

    Attributes:
        broadcast_ids: Their ids.
        floors: What is to be written for them, by tenant; None for a floor that is to be removed.
        evicted: How many are forgotten before their time.
    """

    broadcast_ids: list[int]
    floors: dict[Tenant, int | None]
    evicted: int


class BroadcastTable:
    """All broadcasts that are not forgotten.

    Past MAX_TOMBSTONES the principal with the most finished ones loses its oldest: see ``Shares``.

    Invariant: an id is in ``open`` or among the tombstones or in neither, and an id that was forgotten is not above the
    floor of its tenant.

    Attributes:
        floors: The greatest id that was ever forgotten of each tenant.
        open_usage, vchannels_usage: How many open ones, and how many vchannels of these, each tenant has.
    """

    def __init__(self, floors: Mapping[Tenant, int] = MappingProxyType({})) -> None:
        self.floors = Floors(floors)
        self._open: dict[int, Task] = {}
        self._tombstones: Shares[int, Tombstone] = Shares()
        # Those that are forgotten once that is durable.
        self._leaving: dict[int, Tombstone] = {}
        self._by_channel: dict[str, dict[int, Task]] = {}
        self.open_usage = Usage()
        self.vchannels_usage = Usage()

    @property
    def open(self) -> Mapping[int, Task]:
        """Those that are not finished, by id."""
        return self._open

    @property
    def tombstones(self) -> Mapping[int, Tombstone]:
        """Those that are finished, by id."""
        return dict(self._tombstones.items()) | self._leaving

    @property
    def finished(self) -> int:
        """How many are finished."""
        return len(self._tombstones) + len(self._leaving)

    @property
    def has_excess(self) -> bool:
        """Whether there are more finished ones than are remembered."""
        return len(self._tombstones) > MAX_TOMBSTONES

    @property
    def open_vchannels(self) -> int:
        """How many vchannels all open ones are for together."""
        return self.vchannels_usage.total

    def add(self, task: Task) -> None:
        """Add an open one."""
        broadcast_id = task.record.broadcast_id
        assert broadcast_id not in self._open
        assert self.find(broadcast_id) is None
        self._open[broadcast_id] = task
        self._count(task, 1)
        for channel in task.channels:
            self._by_channel.setdefault(channel, {})[broadcast_id] = task

    def add_tombstone(self, tombstone: Tombstone) -> None:
        """Add a finished one."""
        assert tombstone.broadcast_id not in self._open
        self._tombstones.put(tombstone.broadcast_id, tombstone, bytes.fromhex(tombstone.tenant))

    def discard(self, task: Task) -> None:
        """Remove an open one, as if it had never been there."""
        broadcast_id = task.record.broadcast_id
        del self._open[broadcast_id]
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
        """Return a broadcast; None for one that is not known."""
        finished = self._tombstones.get(broadcast_id) or self._leaving.get(broadcast_id)
        return self._open.get(broadcast_id) or finished

    def of_channel(self, channel: str) -> list[Task]:
        """Return the open ones that are for a vchannel of ``channel``."""
        return list(self._by_channel.get(channel, {}).values())

    def apply(self, task: Task, durable: Progress | Tombstone) -> None:
        """Note that ``durable``, which was wanted of an open task, is so."""
        task.durable = durable
        if isinstance(durable, Tombstone):
            self.discard(task)
            self.add_tombstone(durable)

    def forget_some(self, now_ms: int, max_count: int) -> Forgotten:
        """Choose finished ones that are too many or too old, and raise the floors; ``forget`` them once it is durable.

        Ordering: the floors rise here, before anything is written, so that none is taken as new meanwhile.
        """
        evicted = self._tombstones.shrink(MAX_TOMBSTONES, max_count)
        chosen = [each.value for each in evicted] or self._old(now_ms, max_count)
        floors: dict[Tenant, int | None] = {}
        for tombstone in chosen:
            self._tombstones.pop(tombstone.broadcast_id)
            self._leaving[tombstone.broadcast_id] = tombstone
            floors |= self.floors.raise_to(bytes.fromhex(tombstone.tenant), tombstone.broadcast_id)
        return Forgotten([tombstone.broadcast_id for tombstone in chosen], floors, len(evicted))

    def _old(self, now_ms: int, max_count: int) -> list[Tombstone]:
        """Return finished ones that are too old, the smallest ids first."""
        old_ms = now_ms - MAX_TOMBSTONE_AGE_MS
        old = (each for _, each in self._tombstones.items() if each.finished_ms < old_ms)
        return sorted(old, key=lambda each: each.broadcast_id)[:max_count]

    def forget(self, broadcast_ids: Iterable[int]) -> None:
        """Forget what ``forget_some`` chose."""
        for broadcast_id in broadcast_ids:
            del self._leaving[broadcast_id]
