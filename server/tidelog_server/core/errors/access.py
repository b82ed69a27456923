"""Errors of authentication and permissions."""

from collections.abc import Sequence

from tidelog_server.core.errors import Effect, TidelogServerError


class UnauthenticatedError(TidelogServerError, reason="UNAUTHENTICATED"):
    """The call has no valid credentials. The reason is logged, not returned to the caller."""

    def __init__(self) -> None:
        super().__init__(
            "the call has no valid credentials: send a token that is neither expired nor revoked, over TLS, or use a "
            "client certificate; the server's log has the reason"
        )


class CredentialsExpiredError(TidelogServerError, reason="CREDENTIALS_EXPIRED"):
    """The credentials of an open call expired or were revoked. Earlier requests of the call may have had an effect."""

    effect = Effect.UNKNOWN

    def __init__(self) -> None:
        super().__init__("the credentials of this call expired or were revoked: open it again with new ones")


class PermissionDeniedError(TidelogServerError, reason="PERMISSION_DENIED"):
    """The caller lacks a permission. The answer does not depend on whether ``name`` exists."""

    def __init__(self, verbs: Sequence[str], name: str) -> None:
        """Make the error for a call that needs one of the permissions ``verbs`` on ``name``."""
        where = f" on '{name}'" if name else ""
        needed = f"the permission '{verbs[0]}'" if len(verbs) == 1 else f"one of the permissions {', '.join(verbs)}"
        super().__init__(
            f"{needed}{where} is missing: ask an administrator for a token from `tidelog token create` that allows it, "
            "or correct the name",
            verb=" ".join(verbs), name=name,
        )  # fmt: skip


class TokenNotExistError(TidelogServerError, reason="TOKEN_NOT_EXIST"):
    """No token has this id."""

    def __init__(self, token_id: str) -> None:
        super().__init__(f"token {token_id} does not exist: `tidelog token ls` lists the tokens", token_id=token_id)


class AuditFailedError(TidelogServerError, reason="AUDIT_FAILED"):
    """An administrative call was refused because it could not be written to the audit log first."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the call was refused because the audit log cannot be written: {cause}", cause=cause)
