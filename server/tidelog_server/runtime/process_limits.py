"""Resource limits of this process, checked before the store is opened.

Without enough file descriptors RocksDB fails at an arbitrary file and libraries crash; without address space,
allocations abort the process. This module checks both limits in advance.
"""

import resource
from typing import Final

from tidelog_server.core.limits import GIB, MIB, MIN_CONNECTIONS, RESERVED_FILES

# Below this limit a store is not opened; descriptors above it are for connections.
MIN_OPEN_FILES: Final = RESERVED_FILES + MIN_CONNECTIONS
# The soft limit is raised to the hard limit, but at most to this number.
MAX_RAISED_OPEN_FILES: Final = 65_536
# Address space (RLIMIT_AS): threads and allocators reserve far more than they use; an idle server reserves 1.4 GiB.
MIN_ADDRESS_SPACE_BYTES: Final = 4 * GIB


class ProcessLimitError(Exception):
    """A limit of this process is too low. Nothing was opened. The text names the limit and the remedy."""


def open_files_limit() -> int:
    """Raise the soft limit of open files as far as allowed, at most to MAX_RAISED_OPEN_FILES, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_RAISED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_RAISED_OPEN_FILES)
    if soft == resource.RLIM_INFINITY:
        return MAX_RAISED_OPEN_FILES
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(soft, target)


def check_process_limits(needed_files: int = MIN_OPEN_FILES) -> None:
    """Check that this process may open ``needed_files`` files and has the address space for a store.

    Raises:
        ProcessLimitError: A limit is too low.
    """
    if (files := open_files_limit()) < needed_files:
        raise ProcessLimitError(
            f"the limit of open files is {files}, and {needed_files} are needed: raise the limit (ulimit -n, "
            "LimitNOFILE in a systemd unit, ulimits.nofile in compose) to 4096 or more"
        )
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < MIN_ADDRESS_SPACE_BYTES:
        raise ProcessLimitError(
            f"the limit of address space is {soft // MIB} MiB, and {MIN_ADDRESS_SPACE_BYTES // MIB} MiB are needed, "
            "most of which is reserved and never used: remove the limit (ulimit -v), and limit the memory of the "
            "service instead (MemoryMax in a systemd unit, mem_limit in compose)"
        )
