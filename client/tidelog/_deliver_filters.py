"""Deliver filters as values, and what they mean together. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self

from tidelog._scan_plan import ScanOptions
from tidelog._tick import MAX_TICK

_MAX_TYPE: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class DeliverFilter:
    """Says which messages a reader gets. Make one with the class methods below; of several, all must pass.

    A filter on ticks looks at each message, as a start does: it may cut a transaction. One on types does so too.
    """

    kind: Literal["tick_gt", "tick_gte", "message_types"]
    value: int | frozenset[int]
    hides_broadcasts: bool = False

    @classmethod
    def tick_gt(cls, tick: int) -> Self:
        """Return the filter that passes messages with a greater tick. Raises ValueError if it is no tick."""
        return cls("tick_gt", _checked("tick", tick, MAX_TICK))

    @classmethod
    def tick_gte(cls, tick: int) -> Self:
        """Return the filter that passes messages with this tick or a greater one. Raises ValueError as ``tick_gt``."""
        return cls("tick_gte", _checked("tick", tick, MAX_TICK))

    @classmethod
    def message_types(cls, *types: int, hides_broadcasts: bool = False) -> Self:
        """Return the filter that passes messages of these types, and broadcasts of any type unless it hides them.

        Raises:
            ValueError: There are no types, or one is none.
        """
        if not types:
            raise ValueError("there are no types, so no message could pass: leave the filter out for all types")
        return cls("message_types", frozenset(_checked("type", each, _MAX_TYPE) for each in types), hides_broadcasts)


def filter_options(filters: Iterable[DeliverFilter]) -> ScanOptions:
    """Return the options of a scan that passes what all of ``filters`` pass.

    Raises:
        TypeError: One is none.
        ValueError: Filters on types have no type in common, or differ in whether they hide broadcasts.
    """
    options = ScanOptions()
    for each in filters:
        if not isinstance(each, DeliverFilter):
            raise TypeError(f"a filter is DeliverFilter.tick_gt(...) and its like, not {type(each).__name__}")
        _add(options, each)
    return options


def _add(options: ScanOptions, each: DeliverFilter) -> None:
    match each.kind, each.value:
        case "tick_gt", int(tick):
            options["tick_gt"] = max(tick, options.get("tick_gt") or 0)
        case "tick_gte", int(tick):
            options["tick_gte"] = max(tick, options.get("tick_gte") or 0)
        case "message_types", frozenset(types):
            earlier = options.get("types")
            if earlier is not None and options.get("hides_broadcasts") != each.hides_broadcasts:
                raise ValueError("filters on types differ in hides_broadcasts: give all of them the same")
            common = types if earlier is None else types.intersection(earlier)
            if not common:
                raise ValueError("filters on types have no type in common, so no message could pass")
            options["types"], options["hides_broadcasts"] = common, each.hides_broadcasts
        case _:
            raise ValueError(f"{each!r} is no filter: make one with the class methods of DeliverFilter")


def _checked(what: str, number: int, greatest: int) -> int:
    if not 0 <= number <= greatest:
        raise ValueError(f"the {what} {number} is out of range: expected 0 to {greatest}")
    return number
