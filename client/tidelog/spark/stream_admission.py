"""How far a micro-batch may go: the greatest tick below which there is about as much as the limits allow. Pure.

What lies in a range is asked of the server, by plans: sums from its sparse index, never messages. A plan costs what the
index of its range costs, so no range that is asked for is much longer than a batch: the search starts with a step in
ticks and doubles it until there is too much. How long the log is behind that does not matter. A plan counts what lies
in it, but of each split it says only how much it has, not where: so the end is chosen by plans that are divided more
and more finely, and what lies before it is asked for once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog import Plan, Split
from tidelog.spark.ticks import time_to_tick

FIRST_STEP: Final = time_to_tick(1_000)
"""How many ticks are looked at first by a query that has no experience: a second."""
# A split of the finest plan holds about so small a part of what the limits allow; one of a plan of more, of what a
# vchannel has of that, so that there are never many more splits than so many for each vchannel.
_GRAINS: Final = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a micro-batch; 0 for none.

    Attributes:
        messages: How many.
        size_bytes: Of columns.
    """

    messages: int = 0
    size_bytes: int = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is none."""
        return not (self.messages or self.size_bytes)

    def allow(self, splits: Sequence[Split]) -> bool:
        """Tell whether a batch may have all splits."""
        return self.allow_sums(*_sums(splits))

    def allow_sums(self, messages: int, size_bytes: int) -> bool:
        """Tell whether a batch may have so much."""
        return not (0 < self.messages < messages or 0 < self.size_bytes < size_bytes)

    def grain(self, splits: Sequence[Split] = ()) -> "Limits":
        """Return a small part of the limits, or of what each vchannel has of ``splits`` if that is more."""
        shares = _GRAINS * max(1, len({split.vchannel for split in splits}))
        messages, size_bytes = _sums(splits)
        return Limits(
            max(-(-self.messages // _GRAINS), messages // shares) if self.messages else 0,
            max(-(-self.size_bytes // _GRAINS), size_bytes // shares) if self.size_bytes else 0,
        )

    def or_less(self, other: "Limits") -> "Limits":
        """Return the smaller of each."""
        return Limits(min(self.messages, other.messages), min(self.size_bytes, other.size_bytes))


COARSE: Final = Limits()
"""Splits as large as the server makes them."""
# Each message is a split of its own.
_EXACT: Final = Limits(1, 1)


class Ask(Protocol):
    """Plans what the batch would read up to a tick, exclusive.

    The end of the plan is that tick, or the first one of the transaction that it lies within; a split holds no more
    than ``grain``, about.
    """

    def __call__(self, end_tick: int, grain: Limits) -> Plan:
        """Return the plan."""


def admit(ask: Ask, low: int, cut: int, limits: Limits, step: int = FIRST_STEP) -> int:
    """Return where a batch ends, exclusive: within no transaction, and ``cut`` at most.

    Something lies before the end unless nothing does before ``cut``.

    Args:
        ask: Plans what the batch would read.
        low: Nothing of that has a smaller tick, as far as is known.
        cut: A tick that lies in no transaction, and above ``low``.
        limits: What the batch may hold, about; one message, one broadcast or one transaction it holds in any case.
        step: How many ticks to look at first, 1 or more; a batch usually has about so many.
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
            # The sums of the rest stay too large, however it is divided: this batch is a little smaller.
            break
        # The coarse sums were too large, as they are where the messages of a chunk are far apart.
        fits, step = reach, 2 * max(step, reach - fits)
    end = furthest(plan.splits, limits, low, int(plan.end_tick))
    admitted = ask(end, grain)
    while not limits.allow(admitted.splits):
        # The splits that were cut had more than their share there.
        end = furthest(admitted.splits, limits, low, int(admitted.end_tick))
        admitted = ask(end, grain)
    if admitted.splits:
        return int(admitted.end_tick)
    # Not even the first message fits, or the first transaction: that alone is taken.
    if plan.splits:
        return _first(ask, low, plan, limits)
    return _first(ask, low, ask(far, COARSE), limits)


def _doubled(ask: Ask, fits: int, cut: int, limits: Limits, step: int) -> tuple[int, Sequence[Split]]:
    """Return a tick above ``fits`` up to which there may be more than fits, or ``cut``; and a coarse plan up to it."""
    while True:
        reach = min(cut, fits + step)
        splits = ask(reach, COARSE).splits
        if reach == cut or not limits.allow(splits):
            return reach, splits
        fits, step = reach, 2 * step


def _divided(ask: Ask, reach: int, splits: Sequence[Split], limits: Limits, least: int) -> tuple[int, Plan, Limits]:
    """Return a tick up to which there is not much more than fits, a plan up to it, and its grain.

    If the plan fits, the tick is ``reach``. The grain is the finest, unless the range cannot become small enough for
    it: because of what lies below ``least``, or because batches have more bytes than a grain and are not divided there.
    """
    grain = limits.grain(splits)
    while True:
        plan = ask(reach, grain)
        past = _past(plan.splits, limits)
        shorter = reach if past is None else min(reach, max(past, least))
        # Both only shrink, so this comes to an end.
        finer = limits.grain([split for split in plan.splits if split.begin_tick < shorter]).or_less(grain)
        if grain == limits.grain() or (shorter, finer) == (reach, grain):
            return reach, plan, grain
        reach, grain = shorter, finer


def _past(splits: Sequence[Split], limits: Limits) -> int | None:
    """Return the end of the split with which there is more than fits; None if all fits."""
    messages = size_bytes = 0
    for split in sorted(splits, key=lambda split: split.end_tick):
        messages += split.estimated_messages
        size_bytes += split.estimated_bytes
        if not limits.allow_sums(messages, size_bytes):
            return int(split.end_tick)
    return None


def _first(ask: Ask, low: int, plan: Plan, limits: Limits) -> int:
    """Return an end above ``low`` and in no transaction, with something before it.

    A part of a split counts as one message at least: with more vchannels than a batch may have messages, each tick
    seems to be too much. So messages are looked at one by one here.
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
    # A transaction comes first, which is taken as a whole.
    return _least(ask, _EXACT, end, int(plan.end_tick))


def _least(ask: Ask, grain: Limits, low: int, end: int) -> int:
    """Return the least end above ``low`` and in no transaction before which there is something, as before ``end``."""
    while end - low > 1:
        middle = (low + end) // 2
        found = ask(middle, grain)
        if found.splits:
            end = int(found.end_tick)
        else:
            low = middle
    return end


def furthest(splits: Sequence[Split], limits: Limits, low: int, high: int) -> int:
    """Return the greatest tick from ``low`` to ``high`` below which ``splits`` hold no more than the limits.

    As the server does, of a split that is cut it counts the share of its ticks, rounded up.
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
    """Tell whether the limits allow what lies below ``end_tick``."""
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
