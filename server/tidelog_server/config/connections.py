"""How many connections of gRPC clients fit into the process's limit of open files."""

import socket

from tidelog_server.config.error import ConfigError
from tidelog_server.config.settings import ServerSettings
from tidelog_server.core.limits import MAX_CONNECTIONS, MIN_CONNECTIONS, RESERVED_FILES


def connections_of_address(server: ServerSettings, files: int) -> int:
    """Return how many connections each address that ``server.host`` stands for may have.

    Args:
        server: What was asked for.
        files: How many file descriptors the process may have.

    Raises:
        ConfigError: They do not fit beside what the store and the process need.
    """
    room = files - RESERVED_FILES
    wanted = server.max_connections or min(MAX_CONNECTIONS, max(room, MIN_CONNECTIONS))
    if wanted > room:
        raise ConfigError(
            [
                f"server.max_connections is {wanted}, and the limit of {files} open files has room for {max(0, room)} "
                f"beside the {RESERVED_FILES} that the store and the process need: lower it, or raise the limit to "
                f"{RESERVED_FILES + wanted} (ulimit -n, LimitNOFILE in a systemd unit, ulimits.nofile in compose)"
            ]
        )
    # gRPC counts the connections of each address by themselves.
    return max(1, wanted // len(_addresses(server.host)))


def _addresses(host: str) -> set[str]:
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {str(address[0]) for *_, address in found}
