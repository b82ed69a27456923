"""The server that the commands call, and the credentials for it: options before the command, and ``--endpoint``."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import tidelog
from tidelog.settings.contexts import PREVIOUS
from tidelog.settings.resolver import (
    CONTEXT_VARIABLE,
    DEFAULT_ENDPOINT,
    ENDPOINT_VARIABLE,
    VARIABLES,
    Given,
    Target,
    target_of,
)
from tidelog.transport.credentials import TokenSource
from tidelog_cli.credential_files import check_credentials
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import local_path
from tidelog_cli.options.passed import is_passed, only_passed

_HELP: Final = (
    "host:port of the server, of several nodes after commas, or tidelog://HOST:PORT, or tidelogs://HOST:PORT for TLS. "
    f"Default: the selected context, see `tidelog ctx`, else {DEFAULT_ENDPOINT}."
)
EndpointOption = Annotated[
    str,
    typer.Option(
        "--endpoint", envvar=ENDPOINT_VARIABLE, callback=only_passed, show_default=False, help=_HELP, metavar="ADDRESS"
    ),
]
NOT_GIVEN: Final = ""


class _Options:
    """What the options before the command say, for all commands of this process."""

    given: Given = Given()


_options = _Options()


def _of_file(name: str, text: str) -> Any:
    """Return an option that names a file of credentials."""
    return typer.Option(envvar=VARIABLES[name], parser=local_path, help=text)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"tidelog {tidelog.__version__}")
        raise typer.Exit


def credentials(  # noqa: PLR0917 - Typer passes them by name
    call: typer.Context,
    tls_ca: Annotated[
        Path | None, _of_file("tls_ca", "PEM file of CAs to verify the server with; enables TLS.")
    ] = None,
    tls_cert: Annotated[Path | None, _of_file("tls_cert", "PEM file of a client certificate, for mutual TLS.")] = None,
    tls_key: Annotated[Path | None, _of_file("tls_key", "PEM file of the client certificate's private key.")] = None,
    token_file: Annotated[
        Path | None,
        _of_file("token_file", "File with the access token. Alternatively, set TIDELOG_TOKEN to the token itself."),
    ] = None,
    endpoint: EndpointOption = NOT_GIVEN,
    context: Annotated[
        str,
        typer.Option(
            "--ctx",
            envvar=CONTEXT_VARIABLE,
            callback=only_passed,
            metavar="NAME",
            show_default=False,
            help=f"Context with the server and its credentials, see `tidelog ctx`; {PREVIOUS} for the previous one.",
        ),
    ] = NOT_GIVEN,
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Set the server and the credentials of all commands. These options precede the command."""
    values = {
        "endpoint": endpoint, "context": context, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key,
        "token_file": token_file,
    }  # fmt: skip
    # Variables are left to the resolver: those of credentials belong to the server that a variable names, if one does.
    passed = {name: str(value) for name, value in values.items() if is_passed(call, name)}
    _options.given = Given(**passed)
    token_of.cache_clear()


def target_at(endpoint: str = NOT_GIVEN, *, default: str = DEFAULT_ENDPOINT) -> Target:
    """Return the server that a command calls, with credentials whose files can be read.

    Args:
        endpoint: Value of its option ``--endpoint``; empty if it was not passed.
        default: Address if nothing names a server.

    Raises:
        CommandError: An address, a context or credentials are invalid, or the token would travel unencrypted to another
            machine.
    """
    given = _options.given
    if endpoint:
        if given.context:
            raise CommandError("both --ctx and --endpoint are given: pass one of them", ExitCode.USAGE)
        given = replace(given, endpoint=endpoint)
    try:
        target = target_of(given, default=default).checked()
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    files = [target.token_file, target.tls_ca, target.tls_cert, target.tls_key]
    token_file, *_ = [local_path(each) if each else None for each in files]
    check_credentials(target.tls(), token_of(target), token_file)
    return target


@cache
def token_of(target: Target) -> TokenSource | None:
    """Return the source of a target's token: one, which warns once of a file that others can read."""
    return target.token_source()


def source_options(target: Target) -> Mapping[str, str]:
    """Return what names the server and has the credentials, as options of the Spark source."""
    files = {
        "tlsCa": target.tls_ca, "tlsCert": target.tls_cert, "tlsKey": target.tls_key, "tokenFile": target.token_file
    }  # fmt: skip
    paths = {name: str(Path(path).absolute()) for name, path in files.items() if path}
    if target.context:
        return {"context": target.context, **paths}
    return {"endpoint": target.url, **paths, **({"token": target.token} if target.token else {})}
