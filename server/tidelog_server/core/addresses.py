"""Addresses as text: ``host:port``, with an IPv6 address in brackets."""


def address_text(host: str, port: int | str) -> str:
    """Return the address of a port on ``host``, which is a name or an IP address without brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """Return the host of an address, without brackets."""
    return address.rpartition(":")[0].strip("[]")
