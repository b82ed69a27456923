"""The options ``startingOffsets`` and ``endingOffsets``: a position for each vchannel, as in Spark's Kafka connector.

============================  ==========================================================================
``startingOffsets``           where the read starts: ``earliest``: at the first message that was not trimmed; or a JSON
                              object with the first tick of each vchannel, ``{"orders": {"0": 468, "1": -2}}``. Streams
                              also accept ``latest`` (their default), and -1 for it
``endingOffsets``             where a batch ends: ``latest`` (default): at a cut that is taken when the query is
                              planned; or a JSON object with the tick before which each vchannel ends
============================  ==========================================================================

A position is a tick; in JSON -2 means ``earliest`` and -1 ``latest``. The object has each vchannel that is read. With
``channelPattern`` some may be missing: a start is then ``earliest``, and an end ``latest``. An end by vchannel is not a
cut: a transaction that spans it is read in part.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import known_options, only_one
from tidelog.spark.options import ALL_NAMES, CUTS, ENDS, OFFSET_NAMES, STARTS, ReadOptions, parse_options
from tidelog.spark.ticks import END_OF_TIME, MAX_TICK

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LATEST_TICK: Final = -1
"""The position ``latest``, in JSON and in ``ReadOptions``."""
_EARLIEST_TICK: Final = -2
_STARTING: Final = "startingOffsets"
_ENDING: Final = "endingOffsets"
_WORDS: Final = {_EARLIEST_TICK: EARLIEST, LATEST_TICK: LATEST}
# Without leading zeros, so that a vchannel has one name.
_INDEX: Final = re.compile("0|[1-9][0-9]{0,9}")
_EXAMPLE: Final = '{"orders": {"0": 468, "1": -2}}'


def parse_batch_options(raw: Mapping[str, object]) -> ReadOptions:
    """Parse the options that Spark hands over for a batch of channels.

    Raises:
        OptionError: An option is unknown or invalid, or two contradict each other.
    """
    options = known_options(raw, ALL_NAMES)
    only_one(options, (_STARTING, *STARTS))
    only_one(options, (_ENDING, *ENDS, *CUTS))
    start, end = options.pop(_STARTING, EARLIEST), options.pop(_ENDING, LATEST)
    read = parse_options(options)
    begins, ends = offsets_of(_STARTING, start, EARLIEST), offsets_of(_ENDING, end, LATEST)
    ends = {name: END_OF_TIME if tick == LATEST_TICK else tick for name, tick in ends.items()}
    if read.archive and (begins or ends):
        raise OptionError(
            "positions by vchannel are of the log, and 'archive' reads the same range of ticks on all vchannels: set "
            "'startingTick' and 'endingTick'"
        )
    for name in begins.keys() & ends.keys():
        if begins[name] > ends[name]:
            raise OptionError(
                f"'{_STARTING}' of {name} ({begins[name]}) is after '{_ENDING}' ({ends[name]}): the start is inclusive "
                "and the end is exclusive"
            )
    return with_offsets(read, begins, ends)


def without_offsets(raw: Mapping[str, object]) -> dict[str, object]:
    """Return the options that a batch and a stream have in common, without those of this module."""
    left_out = {name.lower() for name in OFFSET_NAMES}
    return {name: value for name, value in raw.items() if name.lower() not in left_out}


def with_offsets(read: ReadOptions, begins: Mapping[str, int], ends: Mapping[str, int] | None = None) -> ReadOptions:
    """Return the options of a read with positions by vchannel."""
    # A start that was trimmed is a loss, as with `startingTick`.
    return replace(read, begin_ticks=begins, begin_is_tick=read.begin_is_tick or bool(begins), end_ticks=ends or {})


def offsets_of(option: str, text: str, *words: str) -> dict[str, int]:
    """Return the positions in ``text`` by vchannel; 0 for ``earliest``. Empty if ``text`` is the first of ``words``.

    Args:
        option: Name of the option.
        text: Its value.
        words: Those of ``earliest`` and ``latest`` that positions may be. The other one would read nothing.

    Raises:
        OptionError: The text is neither the first word nor such an object, or a position is out of range.
    """
    if text.lower() == words[0]:
        return {}
    try:
        channels = json.loads(text, object_pairs_hook=_unique)
        positions = {
            f"{channel}/{_index(index)}": tick for channel, part in channels.items() for index, tick in part.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        positions = {}
    if not positions:
        raise OptionError(
            f"the option '{option}' is {text[:64]!r}: expected {' or '.join(words)}, or a JSON object with a tick for "
            f"each vchannel, such as {_EXAMPLE}"
        )
    for name, tick in positions.items():
        if type(tick) is not int or not (0 <= tick <= MAX_TICK or _WORDS.get(tick) in words):
            known = " or ".join(f"{number} for {word}" for number, word in _WORDS.items() if word in words)
            raise OptionError(
                f"the option '{option}' has {str(tick)[:64]} for {name}: expected a tick from 0 to {MAX_TICK}, or "
                f"{known}"
            )
    return {name: 0 if tick == _EARLIEST_TICK else tick for name, tick in positions.items()}


def check_vchannels(option: str, positions: Mapping[str, int], vchannels: Iterable[str], read: ReadOptions) -> None:
    """Check that the positions are those of the vchannels that are read.

    Raises:
        OptionError: A position is missing, unless the vchannel matches a pattern; or it is of another vchannel.
    """
    known = set(vchannels)
    if positions and (others := sorted(positions.keys() - known)):
        raise OptionError(f"the option '{option}' names {others[0]}, which is not read: remove it, or read it as well")
    if positions and read.pattern is None and (missing := sorted(known - positions.keys())):
        word = "-2 for the earliest" if option == _STARTING else "-1 for the latest"
        raise OptionError(f"the option '{option}' has no position for {missing[0]}: add a tick, or {word} one")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _index(text: str) -> str:
    if not _INDEX.fullmatch(text):
        raise ValueError(text)
    return text
