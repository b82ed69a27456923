"""Validation of setting values: the whole text must match; trailing characters are never ignored."""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ByteSize

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE
)
# Accepted here: ``allow_inf_nan`` refuses them with a better message.
_NOT_FINITE: Final = re.compile(r"[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_UNIT: Final = "[kmgtpe]i?b"
# There is no fraction of a byte, so a fraction needs a unit.
_SIZE: Final = re.compile(
    rf"[0-9]{{1,20}} ?({_UNIT}|b)?|[0-9]{{1,20}}\.[0-9]{{1,20}} ?{_UNIT}", re.ASCII | re.IGNORECASE
)


def check_whole_number(value: object) -> object:
    """Return ``value`` if it is written as a whole number. Raises ValueError."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)):
        return value
    raise ValueError("a whole number")


def check_number(value: object) -> object:
    """Return ``value`` if it is written as a number. Raises ValueError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and (_NUMBER.fullmatch(value) or _NOT_FINITE.fullmatch(value))):
        return value
    raise ValueError("a number")


def check_boolean(value: object) -> object:
    """Return ``value`` if it is written as ``true`` or ``false``. Raises ValueError."""
    if isinstance(value, bool) or (isinstance(value, str) and value.casefold() in ("true", "false")):
        return value
    raise ValueError("a boolean, true or false")


def _check_size(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _SIZE.fullmatch(value)):
        return value
    raise ValueError("a number of bytes, alone or with a unit such as 64MiB: could not parse all of it")


def _check_path(value: object) -> object:
    if isinstance(value, Path) or (isinstance(value, str) and value.strip() and "\0" not in value):
        return value
    raise ValueError("a path; '.' is the working directory of the server")


Bytes = Annotated[ByteSize, BeforeValidator(_check_size)]
"""A number of bytes: ``4096``, ``64MiB``, ``1.5GiB``."""

FilePath = Annotated[Path, BeforeValidator(_check_path)]
"""A path that is not empty: an empty one would mean the working directory."""
