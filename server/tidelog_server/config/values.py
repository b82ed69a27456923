"""Validation of setting values: the whole text must match; trailing characters are never ignored."""

import re
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Final

from pydantic import BeforeValidator, ByteSize, WithJsonSchema

NONE: Final = "none"
"""How a setting that is empty is shown; what is shown can be loaded again."""
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
# With what is not finite: ``allow_inf_nan`` refuses that with a better message.
_NUMBER: Final = re.compile(
    r"[+-]?(([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})(e[+-]?[0-9]{1,3})?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_WEB: Final = re.compile("https?://")
_CLAIM: Final = r"(?:[^.\\]|\\[.\\])+"
_CLAIM_PATH: Final = re.compile(rf"{_CLAIM}(?:\.{_CLAIM})*")
_BRACKETED: Final = re.compile(r"\[([0-9A-Fa-f:.]+(?:%\w+)?)\]", re.ASCII)
# In both cases: a JSON Schema has the pattern too, and no flags.
_UNIT: Final = "[kmgtpeKMGTPE][iI]?[bB]"
# There is no fraction of a byte, so a fraction needs a unit.
_SIZE: Final = re.compile(rf"[0-9]{{1,20}} ?({_UNIT}|[bB])?|[0-9]{{1,20}}\.[0-9]{{1,20}} ?{_UNIT}")


def _written_as(kind: type[int] | UnionType, form: re.Pattern[str], expected: str) -> Callable[[object], object]:
    """Return a check that a value is a number of a ``kind``, or a text of this form. It raises ValueError."""

    def check(value: object) -> object:
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and form.fullmatch(value)):
            return value
        raise ValueError(expected)

    return check


check_whole_number: Final = _written_as(int, _WHOLE_NUMBER, "a whole number")
check_number: Final = _written_as(int | float, _NUMBER, "a number")
_check_size: Final = _written_as(
    int, _SIZE, "a number of bytes, alone or with a unit such as 64MiB: could not parse all of it"
)


def check_boolean(value: object) -> object:
    """Return ``value`` if it is written as ``true`` or ``false``. Raises ValueError."""
    if isinstance(value, bool) or (isinstance(value, str) and value.casefold() in ("true", "false")):
        return value
    raise ValueError("a boolean, true or false")


def _check_path(value: object) -> object:
    if isinstance(value, Path) or (isinstance(value, str) and value.strip() and "\0" not in value):
        return _check_scheme(value)
    raise ValueError("a path; '.' is the working directory of the server")


def _check_scheme(value: Path | str) -> Path | str:
    """Return ``value`` unless it begins with a scheme: as a path, a URL of an object store is a folder ``s3:``."""
    if _SCHEME.match(str(value)) is None:
        return value
    raise ValueError("a path of this machine: URLs are not supported; write ./ before a name with a colon")


def _check_path_or_url(value: object) -> object:
    return value if isinstance(value, str) and _WEB.match(value) else _check_optional_path(value)


def _check_optional_path(value: object) -> object:
    return "" if value in ("", NONE) else str(_check_path(value))


def _check_claim_path(value: object) -> object:
    if isinstance(value, str) and _CLAIM_PATH.fullmatch(value):
        return value
    raise ValueError(r"names of claims with dots between them, such as realm_access.roles; \. is a dot in a name")


def claim_path(text: str) -> tuple[str, ...]:
    """Return the names in a ClaimPath."""
    return tuple(re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL) for name in re.findall(_CLAIM, text))


def _without_brackets(value: object) -> object:
    found = _BRACKETED.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else found[1]


Bytes = Annotated[
    ByteSize,
    BeforeValidator(_check_size),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": f"^({_SIZE.pattern})$"}]}),
]
"""A number of bytes: ``4096``, ``64MiB``, ``1.5GiB``."""

FilePath = Annotated[Path, BeforeValidator(_check_path)]
"""A path that is not empty: an empty one would mean the working directory."""

OptionalText = Annotated[str, BeforeValidator(lambda value: "" if value == NONE else value)]
"""A text that may be empty, which is shown as NONE."""

OptionalPath = Annotated[str, BeforeValidator(_check_optional_path)]
"""The path of a file; empty, shown as NONE, without one."""

OptionalPathOrUrl = Annotated[str, BeforeValidator(_check_path_or_url)]
"""As OptionalPath, or the URL of a file on a web server."""

ClaimPath = Annotated[str, BeforeValidator(_check_claim_path)]
"""Names of nested claims of a token, with dots between them; a backslash precedes a dot or a backslash in a name."""

Host = Annotated[str, BeforeValidator(_without_brackets)]
"""A host name or an IP address; an IPv6 address may be in brackets, as in a URL."""
