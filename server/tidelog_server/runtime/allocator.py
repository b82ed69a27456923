"""The C library's allocator: how much freed memory it keeps."""

import ctypes
import os
from collections.abc import Mapping
from typing import Final

# Parameters of mallopt, from malloc.h of glibc.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# Above the largest response and request: each would be mapped, filled with zeros page by page, and unmapped.
_MMAP_FROM_BYTES: Final = 8 << 20
# Above the responses that are in flight on one thread.
_KEPT_BYTES: Final = 32 << 20
_ENVIRONMENT: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Let the process reuse the memory of large buffers instead of returning it to the kernel with each of them.

    glibc adapts its limits to what a process has freed, in an order that varies with each start, and at worst returns
    and faults in again each page of each response of a scan. See D-169. Settings in the environment win, and other C
    libraries have no such limits; then nothing changes, and the result is False.
    """
    if any(name in environment for name in _ENVIRONMENT):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
