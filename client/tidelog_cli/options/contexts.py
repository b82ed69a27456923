"""``tidelog ctx``: servers and their credentials under names, for commands, clients and Spark."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidelog.settings.contexts import PREVIOUS, Context, ContextFile, Contexts, folder_of
from tidelog.settings.resolver import target_in
from tidelog.transport.credentials import authorization
from tidelog_cli.credential_files import check_credentials
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import local_path
from tidelog_cli.option_groups import add_group
from tidelog_cli.output.masks import MASK
from tidelog_cli.output.records import OutputOption, QuietOption, Record, note, print_records

MAX_TOKEN_BYTES: Final = 8 << 10
"""A request has no room for a longer one."""

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]
_Existing = Annotated[
    str, typer.Argument(metavar="NAME", help=f"Name of the context; {PREVIOUS} for the previous one.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app,
        "ctx",
        "Save servers and their credentials under names, and select one for commands, clients and Spark.",
        [add, use, ls, show, rm],
    )


def _of_file(text: str) -> Any:
    return typer.Option(parser=local_path, help=text)


def add(
    name: _NameArgument,
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="host:port, several after commas, tidelog://HOST:PORT or tidelogs://HOST:PORT."
        ),
    ],
    *,
    token_file: Annotated[Path | None, _of_file("File with the access token; it is read at each use.")] = None,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the access token from standard input, and save it.")
    ] = False,
    tls_ca: Annotated[Path | None, _of_file("PEM file of CAs to verify the server with; enables TLS.")] = None,
    tls_cert: Annotated[Path | None, _of_file("PEM file of a client certificate, for mutual TLS.")] = None,
    tls_key: Annotated[Path | None, _of_file("PEM file of the client certificate's private key.")] = None,
    select: Annotated[bool, typer.Option("--use", help="Select the context too.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context of that name.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Save a server and the credentials for it under a name. Its files are named by absolute paths.

    The file of contexts is readable by its owner only; a token in a file of its own can be renewed there.
    """
    if token_stdin and token_file is not None:
        raise CommandError("both --token-stdin and --token-file are given: pass one of them", ExitCode.USAGE)
    token = _token_of_stdin() if token_stdin else ""
    with _refused():
        files = {"token_file": token_file, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
        # By absolute paths, so that it is the same in each folder.
        named = {each: str(path.absolute()) for each, path in files.items() if path is not None}
        context = Context(address, token=token, **named)
        target = target_in(context, name).checked()
        check_credentials(target.tls(), target.token_source(), token_file)
    with _refused(), _file().changed() as held:
        held[0] = held[0].added(name, context, replace=replace)
        if select:
            held[0] = held[0].used(name)
    note(f"added the context '{name}'" + (", and selected it" if select else ""), quiet=quiet)


def use(name: _Existing, quiet: QuietOption = False) -> None:
    """Select the context that counts where nothing else names a server: no option, no variable."""
    with _refused(), _file().changed() as held:
        held[0] = held[0].used(name)
    chosen = held[0].current
    note(f"selected the context '{chosen}': {held[0].by_name[chosen].endpoint}", quiet=quiet)
    for variable in ("TIDELOG_CONTEXT", "TIDELOG_ENDPOINT"):
        if os.environ.get(variable):
            note(f"{variable} is set, and counts instead where it is", quiet=quiet)


def ls(output: OutputOption = None) -> None:
    """List the contexts."""
    contexts = _read()
    print_records([_row(name, contexts) for name in sorted(contexts.by_name)], output)


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help=f"Name of the context; {PREVIOUS} for the previous one. Default: the selected one."
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show a context. A token is masked."""
    contexts = _read()
    with _refused():
        chosen = contexts.chosen(name or "")
    context = contexts.by_name[chosen]
    values = {**asdict(context), "token": MASK if context.token else ""}
    files = {name: value or None for name, value in values.items() if name != "endpoint"}
    print_records(
        [{"name": chosen, "current": chosen == contexts.current, "endpoint": context.endpoint, **files}], output
    )


def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the contexts.")],
    quiet: QuietOption = False,
) -> None:
    """Remove contexts. Removes all or, if one does not exist, none."""
    with _refused(), _file().changed() as held:
        for name in dict.fromkeys(names):
            held[0] = held[0].removed(name)
    note(f"removed {', '.join(dict.fromkeys(names))}", quiet=quiet)


def _row(name: str, contexts: Contexts) -> Record:
    context = contexts.by_name[name]
    target = target_in(context, name)
    return {
        "name": name, "current": name == contexts.current, "endpoint": context.endpoint,
        "tls": target.tls() is not None, "token": bool(context.token or context.token_file),
    }  # fmt: skip


def _file() -> ContextFile:
    return ContextFile(folder_of(os.environ))


def _read() -> Contexts:
    with _refused():
        return _file().read()


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error


def _token_of_stdin() -> str:
    content = sys.stdin.buffer.read(MAX_TOKEN_BYTES + 1)
    # Never the content in an error, which may be part of a secret.
    if len(content) > MAX_TOKEN_BYTES:
        raise CommandError(f"the token on standard input has more than {MAX_TOKEN_BYTES} bytes", ExitCode.USAGE)
    token = content.decode("ascii", "replace").strip()
    with _refused():
        authorization(token)
    return token
