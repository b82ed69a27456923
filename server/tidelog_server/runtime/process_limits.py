"""What the system lets this process have: enough for a store, or a refusal before anything is opened.

Without enough file descriptors RocksDB fails wherever it opens its next file, and libraries crash; without address
space allocations abort the process. Both are found out here, by numbers.
"""

import resource

from tidelog_server.core.limits import (
    MAX_RAISED_OPEN_FILES,
    MIB,
    MIN_ADDRESS_SPACE_BYTES,
    MIN_OPEN_FILES,
)


class ProcessLimitError(Exception):
    """A limit of this process is too low. Nothing was opened. Its text says which limit, and what to do."""


def open_files_limit() -> int:
    """Return how many file descriptors this process may have, after raising the soft limit as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_RAISED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_RAISED_OPEN_FILES)
    if soft == resource.RLIM_INFINITY:
        return MAX_RAISED_OPEN_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)


def check_process_limits(needed_files: int = MIN_OPEN_FILES) -> None:
    """Check that this process may have ``needed_files`` file descriptors, and the address space of a store.

    Raises:
        ProcessLimitError: It may not.
    """
    if (files := open_files_limit()) < needed_files:
        raise ProcessLimitError(
            f"this process may open {files} files, and {needed_files} are needed: raise the limit (ulimit -n, "
            "LimitNOFILE in a systemd unit, ulimits.nofile in compose) to 4096 or more"
        )
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < MIN_ADDRESS_SPACE_BYTES:
        raise ProcessLimitError(
            f"this process may have {soft // MIB} MiB of address space, and {MIN_ADDRESS_SPACE_BYTES // MIB} MiB are "
            "needed, most of which is reserved and never used: remove the limit (ulimit -v) and bound the memory of "
            "the service instead (MemoryMax in a systemd unit, mem_limit in compose)"
        )
