"""Names on the command line: a channel stands for all of its vchannels."""

from collections.abc import Sequence

from tidelog import AsyncClient


def full_name(name: str) -> str:
    """Return the name of a vchannel that a server took: a channel's name alone stands for its only one."""
    return name if "/" in name else f"{name}/0"


async def vchannels_of(client: AsyncClient, names: Sequence[str]) -> list[str]:
    """Return the vchannels that names of channels and vchannels mean, none twice."""
    channels = [name for name in names if "/" not in name]
    described = await client.describe_channels(channels) if channels else []
    by_channel = {channel.name: [vchannel.name for vchannel in channel.vchannels] for channel in described}
    found = [vchannel for name in names for vchannel in by_channel.get(name, [name])]
    return list(dict.fromkeys(found))
