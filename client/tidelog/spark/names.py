"""Names of vchannels, such as ``orders/0``, taken apart. Pure."""


def channel_of(name: str) -> str:
    """Return ``orders`` for ``orders/0``, and for ``orders``, the name of the channel itself."""
    return name.partition("/")[0]


def parts_of(vchannel: str) -> tuple[str, int]:
    """Return channel and index, ``("orders", 0)`` for ``orders/0``: in this order vchannels are sorted."""
    channel, _, index = vchannel.partition("/")
    return channel, int(index)
