"""Domain errors about who may do what; part of the tree in ``core.errors``."""

from collections.abc import Sequence

from tidelog_server.core.errors import Effect, TidelogServerError


class UnauthenticatedError(TidelogServerError):
    """The call has no credentials that this server takes. What is wrong with them is logged, and not told."""

    def __init__(self) -> None:
        super().__init__(
            "the call has no valid credentials: give a token that is neither expired nor revoked, over TLS, or a "
            "client certificate; the server's log says what is wrong with these"
        )


class CredentialsExpiredError(TidelogServerError):
    """The credentials of an open call ran out or were revoked. What the call did before may have had an effect."""

    effect = Effect.UNKNOWN

    def __init__(self) -> None:
        super().__init__("the credentials of this call ran out or were revoked: open it again with new ones")


class PermissionDeniedError(TidelogServerError):
    """The caller may not do this here. The answer is the same whether there is something of that name or not."""

    def __init__(self, verbs: Sequence[str], name: str) -> None:
        """Make the error for a call that needs one of ``verbs``, which the caller lacks, on ``name``."""
        where = f" on '{name}'" if name else ""
        needed = f"the permission '{verbs[0]}'" if len(verbs) == 1 else f"one of the permissions {', '.join(verbs)}"
        super().__init__(
            f"{needed}{where} is missing: have it granted, or correct the name", verb=" ".join(verbs), name=name
        )


class TokenNotExistError(TidelogServerError):
    """No token has this id."""

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id}: list them", token_id=token_id)


class AuditFailedError(TidelogServerError):
    """An administrative call was not made, for it could not be written to the audit log first."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"nothing was done, for the audit log cannot be written: {cause}", cause=cause)
