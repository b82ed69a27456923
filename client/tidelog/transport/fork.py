"""Detection of forks with open gRPC connections, so that the child gets a ForkError instead of a crash.

gRPC's asyncio interface runs a thread as long as one of its objects exists; a child that is forked meanwhile dies with
a segmentation fault at its first call (grpcio 1.85). Clients that can pause therefore close their connections before a
fork and reopen them afterwards, in the parent and in the child. If something had to stay open, the child gets a
ForkError.

gRPC's threads end shortly after its last object in the process is freed, including the objects of other libraries. A
child that is forked while they run waits forever for connections, so it gets a ForkError as well, unless gRPC has its
fork handlers.

gRPC's own fork handlers support only its synchronous interface, and crash about one child in four when the asynchronous
one is in use. They are disabled, unless grpc was imported before this module or the environment enables them.
"""

import gc
import importlib
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakSet

from tidelog.errors import ForkError

_FORK_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"
_TRUE: Final = ("1", "true", "yes", "on", "y", "t")
_THREADS: Final = Path("/proc/self/task")
"""Has one folder per thread of this process, on Linux; elsewhere gRPC's threads are not detected."""
# The last one frees what the last object has left, and holds the lock under which gRPC starts again.
_GRPC_THREADS: Final = ("event_engine", "grpc_global_tim", "lifeguard", "grpc_shutdown")
# The threads end within milliseconds after the last object is freed, on a busy machine too.
_THREADS_END_WITHIN_S: Final = 0.5
_POLL_S: Final = 0.001


def _import_grpc_without_fork_handlers() -> bool:
    """Import gRPC without its fork handlers. It reads the variable only at import; child programs must not inherit it.

    Returns:
        Whether gRPC has its fork handlers nevertheless.
    """
    wanted = os.environ.get(_FORK_SUPPORT)
    if "grpc" in sys.modules:
        # It was imported earlier, and has the handlers by default.
        return wanted is None or wanted.lower() in _TRUE
    os.environ[_FORK_SUPPORT] = wanted or "0"
    importlib.import_module("grpc")
    if wanted is None:
        del os.environ[_FORK_SUPPORT]
    return wanted is not None and wanted.lower() in _TRUE


_GRPC_HAS_FORK_HANDLERS: Final = _import_grpc_without_fork_handlers()


def _grpc_runs() -> bool:
    """Return whether gRPC has threads in this process."""
    for thread in _THREADS.glob("*/comm"):
        # The thread may have ended since.
        with suppress(OSError):
            if thread.read_text().rstrip() in _GRPC_THREADS:
                return True
    return False


class _Forks:
    """The open connections of this process, and whether it was forked while there were any.

    Attributes:
        connected: The objects that hold gRPC objects now.
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
        """Wait for gRPC's threads to end if something was closed since the last fork, and record whether they run."""
        give_up_s = time.monotonic()
        if self.has_released:
            # gRPC's threads end with the last of its objects, some of which form reference cycles.
            gc.collect()
            give_up_s += _THREADS_END_WITHIN_S
        self.has_released = False
        self._grpc_runs = _grpc_runs()
        has_just_ended = is_waiting = not self.connected and time.monotonic() < give_up_s
        while is_waiting and (self._grpc_runs or has_just_ended):
            # They are not Python threads, so they cannot be joined.
            time.sleep(_POLL_S)
            # Why twice: the last one may just have started another, which has no name yet.
            has_just_ended = self._grpc_runs
            self._grpc_runs = _grpc_runs()
            is_waiting = time.monotonic() < give_up_s

    def after_in_child(self) -> None:
        """Record whether gRPC was in use; if so, never free its objects, because freeing them may crash too."""
        if self.connected or (self._grpc_runs and not _GRPC_HAS_FORK_HANDLERS):
            self.is_poisoned = True
            self._unusable.extend(self.connected)
            gc.freeze()
        self.connected = WeakSet()


_forks = _Forks()


def connected(holder: object) -> None:
    """Record that ``holder`` has gRPC objects from now on.

    Raises:
        ForkError: gRPC cannot work in this process, because it was forked while its parent had connections open.
    """
    if _forks.is_poisoned:
        raise ForkError(
            "this process was forked while a Tidelog client had streams open, an AsyncClient was open, or other code "
            "used gRPC: close it before the fork, or use multiprocessing's start method 'spawn' or 'forkserver'"
        )
    _forks.connected.add(holder)


def disconnected(holder: object) -> None:
    """Record that ``holder`` has no gRPC objects any more."""
    _forks.connected.discard(holder)
    _forks.has_released = True


# The function registered first runs last before a fork: after all clients have paused.
os.register_at_fork(before=_forks.before, after_in_child=_forks.after_in_child)
