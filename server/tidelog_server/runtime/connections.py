"""The open connections of this process."""

import psutil


def is_connected(port: int) -> bool:
    """Return whether a client is connected to a TCP port of this process; True if the system does not tell."""
    try:
        connections = psutil.Process().net_connections("tcp")
    except psutil.AccessDenied:
        return True
    return any(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in connections)
