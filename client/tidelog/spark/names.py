"""Parsing of vchannel names such as ``orders/0``. Pure."""


def channel_of(name: str) -> str:
    """Return ``orders`` for ``orders/0`` and for ``orders``."""
    return name.partition("/")[0]


def parts_of(vchannel: str) -> tuple[str, int]:
    """Return channel and index, ``("orders", 0)`` for ``orders/0``: the sort key of vchannels."""
    channel, _, index = vchannel.partition("/")
    return channel, int(index)
