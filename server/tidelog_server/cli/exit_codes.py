"""What the process says to its caller, in a number."""

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Exit codes; those from 64 on are of ``tidelog serve`` and have the meaning of BSD's sysexits.h, if it has one."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMEOUT = 5
    UNAVAILABLE = 6
    DENIED = 7
    DEGRADED = 8
    UNHEALTHY = 9
    DATA_LOSS = 65
    ADDRESS_UNUSABLE = 69
    NOT_CHECKED = 70
    NO_RESOURCES = 71
    DISK_FULL = 72
    DATA_DIR_UNUSABLE = 73
    STORAGE_FAILED = 74
    DATA_DIR_IN_USE = 75
    NO_PERMISSION = 77
    BAD_CONFIG = 78
    INTERRUPTED = 130


class CheckCode(IntEnum):
    """Exit codes of ``tidelog check``, those that monitors know from Nagios; the other commands have others."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


CHECK_CODES: Final = (
    "Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown (the question was wrong, or nobody can tell). They are those "
    "of monitoring plugins, not those of the other commands."
)
COMMON_CODES: Final = (
    "Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 timeout, 6 unavailable, 7 denied, "
    "8 degraded, 9 unhealthy, 130 interrupted."
)
SERVE_CODES: Final = (
    "Exit codes: 0 stopped by a signal, 5 stopped by a signal and cut short after server.shutdown_grace_s (nothing "
    "acknowledged is lost), 6 etcd not reachable at the start, 65 stored data is damaged or missing, 69 address in "
    "use or not of this machine, 70 the check of the store crashed or did not end, 71 too few file descriptors or too "
    "little memory, 72 disk full at the start, 73 data folder unusable, 74 storage failed, 75 data folder in use by "
    "another server, 77 no permission, 78 configuration refused; 128 + n when a second signal n ended it at once."
)


class CommandError(Exception):
    """A command cannot go on.

    Attributes:
        message: What was wrong, what was expected, and what to do.
        code: What the process exits with.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
