"""The driver of retention: checks channels, plans cuts with ``retention_plan``, and trims.

A channel is due when it may have something to delete: when its size, by its tails, exceeds a bound, or when its oldest
chunk, as of the last check, has become too old. So a check of all channels reads only their tails, on a reader thread;
chunks are read only where something is due.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import structlog

from tidelog_server.channels.append_times import AppendTimes
from tidelog_server.channels.catalog import Catalog, ChannelRecord
from tidelog_server.channels.retention_plan import TrimCut, VchannelView, bytes_over, plan_cuts
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.limits import CHUNK_BYTES
from tidelog_server.core.retention import KEEP_FOR_EVER, GroupCut, Retention
from tidelog_server.core.ticks import NO_TICK, Tick, physical_ms
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.log_store import VchannelTail

# Channels ahead of the wall clock that a line of the log or the metric names.
MAX_AHEAD_CHANNELS: Final = 100

DEFAULT_CHECK_INTERVAL_MS: Final = 10_000
# Between two full checks, a check follows appends: at most this often, and after this number of bytes.
_MAX_PAUSE_S: Final = 0.1
_CHECK_AFTER_BYTES: Final = 2 * CHUNK_BYTES
# A channel beyond a bound is checked again once it has grown by 1/32, because a check reads chunks.
_GROWTH_SHARE: Final = 32
# Finding due channels takes at most 1/20 of the time.
_BUSY_SHARE: Final = 20
# Vchannels that are trimmed in one write, for which appends wait.
_TRIMS_AT_ONCE: Final = 64
# Ticks of other nodes and bursts of appends may lie ahead of the wall clock by less.
_AHEAD_MS: Final = 5_000
_log = structlog.get_logger()
_T = TypeVar("_T")

PinnedTick = Callable[[str], tuple[int, str] | None]
"""Returns the smallest next tick of the groups on a vchannel, given by name, and that group; None without groups."""


@dataclass(slots=True, eq=False)
class _Watched:
    """A channel with retention settings.

    Attributes:
        vchannels: The vchannels of ``log`` when its watch began; another watch begins when some are added.
        checked_bytes: Size after the last check, in bytes.
        not_before_ms: Time before which no message is too old, in milliseconds since the epoch.
    """

    log: ChannelLog
    retention: Retention
    vchannels: Sequence[VchannelLog]
    checked_bytes: int = 0
    not_before_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The result of a check. ``bytes_left`` and ``not_before_ms`` update _Watched."""

    cuts: Sequence[TrimCut]
    bytes_left: int
    not_before_ms: int


class _Planned(NamedTuple):
    """A cut of one vchannel of a channel."""

    watched: _Watched
    cut: TrimCut

    @property
    def vchannel(self) -> VchannelLog:
        """The vchannel."""
        return self.watched.vchannels[self.cut.index]


class Retainer:
    """Keeps channels within their bounds. Lives on the event loop; ``run`` is its task.

    Invariant: messages that a group has not committed are deleted only by a hard cap, and only after that loss is
    persisted in the channel's record.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, readers: Executor, changes: asyncio.Lock) -> None:
        """``changes`` serialises changes of the catalog; it is held for one write of trims at a time."""
        self._node = node
        self._tasks = tasks
        self._readers = readers
        self._changes = changes
        self._watched: dict[str, _Watched] = {}
        self._catalog: Catalog
        self._pinned_tick: PinnedTick
        self._on_trimmed: Callable[[], None]
        self._checked_at_bytes = 0
        self._times = AppendTimes()
        self._ahead: set[str] = set()

    def open(self, catalog: Catalog, pinned_tick: PinnedTick, on_trimmed: Callable[[], None]) -> None:
        """Set the catalog, the source of pinned ticks, and the callback for disk space that can be reclaimed."""
        self._catalog = catalog
        self._pinned_tick = pinned_tick
        self._on_trimmed = on_trimmed

    def watch(self, record: ChannelRecord, log: ChannelLog) -> None:
        """Keep a channel within the bounds of its record from now on; call again after they changed."""
        self._watched.pop(record.name, None)
        if record.retention != KEEP_FOR_EVER:
            self._watched[record.name] = _Watched(log, record.retention, tuple(log.vchannels))

    def forget(self, name: str) -> None:
        """Stop retention of a channel."""
        self._watched.pop(name, None)

    async def run(self, check_interval_s: float) -> None:
        """Check all channels every ``check_interval_s``, and growing ones in between. Never returns."""
        clock = self._node.shared.clock
        pause_s = min(check_interval_s, _MAX_PAUSE_S)
        next_full_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            begin_s = clock.monotonic_s()
            is_full = next_full_s <= begin_s
            grown_bytes = self._node.admission.submitted_bytes - self._checked_at_bytes
            if not self._watched or not (is_full or _CHECK_AFTER_BYTES <= grown_bytes):
                if self._ahead and not self._watched:
                    self._tell_ahead({})
                continue
            self._checked_at_bytes += grown_bytes
            if is_full:
                next_full_s = begin_s + check_interval_s
                self._times.note(clock.wall_ms(), self._node.shared.oracle.last)
            try:
                if is_full:
                    self._tell_ahead(await self._on_reader(self._find_ahead, list(self._watched.values())))
                due = await self._on_reader(self._due, list(self._watched.values()), is_full)
            except StorageUnreadableError as error:
                _log.warning("retention_postponed", problem=error.message)
                continue
            pause_s = max(min(check_interval_s, _MAX_PAUSE_S), _BUSY_SHARE * (clock.monotonic_s() - begin_s))
            planned: list[_Planned] = []
            for watched in due:
                with self._met(watched):
                    planned += [_Planned(watched, cut) for cut in await self._check(watched)]
            while planned:
                await self._trim_together(planned[:_TRIMS_AT_ONCE])
                del planned[:_TRIMS_AT_ONCE]

    @contextmanager
    def _met(self, watched: _Watched) -> Iterator[None]:
        """Log what the check or the trim of a channel meets; retention of other channels continues."""
        try:
            yield
        except DataLossError as error:
            # Damaged data must not be trimmed: stop retention of this channel until the next start, which will refuse
            # the store.
            self.forget(watched.log.name)
            _log.error("retention_met_damage", channel=watched.log.name, problem=error.message, **error.values)
        except StorageUnreadableError as error:
            _log.warning("retention_postponed", channel=watched.log.name, problem=error.message)

    def _tell_ahead(self, found: Mapping[str, float]) -> None:
        """Export the channels whose messages lie ahead of the wall clock, and log those that are new."""
        self._node.metrics.retention_ahead_seconds.replace(sorted(found.items())[:MAX_AHEAD_CHANNELS])
        new = sorted(found.keys() - self._ahead)
        self._ahead = set(found)
        if new:
            _log.warning(
                "retention_ticks_ahead", channels=new[:MAX_AHEAD_CHANNELS], count=len(new),
                ahead_s=round(max(found.values())),
                advice="the clock ran ahead; the age of these messages counts from when it was set back, or from the "
                "start of the server: messages appended before that go later than retention.age_ms states",
            )  # fmt: skip

    async def _check(self, watched: _Watched) -> Sequence[TrimCut]:
        """Return what to delete of a channel; its losses are persisted."""
        pinned = [self._pinned_tick(vchannel.name) for vchannel in watched.vchannels]
        if self._watched.get(watched.log.name) is not watched:
            return ()
        cuts = dict(self._catalog.own[watched.log.name].cuts)
        try:
            verdict = await self._on_reader(self._judge, watched, pinned, cuts)
        except KeyError:
            # The channel was destroyed during the check.
            assert watched.log.is_closed
            return ()
        watched.checked_bytes, watched.not_before_ms = verdict.bytes_left, verdict.not_before_ms
        # Ordering: losses are persisted before anything is deleted, so that no crash hides a loss.
        if not verdict.cuts or not await self._tasks.finish(self._persist_losses(watched, verdict.cuts, pinned)):
            return ()
        return verdict.cuts

    async def _persist_losses(
        self, watched: _Watched, cuts: Sequence[TrimCut], pinned: Sequence[tuple[int, str] | None]
    ) -> bool:
        """Persist what will be cut past groups; return False if the channel was destroyed or altered meanwhile."""
        name = watched.log.name
        async with self._changes:
            if self._watched.get(name) is not watched:
                return False
            before = dict(self._catalog.own[name].cuts)
            losses: dict[int, GroupCut] = {}
            for cut in cuts:
                pin = pinned[cut.index]
                if not cut.lost_messages or pin is None:
                    continue
                losses[cut.index] = before.get(cut.index, GroupCut()).and_then(
                    messages=cut.lost_messages, size_bytes=cut.lost_bytes, until_tick=cut.tick, group=pin[1]
                )
                _log.warning(
                    "retention_cut_past_group", vchannel=watched.vchannels[cut.index].name, group=pin[1],
                    group_next_tick=pin[0], until_tick=cut.tick, messages=cut.lost_messages, bytes=cut.lost_bytes,
                    hard_bytes=watched.retention.hard_bytes,
                )  # fmt: skip
                self._node.metrics.retention_lost_messages.inc(cut.lost_messages)
                self._node.metrics.retention_lost_bytes.inc(cut.lost_bytes)
            if losses:
                await self._catalog.add_cuts(name, losses)
            return True

    async def _trim_together(self, planned: Sequence[_Planned]) -> None:
        """Trim in one write; if one of the channels is damaged, each channel in its own."""
        channels = list(dict.fromkeys(each.watched for each in planned))
        if len(channels) == 1:
            with self._met(channels[0]):
                await self._tasks.finish(self._trim(planned))
        else:
            try:
                await self._tasks.finish(self._trim(planned))
            except (DataLossError, StorageUnreadableError):
                for watched in channels:
                    await self._trim_together([each for each in planned if each.watched is watched])
        self._on_trimmed()

    async def _trim(self, planned: Sequence[_Planned]) -> None:
        node = self._node
        async with self._changes:
            ticks = {each.vchannel: tick for each in planned if (tick := self._tick_of(each)) is not None}
            if not ticks:
                return
            before: dict[VchannelLog, VchannelTail] = {}
            for vchannel, tick in ticks.items():
                # Ordering: set the trim tick before submitting the trim, so that groups that subscribe or seek from
                # here on are refused positions that are about to be deleted.
                vchannel.trim_tick = max(vchannel.trim_tick, tick)
                before[vchannel] = node.store.tail(vchannel.vchannel_id)
            before_ticks = {vchannel.vchannel_id: tick for vchannel, tick in ticks.items()}
            tails = await node.committer.run(lambda: node.store.trim_all(before_ticks))
            for vchannel in ticks:
                tail = tails[vchannel.vchannel_id]
                assert before[vchannel].trim_tick <= tail.trim_tick
                vchannel.trim_tick = tail.trim_tick
        for vchannel, earlier in before.items():
            tail = tails[vchannel.vchannel_id]
            node.metrics.retention_messages.inc(tail.trimmed_messages - earlier.trimmed_messages)
            node.metrics.retention_bytes.inc(tail.trimmed_bytes - earlier.trimmed_bytes)
            _log.debug("retention_trimmed", vchannel=vchannel.name, trim_tick=tail.trim_tick)

    def _tick_of(self, planned: _Planned) -> Tick | None:
        """Return up to which tick to trim a vchannel now; None if there is nothing to trim."""
        watched, cut = planned
        if self._watched.get(watched.log.name) is not watched:
            return None  # Destroyed or altered since: the decision is based on outdated settings.
        vchannel = planned.vchannel
        tick = min(cut.tick, vchannel.durable_tick + 1)
        if not cut.is_past_pin and (pin := self._pinned_tick(vchannel.name)) is not None:
            tick = min(tick, pin[0])
        # As of the store: a trim that failed has raised that of the vchannel.
        return Tick(tick) if self._node.store.tail(vchannel.vchannel_id).trim_tick < tick else None

    # -- On a reader's thread ------------------------------------------------------------------------------

    def _find_ahead(self, candidates: Sequence[_Watched]) -> dict[str, float]:
        """Return the channels with retention by age whose newest message lies ahead of the wall clock, by how much."""
        now_ms = self._node.shared.clock.wall_ms()
        ahead: dict[str, float] = {}
        for watched in candidates:
            if watched.retention.age_ms:
                newest = max(
                    (each.durable_tick for each in watched.vchannels if each.trim_tick <= each.durable_tick),
                    default=NO_TICK,
                )
                if (ahead_ms := physical_ms(newest) - now_ms) >= _AHEAD_MS:
                    ahead[watched.log.name] = ahead_ms / 1_000
        return ahead

    def _due(self, candidates: Sequence[_Watched], is_full: bool) -> list[_Watched]:
        """Return the channels that may have something to delete."""
        now_ms = self._node.shared.clock.wall_ms()
        return [watched for watched in candidates if self._is_due(watched, now_ms, is_full=is_full)]

    def _is_due(self, watched: _Watched, now_ms: int, *, is_full: bool) -> bool:
        store, retention = self._node.store, watched.retention
        try:
            tails = [store.tail(vchannel.vchannel_id) for vchannel in watched.vchannels]
        except KeyError:
            return False  # It is being destroyed.
        bytes_left = sum(tail.columns_bytes - tail.trimmed_bytes for tail in tails)
        if is_full and bytes_left and retention.age_ms:
            # A time beyond ``age_ms`` was computed before the clock was set back.
            left_ms = watched.not_before_ms - now_ms
            if left_ms <= 0 or retention.age_ms < left_ms:
                return True
        if not bytes_over(retention, bytes_left):
            return False
        grown_bytes = bytes_left - watched.checked_bytes
        return is_full or max(CHUNK_BYTES, bytes_left // _GROWTH_SHARE) <= grown_bytes

    def _judge(
        self, watched: _Watched, pinned: Sequence[tuple[int, str] | None], cuts: Mapping[int, GroupCut]
    ) -> _Verdict:
        """Read chunks, and decide what to delete. Raises KeyError if the channel was destroyed meanwhile."""
        store, retention = self._node.store, watched.retention
        now_ms = self._node.shared.clock.wall_ms()
        expired_tick = self._times.expired_tick(now_ms - retention.age_ms) if retention.age_ms else NO_TICK
        # Ordering: tails before chunks, see VchannelView.
        tails = [store.tail(vchannel.vchannel_id) for vchannel in watched.vchannels]
        bytes_left = sum(tail.columns_bytes - tail.trimmed_bytes for tail in tails)
        over_bytes = bytes_over(retention, bytes_left)
        views = [
            VchannelView(
                tail,
                store.oldest_chunks(vchannel.vchannel_id, expired_tick, over_bytes),
                pin and pin[0],
                cuts[index].until_tick if index in cuts else NO_TICK,
            )
            for index, (vchannel, tail, pin) in enumerate(zip(watched.vchannels, tails, pinned, strict=True))
        ]
        planned = plan_cuts(retention, views, expired_tick)
        oldest_ms = min(
            (self._times.appended_ms(tick, now_ms) for tick in _oldest_left(views, planned)), default=now_ms
        )
        return _Verdict(planned, bytes_left - sum(cut.bytes for cut in planned), oldest_ms + retention.age_ms)

    async def _on_reader(self, call: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, call, *arguments)


def _oldest_left(views: Sequence[VchannelView], planned: Sequence[TrimCut]) -> list[int]:
    """Return the last tick of the oldest remaining chunk of each vchannel that has one."""
    cut_ticks = {cut.index: cut.tick for cut in planned}
    left_from = [max(view.tail.trim_tick, cut_ticks.get(index, NO_TICK)) for index, view in enumerate(views)]
    oldest = [
        next((chunk.last_tick for chunk in view.chunks if tick <= chunk.last_tick), None)
        for view, tick in zip(views, left_from, strict=True)
    ]
    return [tick for tick in oldest if tick is not None]
