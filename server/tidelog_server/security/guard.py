"""The one place that every call passes: who makes it, within which quota, and whether that is permitted."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from tidelog_server.channels.contents import Content
from tidelog_server.core.limits import SECURITY_CHECK_INTERVAL_S
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.access import Access, current_access, set_access
from tidelog_server.security.audit import AuditLog
from tidelog_server.security.authenticator import Authenticator, Shown
from tidelog_server.security.grants import Verb
from tidelog_server.security.permissions import Row
from tidelog_server.security.quotas import QuotaTable

_log = structlog.get_logger()


class Guard:
    """Lets calls in, watches those that are open, and notes what was refused."""

    def __init__(
        self,
        authenticator: Authenticator,
        audit: AuditLog | None,
        quotas: QuotaTable,
        metrics: Metrics,
        *,
        fields_of: Callable[[Any], dict[str, object]],
        content_of: Callable[[str], Content | None],
    ) -> None:
        """Let calls in.

        Args:
            authenticator: Knows the callers.
            audit: Log of administrative calls and denials; None to write no log.
            quotas: Quotas of the principals.
            metrics: Count denials.
            fields_of: Returns the fields of a request, for the audit log.
            content_of: Returns the journal or mailbox whose messages a channel holds; None for other channels.
        """
        self._authenticator = authenticator
        self._audit = audit
        self._quotas = quotas
        self._metrics = metrics
        self._fields_of = fields_of
        self._content_of = content_of
        # Calls that run, by what they showed: thousands of streams of one caller are looked at once.
        self._open: dict[Shown, set[Access]] = {}

    def enter(self, method: str, shown: Shown, size_bytes: int) -> Access:
        """Return who makes a call, before its request is looked at.

        Raises:
            UnauthenticatedError: The caller is unknown.
            RateLimitRejectedError: A quota is spent.
        """
        principal = self._authenticator.authenticate(shown)
        quota = self._quotas.of(principal.name)
        quota.charge_call(size_bytes)
        return Access(method, shown, principal, quota, on_denied=self._denied, content_of=self._content_of)

    @contextmanager
    def watched(self, access: Access) -> Iterator[None]:
        """Have a call ended while this lasts, as soon as its credentials are not taken any more."""
        # Where it comes from counts for failures only.
        key = access.shown._replace(address="", connection="")
        calls = self._open.get(key)
        if calls is None:
            calls = self._open[key] = set()
        access.task = asyncio.current_task()
        calls.add(access)
        # Calls by HTTP may make others within theirs.
        outer = current_access()
        set_access(access)
        try:
            yield
        finally:
            set_access(outer)
            calls.discard(access)
            if not calls and self._open.get(key) is calls:
                del self._open[key]

    async def admit(self, access: Access, row: Row, request: Any) -> None:
        """Check that a call is permitted, and write it to the audit log if it is an administrative one.

        Raises:
            PermissionDeniedError: It is not.
            AuditFailedError: It cannot be written, so it must not be made.
        """
        row.check(access, request)
        if row.is_audited and self._audit is not None and request is not None:
            detail = row.detail(request) if row.detail else self._fields_of(request)
            is_administrator = access.principal.grants.allow_somewhere(Verb.ADMIN_WRITE)
            event = {**_of(access), "event": "admin", "request": detail}
            await self._audit.write(event, is_administrator=is_administrator)

    async def run(self) -> None:
        """End calls whose credentials are not accepted any more, and apply changes of permissions to the others."""
        while True:
            await asyncio.sleep(SECURITY_CHECK_INTERVAL_S)
            for shown, calls in list(self._open.items()):
                principal = self._authenticator.renew(shown)
                for access in list(calls):
                    if principal is not None:
                        access.renewed(principal)
                    elif not access.is_ended and access.task is not None:
                        access.is_ended = True
                        access.task.cancel()

    def unauthenticated(self, shown: Shown, reason: str) -> None:
        """Note a call without valid credentials."""
        self._metrics.auth_failures.inc()
        _log.warning("unauthenticated", address=shown.address, reason=reason)
        if self._audit is not None:
            event = {"event": "unauthenticated", "address": shown.address, "reason": reason}
            self._audit.note_refusal(event, shown.address)

    def _denied(self, access: Access, verb: Verb, name: str) -> None:
        self._metrics.permission_denials.labels(verb.value).inc()
        if self._audit is not None:
            event = {**_of(access), "event": "denied", "verb": verb.value, "name": name}
            self._audit.note_refusal(event, access.principal.name)


def _of(access: Access) -> dict[str, object]:
    return {"principal": access.principal.name, "address": access.shown.address, "method": access.method}
