"""Exit codes of the commands, and the exception that carries one."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Exit codes. Those from 64 to 78 belong to ``tidelog serve`` and follow BSD's sysexits.h where it defines one."""

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
    LOG_CLAIMED = 76
    NO_PERMISSION = 77
    BAD_CONFIG = 78
    INTERRUPTED = 130


class CheckCode(IntEnum):
    """Exit codes of ``tidelog check``: those of Nagios plugins, unlike those of the other commands."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


CHECK_CODES: Final = (
    "Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown (wrong arguments, or the state could not be determined). They "
    "follow the convention of monitoring plugins and differ from those of the other commands."
)
COMMON_CODES: Final = (
    "Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 timeout, 6 unavailable, 7 denied, "
    "8 degraded, 9 unhealthy, 130 interrupted."
)
SERVE_CODES: Final = (
    "Exit codes: 0 stopped by a signal, 5 shutdown cut short after server.shutdown_grace_s (no acknowledged data is"
    " lost), 6 etcd or the engine of the log unreachable at start, 65 stored data damaged or missing, 69 address in"
    " use or not an address of this machine, 70 the check of the store crashed or timed out, 71 too few file "
    "descriptors or too little memory, 72 disk full at start, 73 data folder unusable, 74 storage failed, 75 data "
    "folder in use by another server, 76 another process has claimed the log (do not restart), 77 no permission, 78"
    " invalid configuration, 128 + n when a second signal n killed it."
)


class CommandError(Exception):
    """A command failed.

    Attributes:
        lines: What was wrong, what was expected, and what to do: one line, or one for each of several problems.
        message: The lines as one text.
        code: Exit code of the process.
    """

    def __init__(self, problem: str | Sequence[str], code: ExitCode = ExitCode.FAILURE) -> None:
        self.lines = (problem,) if isinstance(problem, str) else tuple(problem)
        self.message = "\n".join(self.lines)
        super().__init__(self.message)
        self.code = code
