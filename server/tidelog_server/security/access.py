"""The permissions of the current call's principal, for handlers. Not set if authentication is off.

The wrapper of the call in ``rpc.calls`` sets them; tasks that a handler starts inherit them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from contextvars import ContextVar
from typing import Final

from tidelog_server.channels.contents import Content, ContentKind
from tidelog_server.core.callers import NO_TENANT, Tenant, tenant_of
from tidelog_server.core.errors.access import PermissionDeniedError
from tidelog_server.core.names import JOURNAL_CHANNEL_PREFIX, MAILBOX_CHANNEL_PREFIX, RESERVED_PREFIX, shown
from tidelog_server.core.sorted_names import NamePattern
from tidelog_server.security.authenticator import Principal, Shown
from tidelog_server.security.grants import OF_CHANNELS, OF_JOURNALS, OF_MAILBOXES, ON_JOURNAL_CHANNELS, Verb
from tidelog_server.security.quotas import PrincipalQuota

# Permissions that one call caches.
MAX_REMEMBERED_PERMISSIONS: Final = 1_024

_WITH_SLASHES: Final = OF_JOURNALS | OF_MAILBOXES | {Verb.BROADCAST_KEY}
# Verbs that permit operations on system channels, whose names no pattern covers.
_ON_SYSTEM_CHANNELS: Final = OF_JOURNALS | OF_MAILBOXES | {Verb.ADMIN_READ, Verb.ADMIN_WRITE}


class Access:
    """The principal of one call and its permissions.

    Attributes:
        method: Full name of the method.
        shown: Credentials and origin of the call.
        principal: Authenticated caller; replaced when its permissions change.
        tenant: Tenant of the principal.
        quota: Remaining quota of the principal.
        task: Task that runs the call; cancelled to end it.
        is_ended: Set when the credentials expire, before the task is cancelled.
        on_changed: Called when the permissions of the principal have changed.
    """

    __slots__ = (
        "_allowed", "_content_of", "_denied", "_on_denied", "is_ended", "method", "on_changed", "principal", "quota",
        "shown", "task", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        shown_by: Shown,
        principal: Principal,
        quota: PrincipalQuota,
        *,
        on_denied: Callable[["Access", Verb, str], None],
        content_of: Callable[[str], Content | None],
    ) -> None:
        """``content_of`` returns the journal or mailbox whose messages a channel holds; None for other channels."""
        self.method = method
        self.shown = shown_by
        self.principal = principal
        # Cached, because each batch needs it; the name of a call's principal never changes.
        self.tenant = tenant_of(principal.name)
        self.quota = quota
        self.task: asyncio.Task[object] | None = None
        self.is_ended = False
        self.on_changed: Callable[[], None] | None = None
        self._on_denied = on_denied
        self._content_of = content_of
        self._allowed: set[tuple[Verb, str]] = set()
        self._denied: set[tuple[Verb, str]] = set()

    def require(self, verb: Verb, name: str) -> None:
        """Check that ``verb`` is permitted on a channel, vchannel, group, journal, mailbox or domain.

        A repeated check is one look-up. The channel of a journal needs the permission on the journal. A channel never
        belongs to another journal, so a permission that was found stays valid.

        Raises:
            PermissionDeniedError: It is not permitted. Raised whether or not the name exists.
        """
        key = (verb, name)
        if key not in self._allowed:
            if not self._allows(verb, name):
                raise self.denial((verb,), name)
            _remember(self._allowed, key)

    def require_somewhere(self, *verbs: Verb) -> None:
        """Check that one of ``verbs`` is permitted on at least one name, journals included.

        Raises:
            PermissionDeniedError: None is.
        """
        grants = self.principal.grants
        for verb in verbs:
            on_journals = ON_JOURNAL_CHANNELS.get(verb)
            if grants.allow_somewhere(verb) or (on_journals is not None and grants.allow_somewhere(on_journals)):
                return
        raise self.denial(verbs, "")

    def may(self, verbs: Iterable[Verb], name: str) -> bool:
        """Return whether one of ``verbs`` is permitted on ``name``. False is not recorded as a denial."""
        return any(self._allows(verb, name) for verb in verbs)

    def candidates(self, verbs: Set[Verb]) -> list[NamePattern] | None:
        """Return patterns that cover each name on which one of ``verbs`` may be permitted; None if every name may be.

        A list looks at the names that they cover, so its time does not depend on what others have.
        """
        grants = self.principal.grants
        patterns = grants.patterns(verbs)
        if (
            patterns is not None
            and not verbs <= _WITH_SLASHES
            and any(map(grants.allow_somewhere, _ON_SYSTEM_CHANNELS))
        ):
            patterns.append(NamePattern(RESERVED_PREFIX, is_prefix=True))
        return patterns

    def may_locate(self, channel: str) -> bool:
        """Return whether a permission exists on ``channel``, or on the mailbox whose events it holds."""
        if self.may(OF_CHANNELS, channel):
            return True
        return channel.startswith(MAILBOX_CHANNEL_PREFIX) and self.may(
            OF_MAILBOXES, self._content_name(channel, ContentKind.MAILBOX)
        )

    def _content_name(self, channel: str, kind: ContentKind) -> str:
        content = self._content_of(channel)
        return content.name if content is not None and content.kind is kind else ""

    def _allows(self, verb: Verb, name: str) -> bool:
        needed: Verb | None = verb
        # Names of journals and mailboxes and domains of resource keys contain slashes; they have no index.
        if verb not in _WITH_SLASHES:
            name = name.partition("/")[0]
            if name.startswith(JOURNAL_CHANNEL_PREFIX):
                needed, name = ON_JOURNAL_CHANNELS.get(verb), self._content_name(name, ContentKind.JOURNAL)
            elif name.startswith(MAILBOX_CHANNEL_PREFIX) and verb is not Verb.READ:
                # The state of a mailbox is the fold of its events: only the server appends to them and trims them.
                needed = None
        return needed is not None and self.principal.grants.allow(needed, name)

    def denial(self, verbs: Sequence[Verb], name: str) -> PermissionDeniedError:
        """Return the error for a call that needs one of ``verbs`` on ``name``.

        The denial of the first verb is recorded, once per call, verb and name.
        """
        self.quota.note_denied()
        if name.startswith(JOURNAL_CHANNEL_PREFIX):
            verbs = sorted({ON_JOURNAL_CHANNELS.get(verb, verb) for verb in verbs})
        verb = verbs[0]
        key = (verb, name)
        if key not in self._denied:
            _remember(self._denied, key)
            self._on_denied(self, verb, shown(name))
        return PermissionDeniedError(verbs, shown(name))

    def renewed(self, principal: Principal) -> None:
        """Replace the principal, whose permissions may have changed."""
        # Identity first: thousands of streams are checked each second, mostly without a change.
        if principal.grants is not self.principal.grants and principal.grants != self.principal.grants:
            self._allowed.clear()
            self.principal = principal
            if self.on_changed is not None:
                self.on_changed()
        self.principal = principal


_current: ContextVar[Access | None] = ContextVar("tidelog-access", default=None)

current_access: Final = _current.get
"""Returns the access of the current call; None if authentication is off."""

set_access: Final = _current.set
"""Sets the access of the current task, which must be the task of the call."""


def current_tenant() -> Tenant:
    """Return the tenant of the current call's principal; NO_TENANT if authentication is off."""
    access = _current.get()
    return NO_TENANT if access is None else access.tenant


async def count_sent(size_bytes: int) -> None:
    """Count bytes of a response of a stream in the quota of the current call's principal, and rest if it is spent."""
    if (access := _current.get()) is not None:
        await access.quota.sent(size_bytes)


def current_principal() -> str:
    """Return the name of the current call's principal; empty if authentication is off."""
    access = _current.get()
    return "" if access is None else access.principal.name


def _remember(memory: set[tuple[Verb, str]], key: tuple[Verb, str]) -> None:
    if len(memory) >= MAX_REMEMBERED_PERMISSIONS:
        memory.clear()
    memory.add(key)
