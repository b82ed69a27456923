"""What the options of reads, streams and writes have in common: which there are, and what their text says."""

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from tidelog.spark.option_error import OptionError
from tidelog.spark.option_hints import hint_of
from tidelog.spark.ticks import LOGICAL_BITS, MAX_TICK, ceil_ms

MAX_COUNT: Final = (1 << 63) - 1
"""The largest whole number that the protocol has."""
# A property that Spark gives each table of its catalog, and hands over with the options of CREATE TABLE alone.
_OF_A_TABLE: Final = "provider"
MAX_DIGITS: Final = len(str(MAX_COUNT))
"""Python refuses to read numbers of thousands of digits, with an error that is not ours."""
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_SIZE_PREFIXES: Final = "kmgt"


def known_options(raw: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options under their ``names`` as documented; Spark hands them over in small letters.

    Raises:
        OptionError: One is unknown.
    """
    if _OF_A_TABLE in raw:
        raise OptionError(
            "Spark keeps the options of a table, and does not hand them to a source in Python when the table is read "
            "or written: use CREATE TEMPORARY VIEW ... USING tidelog OPTIONS (...)"
        )
    by_lower_name = {name.lower(): name for name in names}
    options = {}
    for name, value in raw.items():
        known = by_lower_name.get(name.lower())
        if known is None:
            hint = hint_of(name) or _similar(name, names)
            raise OptionError(f"the tidelog source has no option '{name}': {hint}")
        options[known] = value.strip()
    return options


def _similar(name: str, names: Sequence[str]) -> str:
    """Return which option may have been meant, or all of them."""
    by_lower_name = {name.lower(): name for name in names}
    close = difflib.get_close_matches(name.lower(), by_lower_name, n=1)
    shown = ", ".join(name for name in names if name != "path")
    return f"did you mean '{by_lower_name[close[0]]}'?" if close else f"known are {shown}"


def only_one(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Return which of the options ``names`` is given, None for none. Raises OptionError if several are."""
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise OptionError(f"the options {' and '.join(map(repr, given))} contradict each other: give one of them")
    return given[0] if given else None


def names_of(option: str, text: str) -> tuple[str, ...]:
    """Return the names in ``text``: one for ``channel``, any number divided by commas for the others.

    Raises:
        OptionError: One is empty, or is there twice.
    """
    names = [text] if option == "channel" else [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(f"the option '{option}' is {text!r}: an empty name names nothing")
    if option == "channel" and "," in text:
        raise OptionError(f"the option 'channel' takes one name, not {text!r}: several go into 'channels'")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise OptionError(f"the option '{option}' names {doubled[0]!r} twice")
    return tuple(names)


def number_of(options: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    """Return an option that is a whole number. Raises OptionError if it is none from ``minimum`` to ``maximum``."""
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and minimum <= int(text) <= maximum):
        raise OptionError(f"the option '{name}' is {text!r}: write a whole number from {minimum} to {maximum}")
    return int(text)


def size_of(options: Mapping[str, str], name: str, default: int) -> int:
    """Return an option that is a number of bytes, with units as Spark has them: each is 1,024 of the one before.

    Raises:
        OptionError: It is no such number.
    """
    if name not in options:
        return default
    found = _SIZE.fullmatch(options[name])
    size_bytes = int(found[1]) << 10 * (_SIZE_PREFIXES.index(found[2].lower()) + 1 if found[2] else 0) if found else 0
    if not 1 <= size_bytes <= MAX_COUNT:
        raise OptionError(
            f"the option '{name}' is {options[name]!r}: write a number of bytes, such as 67108864 or 64MiB"
        )
    return size_bytes


def flag_of(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false. Raises OptionError if it is neither."""
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise OptionError(f"the option '{name}' is {options[name]!r}: write true or false")
    return text == "true"


def folder_of(options: Mapping[str, str], name: str) -> str:
    """Return the absolute path; empty if the option is not there. Executors may have another working directory.

    Raises:
        OptionError: It is no path of a file system.
    """
    if name not in options:
        return ""
    scheme, colon, path = options[name].partition(":")
    if not colon or scheme == "file":
        text = path.removeprefix("//") if colon else options[name]
        if text:
            return os.path.abspath(text)
    raise OptionError(
        f"the option '{name}' is {options[name]!r}: write the path of a folder that the driver and all executors "
        "reach, such as a mounted one"
    )


def time_ms_of(name: str, text: str, rounded: Callable[[datetime], int] = ceil_ms) -> int:
    """Return milliseconds since the epoch for digits or ISO 8601; rounded up unless said otherwise.

    Raises:
        OptionError: It is no time, or one that no tick has.
    """
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        milliseconds = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(
                f"the option '{name}' is {text!r}: write milliseconds since the epoch, or ISO 8601 "
                "such as 2026-03-01T12:00:00Z"
            ) from None
        milliseconds = rounded(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if not 0 <= milliseconds <= MAX_TICK >> LOGICAL_BITS:
        raise OptionError(f"the option '{name}' is {text!r}: times go from 1970 to the year 3084")
    return milliseconds
