"""Names on the command line: the name of a channel means all of its vchannels."""

from collections.abc import Sequence

from tidelog import AsyncClient


def full_name(name: str) -> str:
    """Return the full name of a vchannel; the name of a channel with one vchannel means that vchannel."""
    return name if "/" in name else f"{name}/0"


async def vchannels_of(client: AsyncClient, names: Sequence[str]) -> list[str]:
    """Return the vchannels of names of channels and vchannels, without duplicates."""
    channels = [name for name in names if "/" not in name]
    described = await client.describe_channels(channels) if channels else []
    by_channel = {channel.name: [vchannel.name for vchannel in channel.vchannels] for channel in described}
    found = [vchannel for name in names for vchannel in by_channel.get(name, [name])]
    return list(dict.fromkeys(found))
