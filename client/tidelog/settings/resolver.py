"""Decides which server a client calls and with which credentials; the same for clients, commands and Spark.

One source names the server, and the credentials come from that source: those of a context or of the environment are
never sent to a server that another source names. The first of these counts:

1. An address that is an argument or an option.
2. A context that is an argument or an option, or that ``TIDELOG_CONTEXT`` names.
3. ``TIDELOG_ENDPOINT``.
4. The context that ``tidelog ctx use`` has selected.
5. The default address, 127.0.0.1:7420.

Each credential that is an argument or an option replaces that of the source. For 3 and 5, the variables
``TIDELOG_TOKEN``, ``TIDELOG_TOKEN_FILE``, ``TIDELOG_TLS_CA``, ``TIDELOG_TLS_CERT`` and ``TIDELOG_TLS_KEY`` are the
source. They are it too for an option of a command or of Spark, because these variables are defaults of options there.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog.settings.addresses import addresses_of
from tidelog.settings.contexts import Context, ContextFile, Credentials, folder_of
from tidelog.transport.credentials import TlsOptions, TokenFile, TokenSource, check_endpoint

DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
ENDPOINT_VARIABLE: Final = "TIDELOG_ENDPOINT"
CONTEXT_VARIABLE: Final = "TIDELOG_CONTEXT"
VARIABLES: Final[Mapping[str, str]] = {
    "token": "TIDELOG_TOKEN",
    "token_file": "TIDELOG_TOKEN_FILE",
    "tls_ca": "TIDELOG_TLS_CA",
    "tls_cert": "TIDELOG_TLS_CERT",
    "tls_key": "TIDELOG_TLS_KEY",
}
"""The variables for credentials, by the names of the fields of ``Credentials``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(Credentials):
    """What the arguments of a call, or the options of a command or of Spark, say. Empty if not given.

    Attributes:
        endpoint: A URL, or ``host:port``, several separated by commas.
        context: Name of a context, or ``-`` for the previous one.
    """

    endpoint: str = ""
    context: str = ""


NOTHING_GIVEN: Final = Given()


@dataclass(frozen=True, slots=True)
class Target(Credentials):
    """A server, or the nodes of a cluster, with credentials, at most one of which is a token or the file of one.

    It can be pickled; the files are read where it is used.

    Attributes:
        endpoints: ``host:port`` of each node.
        context: Name of the context that named them; empty if something else did.
        is_default: Whether nothing names a server.
        needs_tls: Whether TLS is used even if no file is named.
    """

    endpoints: tuple[str, ...]
    context: str = ""
    is_default: bool = False
    needs_tls: bool = False

    @property
    def endpoint(self) -> str:
        """The endpoints, separated by commas."""
        return ",".join(self.endpoints)

    @property
    def url(self) -> str:
        """The endpoints as what ``addresses_of`` reads."""
        return ("tidelogs://" if self.needs_tls else "") + self.endpoint

    def tls(self) -> TlsOptions | None:
        """Return the options of TLS; None for plaintext. Raises ValueError if a certificate lacks its key."""
        if not (self.needs_tls or self.tls_ca or self.tls_cert or self.tls_key):
            return None
        return TlsOptions(self.tls_ca or None, self.tls_cert or None, self.tls_key or None)

    def token_source(self) -> TokenSource | None:
        """Return the source of the token; None without one. Does no I/O."""
        return TokenFile(self.token_file) if self.token_file else self.token or None

    def checked(self) -> "Target":
        """Return the target. Raises ValueError if its token would travel unencrypted to another machine."""
        _access(self, None, None)
        return self


def target_of(
    given: Given = NOTHING_GIVEN, environment: Mapping[str, str] | None = None, *, default: str = DEFAULT_ENDPOINT
) -> Target:
    """Return the server and the credentials for ``given``; see the module.

    Args:
        given: Arguments or options.
        environment: The variables; None for those of the process.
        default: Address if nothing names one.

    Raises:
        ContextError: The context does not exist, or the file of contexts cannot be used. The file is read only if no
            address is an argument, an option or a variable.
        ValueError: An address is invalid, or a context and an address are given.
    """
    variables = os.environ if environment is None else environment
    if given.endpoint and given.context:
        raise ValueError(f"both an endpoint and the context '{given.context}' are given: pass one of them")
    if given.endpoint:
        return _of_variables(given, variables, given.endpoint)
    named = given.context or variables.get(CONTEXT_VARIABLE, "")
    if not named and (endpoint := variables.get(ENDPOINT_VARIABLE, "")):
        return _of_variables(given, variables, endpoint, ENDPOINT_VARIABLE)
    contexts = ContextFile(folder_of(variables)).read()
    if name := contexts.name_of(named) if named else contexts.current:
        return target_in(contexts.by_name[name], name, given)
    return replace(_of_variables(given, variables, default), is_default=True)


def target_of_context(name: str | None, environment: Mapping[str, str] | None = None) -> Target:
    """Return the server and the credentials of a context; None for that of ``TIDELOG_CONTEXT``, else the selected one.

    Raises:
        ContextError: There is no such context, or none is selected, or the file of contexts cannot be used.
        ValueError: Its address is invalid.
    """
    variables = os.environ if environment is None else environment
    contexts = ContextFile(folder_of(variables)).read()
    chosen = contexts.chosen(variables.get(CONTEXT_VARIABLE, "")) if name is None else contexts.name_of(name)
    return target_in(contexts.by_name[chosen], chosen)


def target_in(context: Context, name: str, given: Given = NOTHING_GIVEN) -> Target:
    """Return the server and the credentials of a context, with those that are given instead. Raises ValueError."""
    saved = {each: getattr(context, each) for each in VARIABLES}
    return replace(_target(context.endpoint, given, saved, f"the context '{name}'"), context=name)


def _of_variables(given: Given, variables: Mapping[str, str], endpoint: str, source: str = "") -> Target:
    return _target(endpoint, given, {name: variables.get(each, "") for name, each in VARIABLES.items()}, source)


def _target(endpoint: str, given: Given, defaults: Mapping[str, str], source: str) -> Target:
    try:
        addresses = addresses_of(endpoint)
    except ValueError as error:
        raise ValueError(f"{error} (from {source})" if source else str(error)) from error
    values: dict[str, Any] = {name: getattr(given, name) or defaults[name] for name in VARIABLES}
    if given.token:
        values["token_file"] = ""
    elif values["token_file"]:
        # A file can be replaced by a newer token, so it precedes the variable with the token itself.
        values["token"] = ""
    return Target(addresses.endpoints, needs_tls=addresses.needs_tls, **values)


Access = tuple[tuple[str, ...], TlsOptions | None, TokenSource | None]
"""Endpoints, options of TLS and source of the token: what a client is made with."""


def access(endpoints: str | Iterable[str] | None, tls: TlsOptions | None, token: TokenSource | None) -> Access:
    """Return the access of a client that gets these arguments.

    Args:
        endpoints: A URL, or ``host:port`` of each node; None for what the environment or the selected context names.
        tls: Options of TLS that were passed; they replace those of the environment or of the context.
        token: Token that was passed, likewise.

    Raises:
        ContextError, ValueError: As ``target_of``; or the token would travel unencrypted to another machine.
    """
    if endpoints is None:
        return _access(target_of(), tls, token)
    addresses = addresses_of(endpoints if isinstance(endpoints, str) else ",".join(endpoints))
    return _access(Target(addresses.endpoints, needs_tls=addresses.needs_tls), tls, token)


def context_access(name: str | None, tls: TlsOptions | None, token: TokenSource | None) -> Access:
    """Return the access of a client of a context. Raises as ``target_of_context`` and ``access``."""
    return _access(target_of_context(name), tls, token)


def _access(target: Target, tls: TlsOptions | None, token: TokenSource | None) -> Access:
    tls = target.tls() if tls is None else tls
    token = target.token_source() if token is None else token
    for endpoint in target.endpoints:
        check_endpoint(endpoint, has_token=token is not None, has_tls=tls is not None)
    return target.endpoints, tls, token
