"""The end of a micro-batch: about the greatest tick below which there is no more than the limits allow. Pure.

The content of a range is found by the server's plans: sums from its sparse index, never messages. The cost of a plan
grows with the index of its range, so no requested range is much longer than a batch: the search starts with a step in
ticks, and doubles it until the limits are exceeded. The length of the log does not matter. A plan has the size of each
split, but not the distribution within it. So the end is found by plans with finer and finer splits, and the range
before it is planned once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog import Plan, Split
from tidelog.spark.ticks import time_to_tick

FIRST_STEP: Final = time_to_tick(1_000)
"""The first step, in ticks, of a query without history: one second."""
# The finest plan has splits of about 1/_GRAINS of the limits. The plan of a larger range has splits of 1/_GRAINS of
# each vchannel's part, so that there are never many more than _GRAINS splits per vchannel.
_GRAINS: Final = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum size of a micro-batch; 0 for unlimited.

    Attributes:
        messages: Maximum number of messages.
        size_bytes: Maximum bytes of columns.
    """

    messages: int = 0
    size_bytes: int = 0

    @property
    def is_unlimited(self) -> bool:
        """True if neither limit is set."""
        return not (self.messages or self.size_bytes)

    def allow(self, splits: Sequence[Split]) -> bool:
        """Return whether a batch may have all ``splits``."""
        return self.allow_sums(*_sums(splits))

    def allow_sums(self, messages: int, size_bytes: int) -> bool:
        """Return whether a batch may have ``messages`` and ``size_bytes``."""
        return not (0 < self.messages < messages or 0 < self.size_bytes < size_bytes)

    def grain(self, splits: Sequence[Split] = ()) -> "Limits":
        """Return 1/_GRAINS of the limits, or of each vchannel's average part of ``splits`` if that is more."""
        shares = _GRAINS * max(1, len({split.vchannel for split in splits}))
        messages, size_bytes = _sums(splits)
        return Limits(
            max(-(-self.messages // _GRAINS), messages // shares) if self.messages else 0,
            max(-(-self.size_bytes // _GRAINS), size_bytes // shares) if self.size_bytes else 0,
        )

    def or_less(self, other: "Limits") -> "Limits":
        """Return the smaller value of each limit."""
        return Limits(min(self.messages, other.messages), min(self.size_bytes, other.size_bytes))


COARSE: Final = Limits()
"""Splits of the server's default size."""
# Each message is its own split.
_EXACT: Final = Limits(1, 1)


class Ask(Protocol):
    """Plans the batch up to a tick, exclusive.

    The plan ends at that tick, or at the first tick of the transaction that spans it. A split has about ``grain`` or
    less.
    """

    def __call__(self, end_tick: int, grain: Limits) -> Plan:
        """Return the plan."""


def admit(ask: Ask, low: int, cut: int, limits: Limits, step: int = FIRST_STEP) -> int:
    """Return the exclusive end of a batch: not within a transaction, and at most ``cut``.

    The batch is empty only if there is nothing before ``cut``.

    Args:
        ask: Plans the batch.
        low: Smallest tick of the batch, as far as known.
        cut: A tick above ``low``, and not within a transaction.
        limits: Approximate maximum size of the batch; it always has at least one message, broadcast or transaction.
        step: Size of the first range to plan, in ticks, at least 1; usually the size of the last batch.
    """
    if limits.is_unlimited:
        return cut
    fits = low
    while True:
        far, splits = _doubled(ask, fits, cut, limits, step)
        reach, plan, grain = _divided(ask, far, splits, limits, low + 1)
        if not limits.allow(plan.splits):
            break
        if reach == cut:
            return cut
        if reach <= fits:
            # The sums of the rest are too large for any division: this batch is a little smaller than allowed.
            break
        # The coarse sums were too large, because the messages of a chunk are far apart.
        fits, step = reach, 2 * max(step, reach - fits)
    end = furthest(plan.splits, limits, low, int(plan.end_tick))
    admitted = ask(end, grain)
    while not limits.allow(admitted.splits):
        # The part of a cut split had more messages than its proportion of ticks.
        end = furthest(admitted.splits, limits, low, int(admitted.end_tick))
        admitted = ask(end, grain)
    if admitted.splits:
        return int(admitted.end_tick)
    # Not even the first message or transaction fits: the batch has only that.
    if plan.splits:
        return _first(ask, low, plan, limits)
    return _first(ask, low, ask(far, COARSE), limits)


def _doubled(ask: Ask, fits: int, cut: int, limits: Limits, step: int) -> tuple[int, Sequence[Split]]:
    """Return a tick above ``fits`` at which the limits may be exceeded, or ``cut``; and a coarse plan up to it."""
    while True:
        reach = min(cut, fits + step)
        splits = ask(reach, COARSE).splits
        if reach == cut or not limits.allow(splits):
            return reach, splits
        fits, step = reach, 2 * step


def _divided(ask: Ask, reach: int, splits: Sequence[Split], limits: Limits, least: int) -> tuple[int, Plan, Limits]:
    """Return a tick at which the limits are barely exceeded, a plan up to it, and its grain.

    If the plan fits, the tick is ``reach``. The grain is the finest, unless the range cannot become small enough for
    it: because of the part below ``least``, or because a batch of the log exceeds a grain and is not divided.
    """
    grain = limits.grain(splits)
    while True:
        plan = ask(reach, grain)
        past = _past(plan.splits, limits)
        shorter = reach if past is None else min(reach, max(past, least))
        # Terminates, because both only shrink.
        finer = limits.grain([split for split in plan.splits if split.begin_tick < shorter]).or_less(grain)
        if grain == limits.grain() or (shorter, finer) == (reach, grain):
            return reach, plan, grain
        reach, grain = shorter, finer


def _past(splits: Sequence[Split], limits: Limits) -> int | None:
    """Return the end of the first split that exceeds the limits; None if all splits fit."""
    messages = size_bytes = 0
    for split in sorted(splits, key=lambda split: split.end_tick):
        messages += split.estimated_messages
        size_bytes += split.estimated_bytes
        if not limits.allow_sums(messages, size_bytes):
            return int(split.end_tick)
    return None


def _first(ask: Ask, low: int, plan: Plan, limits: Limits) -> int:
    """Return an end above ``low`` and not within a transaction, with at least one message before it.

    A part of a split counts as at least one message: with more vchannels than a batch may have messages, every tick
    seems to exceed the limits. So this plans with one message per split.
    """
    ends = [int(split.end_tick) for split in plan.splits if low < split.end_tick < plan.end_tick]
    exact = ask(min(ends, default=int(plan.end_tick)), _EXACT)
    stops = sorted(int(split.end_tick) for split in exact.splits)
    end = low
    if stops:
        fits = furthest(exact.splits, limits, low, int(exact.end_tick))
        end = max((stop for stop in stops if stop <= fits), default=stops[0])
        before = ask(end, _EXACT)
        if before.splits:
            return int(before.end_tick)
    # The first messages belong to a transaction, which is never divided.
    return _least(ask, _EXACT, end, int(plan.end_tick))


def _least(ask: Ask, grain: Limits, low: int, end: int) -> int:
    """Return the smallest end above ``low`` and not within a transaction with a message before it; at most ``end``."""
    while end - low > 1:
        middle = (low + end) // 2
        found = ask(middle, grain)
        if found.splits:
            end = int(found.end_tick)
        else:
            low = middle
    return end


def furthest(splits: Sequence[Split], limits: Limits, low: int, high: int) -> int:
    """Return the greatest tick from ``low`` to ``high`` below which ``splits`` are within the limits.

    A split that is cut counts in proportion to its ticks, rounded up, as in the server.
    """
    if _below(splits, limits, high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if _below(splits, limits, middle):
            low = middle
        else:
            high = middle
    return low


def _below(splits: Sequence[Split], limits: Limits, end_tick: int) -> bool:
    """Return whether the parts of ``splits`` below ``end_tick`` are within the limits."""
    messages = size_bytes = 0
    for split in splits:
        part = min(split.end_tick, end_tick) - split.begin_tick
        if part > 0:
            whole = split.end_tick - split.begin_tick
            messages += -(-split.estimated_messages * part // whole)
            size_bytes += -(-split.estimated_bytes * part // whole)
    return limits.allow_sums(messages, size_bytes)


def _sums(splits: Sequence[Split]) -> tuple[int, int]:
    return sum(split.estimated_messages for split in splits), sum(split.estimated_bytes for split in splits)
