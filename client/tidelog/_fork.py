"""What a fork does to open connections, found out before gRPC crashes on it.

gRPC's asyncio interface runs a thread as long as one of its objects lives, and a child that was forked meanwhile dies
with a segmentation fault at its first call (grpcio 1.85). So whoever can pause does so before a fork, and opens anew
after it, in the parent as in the child; and where something had to stay open, the child gets a ForkError instead.

gRPC's threads end a little after its last object is freed, and not before the last of whoever else in the process uses
gRPC. A child that was forked while they run waits for connections that never come, so it gets a ForkError as well,
unless gRPC has its fork handlers.

gRPC has fork handlers of its own, which serve its synchronous interface only, and crash about one child in four when
the asynchronous one is in use, whatever the child does. They are left out, unless grpc was imported before or the
environment asks for them.
"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakSet

from tidelog._errors import ForkError

_FORK_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"
_TRUE: Final = ("1", "true", "yes", "on", "y", "t")
_THREADS: Final = Path("/proc/self/task")
"""One folder for each thread of this process, on Linux; elsewhere gRPC's threads are not seen."""
_GRPC_THREADS: Final = ("event_engine", "grpc_global_tim", "lifeguard")
# The threads end within milliseconds of the last object, on a busy machine too.
_THREADS_END_WITHIN_S: Final = 0.5
_POLL_S: Final = 0.001


def _import_grpc_without_fork_handlers() -> bool:
    """Import gRPC, which looks at the variable then and never again; other programs shall not inherit it.

    Returns:
        Whether it has its fork handlers all the same.
    """
    wanted = os.environ.get(_FORK_SUPPORT)
    if "grpc" in sys.modules:
        # It was imported without this, and has them by default.
        return wanted is None or wanted.lower() in _TRUE
    os.environ[_FORK_SUPPORT] = wanted or "0"
    importlib.import_module("grpc")
    if wanted is None:
        del os.environ[_FORK_SUPPORT]
    return wanted is not None and wanted.lower() in _TRUE


_GRPC_HAS_FORK_HANDLERS: Final = _import_grpc_without_fork_handlers()


def _thread_names() -> Iterator[str]:
    for thread in _THREADS.glob("*/comm"):
        # It may have ended since.
        with suppress(OSError):
            yield thread.read_text().rstrip()


def _grpc_runs() -> bool:
    """Tell whether gRPC has threads in this process."""
    return any(name in _GRPC_THREADS for name in _thread_names())


class _Forks:
    """What this process has open, and whether it was forked while something was.

    Attributes:
        connected: Everything that holds gRPC objects now.
        is_poisoned: Whether gRPC cannot work in this process.
        has_released: Whether something was closed since the last fork.
    """

    def __init__(self) -> None:
        self.connected: WeakSet[object] = WeakSet()
        self.is_poisoned = False
        self.has_released = False
        self._grpc_runs = False
        self._unusable: list[object] = []

    def before(self) -> None:
        """Wait for gRPC's threads to end if something was closed since the last fork, and note whether they run."""
        give_up_s = time.monotonic()
        if self.has_released:
            # gRPC's threads end with the last of its objects, some of which refer to each other.
            gc.collect()
            give_up_s += _THREADS_END_WITHIN_S
        self.has_released = False
        self._grpc_runs = _grpc_runs()
        while self._grpc_runs and not self.connected and time.monotonic() < give_up_s:
            # They are no threads of Python's, which could be joined.
            time.sleep(_POLL_S)
            self._grpc_runs = _grpc_runs()

    def after_in_child(self) -> None:
        """Remember whether gRPC was in use, and then keep what it left: freeing it may crash as using it does."""
        if self.connected or (self._grpc_runs and not _GRPC_HAS_FORK_HANDLERS):
            self.is_poisoned = True
            self._unusable.extend(self.connected)
            gc.freeze()
        self.connected = WeakSet()


_forks = _Forks()


def connected(holder: object) -> None:
    """Note that ``holder`` has gRPC objects from now on.

    Raises:
        ForkError: gRPC cannot work in this process, because it was forked while its parent had connections open.
    """
    if _forks.is_poisoned:
        raise ForkError(
            "this process was forked while a Tidelog client had streams open, an AsyncClient was open at all, or "
            "something else used gRPC: close it before the fork, or start processes with multiprocessing's 'spawn' or "
            "'forkserver'"
        )
    _forks.connected.add(holder)


def disconnected(holder: object) -> None:
    """Note that ``holder`` has no gRPC objects any more."""
    _forks.connected.discard(holder)
    _forks.has_released = True


def pause_around_forks(*, before: Callable[[], None], after_in_child: Callable[[], None]) -> None:
    """Run ``before`` ahead of every fork, and ``after_in_child`` in each child, as long as the process lives."""
    os.register_at_fork(before=before, after_in_child=after_in_child)


# What is registered first runs last before a fork: after all that pauses.
os.register_at_fork(before=_forks.before, after_in_child=_forks.after_in_child)
