"""Names for the completion of shells: those that the server has which the command line being completed calls.

A completion must never print an error into the shell, whose line is half typed. Where names cannot be listed within
COMPLETION_TIMEOUT_S, nothing is completed; ``entry`` discards what is written to stderr meanwhile.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

import typer

from tidelog import AsyncClient
from tidelog_cli import connection
from tidelog_cli.options import target

COMPLETION_TIMEOUT_S: Final = 1.0
_MAX_NAMES: Final = 1_000


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def channel_names(call: typer.Context, incomplete: str) -> list[str]:
    """Return the names of channels that begin with ``incomplete``."""
    return _names(call, lambda client: client.list_channels(incomplete))


def vchannel_names(call: typer.Context, incomplete: str) -> list[str]:
    """Return the names of channels, and once the text has a slash those of the vchannels of that channel."""
    channel_name, slash, _ = incomplete.rpartition("/")
    if not slash:
        return channel_names(call, incomplete)

    async def listed(client: AsyncClient) -> AsyncIterator[_Named]:
        for channel in await client.describe_channels([channel_name]):
            for vchannel in channel.vchannels:
                yield vchannel

    return _names(call, listed)


def group_names(call: typer.Context, incomplete: str) -> list[str]:
    """Return the names of consumer groups that begin with ``incomplete``."""
    return _names(call, lambda client: client.list_groups(incomplete))


def mailbox_names(call: typer.Context, incomplete: str) -> list[str]:
    """Return the names of mailboxes that begin with ``incomplete``."""

    async def listed(client: AsyncClient) -> AsyncIterator[_Named]:
        for mailbox in await client.mailboxes.list(incomplete):
            yield mailbox

    return _names(call, listed)


def _names(call: typer.Context, listed: Callable[[AsyncClient], AsyncIterator[_Named]]) -> list[str]:
    """Return the first _MAX_NAMES names; none if anything fails."""

    async def command() -> list[str]:
        async with connection.connected(call.params.get("endpoint") or target.NOT_GIVEN) as client:
            names: list[str] = []
            async for each in listed(client):
                names.append(each.name)
                if len(names) == _MAX_NAMES:
                    break
            return names

    try:
        # Typer parses the options before the command, and does not call their function.
        root: Any = call.find_root()
        target.credentials(root, **root.params)
        return connection.run(command(), COMPLETION_TIMEOUT_S)
    except Exception:  # noqa: BLE001 - see the module's docstring
        return []
