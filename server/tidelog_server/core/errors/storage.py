"""Errors of reading the store that do not prove data loss; part of the tree in ``core.errors``."""

from tidelog_server.core.errors import TidelogServerError


class StorageUnreadableError(TidelogServerError):
    """The system refused to read the store: no file descriptor, no memory, no permission, a failing disk.

    No data is known to be damaged or missing, and a retry may succeed. DataLossError reports proven loss.

    Attributes:
        errno: Error number of the system.
    """

    def __init__(self, cause: str, errno: int) -> None:
        super().__init__(
            f"the store could not be read ({cause}): no data is known to be lost; retry, and if this persists, check "
            "the disk and the server's resource limits",
            cause=cause,
        )
        self.errno = errno
