"""Permissions: a verb and a pattern of names. Pure.

A pattern is an exact name (``orders``), a prefix (``orders.*`` covers ``orders.eu``, but neither ``orders`` nor
``ordersx``), or everything (``*``). Names that begin with ``_`` are reserved for the server; no pattern covers them.
Patterns of journals and mailboxes are their names, whose parts end with a slash: ``my/journals/*`` covers
``my/journals/a/b``. Names of mailboxes may contain every character of a pattern: ``a.*`` is the name of a mailbox.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog_server.core.errors import InvalidNameError
from tidelog_server.core.limits import MAX_JOURNAL_NAME_CHARACTERS, MAX_MAILBOX_NAME_BYTES
from tidelog_server.core.names import (
    CHANNEL_NAME_PATTERN,
    GROUP_NAME_PATTERN,
    RESERVED_PREFIX,
    TOKEN_CHARACTERS,
    check_journal_name,
    check_mailbox_name,
    shown,
)
from tidelog_server.core.sorted_names import NamePattern

MAX_GRANTS: Final = 64

EVERYTHING: Final = "*"
_PATTERN: Final = re.compile(rf"\*|{CHANNEL_NAME_PATTERN}|[a-z0-9][a-z0-9._-]{{0,124}}\.\*", re.ASCII)
_GROUP_PATTERN: Final = re.compile(rf"\*|{GROUP_NAME_PATTERN}|[A-Za-z0-9][A-Za-z0-9._-]{{0,124}}\.\*", re.ASCII)
_BELOW_A_PATH: Final = re.compile(rf"([{TOKEN_CHARACTERS}]{{1,{MAX_JOURNAL_NAME_CHARACTERS - 2}}})/\*", re.ASCII)


class Verb(StrEnum):
    """Permitted operations. The last six verbs have no pattern.

    The patterns of ``group``, ``journal`` and ``mailbox`` verbs are names of groups, journals and mailboxes.

    The patterns of ``broadcast.key`` are domains of resource keys.
    """

    APPEND = "append"
    READ = "read"
    TXN = "txn"
    BROADCAST = "broadcast"
    BROADCAST_KEY = "broadcast.key"
    RETENTION_HOLD = "retention.hold"
    CHANNEL_CREATE = "channel.create"
    CHANNEL_DELETE = "channel.delete"
    CHANNEL_TRUNCATE = "channel.truncate"
    GROUP_CONSUME = "group.consume"
    GROUP_MANAGE = "group.manage"
    JOURNAL_APPEND = "journal.append"
    JOURNAL_READ = "journal.read"
    JOURNAL_APPLY = "journal.apply"
    JOURNAL_LIST = "journal.list"
    MAILBOX_SEND = "mailbox.send"
    MAILBOX_RECEIVE = "mailbox.receive"
    MAILBOX_READ = "mailbox.read"
    MAILBOX_MANAGE = "mailbox.manage"
    BLOB_PUT = "blob.put"
    BLOB_GET = "blob.get"
    ADMIN_READ = "admin.read"
    ADMIN_WRITE = "admin.write"
    BACKUP = "backup"
    CLUSTER = "cluster"


NAMELESS: Final = frozenset(
    (Verb.BLOB_PUT, Verb.BLOB_GET, Verb.ADMIN_READ, Verb.ADMIN_WRITE, Verb.BACKUP, Verb.CLUSTER)
)
OF_CHANNELS: Final = frozenset(
    (Verb.APPEND, Verb.READ, Verb.TXN, Verb.BROADCAST, Verb.CHANNEL_CREATE, Verb.CHANNEL_DELETE, Verb.CHANNEL_TRUNCATE)
)
HOLDERS: Final = frozenset((Verb.RETENTION_HOLD, Verb.CHANNEL_TRUNCATE))
"""Verbs of which one is needed for the groups of a principal to hold retention back on a channel."""
OF_GROUPS: Final = frozenset((Verb.GROUP_CONSUME, Verb.GROUP_MANAGE))

OF_JOURNALS: Final = frozenset((Verb.JOURNAL_APPEND, Verb.JOURNAL_READ, Verb.JOURNAL_APPLY, Verb.JOURNAL_LIST))
OF_MAILBOXES: Final = frozenset((Verb.MAILBOX_SEND, Verb.MAILBOX_RECEIVE, Verb.MAILBOX_READ, Verb.MAILBOX_MANAGE))
_OF_PATHS: Final = OF_JOURNALS | OF_MAILBOXES
"""Verbs whose names may begin with ``_``, and consist of parts that end with a slash."""
ON_JOURNAL_CHANNELS: Final = {
    Verb.APPEND: Verb.JOURNAL_APPEND,
    Verb.TXN: Verb.JOURNAL_APPEND,
    Verb.READ: Verb.JOURNAL_READ,
    Verb.CHANNEL_TRUNCATE: Verb.JOURNAL_APPLY,
    Verb.RETENTION_HOLD: Verb.JOURNAL_APPLY,
}
"""Verb that is needed on a journal for an operation on its channel. Operations that are missing are not permitted."""


class GrantError(ValueError):
    """A text is not a valid grant; the message gives the reason."""


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One permission."""

    verb: Verb
    pattern: str = EVERYTHING

    def __str__(self) -> str:
        return self.verb.value if self.verb in NAMELESS else f"{self.verb.value}:{self.pattern}"

    @property
    def is_prefix(self) -> bool:
        """Whether the pattern covers everything below a name, which it has without the last character."""
        return self.pattern.endswith("/*" if self.verb in _OF_PATHS else ".*")

    def covers(self, name: str) -> bool:
        """Return whether the pattern covers the name of a channel, group, journal or mailbox."""
        if name.startswith(RESERVED_PREFIX) and self.verb not in _OF_PATHS:
            return False
        if self.is_prefix:
            return name.startswith(self.pattern[:-1]) and len(name) >= len(self.pattern)
        return self.pattern in (EVERYTHING, name)


def parse_grant(text: str) -> Grant:
    """Return the grant in ``text``, in the format of ``str(grant)``. Raises GrantError."""
    name, colon, pattern = text.partition(":")
    try:
        verb = Verb(name)
    except ValueError:
        raise GrantError(f"'{shown(name)}' is not a verb: expected one of {', '.join(Verb)}") from None
    if verb in NAMELESS:
        if colon and pattern != EVERYTHING:
            raise GrantError(f"'{shown(text)}' has a pattern, but '{verb}' takes no pattern: write '{verb}'")
        return Grant(verb)
    if verb in OF_JOURNALS:
        return Grant(verb, _journal_pattern(pattern))
    if verb in OF_MAILBOXES:
        return Grant(verb, _mailbox_pattern(pattern))
    if not colon:
        raise GrantError(f"'{verb}' needs a pattern: write '{verb}:orders', '{verb}:orders.*' or '{verb}:*'")
    if not (_GROUP_PATTERN if verb in OF_GROUPS else _PATTERN).fullmatch(pattern):
        raise GrantError(f"'{shown(pattern)}' is not a pattern: expected a name, a name followed by '.*', or '*'")
    return Grant(verb, pattern)


def _journal_pattern(pattern: str) -> str:
    """Return ``pattern`` if it is one of journals. Raises GrantError."""
    below = _BELOW_A_PATH.fullmatch(pattern)
    try:
        if pattern != EVERYTHING:
            # A name below the path, because the path alone may be shorter than a name.
            check_journal_name(f"{below[1]}/name" if below else pattern)
    except InvalidNameError:
        raise GrantError(
            f"'{shown(pattern)}' is not a pattern of journals: expected a name such as 'my/topic/part-000', a path "
            "followed by '/*', or '*'"
        ) from None
    return pattern


def _mailbox_pattern(pattern: str) -> str:
    """Return ``pattern`` if it is one of mailboxes, whose names may be any text. Raises GrantError."""
    try:
        return check_mailbox_name(pattern)
    except InvalidNameError:
        raise GrantError(
            f"'{shown(pattern)}' is not a pattern of mailboxes: expected a name such as 'b@remote', a path followed by "
            f"'/*', or '*', of 1 to {MAX_MAILBOX_NAME_BYTES} bytes of UTF-8 without control characters"
        ) from None


class Grants:
    """A set of permissions. Immutable; a check takes a few set look-ups, independent of the size."""

    __slots__ = ("_exact", "_prefixes", "_verbs", "_wide", "all")

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self.all = frozenset(grants)
        self._verbs = frozenset(grant.verb for grant in self.all)
        self._wide = frozenset(grant.verb for grant in self.all if grant.pattern == EVERYTHING)
        below = [grant for grant in self.all if grant.is_prefix]
        self._exact = self.all.difference(below)
        self._prefixes = {verb: tuple(grant.pattern[:-1] for grant in below if grant.verb is verb) for verb in Verb}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grants) and self.all == other.all

    def __hash__(self) -> int:
        return hash(self.all)

    def allow(self, verb: Verb, name: str) -> bool:
        """Return whether ``verb`` is permitted on the channel, group, journal or mailbox called ``name``."""
        if name.startswith(RESERVED_PREFIX) and verb not in _OF_PATHS:
            # Administrators may read and trim system channels; all other changes are refused.
            needed = {Verb.READ: Verb.ADMIN_READ, Verb.CHANNEL_TRUNCATE: Verb.ADMIN_WRITE}.get(verb)
            return needed in self._verbs
        if verb in self._wide or Grant(verb, name) in self._exact:
            return True
        # A prefix does not cover its own name: at least one character must follow the dot or slash.
        return any(name.startswith(prefix) and len(name) > len(prefix) for prefix in self._prefixes[verb])

    def allow_somewhere(self, verb: Verb) -> bool:
        """Return whether ``verb`` is permitted on at least one name."""
        return verb in self._verbs

    def patterns(self, verbs: Iterable[Verb]) -> list[NamePattern] | None:
        """Return patterns that cover each name on which one of ``verbs`` has a grant; None if one has every name."""
        wanted = self._verbs.intersection(verbs)
        if not self._wide.isdisjoint(wanted):
            return None
        return [
            NamePattern(grant.pattern[:-1], is_prefix=True) if grant.is_prefix else NamePattern(grant.pattern)
            for grant in self.all
            if grant.verb in wanted
        ]


NOTHING: Final = Grants()
ADMINISTRATION: Final = Grants((Grant(Verb.ADMIN_READ), Grant(Verb.ADMIN_WRITE)))


def parse_grants(texts: Iterable[str]) -> Grants:
    """Return the grants in ``texts``. Raises GrantError, also for more than MAX_GRANTS."""
    grants = [parse_grant(text) for text in texts]
    if len(grants) > MAX_GRANTS:
        raise GrantError(f"there are {len(grants)} grants, at most {MAX_GRANTS} are allowed: use patterns")
    return Grants(grants)
