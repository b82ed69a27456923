"""Errors of reading the store that say nothing about what is in it."""

from tidelog_server.core.errors import TidelogServerError


class StorageUnreadableError(TidelogServerError):
    """The system did not let the store be read: no file descriptor, no memory, no permission, a failing disk.

    No data is known to be damaged or missing, and reading again may succeed. What is proven to be missing is
    DataLossError.

    Attributes:
        errno: What the system said.
    """

    def __init__(self, cause: str, errno: int) -> None:
        super().__init__(
            f"the store could not be read ({cause}): nothing is known to be lost; read again, and look at the disk and "
            "the limits of the server if it persists",
            cause=cause,
        )
        self.errno = errno
