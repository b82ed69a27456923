"""Patterns of names of channels and groups, which scans, lists and Spark accept: globs. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import ClassVar, Final

MAX_PATTERN_CHARACTERS: Final = 512
_WILDCARDS: Final = frozenset("*?[")
# What names consist of, *, ?, and sets such as [ab], [0-9] and [!a]. No name begins with a punctuation mark.
_PATTERN: Final = r"(?![._-])(?:[a-z0-9._*?-]|\[!?[a-z0-9._-]+\])+"
# Prefix of system channels.
_RESERVED_PREFIX: Final = "_"
_BELOW: Final = ".*"


def is_pattern(name: str) -> bool:
    """Return whether ``name`` is a pattern and not the name of a channel or vchannel: it has ``*``, ``?`` or ``[``."""
    return not _WILDCARDS.isdisjoint(name)


@dataclass(frozen=True, slots=True)
class ChannelPattern:
    """A pattern of the whole name of a channel, as in a shell.

    ``*`` matches any characters, also none and dots; ``?`` one character; ``[ab]``, ``[a-z]`` and ``[!ab]`` one of a
    set, or one that is not in it. ``orders.*`` matches ``orders.eu`` and ``orders.eu.old``, but not ``orders``. System
    channels, whose names begin with ``_``, never match.

    Attributes:
        text: The pattern.
        what: What the names are of.
    """

    text: str

    _form: ClassVar[re.Pattern[str]] = re.compile(_PATTERN, re.ASCII)
    what: ClassVar[str] = "channel"

    def __post_init__(self) -> None:
        """Check the text.

        Raises:
            ValueError: It is not a pattern.
        """
        shown = repr(self.text[:64])
        if "/" in self.text:
            raise ValueError(
                f"the pattern {shown} contains a slash: a pattern of channels stands for all of their vchannels"
            )
        if self.text.startswith(_RESERVED_PREFIX):
            raise ValueError(f"the pattern {shown} begins with '_', but no pattern matches system channels: name one")
        if len(self.text) > MAX_PATTERN_CHARACTERS or not self._form.fullmatch(self.text):
            raise ValueError(
                f"{shown} is not a pattern of {self.what}s: expected up to {MAX_PATTERN_CHARACTERS} characters of "
                "names with *, ? or [abc] as in a shell, such as 'orders.*' or '*'; regular expressions are not "
                "supported"
            )

    @property
    def prefix(self) -> str:
        """Common prefix of all matching names."""
        return "".join(takewhile(lambda character: character not in _WILDCARDS, self.text))

    @property
    def advice(self) -> str:
        """What to do if no channel matches."""
        stem = self.text.removesuffix(_BELOW)
        if stem != self.text:
            return f"it matches names that begin with '{stem}.'; use '{stem}*' for those that begin with '{stem}'"
        return f"correct it, or create a {self.what} first"

    def covers(self, name: str) -> bool:
        """Return whether a channel name matches."""
        return not name.startswith(_RESERVED_PREFIX) and fnmatchcase(name, self.text)


@dataclass(frozen=True, slots=True)
class GroupPattern(ChannelPattern):
    """A pattern of the whole name of a group: as that of a channel, with capital letters, which count."""

    _form: ClassVar[re.Pattern[str]] = re.compile(_PATTERN.replace("a-z", "a-zA-Z"), re.ASCII)
    what: ClassVar[str] = "group"


def patterns_of(names: Iterable[str]) -> tuple[ChannelPattern, ...]:
    """Return those of ``names`` that are patterns. Raises ValueError if one is invalid."""
    return tuple(ChannelPattern(name) for name in names if is_pattern(name))
