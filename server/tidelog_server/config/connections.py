"""The number of gRPC client connections that the limit of open files allows."""

import socket

from tidelog_server.config.error import ConfigError
from tidelog_server.config.settings import ServerSettings
from tidelog_server.core.limits import MAX_CONNECTIONS, MIN_CONNECTIONS, RESERVED_FILES


def connections_of_address(server: ServerSettings, files: int) -> int:
    """Return the maximum number of connections on each address that ``server.host`` resolves to.

    Args:
        server: Settings; ``max_connections`` 0 means as many as ``files`` allows.
        files: Limit of open file descriptors of this process.

    Raises:
        ConfigError: ``files`` is too small for ``max_connections`` and the descriptors that the store and the process
            need.
    """
    room = files - RESERVED_FILES
    wanted = server.max_connections or min(MAX_CONNECTIONS, max(room, MIN_CONNECTIONS))
    if wanted > room:
        raise ConfigError(
            [
                f"server.max_connections is {wanted}, but the limit of {files} open files allows {max(0, room)}: the "
                f"store and the process need {RESERVED_FILES}. Lower max_connections, or raise the limit to "
                f"{RESERVED_FILES + wanted} (ulimit -n, LimitNOFILE in a systemd unit, ulimits.nofile in compose)"
            ]
        )
    # gRPC counts the connections of each address separately.
    return max(1, wanted // len(_addresses(server.host)))


def _addresses(host: str) -> set[str]:
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {str(address[0]) for *_, address in found}
