"""Options of a read: deliver filters as values, and their combination. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypedDict

from tidelog.read.positions import End
from tidelog.read.reader_events import OnEvent
from tidelog.read.scan_plan import ScanOptions
from tidelog.tick import MAX_TICK

_MAX_TYPE: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class DeliverFilter:
    """A condition on the messages that a reader receives. Create one with the class methods below.

    A message must satisfy all filters of a reader. Filters apply to single messages, as a start does: they may deliver
    part of a transaction.
    """

    kind: Literal["tick_gt", "tick_gte", "message_types"]
    value: int | frozenset[int]
    hides_broadcasts: bool = False

    @classmethod
    def tick_gt(cls, tick: int) -> Self:
        """Pass messages whose tick is greater than ``tick``. Raises ValueError outside 0 … 2**63 - 1."""
        return cls("tick_gt", _checked("tick", tick, MAX_TICK))

    @classmethod
    def tick_gte(cls, tick: int) -> Self:
        """Pass messages whose tick is at least ``tick``. Raises ValueError as ``tick_gt``."""
        return cls("tick_gte", _checked("tick", tick, MAX_TICK))

    @classmethod
    def message_types(cls, *types: int, hides_broadcasts: bool = False) -> Self:
        """Pass messages of these types, and broadcasts of any type unless ``hides_broadcasts``.

        Raises:
            ValueError: There are no types, or a type is not in 0 … 2**32 - 1.
        """
        if not types:
            raise ValueError("a filter without types passes no message: name at least one type, or omit the filter")
        return cls("message_types", frozenset(_checked("type", each, _MAX_TYPE) for each in types), hides_broadcasts)


class ReadOptions(TypedDict, total=False):
    """Options of ``AsyncWal.read``, where they are documented."""

    deliver_filters: Iterable[DeliverFilter]
    until: End
    on_event: OnEvent | None


def filter_options(filters: Iterable[DeliverFilter]) -> ScanOptions:
    """Return the scan options that combine ``filters``: a message must pass all of them.

    Raises:
        TypeError: An item is not a DeliverFilter.
        ValueError: Filters on types have no type in common, or differ in ``hides_broadcasts``.
    """
    options = ScanOptions()
    for each in filters:
        if not isinstance(each, DeliverFilter):
            raise TypeError(f"a filter has type {type(each).__name__}, expected DeliverFilter.tick_gt(...) or similar")
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
                raise ValueError("filters on types differ in hides_broadcasts: set the same value in all of them")
            common = types if earlier is None else types.intersection(earlier)
            if not common:
                raise ValueError("filters on types have no type in common, so no message could pass")
            options["types"], options["hides_broadcasts"] = common, each.hides_broadcasts
        case _:
            raise ValueError(f"{each!r} is not a valid filter: create one with the class methods of DeliverFilter")


def _checked(what: str, number: int, greatest: int) -> int:
    if not 0 <= number <= greatest:
        raise ValueError(f"the {what} {number} is out of range: expected 0 to {greatest}")
    return number
