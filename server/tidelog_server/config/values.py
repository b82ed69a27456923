"""What the text of a setting may be: all of it counts, and nothing is read up to the first strange character."""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ByteSize

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE
)
# Those that ``allow_inf_nan`` refuses, with a text of its own.
_NOT_FINITE: Final = re.compile(r"[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_UNIT: Final = "[kmgtpe]i?b"
# A part of a byte is nothing, so a fraction needs a unit.
_SIZE: Final = re.compile(
    rf"[0-9]{{1,20}} ?({_UNIT}|b)?|[0-9]{{1,20}}\.[0-9]{{1,20}} ?{_UNIT}", re.ASCII | re.IGNORECASE
)


def check_whole_number(value: object) -> object:
    """Return what pydantic may read as a whole number. Raises ValueError."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)):
        return value
    raise ValueError("a whole number")


def check_number(value: object) -> object:
    """Return what pydantic may read as a number. Raises ValueError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and (_NUMBER.fullmatch(value) or _NOT_FINITE.fullmatch(value))):
        return value
    raise ValueError("a number")


def _check_size(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _SIZE.fullmatch(value)):
        return value
    raise ValueError("a number of bytes, alone or with a unit such as 64MiB: could not parse all of it")


def _check_path(value: object) -> object:
    if isinstance(value, Path) or (isinstance(value, str) and value.strip() and "\0" not in value):
        return value
    raise ValueError("a path; '.' is the folder in which the server is started")


Bytes = Annotated[ByteSize, BeforeValidator(_check_size)]
"""A number of bytes: ``4096``, ``64MiB``, ``1.5GiB``."""

FilePath = Annotated[Path, BeforeValidator(_check_path)]
"""A path that names something: an empty one would be the working directory."""
