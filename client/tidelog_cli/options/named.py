"""Names on the command line: a pattern stands for the channels or groups that match it."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from tidelog import AsyncClient
from tidelog.read.channel_patterns import ChannelPattern, GroupPattern, is_pattern
from tidelog_cli.exit_codes import CommandError, ExitCode


class _Named(Protocol):
    @property
    def name(self) -> str: ...


async def channels_named(client: AsyncClient, names: Sequence[str]) -> list[str]:
    """Return names of channels, with those that match in place of each pattern, without duplicates.

    Raises:
        CommandError: No channel matches a pattern.
        ValueError: A pattern is invalid.
    """
    return await _named(names, ChannelPattern, client.list_channels)


async def groups_named(client: AsyncClient, names: Sequence[str]) -> list[str]:
    """Return names of groups, as ``channels_named``."""
    return await _named(names, GroupPattern, client.list_groups)


async def _named(
    names: Sequence[str], kind: type[ChannelPattern], listed: Callable[[str], AsyncIterator[_Named]]
) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        matches = [each.name async for each in listed(name)] if is_pattern(name) else [name]
        if not matches:
            pattern = kind(name)
            raise CommandError(f"no {pattern.what} matches the pattern '{name}': {pattern.advice}", ExitCode.NOT_FOUND)
        found |= dict.fromkeys(matches)
    return list(found)
