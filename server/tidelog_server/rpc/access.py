"""What the caller of the call that runs may do. Handlers ask here; with authentication off there is nothing to ask.

The call's wrapper in ``rpc.calls`` sets it, tasks that a handler begins inherit it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar

from tidelog_server.core.access_errors import PermissionDeniedError
from tidelog_server.core.limits import MAX_REMEMBERED_PERMISSIONS
from tidelog_server.core.names import shown
from tidelog_server.core.tenants import NO_TENANT, Tenant, tenant_of
from tidelog_server.rpc.quotas import PrincipalQuota
from tidelog_server.security.authenticator import Principal, Shown
from tidelog_server.security.grants import Verb


class Access:
    """Who makes one call, and what that one may do.

    Attributes:
        method: Full name of the method.
        shown: What the call showed.
        principal: Who makes it; replaced when permissions change.
        tenant: The tenant of the principal.
        quota: What the principal has left.
        task: What runs the call; cancelled to end it.
        is_ended: Set when the credentials ran out, before the task is cancelled.
    """

    __slots__ = (
        "_allowed", "_denied", "_on_denied", "is_ended", "method", "principal", "quota", "shown", "task", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        shown_by: Shown,
        principal: Principal,
        quota: PrincipalQuota,
        *,
        on_denied: Callable[["Access", Verb, str], None],
    ) -> None:
        self.method = method
        self.shown = shown_by
        self.principal = principal
        # Asked for with each batch; a call's principal keeps its name.
        self.tenant = tenant_of(principal.name)
        self.quota = quota
        self.task: asyncio.Task[object] | None = None
        self.is_ended = False
        self._on_denied = on_denied
        self._allowed: set[tuple[Verb, str]] = set()
        self._denied: set[tuple[Verb, str]] = set()

    def require(self, verb: Verb, name: str) -> None:
        """Check that ``verb`` is permitted on a channel, vchannel, group or domain. One look-up for what came before.

        Raises:
            PermissionDeniedError: It is not, or there may be nothing of this name.
        """
        key = (verb, name)
        if key not in self._allowed:
            # A domain of keys is any text, and has no part.
            pattern_name = name if verb is Verb.BROADCAST_KEY else name.partition("/")[0]
            if not self.principal.grants.allow(verb, pattern_name):
                raise self.denial((verb,), name)
            _remember(self._allowed, key)

    def require_somewhere(self, verb: Verb) -> None:
        """Check that ``verb`` is permitted on anything at all. Raises PermissionDeniedError."""
        if not self.principal.grants.allow_somewhere(verb):
            raise self.denial((verb,), "")

    def may(self, verbs: Iterable[Verb], name: str) -> bool:
        """Tell whether one of ``verbs`` is permitted on ``name``; a no is no denial."""
        return self.principal.grants.allow_any_of(verbs, name.partition("/")[0])

    def denial(self, verbs: Sequence[Verb], name: str) -> PermissionDeniedError:
        """Return the error for a call that needs one of ``verbs`` on ``name``.

        The first of them is recorded, once for each call, verb and name.
        """
        self.quota.note_denied()
        verb = verbs[0]
        key = (verb, name)
        if key not in self._denied:
            _remember(self._denied, key)
            self._on_denied(self, verb, shown(name))
        return PermissionDeniedError(verbs, shown(name))

    def renewed(self, principal: Principal) -> None:
        """Go on under permissions that may have changed."""
        # Identity first: thousands of streams are looked at each second, and nothing has changed.
        if principal.grants is not self.principal.grants and principal.grants != self.principal.grants:
            self._allowed.clear()
        self.principal = principal


_current: ContextVar[Access | None] = ContextVar("tidelog-access", default=None)


def current_access() -> Access | None:
    """Return what the caller of the running call may do; None where everybody may do everything."""
    return _current.get()


def current_tenant() -> Tenant:
    """Return the tenant of the running call's principal; NO_TENANT where everybody may do everything."""
    access = _current.get()
    return NO_TENANT if access is None else access.tenant


def set_access(access: Access) -> None:
    """Set it for the running task, which is the call's own."""
    _current.set(access)


def current_principal() -> str:
    """Return the name of the principal of the running call; empty with authentication off."""
    access = _current.get()
    return "" if access is None else access.principal.name


def _remember(memory: set[tuple[Verb, str]], key: tuple[Verb, str]) -> None:
    if len(memory) >= MAX_REMEMBERED_PERMISSIONS:
        memory.clear()
    memory.add(key)
