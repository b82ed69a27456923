"""Turns of following scans: as many as the event loop has time for.

A group of appends wakes every follower of its vchannel. A thousand followers at once would delay each step of each
append by a thousand steps. So they take turns: many while the event loop is on time, few while it is late, and
different readers alternate. A follower that waits longer delivers more at once.

A reader with many followers that wait is a crowd. Each of them costs the event loop as much as a reader that has only
one, so crowds use time that the event loop has left: their turns also become fewer while it is busy, return more
slowly, and fall lower. Beside appends it counts as busy at half of its time, because each append passes through it
several times and waits there for the turns before it, also on a loop with time left.

Calls that look at many things, such as lists, take turns too. They do not wait behind the followers of their caller: a
crowd may wait for seconds, and a call takes many turns, one after the other.
"""

import asyncio
from collections import OrderedDict, deque
from time import thread_time
from typing import Final, NamedTuple

from tidelog_server.core.limits import KIB

# Turns of all following scans per tick, about 0.2 ms each: the maximum while the event loop is on time, the minimum
# while it is late.
FOLLOW_TICK_S: Final = 0.002
FOLLOW_TURN_BYTES: Final = 16 * KIB
FOLLOW_TURN_ENTRIES: Final = 16
MAX_FOLLOW_TURNS_PER_TICK: Final = 8
MIN_FOLLOW_TURNS_PER_TICK: Final = 1
# Followers of one reader that wait for a turn. Above it, turns are granted at the pace of crowds.
FOLLOW_CROWD: Final = 16
MIN_CROWD_TURNS_PER_TICK: Final = 0.25

# The event loop counts as late when a timer is later than this.
_LATE_S: Final = 0.002
# The event loop counts as busy when its thread has used this share of the time. The first is that without appends, the
# second that beside many: a share of _MANY_APPENDS of the ticks has a commit, 125 commits a second. Averages over about
# 25 ticks.
_BUSY_SHARE: Final = 0.9
_BUSY_SHARE_BESIDE_APPENDS: Final = 0.5
_MANY_APPENDS: Final = 1 / 4
_BUSY_WEIGHT: Final = 1 / 25
# What a tick on time adds to the turns of the following ticks.
_STEP: Final = 1.0
_CROWD_STEP: Final = 1 / 32


class _Queue(NamedTuple):
    """What waits together: the followers of a reader, or its calls."""

    reader: str
    is_of_calls: bool


class _Pace:
    """The turns of a tick: additive increase while the event loop is on time, halved while it is late.

    Attributes:
        left: Turns left in this tick; negative after a large delivery, which is deducted from the next ticks.
    """

    def __init__(self, at_least: float, step: float) -> None:
        self._at_least = at_least
        self._step = step
        self._per_tick: float = MAX_FOLLOW_TURNS_PER_TICK
        self.left: float = self._per_tick

    def adapt(self, *, is_late: bool) -> None:
        """Set the number of turns of the next ticks."""
        if is_late:
            self._per_tick = max(self._at_least, self._per_tick / 2)
        else:
            self._per_tick = min(MAX_FOLLOW_TURNS_PER_TICK, self._per_tick + self._step)

    def refill(self) -> None:
        """Add the turns of a tick. Unused turns expire, but for one or a fraction of one."""
        self.left = min(self.left, 1.0) + self._per_tick


class FollowTurns:
    """Grants turns. Lives on the event loop.

    While turns are requested, a timer measures how late the event loop is, adapts the pace, and grants the turns of the
    next tick.
    """

    def __init__(self) -> None:
        self._pace = _Pace(MIN_FOLLOW_TURNS_PER_TICK, _STEP)
        self._crowds_pace = _Pace(MIN_CROWD_TURNS_PER_TICK, _CROWD_STEP)
        self._waiting: OrderedDict[_Queue, deque[asyncio.Future[None]]] = OrderedDict()
        self._due_s: float | None = None
        self._is_used = False
        self._busy_share = 0.0
        self._has_commits = False
        self._commits_share = 0.0
        self._used_s = self._seen_s = 0.0

    async def next(self, reader: str, *, is_call: bool = False) -> None:
        """Wait for a turn of ``reader``; ``is_call`` for one of its calls, which alternate with its followers."""
        self._is_used = True
        if self._due_s is None:
            self._refill()
            self._wait_for_tick(asyncio.get_running_loop())
        if self._pace.left >= 1 and not self._waiting:
            self._pace.left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(_Queue(reader, is_call), deque()).append(turn)
        await turn

    def charge(self, reader: str, size_bytes: int, entries: int) -> None:
        """Charge for the data that a turn delivers: a large delivery counts as several turns."""
        self._pace_of(_Queue(reader, is_of_calls=False)).left -= (
            size_bytes // FOLLOW_TURN_BYTES + entries // FOLLOW_TURN_ENTRIES
        )

    def note_commit(self) -> None:
        """Note that appends were committed: crowds leave them half of the event loop's time."""
        self._has_commits = True

    def _pace_of(self, queue: _Queue) -> _Pace:
        return self._crowds_pace if len(self._waiting.get(queue, ())) > FOLLOW_CROWD else self._pace

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._due_s is not None
        is_late = loop.time() - self._due_s > _LATE_S
        self._pace.adapt(is_late=is_late)
        self._crowds_pace.adapt(is_late=is_late or self._is_busy(loop.time(), thread_time()))
        self._refill()
        passed_over = 0
        while passed_over < len(self._waiting):
            passed_over = 0 if self._give_one() else passed_over + 1
        if not self._is_used and not self._waiting:
            self._due_s = None
            return
        self._is_used = False
        self._wait_for_tick(loop)

    def _is_busy(self, now_s: float, used_s: float) -> bool:
        share = (used_s - self._used_s) / max(now_s - self._seen_s, FOLLOW_TICK_S)
        self._busy_share += _BUSY_WEIGHT * (share - self._busy_share)
        self._commits_share += _BUSY_WEIGHT * (self._has_commits - self._commits_share)
        self._seen_s, self._used_s, self._has_commits = now_s, used_s, False
        kept_free = (_BUSY_SHARE - _BUSY_SHARE_BESIDE_APPENDS) * min(1.0, self._commits_share / _MANY_APPENDS)
        return self._busy_share > _BUSY_SHARE - kept_free

    def _refill(self) -> None:
        self._pace.refill()
        self._crowds_pace.refill()

    def _give_one(self) -> bool:
        """Grant a turn to the queue at the front, if its pace allows one, and move that queue to the end."""
        queue = next(iter(self._waiting))
        pace = self._pace_of(queue)
        self._waiting.move_to_end(queue)
        if pace.left < 1:
            return False
        turns = self._waiting[queue]
        turn = turns.popleft()
        if not turns:
            del self._waiting[queue]
        if not turn.done():
            pace.left -= 1
            turn.set_result(None)
        return True

    def _wait_for_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = loop.time() + FOLLOW_TICK_S
        loop.call_at(self._due_s, self._tick, loop)
