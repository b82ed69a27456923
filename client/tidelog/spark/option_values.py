"""Parsing that the options of reads, streams and writes share: known names, numbers, sizes, times, paths."""

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from tidelog import At
from tidelog.spark.errors import OptionError
from tidelog.spark.ticks import LOGICAL_BITS, MAX_TICK, ceil_ms

_Choice = TypeVar("_Choice")

MAX_COUNT: Final = (1 << 63) - 1
"""The largest whole number of the protocol."""
# A property of each table in Spark's catalog. Spark hands it over only with the options of CREATE TABLE.
_OF_A_TABLE: Final = "provider"
MAX_DIGITS: Final = len(str(MAX_COUNT))
"""Longer numbers are refused before ``int``, which raises an unrelated error for thousands of digits."""
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_SIZE_PREFIXES: Final = "kmgt"

# Replacements for options of other sources that users try first: Spark's Kafka connector, Delta, Iceberg and files.
# docs/guides/spark/reading.md lists the options of Kafka's connector.
HINTS: Final = {
    "kafka.bootstrap.servers": "use 'endpoint'",
    "subscribe": "use 'channels', or 'channel' for one",
    "subscribePattern": "use 'channelPattern': a pattern as in a shell, such as 'orders.*', not a regular expression",
    "assign": "use 'vchannels': orders/0,orders/2",
    "topic": "use 'channel'",
    "startingOffsetsByTimestamp": "use 'startingTimestamp'",
    "endingOffsetsByTimestamp": "use 'endingTimestamp'",
    "startingOffsetsByTimestampStrategy": "remove it: a read starts at the first message at or after the time",
    "minOffsetsPerTrigger": "remove it: the interval of the trigger determines the size of a micro-batch",
    "maxTriggerDelay": "remove it: a micro-batch does not wait for a minimum size",
    "includeHeaders": "remove it: the column 'properties' is always present",
    "kafka.group.id": "use 'commitGroup', which reports the position of a stream",
    "groupIdPrefix": "use 'commitGroup', which reports the position of a stream",
    "kafkaConsumer.pollTimeoutMs": "remove it: 'serverTimeout' limits how long a read waits for the server",
    "fetchOffset.numRetries": "remove it: 'serverTimeout' limits how long a read retries",
    "fetchOffset.retryIntervalMs": "remove it: reads retry with a backoff",
    "includeControl": (
        "remove it: a log has no control messages. Rows of a transaction are read once it is committed, and broadcasts "
        "are rows with a 'broadcast_id', see 'moreColumns'"
    ),
    "value": "the payload of a message is the column 'payload'",
    "startTick": "use 'startingTick', which is inclusive; the tick after an exclusive start is one more",
    "endTick": "use 'endingTick', which is exclusive, or 'asOfTick', which is inclusive",
    "start-snapshot-id": "use 'startingTick', which is inclusive",
    "end-snapshot-id": "use 'asOfTick', which is inclusive",
    "paths": "load(...) accepts one channel: use the option 'channels' for several",
}


_HINTS_BY_LOWER_NAME: Final = {name.lower(): (name, hint) for name, hint in HINTS.items()}
KAFKA_COLUMNS: Final = {
    "value": "payload", "topic": "channel", "partition": "vchannel", "offset": "tick", "headers": "properties"
}  # fmt: skip
"""Columns of Spark's Kafka connector, by the name that they have here."""


def known_options(raw: Mapping[str, object], names: Sequence[str]) -> dict[str, str]:
    """Return the options under their documented ``names``; Spark hands them over in lower case.

    Raises:
        OptionError: An option is unknown.
    """
    if _OF_A_TABLE in raw:
        raise OptionError(
            "CREATE TABLE is not supported: Spark does not hand a table's options to a Python source when it reads or "
            "writes the table. Use CREATE TEMPORARY VIEW ... USING tidelog OPTIONS (...)"
        )
    by_lower_name = {name.lower(): name for name in names}
    options = {}
    for name, value in raw.items():
        known = by_lower_name.get(name.lower())
        if known is None:
            documented, hint = _HINTS_BY_LOWER_NAME.get(name.lower()) or (name, _similar(name, by_lower_name))
            raise OptionError(f"the tidelog source has no option '{documented}': {hint}")
        options[known] = str(value).strip()
    return options


def _similar(name: str, by_lower_name: Mapping[str, str]) -> str:
    """Return a hint: the most similar option, or else all of them."""
    if name.lower().startswith("kafka."):
        return "it is an option of Kafka's clients: remove it"
    close = difflib.get_close_matches(name.lower(), by_lower_name, n=1)
    shown = ", ".join(name for name in by_lower_name.values() if name != "path")
    return f"did you mean '{by_lower_name[close[0]]}'?" if close else f"choose from {shown}"


def only_one(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Return the one of the options ``names`` that is set, or None. Raises OptionError if several are set."""
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise OptionError(f"the options {' and '.join(map(repr, given))} contradict each other: set one of them")
    return given[0] if given else None


def names_of(option: str, text: str) -> tuple[str, ...]:
    """Return the names in ``text``: one for ``channel``, a comma-separated list for all other options.

    Raises:
        OptionError: A name is empty or occurs twice.
    """
    names = [text] if option == "channel" else [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(f"the option '{option}' is {text!r}: it contains an empty name; remove it")
    if option == "channel" and "," in text:
        raise OptionError(f"the option 'channel' is {text!r}, expected one name: use 'channels' for several")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise OptionError(f"the option '{option}' names {doubled[0]!r} twice: name it once")
    return tuple(names)


def number_of(options: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    """Return an option as a whole number. Raises OptionError if it is not from ``minimum`` to ``maximum``."""
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and minimum <= int(text) <= maximum):
        raise OptionError(f"the option '{name}' is {text!r}: expected a whole number from {minimum} to {maximum}")
    return int(text)


def size_of(options: Mapping[str, str], name: str, default: int, maximum: int = MAX_COUNT) -> int:
    """Return an option as a number of bytes, with Spark's units: k, m, g and t are powers of 1,024.

    Raises:
        OptionError: The value is not a size from 1 to ``maximum``.
    """
    if name not in options:
        return default
    found = _SIZE.fullmatch(options[name])
    size_bytes = int(found[1]) << 10 * (_SIZE_PREFIXES.index(found[2].lower()) + 1 if found[2] else 0) if found else 0
    if not 1 <= size_bytes <= maximum:
        bound = "" if maximum == MAX_COUNT else f" up to {maximum}"
        raise OptionError(
            f"the option '{name}' is {options[name]!r}: expected a number of bytes{bound}, such as 1048576 or 1MiB"
        )
    return size_bytes


def flag_of(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option as a boolean. Raises OptionError if it is neither true nor false."""
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise OptionError(f"the option '{name}' is {options[name]!r}: expected true or false")
    return text == "true"


def choice_of(
    options: Mapping[str, str], name: str, choices: Mapping[str, _Choice], default: str, expected: str
) -> _Choice:
    """Return one of ``choices``, whose keys are in lower case. Raises OptionError with ``expected`` for other texts."""
    text = options.get(name, default)
    if text.lower() not in choices:
        raise OptionError(f"the option '{name}' is {text!r}: {expected}")
    return choices[text.lower()]


def folder_of(options: Mapping[str, str], name: str) -> str:
    """Return the absolute path, because executors may have another working directory; empty if the option is not set.

    Raises:
        OptionError: The value is not a file system path.
    """
    if name not in options:
        return ""
    scheme, colon, path = options[name].partition(":")
    if not colon or scheme == "file":
        text = path.removeprefix("//") if colon else options[name]
        if text:
            return os.path.abspath(text)
    raise OptionError(
        f"the option '{name}' is {options[name]!r}: expected the path of a folder that the driver and all executors "
        "can reach, such as a network mount"
    )


def time_ms_of(name: str, text: str, rounded: Callable[[datetime], int] = ceil_ms) -> int:
    """Return milliseconds since the epoch of digits or ISO 8601, rounded by ``rounded`` (default: up).

    Raises:
        OptionError: The text is not a time, or the time is out of the range of ticks.
    """
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        milliseconds = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(
                f"the option '{name}' is {text!r}: expected milliseconds since the epoch, or ISO 8601 "
                "such as 2026-03-01T12:00:00Z"
            ) from None
        try:
            # Refuses a time without a zone.
            At.time(moment)
        except ValueError as error:
            raise OptionError(f"the option '{name}': {error}") from None
        milliseconds = rounded(moment)
    if not 0 <= milliseconds <= MAX_TICK >> LOGICAL_BITS:
        raise OptionError(f"the option '{name}' is {text!r}: expected a time from 1970 to the year 3084")
    return milliseconds
